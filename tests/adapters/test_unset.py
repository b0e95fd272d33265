"""Values that have to be set and are not, and expressions that nothing can resolve: errors with file and line in every dialect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlctl.common.report import Bucket, Finding
from rlctl.config import to_plain
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document, translate_loaded

VERL = "actor_rollout_ref: {model: {path: m}}\n"
TRINITY = "cluster: {node_num: 1}\nmodel: {model_path: m}\n"
ROLL = "pretrain: m\nexp_name: a\n"


def errors(text: str, dialect: str, **environment: str) -> list[Finding]:
    _, report = read_document(read_yaml(text, "run.yaml"), dialect=dialect, environment=environment)
    return report.errors


@pytest.mark.parametrize(
    ("dialect", "text", "key", "line"),
    [
        ("verl", VERL + "data:\n  train_batch_size: ???\n", "data.train_batch_size", 3),
        ("verl", VERL + "trainer:\n  project_name: ???\n", "trainer.project_name", 3),
        ("verl", VERL + "trainer:\n  project_name: ${foo.bar}\n", "trainer.project_name", 3),
        ("verl", VERL + "trainer:\n  esi_redundant_time: ${foo.bar}\n", "trainer.esi_redundant_time", 3),
        ("trinity", TRINITY + "buffer:\n  batch_size: ???\n", "buffer.batch_size", 4),
        ("trinity", TRINITY + "project: p-${foo}\n", "project", 3),
        ("trinity", TRINITY + "monitor:\n  monitor_args:\n    a: ${.b}\n", "monitor.monitor_args.a", 5),
        ("roll", ROLL + "actor_train:\n  infer_batch_size: ???\n", "actor_train.infer_batch_size", 4),
        (
            "roll",
            ROLL + "actor_train:\n  data_args:\n    file_name:\n    - ???\n",
            "actor_train.data_args.file_name[0]",
            6,
        ),
        ("roll", ROLL + "max_steps: ${max_step}\n", "max_steps", 3),
        ("roll", ROLL + "made_up: ${gem_math.dapo_17k}\n", "made_up", 3),
        ("roll", ROLL + "custom_envs:\n  a:\n    max_steps: ${max_actions_per_traj}\n", "custom_envs.a.max_steps", 5),
        (
            "verl",
            VERL + "trainer:\n  project_name: ${actor_rollout_ref.ref.log_prob_use_dynamic_bsz}\n",
            "trainer.project_name",
            3,
        ),
        ("rlctl", "rlctl: 1\nmodel:\n  path: ???\n", "model.path", 3),
        ("rlctl", "rlctl: 1\nmodel:\n  path: ${foo}\n", "model.path", 3),
    ],
)
def test_a_value_that_nothing_gives_is_an_error_at_its_line(dialect: str, text: str, key: str, line: int) -> None:
    found = errors(text, dialect)
    assert [(error.key, error.at and error.at.line) for error in found] == [(key, line)]
    assert found[0].code in ("missing-value", "unresolved")


@pytest.mark.parametrize("expression", ["${eval:'1+1'}", "${a.${b}}", "${a.b}"])
def test_what_cannot_be_resolved_is_an_error_in_a_composed_config_too(expression: str) -> None:
    filler = "".join(f"  x{number}: 0\n" for number in range(150))
    schedule = f'{{wait: "{expression}"}}'
    text = f"""\
actor_rollout_ref:
  model: {{path: m}}
  actor: {{profiler: {{tool_config: {{torch: {{schedule: {schedule}}}}}}}}}
