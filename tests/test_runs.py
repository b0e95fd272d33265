"""A run folder alone tells what became of its run, also of one whose process or machine is gone; launching again never mixes runs."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl import runs
from rlctl.common.errors import RunError
from rlctl.common.secrets import redacted
from rlctl.config import Config, Loaded, config_from, load, revealed, to_plain
from rlctl.documents import read_yaml
from rlctl.runs import folder as run_folder
from rlctl.runs import starting
from rlctl.runs.record import ALIVE_FOR_SECONDS


def began(pid: int) -> float:
    """When a process began, in the clock ticks of /proc, as run.json holds it."""
    return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def write_run(folder: Path, config: Config, **record: Any) -> Path:
    """A run folder as a run in this process would have it."""
    run_folder.make_folder(folder)
    run_folder.write_folder(folder, Loaded(config), runs.prepare(Loaded(config)))
    known = {"name": folder.name, "status": "running", "pid": os.getpid(), "host": socket.gethostname()}
    times = {"started": time.time(), "process_began": began(os.getpid())}
    (folder / "run.json").write_text(json.dumps({**known, **times, **record}))
    return folder


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_from(
        {
            "run": {"name": "demo", "folder": str(tmp_path)},
            "model": {"path": "/models/tiny"},
            "data": {"train": [{"path": "train.parquet"}]},
            "batch": {"prompts_per_step": 4, "responses_per_prompt": 2},
            "placement": {"devices_per_node": 1, "device": "cpu"},
            "rewards": [{"type": "function", "path": "reward.py"}],
        }
    )


@pytest.fixture
def folder(tmp_path: Path, config: Config) -> Path:
    return write_run(tmp_path / "demo", config)


def start(config: Config) -> None:
    loaded = Loaded(config)
    runs.start(loaded, plan=runs.prepare(loaded), observer=lambda event: None)


def test_a_run_whose_process_is_there_is_running(folder: Path, config: Config) -> None:
    assert runs.inspect(folder).status == "running"
    with pytest.raises(RunError, match=f"run demo is running \\(process {os.getpid()} on "):
        start(config)
    with pytest.raises(RunError, match="is running"):
        runs.remove(runs.inspect(folder))


def test_a_run_whose_process_is_gone_is_interrupted(tmp_path: Path, config: Config) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    folder = write_run(tmp_path / "demo", config, pid=child.pid, process_began=1.0)
    assert runs.inspect(folder).status == "interrupted"


def test_a_run_that_told_its_end_and_left_no_record_of_it_ended_so(tmp_path: Path, config: Config) -> None:
    folder = write_run(tmp_path / "demo", config, pid=1, process_began=1.0)
    ended = {"time": time.time(), "kind": "run_ended", "status": "failed", "cause": "Ray's head died"}
    before = {**ended, "time": 1.0, "cause": "of an earlier attempt"}
    for told, expected in ((before, ("interrupted", "")), (ended, ("failed", "Ray's head died"))):
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(told) + "\n")
        info = runs.inspect(folder)
        assert (info.status, info.cause) == expected
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"time": time.time(), "kind": "run_started"}) + "\n")
    assert runs.inspect(folder).status == "interrupted"


def test_another_process_with_the_same_number_is_not_the_run(tmp_path: Path, config: Config) -> None:
    folder = write_run(tmp_path / "demo", config, process_began=began(os.getpid()) - 1)
    assert runs.inspect(folder).status == "interrupted"


def test_a_run_on_another_machine_is_running_while_it_says_so(tmp_path: Path, config: Config) -> None:
    folder = write_run(tmp_path / "demo", config, host="elsewhere", process_began=1.0)
    assert runs.inspect(folder).status == "interrupted"
    with starting.seen_alive(folder):
        time.sleep(0.2)
    assert runs.inspect(folder).status == "running"
    long_ago = time.time() - ALIVE_FOR_SECONDS - 1
    os.utime(folder / "alive", (long_ago, long_ago))
    assert runs.inspect(folder).status == "interrupted"


def test_a_resumed_run_counts_from_its_first_start(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends_at_once(*args: Any, **more: Any) -> None:
        time.sleep(0.05)
        raise RunError("no GPUs")

    monkeypatch.setattr("rlctl.runtime.launch.launch", ends_at_once)
    start_of_all = time.time() - 5000
    folder = write_run(tmp_path / "demo", config, status="stopped", started=start_of_all, ended=start_of_all + 100)
    assert runs.inspect(folder).resumed is None
    for session in (1, 2):
        with pytest.raises(RunError, match="no GPUs"):
            runs.resume(runs.inspect(folder), observer=lambda event: None)
        info = runs.inspect(folder)
        assert info.started.timestamp() == pytest.approx(start_of_all)
        assert info.resumed is not None
        assert time.time() - info.resumed.timestamp() < 60
        assert 100 + session * 0.05 <= info.seconds < 160, "without the time in which it stood"


def test_two_processes_never_run_in_one_folder(tmp_path: Path, config: Config) -> None:
    folder = write_run(tmp_path / "demo", config, status="stopped")
    with (folder / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for go in (lambda: start(config), lambda: runs.resume(runs.inspect(folder), observer=lambda event: None)):
            with pytest.raises(RunError, match="another process has locked"):
                go()


def test_another_config_is_refused_with_its_differences_and_without_its_secrets(tmp_path: Path, config: Config) -> None:
    write_run(tmp_path / "demo", config, status="stopped")
    schedule = replace(config.schedule, total_steps=7)
    tracking = config_from({"tracking": [{"type": "wandb", "api_key": "abc-secret"}]}).tracking
    with pytest.raises(RunError) as refused:
        start(replace(config, schedule=schedule, tracking=tracking))
    assert "schedule.total_steps: None -> 7" in refused.value.message
    assert all(way in refused.value.hint for way in (f"runs resume {tmp_path / 'demo'}", "--new", "resume_path"))
    assert "abc-secret" not in str(refused.value)
    assert runs.differences(config, replace(config, run=replace(config.run, time_limit=3.0, on_end="true"))) == []


def test_a_new_run_takes_the_next_free_name(tmp_path: Path, config: Config) -> None:
    for name in ("demo", "demo-2"):
        write_run(tmp_path / name, config, status="finished")
    assert starting._renamed(Loaded(config)).config.run.name == "demo-3"


def test_literal_secrets_become_names_of_variables(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = config_from(
        {
            "tracking": [{"type": "wandb", "api_key": "abc-secret"}],
            "runtime": {"env_vars": {"JUDGE_TOKEN": "abc-secret", "LEVEL": "3"}},
        }
    )
    folder = write_run(tmp_path / "demo", replace(config, tracking=more.tracking, runtime=more.runtime))
    assert "abc-secret" not in (folder / "config.yaml").read_text()
    with pytest.raises(RunError, match="JUDGE_TOKEN"):
        runs.read_config(folder)
    monkeypatch.setenv("JUDGE_TOKEN", "again")
    monkeypatch.setenv("RLCTL_TRACKING_0_API_KEY", "key")
    assert runs.read_config(folder).runtime.env_vars["JUDGE_TOKEN"] == "${oc.env:JUDGE_TOKEN}"
    read = revealed(runs.read_config(folder))
    assert read.runtime.env_vars == {"JUDGE_TOKEN": "again", "LEVEL": "3"}
    assert read.tracking[0].api_key == "key"  # type: ignore[attr-defined]


def test_secrets_in_free_mappings_and_in_stages_are_no_less_secret(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "abc-secret")
    for name in ("RLCTL_REWARDS_0_ARGS_OPENAI_API_KEY", "RLCTL_STAGES_0_ROLLOUT_ENGINE_ARGS_HF_TOKEN"):
        monkeypatch.setenv(name, "abc-secret")
    plain = {
        "model": {"path": "/models/tiny"},
        "placement": {"device": "cpu"},
        "rewards": [
            {"type": "function", "path": "a.py", "args": {"openai_api_key": "abc-secret", "end_token": "</s>"}}
        ],
        "stages": [
            {
                "name": "grpo",
                "rollout": {"engine": {"type": "vllm", "args": {"hf_token": "abc-secret"}}},
                "runtime": {"env_vars": {"HF_TOKEN": "abc-secret"}},
            }
        ],
    }
    made = replace(config_from(plain), run=config.run)
    folder = write_run(tmp_path / "demo", made, status="stopped")
    assert "abc-secret" not in (folder / "config.yaml").read_text()
    assert revealed(runs.read_config(folder)) == made
    other = json.loads(json.dumps(plain).replace("abc-secret", "other-secret"))
    assert runs.differences(made, replace(config_from(other), run=config.run)) == []


def test_a_password_in_a_url_becomes_the_name_of_a_variable(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://me:abc-secret@host/name"
    more = config_from({"buffer": {"type": "sql", "url": url}})
    folder = write_run(tmp_path / "demo", replace(config, buffer=more.buffer))
    assert "abc-secret" not in (folder / "config.yaml").read_text()
    with pytest.raises(RunError, match="RLCTL_BUFFER_URL"):
        runs.read_config(folder)
    monkeypatch.setenv("RLCTL_BUFFER_URL", url)
    assert revealed(runs.read_config(folder)).buffer == more.buffer


@pytest.mark.parametrize("mode", ["full", "rollout_only", "evaluate_only"])
@pytest.mark.parametrize(
    "buffer",
    [
        {"type": "sql", "url": "sqlite:////shared/other.db", "capacity": 64},
        {"type": "file", "path": "/shared/other.jsonl", "capacity": 64},
        {"type": "memory", "log_path": "/shared/other.jsonl", "capacity": 64},
    ],
    ids=lambda buffer: buffer["type"],
)
def test_what_is_tried_writes_nothing_anywhere_else(tmp_path: Path, buffer: dict[str, Any], mode: str) -> None:
    """Least of all over the responses of an earlier run, or into the buffer that another one trains on."""
    whole = {
        "run": {"mode": mode, "skip": {"rollout": "dump", "folder": "/shared/dump"}},
        "rollout": {"responses_folder": "/shared/responses.parquet", "evaluation_folder": "/shared/evaluated"},
        "buffer": buffer,
        "checkpoint": {"remote": "s3://shared/checkpoints", "every": 1},
        "profiling": {"tool": "timeline", "steps": [1], "folder": "/shared/traces", "ray_timeline": "/shared/ray.json"},
        "runtime": {"log_folder": "/shared/logs"},
        "tracking": [{"type": "tensorboard", "folder": "/shared/tensorboard"}],
    }
    small = starting._small(config_from(whole), 2, 1, tmp_path)
    kept = json.dumps(to_plain(small))
    assert "/shared" not in kept.replace('"folder": "/shared/dump"', "")
    assert (small.run.skip.rollout, small.buffer.capacity) == ("off", 64)
    assert small.run.mode == mode


def test_trying_takes_nothing_out_of_a_buffer() -> None:
    loaded = Loaded(config_from({"run": {"mode": "train_only"}, "buffer": {"type": "sql", "url": "sqlite:////x.db"}}))
    with pytest.raises(RunError, match="would consume responses from its buffer"):
        runs.try_out(loaded, runs.prepare(Loaded(config_from({"placement": {"device": "cpu"}}))), prompts=2)


def test_sources_are_kept_without_their_secrets(tmp_path: Path, config: Config) -> None:
    source = tmp_path / "verl.sh"
    source.write_text("export WANDB_API_KEY=abc-secret\npython -m verl.trainer.main_ppo trainer.token='abc-secret'\n")
    folder = tmp_path / "demo"
    run_folder.make_folder(folder)
    run_folder.write_folder(folder, Loaded(config, files=(str(source),)), runs.prepare(Loaded(config)))
    kept = (folder / "source.sh").read_text()
    assert "abc-secret" not in kept
    assert "verl.trainer.main_ppo" in kept


def test_what_came_from_the_environment_is_kept_as_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "abc-secret")
    text = "rlctl: 1\nmodel: {path: /models/tiny}\ntracking: [{type: wandb, api_key: '${oc.env:MY_KEY}'}]\n"
    loaded, _ = load(read_yaml(text, "run.yaml"))
    assert loaded is not None
    run_folder.make_folder(tmp_path / "demo")
    run_folder.write_folder(
        tmp_path / "demo", loaded, runs.prepare(Loaded(config_from({"placement": {"device": "cpu"}})))
    )
    written = (tmp_path / "demo" / "config.yaml").read_text()
    assert "${oc.env:MY_KEY}" in written
    assert runs.read_config(tmp_path / "demo") == loaded.config


def test_one_damaged_run_does_not_hide_the_others(tmp_path: Path, config: Config) -> None:
    write_run(tmp_path / "good", config, status="stopped")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("")
    listed = {info.name: info for info in runs.list_runs(tmp_path)}
    assert {name: info.status for name, info in listed.items()} == {"good": "stopped", "bad": "interrupted"}
    assert "is damaged" in listed["bad"].cause
    with pytest.raises(RunError, match="did you mean 'good'"):
        runs.find("goood", tmp_path)


RECORD = '{"name": "r", "status": "finished", "pid": 0, "host": "h", "started": 1.0, "ended": 2.0}'


@pytest.mark.parametrize("name", ["run.json", "events.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_file_of_a_run_that_is_no_regular_file_is_refused_and_never_waited_for(
    name: str, kind: str, tmp_path: Path
) -> None:
    write_record = tmp_path / "run" / "run.json"
    write_record.parent.mkdir()
    write_record.write_text(RECORD)
    path = write_record.parent / name
    path.unlink(missing_ok=True)
    {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](path)
    (listed,) = runs.list_runs(tmp_path)
    assert "not a regular file" in listed.cause
    with pytest.raises(RunError, match="not a regular file"):
        runs.inspect(path.parent)
    with pytest.raises(RunError, match="not a regular file"):
        list(runs.events(replace(listed, folder=path.parent))) if name == "events.jsonl" else runs.find("run", tmp_path)


def test_json_that_is_nested_too_deep_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(RECORD)
    (tmp_path / "events.jsonl").write_text('{"kind": "step", "step": 3}\n' + '{"a":' * 5000 + "1" + "}" * 5000 + "\n")
    info = runs.inspect(tmp_path)
    assert info.step == 3
    assert [event["kind"] for event in runs.events(info)] == ["step"]
    (tmp_path / "run.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(RunError, match="nested too deep"):
        runs.inspect(tmp_path)


def test_a_line_too_long_to_be_an_event_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlctl.runs.inspection.LONGEST_LINE", 1 << 18)
    (tmp_path / "run.json").write_text(RECORD)
    steps = ['{"kind": "step", "step": 3}', "x" * (1 << 20), '{"kind": "saved", "step": 3}']
    (tmp_path / "events.jsonl").write_text("\n".join(steps) + "\n")
    info = runs.inspect(tmp_path)
    assert info.step == 3
    for follow in (False, True):
        assert [event["kind"] for event in runs.events(info, follow=follow)] == ["step", "saved"]


def test_following_tells_every_event_to_the_last_whole_line(folder: Path, config: Config) -> None:
    """Lines that are written in two halves are told once; the last ones, written as the run ends, are not lost."""
    path = folder / "events.jsonl"

    def write() -> None:
        time.sleep(0.1)
        with path.open("a") as file:
            for step in range(1, 4):
                for half in ('{"kind": "step", "st', f'ep": {step}, "text": "\u00e9"}}\n'):
                    file.write(half)
                    file.flush()
                    time.sleep(0.05)
            file.write("not json\n")
            write_run(folder, config, status="finished")
            file.write('{"kind": "run_ended"}\n{"kind": "cut o')

    writer = threading.Thread(target=write)
    writer.start()
    told = list(runs.events(runs.inspect(folder), follow=True, every=0.02))
    writer.join()
    steps = [event["step"] for event in told if event["kind"] == "step"]
    assert steps == [1, 2, 3]
    assert {event["kind"] for event in runs.events(runs.inspect(folder))} == {"step", "run_ended"}


def test_stopping_leaves_a_request_that_only_a_running_run_takes(folder: Path, tmp_path: Path, config: Config) -> None:
    runs.stop(runs.inspect(folder))
    assert (folder / "stop").exists()
    over = write_run(tmp_path / "over", config, status="finished")
    with pytest.raises(RunError, match="not running; it is finished"):
        runs.stop(runs.inspect(over))
    elsewhere = write_run(tmp_path / "elsewhere", config, host="elsewhere")
    (elsewhere / "alive").touch()
    with pytest.raises(RunError, match="runs on elsewhere"):
        runs.stop(runs.inspect(elsewhere), now=True)


def test_a_signal_goes_to_the_process_of_the_run_only_as_it_is_when_it_is_sent(folder: Path, config: Config) -> None:
    """A run that was looked at may have ended since, and its number may be another process's."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        write_run(folder, config, pid=process.pid, process_began=began(process.pid))
        seen = runs.inspect(folder)
        write_run(folder, config, pid=process.pid, process_began=began(process.pid) - 100)
        with pytest.raises(RunError, match="not running; it is interrupted"):
            runs.stop(seen, now=True)
        write_run(folder, config, pid=process.pid, process_began=began(process.pid), status="finished")
        with pytest.raises(RunError, match="not running; it is finished"):
            runs.stop(seen, now=True)
        time.sleep(0.1)
        assert process.poll() is None


