"""Hints name the keys and units of the file that was read, and only values that its framework can express."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.checks import check
from rlctl.common.errors import PlanError
from rlctl.common.report import Finding, Level, Report, fact_in, option_for_fact
from rlctl.config import Loaded, config_from, put
from rlctl.config.load import value_at
from rlctl.documents import Document, read_yaml
from rlctl.editing.session import Session
from rlctl.translation.advice import expressible_fixes, in_own_keys, in_own_words
from rlctl.translation.translate import read_document, read_many, translate_loaded, write

VERL = {
    "data": {"train_files": "/t.parquet", "train_batch_size": 60},
    "actor_rollout_ref": {
        "actor": {"ppo_mini_batch_size": 25},
        "model": {"path": "a/b"},
        "rollout": {"n": 5},
    },
    "trainer": {"total_epochs": 1, "save_freq": 10, "nnodes": 1, "n_gpus_per_node": 1},
}
TRINITY = {
    "mode": "both",
    "model": {"model_path": "a/b", "max_prompt_tokens": 8, "max_response_tokens": 8},
    "algorithm": {"algorithm_type": "grpo", "repeat_times": 8},
    "cluster": {"node_num": 1, "gpu_per_node": 4},
    "explorer": {"rollout_model": {"engine_num": 2}},
    "buffer": {"batch_size": 10, "train_batch_size": 64, "total_steps": 9},
}
ROLL = {
    "pretrain": "a/b",
    "rollout_batch_size": 20,
    "num_return_sequences_in_group": 8,
    "prompt_length": 8,
    "response_length": 8,
    "max_steps": 9,
    "actor_train": {
        "training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16},
        "strategy_args": {"strategy_name": "fsdp2_train"},
        "device_mapping": "list(range(0,4))",
    },
}
FILES: dict[str, dict[str, Any]] = {"verl": VERL, "trinity": TRINITY, "roll": ROLL}


def over(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A tree with other values."""
    merged = dict(base)
    for key, value in change.items():
        merged[key] = over(merged.get(key) or {}, value) if isinstance(value, dict) else value
    return merged


def read(dialect: str, change: Mapping[str, Any] | None = None) -> tuple[Loaded, Report]:
    values = over(FILES[dialect], change or {})
    loaded, report = read_document(Document("run.yaml", values), dialect=dialect, environment={})
    assert loaded is not None, report.findings
    return loaded, report


def advised(dialect: str, code: str, change: Mapping[str, Any] | None = None) -> Finding:
    """The finding of a code, in the words of its file."""
    loaded, report = read(dialect, change)
    found = [finding for finding in check(loaded.config, silent=loaded.silent) if finding.code == code]
    assert found, [finding.code for finding in check(loaded.config)]
    return in_own_words(found, loaded, report.dialect)[0]


def test_verl_is_told_prompts_of_its_own_key() -> None:
    hint = advised("verl", "mini-batch-uneven").hint
    assert hint == "set actor_rollout_ref.actor.ppo_mini_batch_size to 20 or 30 (prompts x rollout.n = responses)"


def test_a_canonical_file_is_told_responses() -> None:
    values = {"batch": {"prompts_per_step": 60, "responses_per_prompt": 5, "mini_batch_responses": 125}}
    [found] = [finding for finding in check(config_from(values)) if finding.code == "mini-batch-uneven"]
    assert found.hint == "set batch.mini_batch_responses to 100 or 150"


def test_values_between_whole_prompts_are_passed_over() -> None:
    """75 is the nearest divisor below, and no whole number of groups of 8."""
    change = {
        "data": {"train_batch_size": 75},
        "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 10}, "rollout": {"n": 8}},
    }
    finding = advised("verl", "mini-batch-uneven", change)
    assert "ppo_mini_batch_size to 5 or 15 (" in finding.hint
    assert [value for _, value in finding.fixes] == [75, 100]


