"""A value of a type or size that nothing can use is an error at its key and line: never a traceback, never a hang."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import rlctl
from rlctl.adapters.engine.rules import Key
from rlctl.common.errors import DocumentError
from rlctl.common.report import Report
from rlctl.translation.translate import read

MODEL = "actor_rollout_ref:\n  model: {path: m}\n"
ROLL = "exp_name: x\npretrain: m\nrewards:\n  math:\n    worker_cls: roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker\n"


def _report(folder: Path, dialect: str, text: str) -> Report:
    file = folder / "config.yaml"
    file.write_text(text)
    return read(file, dialect=dialect)[1]


@pytest.mark.parametrize(
    ("dialect", "text", "said"),
    [
        ("verl", f"{MODEL}  rollout: {{log_prob_micro_batch_size: 'on'}}\n", "is 'on' (a string); expected an integer"),
        ("roll", f"{ROLL}use_kl_loss: true\nkl_loss_coef: high\n", "is 'high' (a string); expected a number"),
        ("roll", f"{ROLL}    tag_included: 1000\n", "holds 1000; expected a list of tags"),
        ("roll", f"{ROLL}    tag_included: math\n", "holds 'math'; expected a list of tags"),
        ("trinity", "synchronizer: {sync_interval: often}\n", "is 'often'; expected an integer"),
        ("trinity", "model: {model_path: m}\nalgorithm: {kl_loss_fn: [k2]}\n", "is ['k2'] (a list); expected a string"),
        ("trinity", "model: {model_path: [m]}\n", "is ['m'] (a list); it must be a string"),
    ],
)
def test_the_kind_of_value_that_a_key_takes_is_told(tmp_path: Path, dialect: str, text: str, said: str) -> None:
    messages = [str(error.message) for error in _report(tmp_path, dialect, text).errors]
    assert any(said in message for message in messages), messages


@pytest.mark.parametrize(
    ("dialect", "text", "key", "line"),
    [
        ("verl", f"{MODEL}trainer:\n  nnodes: 99999999999999999999\n", "trainer.nnodes", 4),
        ("verl", f"{MODEL}trainer:\n  nnodes: 200000000\n", "trainer.nnodes", 4),
        ("verl", f"{MODEL}trainer:\n  nnodes: 50000\n  n_gpus_per_node: 50000\n", "trainer.nnodes", 4),
        (
            "verl",
            f"{MODEL}  actor:\n    use_kl_loss: true\n    kl_loss_coef: {'9' * 400}\n",
            "actor_rollout_ref.actor.kl_loss_coef",
            5,
        ),
        (
            "verl",
            f"{MODEL}  rollout:\n    log_prob_micro_batch_size: 'on'\n",
            "actor_rollout_ref.rollout.log_prob_micro_batch_size",
            4,
        ),
        (
            "verl",
            f"{MODEL}  ref:\n    log_prob_micro_batch_size: [1, [2]]\n",
            "actor_rollout_ref.ref.log_prob_micro_batch_size",
            4,
        ),
        (
            "verl",
            f"{MODEL}  actor:\n    strategy: megatron\n    megatron:\n      expert_tensor_parallel_size: 99999999999\n",
            "actor_rollout_ref.actor.megatron.expert_tensor_parallel_size",
            6,
        ),
        ("trinity", "mode: both\nalgorithm:\n  algorithm_type: []\n", "algorithm.algorithm_type", 3),
        (
            "trinity",
            "mode: both\nalgorithm:\n  algorithm_type: grpo\n  repeat_times: many\n",
            "algorithm.repeat_times",
            4,
        ),
        ("roll", f"{ROLL}    tag_included: 1000\n", "rewards.math.tag_included", 6),
        (
            "roll",
            "exp_name: x\npretrain: m\nvalidation:\n  data_args:\n    file_name:\n      - ${gone.away}\n",
            "validation.data_args.file_name[0]",
            6,
        ),
    ],
)
def test_an_impossible_value_is_an_error_at_its_key_and_line(
    tmp_path: Path, dialect: str, text: str, key: str, line: int
) -> None:
    found = _report(tmp_path, dialect, text).errors
    errors = [(finding.key, finding.at.line if finding.at else None) for finding in found]
    assert errors == [(key, line)]


BASES = {"verl": MODEL, "trinity": "mode: both\nalgorithm: {algorithm_type: grpo}\n", "roll": ROLL}


@pytest.mark.parametrize("bad", ["many", [7], {"inner": 1}], ids=["text", "a list", "a mapping"])
@pytest.mark.parametrize(
    ("dialect", "key"),
    [
        ("verl", "trainer.save_freq"),
        ("verl", "actor_rollout_ref.actor.ppo_mini_batch_size"),
        ("verl", "critic.ppo_mini_batch_size"),
        ("verl", "actor_rollout_ref.model.lora_rank"),
        ("trinity", "cluster.node_num"),
        ("trinity", "trainer.save_interval"),
        ("roll", "actor_train.training_args.per_device_train_batch_size"),
        ("roll", "actor_train.training_args.gradient_accumulation_steps"),
        ("roll", "prompt_length"),
    ],
)
def test_no_number_where_one_is_needed_is_not_read_as_the_default(
    tmp_path: Path, dialect: str, key: str, bad: object
) -> None:
    """Rules that compute with a number fall back to its default; the file would be read as one that says something else."""
    text = YAML(typ="safe").load(BASES[dialect])
    inner = text
    for part in key.split(".")[:-1]:
        inner = inner.setdefault(part, {})
    inner[key.split(".")[-1]] = bad
    found = _report(tmp_path, dialect, json.dumps(text)).errors
    assert [finding.key for finding in found] == [key]
    assert "expected an integer" in found[0].message


def test_two_bad_values_of_one_rule_are_blamed_on_the_first(tmp_path: Path) -> None:
    text = "mode: both\nalgorithm: {algorithm_type: grpo, repeat_times: 1e3}\nbuffer: {batch_size: 2.5}\n"
    assert "buffer.batch_size" in {finding.key for finding in _report(tmp_path, "trinity", text).errors}


def test_a_name_that_no_file_can_have_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="there is no file x"):
        _report(tmp_path, "roll", f"{ROLL}defaults: [{'x' * 300}]\n")


def test_a_threshold_of_verl_may_be_two_numbers(tmp_path: Path) -> None:
    text = f"{MODEL}algorithm:\n  rollout_correction:\n    rollout_is: token\n    rollout_is_threshold: 0.5_2.0\n"
    assert not _report(tmp_path, "verl", text).errors


def test_a_defect_of_a_rule_is_not_blamed_on_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise TypeError("a defect")

    monkeypatch.setattr(Key, "read", broken)
    with pytest.raises(TypeError, match="a defect"):
        _report(tmp_path, "verl", MODEL)


def test_a_kept_value_that_refers_to_another_key_is_read_back(tmp_path: Path) -> None:
    text = f"{ROLL}\n# rlctl: kept so that converting back restores it; do not edit\n# rlctl:\n#   checkpoint.folder: out/${{run.name}}\n# rlctl: end\n"
    file = tmp_path / "roll.yaml"
    file.write_text(text)
    loaded, report = read(file, dialect="roll")
    assert not report.errors
    assert loaded is not None
    assert loaded.config.checkpoint.folder == "out/x"
    assert rlctl.convert(file, "verl", dialect="roll").text is not None


def test_a_kept_value_of_an_option_that_is_no_longer_chosen_is_named(tmp_path: Path) -> None:
    kept = "# rlctl: kept so that converting back restores it; do not edit\n# rlctl:\n#   train.engine.moe.freeze_router: true\n# rlctl: end\n"
    report = _report(
        tmp_path, "roll", f"{ROLL}actor_train:\n  strategy_args:\n    strategy_name: fsdp2_train\n\n{kept}"
    )
    assert not report.errors
    (finding,) = [finding for finding in report.findings if finding.code == "not-restored"]
    assert finding.key == "train.engine.moe.freeze_router"
    assert "fsdp2" in finding.message


def test_a_literal_dollar_brace_stays_one_in_what_is_written(tmp_path: Path) -> None:
    file = tmp_path / "verl.yaml"
    file.write_text(f"{MODEL}data:\n  prompt_key: \\${{x}}\n")
    for target in ("rlctl", "verl", "trinity"):
        made = rlctl.convert(file, target, dialect="verl")
        assert made.text is not None
        (tmp_path / "out.yaml").write_text(made.text)
        loaded, report = read(tmp_path / "out.yaml", dialect=target)
        assert not report.errors
        assert loaded is not None
        assert loaded.config.data.train[0].prompt_key == "${x}" if loaded.config.data.train else True


def test_what_another_framework_resolves_is_kept_as_it_is_written(tmp_path: Path) -> None:
    text = "rlctl: 1\nmodel: {path: m}\nextensions:\n  verl:\n    critic.megatron.seed: ${actor_rollout_ref.actor.megatron.seed}\n"
    report = _report(tmp_path, "rlctl", text)
    assert not report.errors
    made = rlctl.convert(tmp_path / "config.yaml", "verl", dialect="rlctl")
    assert "${actor_rollout_ref.actor.megatron.seed}" in (made.text or "")


def test_a_defaults_list_that_hydra_cannot_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="defaults list"):
        _report(tmp_path, "verl", "defaults:\n- ${oc.select:a.b,3}\n")