def test_what_is_saved_of_a_run_of_several_stages_is_told(tmp_path: Path, config: Config) -> None:
    from rlctl.cli.summary import next_steps

    raw: dict[str, Any] = {"rlctl": 1, "run": {"name": "two"}, "model": {"path": "/m"}, "placement": {"device": "cpu"}}
    raw |= {"data": {"train": [{"path": "x.parquet"}]}, "rewards": [{"type": "rule", "rule": "gsm8k"}]}
    stages = [{"name": "warmup"}, {"name": "grpo"}]
    folder = write_run(tmp_path / "two", config, status="interrupted")
    (folder / "config.yaml").write_text(json.dumps({**raw, "stages": stages}))
    places = [folder / "checkpoints" / name for name in ("warmup", "grpo")]
    said = []
    for place in places:
        said.append(next_steps("interrupted", folder)[1].partition(":")[2].strip())
        step = place / "step-000004"
        step.mkdir(parents=True)
        size = (step / "controller.json").write_text('{"step": 4, "progress": {}, "data": {}}')
        (step / "manifest.json").write_text(json.dumps({"controller.json": size}))
        said.append(next_steps("interrupted", folder)[1].partition(":")[2].strip())
        (place / "finished.json").write_text("{}")
    said.append(next_steps("interrupted", folder)[1].partition(":")[2].strip())
    assert said == [
        "nothing yet; a resumed run starts from the beginning",
        f"step 4 of warmup: {places[0]}/step-000004",
        "stage warmup finished, no step of grpo yet; a resumed run starts grpo",
        f"stage warmup finished, step 4 of grpo: {places[1]}/step-000004",
        "stages warmup, grpo finished",
    ]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("export WANDB_API_KEY=s3cret-value", "export WANDB_API_KEY=<redacted>"),
        ('A=1 HF_TOKEN="s3cret value" B=2', "A=1 HF_TOKEN=<redacted> B=2"),
        ("K=${API_KEY:-s3cret}", "K=${API_KEY:-<redacted>}"),
        (
            "python -m m x.api_key=s3cret +y.token='s3cret' a=1",
            "python -m m x.api_key=<redacted> +y.token=<redacted> a=1",
        ),
        ("wandb login --relogin s3cret; x", "wandb login <redacted>; x"),
        ("hf download --token s3cret m", "hf download --token <redacted> m"),
        ("monitor: {api_key: s3cret, n: 1}", "monitor: {api_key: <redacted>, n: 1}"),
        ("password: 's3 cret'  # why", "password: <redacted>  # why"),
        ("url: postgresql://me:s3cret@host/x", "url: postgresql://me:<redacted>@host/x"),
        ("url: postgresql://me:${oc.env:PW}@host/x", "url: postgresql://me:${oc.env:PW}@host/x"),
        ("max_prompt_tokens: 512", "max_prompt_tokens: 512"),
        ("ppo_max_token_len_per_gpu=24576 pad_token=x", "ppo_max_token_len_per_gpu=24576 pad_token=x"),
        ("api_key: ${oc.env:KEY}\nx.token=$TOKEN", "api_key: ${oc.env:KEY}\nx.token=$TOKEN"),
    ],
)
def test_the_source_kept_in_a_run_folder_has_no_secrets(text: str, kept: str) -> None:
    assert redacted(text) == kept