data: {{}}
trainer: {{}}
algorithm: {{}}
critic:
{filler}"""
    found = errors(text, "verl")
    assert [(error.code, error.at and error.at.line) for error in found] == [("unresolved", 3)]


@pytest.mark.parametrize("target", ["rlctl", "verl", "trinity", "roll"])
def test_an_escape_in_a_composed_config_is_written_as_one(target: str) -> None:
    filler = "".join(f"  x{number}: 0\n" for number in range(150))
    text = "data: {train_files: a, val_files: '\\${x}'}\nactor_rollout_ref: {model: {path: m}}\n"
    text += f"trainer: {{}}\nalgorithm: {{}}\ncritic:\n{filler}"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="verl", environment={})
    made = translate_loaded(loaded, report, target)
    assert made.text is not None
    assert "${x}" in made.text
    assert not [found for found in made.report.findings if found.code == "not-readable"]
    assert not read_document(read_yaml(made.text, "again.yaml"), dialect=target, environment={})[1].errors


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("roll", ROLL + "made_up: ???\n"),  # ROLL drops unknown keys, set or not
        ("verl", VERL + "trainer:\n  experiment_name: ${trainer.project_name}-${actor_rollout_ref.rollout.n}\n"),
        (
            "verl",
            VERL + "trainer:\n  esi_redundant_time: ${actor_rollout_ref.ref.log_prob_use_dynamic_bsz}\n",
        ),  # has no default here
        ("trinity", TRINITY + "project: ${oc.env:NAME_OF_ANOTHER_MACHINE}\n"),
        ("roll", ROLL + "logging_dir: ${hydra:run.dir}\n"),
    ],
)
def test_what_the_framework_itself_resolves_or_ignores_is_no_error(dialect: str, text: str) -> None:
    assert errors(text, dialect) == []


def test_a_key_that_refers_to_an_unset_one_is_an_error_too() -> None:
    text = (
        ROLL
        + "actor_train:\n  infer_batch_size: ???\nreference:\n  infer_batch_size: ${actor_train.infer_batch_size}\n"
    )
    assert [error.key for error in errors(text, "roll")] == [
        "actor_train.infer_batch_size",
        "reference.infer_batch_size",
    ]


def test_a_bad_value_of_a_rule_of_several_keys_is_told_at_its_own_line() -> None:
    config: dict[str, Any] = {"strategy_name": "fsdp2_train"}
    lines = [
        *("pretrain: m", "exp_name: a", "actor_train:", "  model_args: {dtype: bf16}", "  strategy_args:"),
        *(f"    strategy_name: {config['strategy_name']}", "    strategy_config:", "      param_dtype: bf16"),
        "      reduce_dtype: fp12",
    ]
    (error,) = errors("\n".join(lines) + "\n", "roll")
    assert error.code == "bad-value"
    assert error.key == "actor_train.strategy_args.strategy_config.reduce_dtype"
    assert error.at is not None
    assert error.at.line == 9


def test_what_is_written_for_a_value_still_to_be_set_can_be_read() -> None:
    """A release's own defaults leave the engine open; the file that rlctl writes from them must not."""
    document = read_yaml(VERL + "data:\n  train_batch_size: ???\n", "run.yaml")
    loaded, report = read_document(replace(document, explicit=frozenset()), dialect="verl", environment={})
    assert not report.errors
    assert loaded is not None
    for target in ("rlctl", "verl", "trinity"):
        made = translate_loaded(loaded, report, target)
        assert made.text is not None
        assert "???" not in made.text
        assert not read_document(read_yaml(made.text, "again.yaml"), dialect=target, environment={})[1].errors


@pytest.mark.parametrize(
    ("dialect", "text", "key"),
    [
        ("roll", ROLL + "prompt_length: VALUE\n", "prompt_length"),
        ("roll", ROLL + "sequence_length: VALUE\n", "sequence_length"),
        ("verl", VERL + "data:\n  max_prompt_length: VALUE\n", "data.max_prompt_length"),
        ("trinity", "model:\n  model_path: m\n  max_prompt_tokens: VALUE\n", "model.max_prompt_tokens"),
    ],
)
@pytest.mark.parametrize(
    "value", ["${oc.env:NOPE}", "${oc.env:WANDB_API_KEY}", "${oc.decode:${oc.env:WANDB_API_KEY}}", "'\\${x}'"]
)
def test_no_default_replaces_an_expression_without_a_number(dialect: str, text: str, key: str, value: str) -> None:
    secret = "canary-5ecretValue0123456789"
    found = errors(text.replace("VALUE", value), dialect, WANDB_API_KEY=secret)
    assert [finding.key for finding in found] == [key]
    assert value.strip("'") in found[0].message or "'NOPE' is not set" in found[0].message
    assert secret not in str(found)


@pytest.mark.parametrize("key", ["sequence_length", "actor_train.data_args.domain_interleave_probs"])
def test_a_null_that_a_rule_reads_is_no_unknown_key(key: str) -> None:
    *sections, name = key.split(".")
    above = "".join(f"{'  ' * depth}{section}:\n" for depth, section in enumerate(sections))
    text = f"{ROLL}{above}{'  ' * len(sections)}{name}:\n"
    _, report = read_document(read_yaml(text, "run.yaml"), dialect="roll", environment={})
    assert [entry.bucket for entry in report.accounting if entry.key == key] == [Bucket.MAPPED]
    assert "unknown-key" not in {finding.code for finding in report.findings}


def test_what_is_missing_in_a_mapping_that_is_named_is_missing_there_too() -> None:
    profiler = "profiler: {tool: torch, tool_config: {torch_memory: {trace_alloc_max_entries: '???'}}}"
    linked = "profiler: {tool: torch, tool_config: '${actor_rollout_ref.actor.profiler.tool_config}'}"
    text = f"actor_rollout_ref:\n  model: {{path: m}}\n  actor:\n    {profiler}\n  rollout:\n    {linked}\n"
    document = replace(read_yaml(text, "run.yaml"), explicit=frozenset())
    loaded, report = read_document(document, dialect="verl", environment={})
    assert loaded is not None, report.errors
    for target in ("rlctl", "verl"):
        outcome = translate_loaded(loaded, report, target)
        assert "???" not in str(outcome.text)


