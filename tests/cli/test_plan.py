"""``plan`` shows the arithmetic that will run, prints the same as data, and saves what ``launch --plan`` reads."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.cli import layout, plan_text
from rlctl.cli.launch import differences, read_plan, shape
from rlctl.cli.plan_text import estimates_text, ranges, schedule_line
from rlctl.config import config_from
from rlctl.planning.memory.parts import MemoryEstimate, MemoryPart
from rlctl.planning.memory_terms import OWN, WholeLogits
from rlctl.planning.plan import Cluster, SchedulePlan, make_plan, plan_from


def test_the_plan_fits_one_screen_and_shows_its_arithmetic(rlctl: Any, config_file: Path) -> None:
    shown = rlctl("plan", str(config_file), "--cluster", "cpu:2")
    assert shown.code == 0
    assert len(shown.out.splitlines()) <= 24
    assert "8 prompts x 4 responses = 32 responses -> 2 mini-batches of 16" in shown.out
    assert "2 optimizer steps per step" in shown.out
    assert "3 steps" in shown.out
    assert "policy" in shown.out


SPLIT = {
    "rlctl": 1,
    "run": {"name": "split"},
    "model": {"path": "Qwen/Qwen2.5-7B"},
    "rewards": [{"type": "rule"}],
    "placement": {"devices_per_node": 8, "layout": "split", "rollout_devices": 4},
    "rollout": {"engine": {"type": "vllm"}, "parallel": {"tensor_parallel_size": 2}},
    "batch": {"prompts_per_step": 64, "responses_per_prompt": 8, "mini_batch_responses": 256},
}


def drawn(config: dict[str, Any], screen: layout.Screen, **cluster: Any) -> list[str]:
    machines = Cluster(device="cuda", gib_per_device=80, **cluster)
    return list(plan_text.lines(make_plan(config_from(config), cluster=machines), screen))


def test_a_plan_draws_its_devices_by_role() -> None:
    lines = drawn(SPLIT, layout.Screen(), nodes=1, devices_per_node=8)
    assert lines[2:6] == [
        "  GPU      0   1   2   3   4   5   6   7",
        "  policy                   #   #   #   #   fsdp2, 4 replicas",
        "  rollout  [=====] [=====]                 vllm, 2 engines of 2 GPUs",
        "  reward                                   python on the CPU, one process",
    ]
    assert (
        "  batch     64 prompts x 8 responses = 512 responses -> 2 mini-batches of 256 -> 64 on each replica" in lines
    )


def test_of_many_devices_it_draws_the_nodes() -> None:
    many = {**SPLIT, "placement": {"nodes": 4, "devices_per_node": 8}}
    lines = drawn(many, layout.Screen(), nodes=4, devices_per_node=8)
    assert lines[2] == "  node     0   1   2   3"
    assert lines[3] == "  policy   8   8   8   8   fsdp2, 32 replicas"
    assert lines[4].endswith("vllm, 16 engines of 2 GPUs, takes turns with policy")


@pytest.mark.parametrize(("nodes", "told"), [(1, ": 2 CPU workers"), (3, ": 3 nodes x 2 CPU workers")])
def test_nodes_of_cpu_workers_are_counted(nodes: int, told: str) -> None:
    config = {**SPLIT, "placement": {"device": "cpu", "nodes": nodes, "devices_per_node": 2}}
    assert plan_text.machines(make_plan(config_from(config))).endswith(told)


def test_a_plan_fits_its_terminal_and_notes_come_last() -> None:
    lines = drawn(SPLIT, layout.Screen(width=90), nodes=1, devices_per_node=8)
    assert max(map(len, lines)) <= 90
    assert any("█" in line for line in lines)
    assert lines.index("  Notes") > max(number for number, line in enumerate(lines) if " GiB  " in line)


def test_several_stages_share_their_notes(rlctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = {**SPLIT, "stages": [{"name": "one"}, {"name": "two", "batch": {"prompts_per_step": 32}}]}
    lines = drawn(staged, layout.Screen(), nodes=1, devices_per_node=8)
    notes = lines[lines.index("  Notes") + 1 :]
    assert len(notes) == len(set(notes))
    assert not any("stages one, two" in note for note in notes)
    assert sum(line.startswith("Stage ") for line in lines) == 2
    monkeypatch.setenv("RLCTL_LANGUAGE", "zh")
    shown = drawn(staged, layout.Screen(), nodes=1, devices_per_node=8)
    assert any("条回答" in line for line in shown)
    assert not any(" replicas" in line or " steps" in line for line in shown[: shown.index("  说明")])


def test_json_is_the_plan_itself(rlctl: Any, config_file: Path) -> None:
    made = plan_from(json.loads(rlctl("plan", str(config_file), "--cluster", "cpu:2", "--json").out))
    assert made.device == "cpu"
    assert made.stages[0].batch.optimizer_steps_per_step == 2


def test_rows_count_the_steps_of_epochs(rlctl: Any, config_file: Path) -> None:
    override = ["--set", "schedule.total_steps=null", "--set", "schedule.total_epochs=2", "--json"]
    unknown = json.loads(rlctl("plan", str(config_file), *override).out)
    known = json.loads(rlctl("plan", str(config_file), *override, "--rows", "80").out)
    assert unknown["stages"][0]["schedule"]["total_steps"] is None
    assert known["stages"][0]["schedule"]["total_steps"] == 20


def test_a_run_on_a_buffer_ends_when_that_is_dry() -> None:
    lines = [
        schedule_line(SchedulePlan(total, None, 5, until_dry=dry))
        for total, dry in ((None, True), (9, True), (9, False), (None, False))
    ]
    assert [line.split("; ")[0] for line in lines] == [
        "until the buffer is empty",
        "at most 9 steps, or until the buffer is empty",
        "9 steps",
        "number of steps depends on the rows of the training data (rlctl plan --rows N computes it)",
    ]
    drained = {"run": {"mode": "train_only"}, "schedule": {"total_epochs": 3}, "placement": {"device": "cpu"}}
    [stage] = make_plan(config_from({**drained, "model": {"path": "m"}, "rewards": [{"type": "rule"}]})).stages
    assert (stage.schedule.total_steps, stage.schedule.until_dry) == (None, True)


def test_it_is_saved_once_and_overwritten_only_by_force(rlctl: Any, config_file: Path) -> None:
    path = config_file.with_name("plan.json")
    save = ("plan", str(config_file), "--cluster", "cpu:2", "-o", str(path))
    first = rlctl(*save)
    assert (first.code, first.out) == (0, "")
    assert read_plan(path).stages[0].name == "main"
    again = rlctl(*save)
    assert again.code == 1
    assert "--force" in again.err
    assert rlctl(*save, "--force").code == 0


def test_machines_that_are_too_small_are_refused_with_the_arithmetic(rlctl: Any, config_file: Path) -> None:
    shown = rlctl("plan", str(config_file), "--cluster", "1x1")
    assert (shown.code, shown.out) == (1, "")
    assert "1 x 2" in shown.err
    assert "1 x 1" in shown.err


def test_a_saved_plan_differs_where_config_or_machines_do(rlctl: Any, config_file: Path) -> None:
    plans = [
        plan_from(json.loads(rlctl("plan", str(config_file), "--cluster", "cpu:2", "--json", *more).out))
        for more in ([], ["--set", "run.name=other"], ["--set", "batch.prompts_per_step=16"])
    ]
    assert differences(shape(plans[0]), shape(plans[1])) == []
    found = differences(shape(plans[0]), shape(plans[2]))
    assert "stages[0].batch.prompts_per_step: planned 8, is 16" in found


@pytest.mark.parametrize(("numbers", "text"), [((), "CPU"), ((0,), "0"), ((0, 1, 2, 5), "0-2, 5"), ((3, 1, 2), "1-3")])
def test_device_numbers_in_short(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text


def test_what_runs_do_not_honour_is_refused_under_its_key_and_not_saved(rlctl: Any, config_file: Path) -> None:
    saved = config_file.parent / "plan.json"
    shown = rlctl("plan", str(config_file), "--set", "rollout.sampling.num_beams=2", "-o", str(saved))
    assert shown.code == 1
    assert "'rollout.sampling.num_beams'" in shown.err
    assert "not-supported" in shown.err
    assert not saved.exists()


def test_little_memory_is_told_without_parts() -> None:
    """A tiny model's plan said ``rollout 0.0 GiB per device:`` and nothing after it."""
    little = MemoryEstimate("rollout", (MemoryPart("rollout weights", 0.01),))
    assert estimates_text([little]) == ["rollout less than 0.1 GiB per device"]