MENDED: list[tuple[str, str, dict[str, Any]]] = [
    ("verl", "mini-batch-uneven", {}),
    ("verl", "mini-batch-too-large", {"actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 600}}}),
    ("verl", "replicas-uneven", {"trainer": {"n_gpus_per_node": 8}}),
    ("verl", "greedy-training", {"actor_rollout_ref": {"rollout": {"temperature": 0}}}),
    ("verl", "kl-off", {"actor_rollout_ref": {"actor": {"use_kl_loss": True, "kl_loss_coef": 0.0}}}),
    ("verl", "group-of-one", {"algorithm": {"adv_estimator": "grpo"}, "actor_rollout_ref": {"rollout": {"n": 1}}}),
    ("verl", "never-saved", {"trainer": {"save_freq": -1}}),
    ("trinity", "mini-batch-uneven", {}),
    ("trinity", "mini-batch-too-large", {"buffer": {"train_batch_size": 800}}),
    ("trinity", "greedy-training", {"model": {"temperature": 0.0}}),
    (
        "trinity",
        "difficulty-ahead",
        {
            "synchronizer": {"sync_style": "explorer_driven", "sync_offset": 1},
            "buffer": {
                "explorer_input": {"taskset": {"path": "a/b", "data_selector": {"selector_type": "difficulty_based"}}}
            },
        },
    ),
    ("roll", "mini-batch-uneven", {"actor_train": {"training_args": {"gradient_accumulation_steps": 12}}}),
    ("roll", "greedy-training", {"actor_infer": {"generating_args": {"temperature": 0.0}}}),
]
"""A dialect, a code, and what provokes it."""
SETS = re.compile(r"set ([\w.]+) to ([^\s;,(]+)")


@pytest.mark.parametrize(("dialect", "code", "change"), MENDED)
def test_what_a_hint_says_mends_the_file(dialect: str, code: str, change: dict[str, Any]) -> None:
    hint = advised(dialect, code, change).hint
    named = SETS.search(hint)
    assert named is not None, hint
    key, value = named.groups()
    wanted: Any = yaml.safe_load(value)
    for part in reversed(key.split(".")):
        wanted = {part: wanted}
    loaded, report = read(dialect, over(change, wanted))
    assert not [finding for finding in report.findings if finding.code == "unknown-key"]
    assert code not in [finding.code for finding in check(loaded.config, silent=loaded.silent)]


def test_what_cannot_be_expressed_is_told_with_the_reason_and_the_option() -> None:
    loaded, report = read("trinity")
    problem = Finding(
        "x", check(loaded.config)[0].level, "m", "checkpoint.at_end", None, "h",
        template="{fix}", candidates=((("rollout", "max_running_prompts"), 7),),
    )  # fmt: skip
    [found] = in_own_words([problem], loaded, report.dialect)
    assert found.hint.startswith("Trinity-RFT cannot express rlctl's rollout.max_running_prompts 7: ")
    assert found.option == "--set rollout.max_running_prompts=7"
    assert found.advice.endswith("; or pass --set rollout.max_running_prompts=7")


def test_a_variable_that_is_not_set_here_is_no_limit_of_the_framework() -> None:
    change = {"buffer": {"explorer_input": {"taskset": {"path": "${oc.env:NOT_SET_ANYWHERE}"}}}}
    loaded, report = read("trinity", change)
    problem = Finding(
        "x", check(loaded.config)[0].level, "m", "batch.prompts_per_step", None, "h",
        template="{fix}", candidates=((("batch", "prompts_per_step"), 12),),
    )  # fmt: skip
    [found] = in_own_words([problem], loaded, report.dialect)
    assert "cannot express" not in found.hint
    assert "12" in found.hint


@pytest.mark.parametrize(
    ("dialect", "change", "named"),
    [
        ("verl", {"trainer": {"test_freq": 5}}, "data.val_files"),
        ("trinity", {"explorer": {"eval_interval": 5}}, "buffer.explorer_input.eval_tasksets"),
        ("roll", {"eval_steps": 5}, "validation.data_args.file_name"),
    ],
)
def test_data_that_a_file_does_not_name_has_the_name_that_its_framework_gives_it(
    dialect: str, change: dict[str, Any], named: str
) -> None:
    found = advised(dialect, "evaluation-without-data", change)
    assert f"{named} is empty" in found.message
    assert found.hint.startswith(f"add a dataset to {named}, or remove ")


def test_a_default_interval_of_evaluation_is_no_finding() -> None:
    loaded, _ = read("trinity")
    assert loaded.config.schedule.evaluate_every is not None, "Trinity evaluates every 100 steps"
    assert "evaluation-without-data" not in {item.code for item in check(loaded.config, silent=loaded.silent)}


def test_a_value_that_is_written_as_the_one_in_the_file_would_be_is_said_in_full() -> None:
    """ROLL's agentic pipeline never fills a mini-batch of 2 steps, so the writer has the same keys for it and for one of a step."""
    change = {"actor_train": {"training_args": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 40}}}
    agentic = {"train_env_manager": {"num_env_groups": 20, "group_size": 8}, "rollout_batch_size": 160}
    found = advised("roll", "mini-batch-too-large", over(agentic, change))
    assert found.hint == (
        "set actor_train.training_args.per_device_train_batch_size to 2 and set"
        " actor_train.training_args.gradient_accumulation_steps to 20 or less"
    )


def test_an_agent_is_named_by_the_key_that_chooses_it() -> None:
    tasks = {"default_workflow_type": "my_agent_workflow", "taskset": {"path": "a/b", "workflow_args": {"turns": 3}}}
    loaded, report = read("trinity", {"buffer": {"explorer_input": tasks}})
    [found] = in_own_words([Finding("x", Level.ERROR, "'rollout.agents[0]': m")], loaded, report.dialect)
    assert found.message == "'buffer.explorer_input.default_workflow_type': m"


def test_messages_name_the_files_keys_too() -> None:
    finding = advised("verl", "learning-rate", {"actor_rollout_ref": {"actor": {"optim": {"lr": 0}}}})
    assert finding.message == "actor_rollout_ref.actor.optim.lr is 0, so nothing is learned"
    assert finding.hint == "set actor_rollout_ref.actor.optim.lr above 0"


def test_an_error_of_planning_names_the_files_keys() -> None:
    loaded, report = read("verl")
    with pytest.raises(PlanError) as caught, in_own_keys(loaded, report.dialect):
        raise PlanError("batch.prompts_per_step is odd", hint="set rollout.parallel.tensor_parallel_size to 1")
    assert caught.value.message == "data.train_batch_size is odd"
    assert caught.value.hint == "set actor_rollout_ref.rollout.tensor_model_parallel_size to 1"


def test_an_editor_offers_only_what_its_file_can_say() -> None:
    change = {
        "data": {"train_batch_size": 75},
        "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 10}, "rollout": {"n": 8}},
    }
    loaded, report = read("verl", change)
    [found] = [finding for finding in check(loaded.config) if finding.code == "mini-batch-uneven"]
    offered = expressible_fixes(found, loaded, report.dialect)
    assert offered.fixes == ((("batch", "mini_batch_responses"), 40), (("batch", "mini_batch_responses"), 120))
    assert offered.hint == "set batch.mini_batch_responses to 40 or 120"


CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
EXAMPLES = sorted(
    path for name in ("trinity", "roll") for path in (CORPUS / name).rglob("*.yaml") if path.parent.name != "config"
)[::12]
needs_examples = pytest.mark.skipif(not EXAMPLES, reason="the corpus is not here")


@needs_examples
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_app_names_no_option_of_the_command_line(path: Path) -> None:
    session = Session.open(path)
    for finding in session.findings():
        assert " --" not in f" {finding.message} {finding.hint}", finding


@needs_examples
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_value_of_a_hint_is_read_back(path: Path) -> None:
    loaded, report = read_many([path])
    assert loaded is not None
    for finding in check(loaded.config, silent=loaded.silent):
        for key, value in expressible_fixes(finding, loaded, report.dialect).fixes:
            if type(value) not in (int, float, str):
                continue
            text, _ = write(put(loaded, key, value), report.dialect, options={"carried": "none"})
            assert text is not None
            again, _ = read_document(read_yaml(text, "again.yaml"), dialect=report.dialect)
            assert again is not None
            found = value_at(again.config, key)
            assert (found["type"] if isinstance(found, dict) else found) == value, (finding, key)


def test_a_fact_is_asked_for_in_words_that_both_front_ends_have() -> None:
    loaded, report = read("verl", {"trainer": {"total_epochs": 3}})
    made = translate_loaded(loaded, report, "roll")
    asking = [finding for finding in made.report.findings if fact_in(finding.message)]
    assert [fact_in(finding.message) for finding in asking] == ["dataset_rows"] * len(asking)
    assert asking
    assert all("--" not in finding.message + finding.hint for finding in asking)
    assert {finding.option for finding in asking} == {"--assume dataset_rows=N"}
    assert option_for_fact("state stage=sft") == "--assume stage=sft"


def test_a_document_of_rlctl_keeps_its_words() -> None:
    document = read_yaml("rlctl: 1\nbatch: {responses_per_prompt: 1}\n", "run.yaml")
    loaded, report = read_document(document)
    assert loaded is not None
    found = check(loaded.config)
    assert in_own_words(found, loaded, report.dialect) == found
