"""``rlctl quickstart`` does what it says, with nothing but rlctl: makes, converts, trains and tells; here with a few steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rlctl.cli.quickstart import _ended
from rlctl.runtime.quickstart import carries, split_problems
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    place = tmp_path_factory.mktemp("quickstart")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
    }
    command = [sys.executable, "-m", "rlctl", "quickstart", "--folder", "demo", "--fast"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=900, check=False)
    return place / "demo", done


def test_it_ends_well_and_shows_the_commands_it_runs(told: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = told
    assert done.returncode == 0, done.stderr[-3000:]
    assert "$ rlctl convert demo/sft.yaml demo/grpo.yaml --to trinity" in done.stderr
    assert "$ rlctl launch demo/sft.yaml demo/grpo.yaml" in done.stderr


def test_the_converted_file_has_two_stages_and_every_key_is_accounted_for(
    told: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = told
    text = (folder / "trinity.yaml").read_text()
    assert [line.strip() for line in text.splitlines() if "stage_name" in line] == [
        "- stage_name: sft",
        "- stage_name: grpo",
    ]
    headline = next(line for line in done.stderr.splitlines() if "-> Trinity-RFT" in line)
    assert "converted" in headline
    assert "unknown" not in headline


def test_the_run_has_a_baseline_and_both_stages(told: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = told
    run = folder / "runs" / "addition"
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["stage"] for event in events if event["kind"] == "stage_ended"] == ["baseline", "sft", "grpo"]
    assert events[-1]["status"] == "finished"
    assert (run / "checkpoints" / "grpo" / "hf" / "model.safetensors").exists()


def test_held_out_problems_are_not_trained_on_either_way_round() -> None:
    train, held_out = split_problems(1)
    assert not set(train) & {*held_out, *((b, a) for a, b in held_out)}
    assert len(held_out) == 256
    assert 0.5 < sum(map(carries, held_out)) / len(held_out) < 0.75


def test_a_command_of_it_ends_by_a_signal_in_its_own_time() -> None:
    """Ctrl-C reaches the command from the terminal; what is sent to the quickstart alone is passed on."""
    ends = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", ends], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    before = signal.getsignal(signal.SIGTERM)

    def send() -> None:
        until(lambda: signal.getsignal(signal.SIGTERM) is not before, "signals are not taken")
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send).start()
    assert _ended(process) == 3
    process.stdout.close()