def test_a_plan_names_the_keys_of_the_file_that_was_read(rlctl: Any, tmp_path: Path) -> None:
    file = tmp_path / "verl.yaml"
    file.write_text(
        "data: {train_files: a.parquet, train_batch_size: 8}\n"
        "actor_rollout_ref:\n"
        "  model: {path: some/model, lora_rank: 8}\n"
        "  ref: {strategy: fsdp2}\n"
        "  actor: {use_kl_loss: true, ppo_mini_batch_size: 8}\n"
        "trainer: {total_training_steps: 8, n_gpus_per_node: 2, logger: [console, clearml]}\n"
    )
    lines = rlctl("plan", str(file), "--from", "verl").out.splitlines()
    notes = "\n".join(lines[lines.index("  Ignored by rlctl launch") :])
    assert "actor_rollout_ref.ref.strategy" in notes
    assert "trainer.logger: " in notes
    assert not re.search(r"(?<!rlctl's )\b(reference\.engine|tracking\[)", notes)
    assert "auto resolves" not in notes
    ours = rlctl("convert", str(file), "--from", "verl", "--to", "rlctl").out
    (tmp_path / "run.yaml").write_text(ours)
    assert "reference.engine" in rlctl("plan", str(tmp_path / "run.yaml")).out


VERL = """python3 -m verl.trainer.main_ppo data.train_files=a.parquet data.val_files=b.parquet algorithm.adv_estimator=grpo \\
    actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.rollout.name=vllm trainer.total_epochs=1 \\
    actor_rollout_ref.actor.use_dynamic_bsz=true actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \\
    actor_rollout_ref.actor.entropy_coeff=0.001 actor_rollout_ref.rollout.n=8
"""