ESCAPED = {
    "verl": "actor_rollout_ref: {model: {path: 'm/\\${a}'}}\n"
    "data: {train_files: ['d/\\${b}.parquet'], val_files: 'e/\\${c}.parquet'}\n"
    "trainer: {default_local_dir: 'k/\\${d}/${oc.env:PLACE}', project_name: '\\${e}', logger: ['\\${f}', console]}\n",
    "trinity": "cluster: {node_num: 1}\nproject: '\\${e}'\ncheckpoint_root_dir: 'k/\\${d}'\nmodel: {model_path: 'm/\\${a}'}\n"
    "buffer: {explorer_input: {taskset: {path: 'd/\\${b}.jsonl'}}}\n",
    "roll": "exp_name: '\\${e}'\npretrain: 'm/\\${a}'\ncheckpoint_config: {type: file_system, output_dir: 'k/\\${d}'}\n"
    "actor_train: {data_args: {file_name: ['d/\\${b}.jsonl', '${pretrain}/x.jsonl', '${oc.env:PLACE}/y.jsonl']}}\n",
}


@pytest.mark.parametrize("target", ["rlctl", "verl", "trinity", "roll"])
@pytest.mark.parametrize("source", sorted(ESCAPED))
def test_an_escaped_expression_stays_text_in_every_dialect(source: str, target: str) -> None:
    environment = {"PLACE": "/p/${literal}"}
    loaded, report = read_document(read_yaml(ESCAPED[source], "run.yaml"), dialect=source, environment=environment)
    assert loaded is not None, report.errors
    outcome = translate_loaded(loaded, report, target)
    assert "not-readable" not in {finding.code for finding in outcome.report.findings}
    again, back = read_document(read_yaml(str(outcome.text), "again.yaml"), dialect=target, environment=environment)
    assert again is not None, back.errors
    for value in ("m/${a}", "d/${b}", "k/${d}"):
        assert value in str(to_plain(again.config)) or value not in str(to_plain(loaded.config))


def test_a_value_of_the_environment_is_there_when_the_written_file_is_read_back() -> None:
    text = "actor_rollout_ref: {model: {path: '${oc.env:PLACE}/m'}}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="verl", environment={"PLACE": "/p"})
    assert loaded is not None, report.errors
    outcome = translate_loaded(loaded, report, "rlctl")
    assert "${oc.env:PLACE}/m" in str(outcome.text)
    assert "not-readable" not in {finding.code for finding in outcome.report.findings}


def test_an_escaped_name_is_escaped_in_the_folder_that_is_made_of_it() -> None:
    text = "cluster: {node_num: 1}\nname: \\${x}\ncheckpoint_root_dir: ${oc.env:PLACE,./checkpoints}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="trinity", environment={})
    assert loaded is not None, report.errors
    outcome = translate_loaded(loaded, report, "verl")
    assert "default_local_dir: ./checkpoints/Trinity-RFT/\\${x}\n" in str(outcome.text)
    assert "not-readable" not in {finding.code for finding in outcome.report.findings}


def test_a_switch_that_is_off_makes_its_mapping_no_setting() -> None:
    text = "actor_rollout_ref:\n  model: {path: m, mtp: {enable: false, enable_train: false}}\n"
    loaded, report = read_document(read_yaml(text, "f.yaml"), dialect="verl", environment={})
    assert loaded is not None
    assert loaded.config.model.multi_token_prediction in (None, {})
    made = translate_loaded(loaded, report, "roll")
    assert not [entry.key for entry in made.report.accounting if entry.loses and "mtp" in entry.key]


@pytest.mark.parametrize("target", ["trinity", "roll", "rlctl"])
def test_the_folder_of_hydra_is_that_of_the_shell_elsewhere(target: str) -> None:
    """Trinity and ROLL stop at ``${hydra:runtime.cwd}``, which only Hydra's command line has."""
    text = (
        VERL + 'data: {train_files: "${hydra:runtime.cwd}/a.parquet"}\ntrainer: {project_name: "${hydra:job.name}"}\n'
    )
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="verl", environment={})
    made = translate_loaded(loaded, report, target)
    values = [str(value) for _, value in read_yaml(made.text or "", "written.yaml").leaves()]
    assert any("${oc.env:PWD}/a.parquet" in value for value in values)
    if target != "rlctl":  # which says that it cannot read this name again
        assert not any("${hydra:" in value for value in values)
        lost = {entry.key: entry.bucket for entry in made.report.accounting}
        assert lost["trainer.project_name"] is Bucket.UNSUPPORTED