def test_a_job_server_is_no_cluster_that_a_process_joins(config: Config) -> None:
    """``try`` and ``eval`` run here; only ``launch`` submits."""
    ray = replace(config.runtime.ray, address="http://head:8265")
    elsewhere = replace(config, runtime=replace(config.runtime, ray=ray))
    with pytest.raises(RunError, match="not an address that a run can join from here"):
        runs.prepare(Loaded(elsewhere))


def test_where_and_how_a_run_is_shown_may_change_between_its_launches(config: Config) -> None:
    ray = replace(config.runtime.ray, address="auto")
    changed = replace(config.runtime, ray=ray, log_every=5, logs_by_node=True, log_folder="/logs", log_level="error")
    assert runs.differences(config, replace(config, runtime=changed)) == []
    assert runs.differences(config, replace(config, runtime=replace(changed, plugins=("p",)))) != []


def test_progress_is_read_from_the_end_of_a_long_log(tmp_path: Path) -> None:
    from rlctl.runs.inspection import BLOCK

    record = {"name": "r", "status": "finished", "pid": 0, "host": "h", "started": 1.0, "ended": 2.0}
    (tmp_path / "run.json").write_text(json.dumps(record))
    lines = [
        json.dumps({"time": float(step), "kind": "step", "stage": "s", "step": step, "total_steps": 9000})
        for step in range(3000)
    ]
    long = json.dumps({"time": 5000.0, "kind": "samples", "text": "x" * 3 * BLOCK})
    (tmp_path / "events.jsonl").write_text("\n".join([*lines, long]) + '\n{"time": 1, "ki')
    info = runs.inspect(tmp_path)
    assert (info.stage, info.step, info.total_steps) == ("s", 2999, 9000)