def test_the_plan_is_of_the_framework_that_runs_the_file(rlctl: Any, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(VERL)

    def planned(*options: str) -> tuple[dict[str, Any], float]:
        shown = rlctl("plan", str(tmp_path / "run.sh"), "--cluster", "1x8:H100", "--rows", "9000", "--json", *options)
        made = json.loads(shown.out)
        [stage] = made["stages"]
        parts = stage["memory"][0]["parts"]
        return made, next(part["gib"] for part in parts if part["name"] == "logits")

    (verl, whole), (ours, chunked) = planned(), planned("--runner", "rlctl")
    assert (verl["runner"], ours["runner"]) == ("verl", "rlctl")
    assert whole == pytest.approx(8 * 16384 * 151936 / 2**30)
    assert chunked < whole / 2
    told = [
        any("what verl" in note and "--runner rlctl" in note for note in made["stages"][0]["notes"])
        for made in (verl, ours)
    ]
    assert told == [True, False]
    assert planned("--from", "verl@0.5")[0]["stages"][0]["fit"] != verl["stages"][0]["fit"]  # it fragments


def test_a_note_says_what_the_longest_sequences_need() -> None:
    several = {**SPLIT, "batch": {**SPLIT["batch"], "micro_batch": {"unit": "responses", "size": 16}}}
    assert any(
        "if all are that long, train needs" in line
        for line in drawn(several, layout.Screen(), nodes=1, devices_per_node=8)
    )
    assert not any(
        "if all are that long" in line
        for line in drawn(
            SPLIT | {"batch": {**SPLIT["batch"], "micro_batch": {"unit": "tokens", "size": 4096}}},
            layout.Screen(),
            nodes=1,
            devices_per_node=8,
        )
    )


def test_known_gpus_are_listed(rlctl: Any) -> None:
    shown = rlctl("plan", "--gpus")
    assert shown.code == 0
    names = [line.split()[0] for line in shown.out.splitlines()[1:]]
    assert {"A100", "H20", "B300", "RTX4090", "MI300X", "910B"} <= set(names)
    assert rlctl("plan", "none.yaml", "--cluster", f"1x8:{names[0]}").code != 2


def test_a_plan_saved_for_a_framework_is_what_rlctl_launches() -> None:
    config = config_from({**SPLIT, "placement": {"devices_per_node": 8}})
    cluster = Cluster(1, 8, "cuda", gib_per_device=80)
    terms = replace(OWN, framework="verl", release="0.9", logits=WholeLogits(8, 8, 8, 8))
    saved, fresh = make_plan(config, cluster=cluster, terms=terms), make_plan(config, cluster=cluster)
    assert saved.stages[0].memory != fresh.stages[0].memory
    assert not differences(shape(saved), shape(fresh))


GRPO = [
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct",
    "data.train_files=train.parquet",
    "data.val_files=test.parquet",
    "algorithm.adv_estimator=grpo",
    "data.max_prompt_length=1024",
    "data.max_response_length=1024",
    "data.train_batch_size=1024",
    "actor_rollout_ref.rollout.n=5",
    "actor_rollout_ref.actor.ppo_mini_batch_size=256",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.model.use_remove_padding=true",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.5",
    "trainer.n_gpus_per_node=8",
    "trainer.total_epochs=1",
]


def test_solve_answers_in_keys_of_the_file_that_its_framework_accepts(rlctl: Any) -> None:
    key = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
    asked = ("plan", *GRPO, "--from", "verl@0.9", "--cluster", "1x8:H100")
    found = json.loads(rlctl(*asked, "--solve", "micro-batch", "--json").out)
    [solution] = found["solutions"]
    best = solution["settings"][key]
    assert (found["runner"], list(solution["settings"])) == ("verl", [key])
    assert best > 4
    assert (256 * 5 // 8) % best == 0  # verl refuses a micro-batch that does not divide
    applied = json.loads(rlctl(*asked[:-4], f"{key}={best}", *asked[-4:], "--json").out)
    train = next(each for each in applied["stages"][0]["fit"]["phases"] if each["phase"] == solution["phase"])
    assert sum(part["gib"] for part in train["parts"]) <= 0.95 * 80
    shown = rlctl(*asked, "--solve", "micro-batch")
    assert f"set {key} to {best}" in shown.out
    assert "limit" in shown.out


def test_several_quantities_give_a_table_with_a_column_a_key(rlctl: Any) -> None:
    shown = rlctl("plan", *GRPO, "--from", "verl@0.9", "--cluster", "1x8:H100", "--solve=tokens", "--solve=gpus")
    heads, *rows = shown.out.splitlines()[1:]
    assert "actor_rollout_ref.actor.ppo_max_token_len_per_gpu" in heads
    assert "trainer.n_gpus_per_node" in heads
    assert len(rows) > 1
    assert "grows most" in shown.out


def test_solve_needs_gpus_and_says_if_nothing_fits(rlctl: Any) -> None:
    unknown = rlctl("plan", *GRPO, "--from", "verl@0.9", "--solve", "micro-batch")
    assert (unknown.code, unknown.out) == (1, "")
    assert "--cluster 1x8:H100" in unknown.err
    small = rlctl("plan", *GRPO, "--from", "verl@0.9", "--cluster", "1x8:cuda:16GiB", "--solve", "micro-batch")
    assert small.code == 1
    assert "No value fits" in small.err


def test_lengths_are_a_pair_a_file_or_a_run(rlctl: Any, tmp_path: Path) -> None:
    asked = ("plan", *GRPO, "--from", "verl@0.9", "--cluster", "1x8:H100", "--json")

    def mean(*lengths: str) -> float:
        found: float = json.loads(rlctl(*asked, *lengths).out)["stages"][0]["cost"]["mean_tokens"]
        return found

    (tmp_path / "lengths.json").write_text("[100, 200, 300]")
    (tmp_path / "counts.json").write_text('{"100": 3, "700": 1}')
    step = {"response/length_p50": 90, "response/length_p99": 400, "response/length_max": 500}
    (tmp_path / "events.jsonl").write_text(json.dumps({"kind": "step", "step": 1, "metrics": step}) + "\n")
    assert mean() == pytest.approx(512, rel=0.01)
    assert mean("--lengths", str(tmp_path / "lengths.json")) == pytest.approx(200, rel=0.05)
    assert mean("--lengths", str(tmp_path / "counts.json")) == pytest.approx(250, rel=0.05)
    assert 90 < mean("--lengths", str(tmp_path)) < 200
    assert 700 < mean("--lengths", "p50=800,p90=1000") < 900
    for wrong in ("p50=1200", "p50=1200,p99=800", "p50=1,p99=2,p10=1", "nowhere.json"):
        shown = rlctl(*asked, "--lengths", wrong)
        assert (shown.code, shown.out) == (2, ""), wrong
        assert "p50=1200,p99=8000" in shown.err
    (tmp_path / "empty.json").write_text("[]")
    assert "has no lengths" in rlctl(*asked, "--lengths", str(tmp_path / "empty.json")).err
    (tmp_path / "events.jsonl").write_text("")
    assert "has no steps" in rlctl(*asked, "--lengths", str(tmp_path)).err


def test_the_shape_of_an_unknown_model_is_given(rlctl: Any, tmp_path: Path) -> None:
    asked = ("plan", *(each.replace("Qwen/Qwen2.5-7B-Instruct", "my/own") for each in GRPO), "--from", "verl@0.9")
    unknown = rlctl(*asked)
    assert "--model-shape config.json" in unknown.out
    shape = {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28}
    sizes = {"num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False}
    file = tmp_path / "shape.json"
    file.write_text(json.dumps({**shape, **sizes}))
    known = json.loads(rlctl("plan", *GRPO, "--from", "verl@0.9", "--json").out)["stages"][0]["memory"]
    given = json.loads(rlctl(*asked, "--model-shape", str(file), "--json").out)["stages"][0]["memory"]
    assert given == known
    assert "--model-shape config.json" in rlctl(*asked).out  # it is known in that command only
    file.write_text("[]")
    shown = rlctl(*asked, "--model-shape", str(file))
    assert (shown.code, shown.out) == (2, "")
    assert "is not the config.json" in shown.err
    file.write_text('{"model_type": "martian"}')
    assert "martian" in rlctl(*asked, "--model-shape", str(file)).err
