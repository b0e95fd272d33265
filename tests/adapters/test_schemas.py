"""The schemas of the frameworks' releases decide which keys are read and written, and what silence means."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl import check
from rlctl.adapters import dialect
from rlctl.adapters.engine.meanings import others
from rlctl.adapters.engine.rules import ABSENT, Absent, DialectKey, FromSchema, flat, matches, split, version_of
from rlctl.adapters.engine.schema import FOLDER, Composition, Schema, schema
from rlctl.adapters.engine.table import UNSAID, Table, followed
from rlctl.adapters.engine.tree import find
from rlctl.adapters.verl.dialect import CHOICES, RECIPES
from rlctl.common.errors import TranslationError
from rlctl.documents import Document, read_yaml
from rlctl.documents.paths import KeyPath
from rlctl.translation.translate import convert, read_document, write

ROOT = Path(__file__).parents[2]
RELEASES = dialect("verl").versions
ENGINES = {"fsdp2": "0.3", "megatron": "0.3", "veomni": "0.7", "torchtitan": "0.7", "mindspeed": "0.8"}
"""With the first release that composes for each."""
PRESETS = [path for path in sorted((ROOT / "presets").rglob("*.yaml")) if "\nrlctl: 1" in path.read_text()]
GROUPS = ("engine@", "model@", "optim@")
"""Keys that choose a group of Hydra's instead of standing in a config."""
REWARDS = ("reward_kwargs.overlong_buffer_cfg.*", "reward_kwargs.max_resp_len")
DTYPES = ("param_dtype", "reduce_dtype", "buffer_dtype")
UNLISTED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys((*RECIPES, *CHOICES), ("0.3", "0.9")),
    # 0.4.0 trainer/main_ppo.py, load_reward_manager, and workers/reward_manager/dapo.py
    **{f"reward_model.{key}": ("0.4", "0.7") for key in REWARDS},
    # 0.8.0 experimental/reward_loop/reward_manager/dapo.py
    **{f"reward.{key}": ("0.8", "0.9") for key in REWARDS},
    # 0.3.0 workers/fsdp_workers.py, _build_model_optimizer; 0.7.0 workers/config/engine.py, FSDPEngineConfig, still passes it on
    **{f"actor_rollout_ref.*.fsdp_config.mixed_precision.{name}": ("0.3", "0.9") for name in DTYPES},
    **{f"critic.model.fsdp_config.mixed_precision.{name}": ("0.3", "0.9") for name in DTYPES},
    # 0.6.0 workers/config/engine.py, FSDPEngineConfig
    **{f"engine.mixed_precision.{name}": ("0.6", "0.9") for name in DTYPES},
    # 0.4.0 models/mcore/config_converter.py, _get_base_transformer_config: arguments of Megatron's TransformerConfig
    "actor_rollout_ref.*.megatron.override_transformer_config.*": ("0.4", "0.9"),
    "critic.megatron.override_transformer_config.*": ("0.4", "0.9"),
    # 0.3.0 trainer/ppo/ray_trainer.py, _save_checkpoint
    "trainer.remove_previous_ckpt_in_save": ("0.3", "0.4"),
}
"""Keys that no schema holds, with the first and the last series that reads them: of recipes, launchers and classes of workers."""


def _leaves(values: Any, path: KeyPath = ()) -> list[KeyPath]:
    if isinstance(values, dict) and values:
        return [leaf for name, inner in values.items() for leaf in _leaves(inner, (*path, name))]
    return [path]


def _lacking(values: Any, table: Schema, release: str, composition: Composition) -> list[str]:
    """The written keys that what is composed lacks, in all of a release's patch releases, and that no worker of it reads."""
    found = []
    for leaf in _leaves(values):
        place = tuple("*" if isinstance(part, int) else part for part in leaf)
        known = table.in_composition(place, release, composition) or table.is_free(place, release, composition)
        reads = (first <= release <= last for name, (first, last) in UNLISTED.items() if matches(split(name), place))
        if not known and not any(reads):
            found.append(".".join(map(str, leaf)))
    return found


@pytest.mark.parametrize(
    ("release", "engine"),
    [(release, engine) for release in RELEASES for engine, since in ENGINES.items() if release >= since],
)
def test_no_key_is_written_that_a_composition_lacks(release: str, engine: str) -> None:
    """Every preset, with every engine, for every release: a key that some release has is one that this release composes."""
    for preset in PRESETS:
        loaded, report = read_document(read_yaml(preset.read_text(), preset.name), dialect="rlctl", environment={})
        assert loaded is not None, report.findings
        kind = {"fsdp2": "fsdp2", "megatron": "megatron"}.get(engine, f"verl.{engine}")
        if loaded.config.train.engine.choice != kind:
            text = yaml.safe_load(preset.read_text())
            if "stages" in text or not isinstance(text.get("train", {}).get("engine", {}), dict):
                continue
            text.setdefault("train", {})["engine"] = {"type": kind}
            loaded, report = read_document(Document(preset.name, text), dialect="rlctl", environment={})
            if loaded is None:
                continue
        try:
            written, _ = write(loaded, f"verl@{release}", options={"carried": "none", "dataset_rows": "1000"})
        except TranslationError:
            continue  # verl has no trainer for it
        if written is None:
            continue
        values = yaml.safe_load(written)
        kinds = dialect("verl").detect(Document("f", values), version=release)
        table = schema("verl", "ppo" if kinds.kind == "generation_server" else kinds.kind)
        own = [path for path in _leaves(values) if not str(path[0]).startswith(GROUPS)]
        composition = dialect("verl").composition(values, kinds.kind)
        kept = dict.fromkeys(own)
        assert _lacking(_tree(kept), table, release, composition) == [], preset


def _tree(paths: dict[KeyPath, None]) -> dict[Any, Any]:
    tree: dict[Any, Any] = {}
    for path in paths:
        inner = tree
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = None
    return tree


NAME = "actor_rollout_ref.rollout.name=vllm"
FAULTS = """
data: {train_files: a.parquet, train_max_samples: 100, train_batch_size: 64}
algorithm: {adv_estimator: gae}
actor_rollout_ref:
  model: {path: m}
  rollout: {name: vllm, n: 4, log_prob_micro_batch_size_per_gpu: 8}
  actor: {ppo_mini_batch_size: 32, ppo_micro_batch_size_per_gpu: 8, use_kl_loss: true}
  ref: {log_prob_micro_batch_size_per_gpu: 8, fsdp_config: {offload_policy: true}}
critic: {model: {path: m, use_liger: true}, ppo_micro_batch_size_per_gpu: 8}
skip: {rollout: {enable: true, dump_dir: /y}}
trainer: {n_gpus_per_node: 8, nnodes: 1, total_epochs: 1}
"""


@pytest.mark.parametrize(
    ("release", "there", "away"),
    [
        ("0.4", [], ["skip", "offload_policy", "use_liger", "max_samples"]),
        ("0.5", [], ["skip", "offload_policy", "use_liger", "max_samples"]),
        ("0.6", ["train_max_samples", "skip_rollout", "offload_policy"], ["use_liger"]),
        ("0.7", ["train_max_samples", "skip_rollout", "offload_policy"], ["use_liger"]),
        ("0.8", ["train_max_samples", "skip", "offload_policy", "use_liger"], ["skip_rollout"]),
        ("0.9", ["train_max_samples", "skip", "offload_policy", "use_liger"], ["skip_rollout"]),
    ],
)
def test_a_key_goes_where_its_release_has_it(release: str, there: list[str], away: list[str]) -> None:
    made = convert(FAULTS, f"verl@{release}", dialect="verl", environment={}, options={"carried": "none"})
    assert made.text is not None
    names = {str(part) for path in _leaves(yaml.safe_load(made.text)) for part in path}
    assert [name for name in there if name not in names] == []
    assert [name for name in names if name in away or (name.startswith("skip") and "skip" in away)] == []
    values = yaml.safe_load(made.text)
    assert ("skip" in values) == (release == "0.9")
    assert ("skip" in values["actor_rollout_ref"]["rollout"]) == (release == "0.8")


@pytest.mark.parametrize(
    ("release", "size", "chunked"), [("0.3", 2, False), ("0.4", 1, False), ("0.5", 1, False), ("0.7", 2, True)]
)
def test_silence_means_what_the_megatron_composition_says(release: str, size: int, chunked: bool) -> None:
    document = read_yaml("", "overrides", allow_empty=True)
    lines = ["model_engine=megatron", "data.train_files=a.parquet", "actor_rollout_ref.model.path=m", NAME]
    loaded, report = read_document(document, dialect=f"verl@{release}", overrides=lines, environment={})
    assert loaded is not None, report.findings
    rollout = loaded.config.rollout
    assert (rollout.parallel.tensor_parallel_size, rollout.memory.chunked_prefill) == (size, chunked)


@pytest.mark.parametrize("engine", ["fsdp", "megatron", "veomni", "torchtitan"])
@pytest.mark.parametrize("release", RELEASES)
def test_silence_is_read_in_every_composition(release: str, engine: str) -> None:
    document = read_yaml("", "overrides", allow_empty=True)
    for estimator in ("grpo", "gae"):
        lines = [f"model_engine={engine}", "data.train_files=a.parquet", "actor_rollout_ref.model.path=m", NAME]
        lines += [f"algorithm.adv_estimator={estimator}", "actor_rollout_ref.actor.use_kl_loss=True"]
        loaded, report = read_document(document, dialect=f"verl@{release}", overrides=lines, environment={})
        assert loaded is not None, report.findings


def test_the_asynchronous_trainers_have_defaults_of_their_own() -> None:
    table = dialect("verl").tables["ppo"]
    bypass = ("algorithm", "rollout_correction", "bypass_mode")
    for trainer, value in (("", False), ("fully_async", True), ("one_step_off", True)):
        composed = table.composed_for(Composition("fsdp", trainer))
        assert composed.default_at(bypass, (0, 9)) is value
        assert find(composed.defaults_tree((0, 9)), bypass) is value


def test_a_key_of_another_engine_is_refused_by_hydra_and_by_check() -> None:
    document = read_yaml("", "overrides", allow_empty=True)
    lines = [
        "actor_rollout_ref.model.path=m",
        "data.train_files=a.parquet",
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2",
    ]
    _, report = read_document(document, dialect="verl@0.9", overrides=lines, environment={})
    [found] = [item for item in report.findings if item.code == "other-engines-key"]
    assert found.key == lines[2].partition("=")[0]
    assert "only in the config for megatron" in found.message
    _, report = read_document(document, dialect="verl@0.9", overrides=[*lines, "model_engine=megatron"], environment={})
    assert [item for item in report.findings if item.code == "other-engines-key"] == []


def test_without_a_config_name_an_older_verl_has_the_keys_of_fsdp(tmp_path: Path) -> None:
    """Its command starts from the config for FSDP, whatever the strategy: Megatron's keys are refused, those of FSDP are not."""
    refused, taken = "actor_rollout_ref.actor.megatron.seed", "actor_rollout_ref.actor.fsdp_config.param_offload"
    words = ["python3 -m verl.trainer.main_ppo data.train_files=a.parquet actor_rollout_ref.model.path=m"]
    words += ["actor_rollout_ref.actor.strategy=megatron", f"{refused}=1", f"{taken}=True"]
    (tmp_path / "run.sh").write_text(" ".join(words))
    report = check(tmp_path / "run.sh", dialect="verl@0.5", runner="verl").report
    assert [item.key for item in report.findings if "only in the config for" in item.message] == [refused]


@pytest.mark.parametrize(
    ("asked", "release"), [("0.10.dev0", "0.9"), ("0.9.1+ours", ""), ("0.9", ""), ("0.2", "0.3"), ("v0.12", "0.9")]
)
def test_the_nearest_release_stands_in_for_an_unknown_one(asked: str, release: str) -> None:
    """With a note when reading and when writing; a patch release and a fork of a known series need none."""
    text = "data: {train_files: a.parquet}\nactor_rollout_ref: {model: {path: m}, rollout: {name: vllm}}\n"
    _, report = read_document(read_yaml(text, "f.yaml"), dialect=f"verl@{asked}", environment={})
    made = convert(text, f"verl@{asked}", dialect="verl@0.9", environment={})
    for found in (report, made.report):
        notes = [item for item in found.findings if item.code == "nearest-release"]
        assert [item.params["release"] for item in notes] == ([release] if release else [])
    assert made.report.target == f"verl@{release or '0.9'}"


@pytest.mark.parametrize("engine", ["veomni", "torchtitan", "fsdp2"])
def test_an_engine_is_refused_for_the_patch_release_that_lacks_it(engine: str) -> None:
    kind = engine if engine == "fsdp2" else f"verl.{engine}"
    text = (
        f"rlctl: 1\nmodel: {{path: m}}\ntrain: {{engine: {{type: {kind}}}}}\ndata: {{train: [{{path: a.parquet}}]}}\n"
    )
    assert convert(text, "verl@0.7.1", dialect="rlctl", environment={}).text is not None
    made = convert(text, "verl@0.7.0", dialect="rlctl", environment={})
    assert (made.text is None) == (engine != "fsdp2")
    refused = [item.message for item in made.report.errors]
    assert refused == ([] if engine == "fsdp2" else [f"verl 0.7.0 has no trainer on {engine}, which 0.7.1 has"])


def test_a_line_of_a_schema_says_releases_engines_and_defaults() -> None:
    found = Schema(
        {"a.b": "3-5 null\t6:megatron,veomni 1\t7?:fsdp 2\t7-9@fully_async 3", "free": "3 {}", "x.*.y": "10"}
    )
    default, fsdp = found.default, Composition("fsdp")
    assert default(("a", "b"), (0, 4), fsdp) is None
    assert default(("a", "b"), (0, 6), fsdp) is ABSENT
    assert default(("a", "b"), (0, 6), Composition("veomni")) == 1
    assert default(("a", "b"), (0, 7), Composition("fsdp", "fully_async")) == 3
    assert found.in_composition(("a",), "0.7", fsdp)
    assert not found.in_composition(("a", "b"), "0.7", fsdp, everywhere=True)
    assert found.is_free(("free", "of", "users"), "0.3")
    assert not found.is_free(("free",), "0.3")
    assert found.releases(("x", "mine", "y")) == {"0.10"}


def test_the_schemas_are_those_that_were_compared_with_the_frameworks() -> None:
    """``make test-upstream`` makes them again and compares; this holds until somebody edits a file."""
    lines = (ROOT / "tests" / "upstream" / "schemas.txt").read_text().splitlines()
    compared = {name: digest for digest, name in (line.split() for line in lines)}
    files = {file.relative_to(FOLDER).as_posix(): file for file in FOLDER.rglob("*.tsv")}
    assert {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()} == compared


@cache
def _engines(table: Table, release: str) -> tuple[str, ...]:
    return tuple(table.schema.engines(release)) or ("",)


def _left_open(table: Table, key: DialectKey, release: str) -> bool:
    """Whether a composition of a release leaves a key to the framework's code."""
    version = version_of(release)
    engines = _engines(table, release)
    defaults = (followed(table.schema.default(key.path, version, Composition(engine))) for engine in engines)
    open_values = (None,) if key.default_in(version) is None else ()
    return any(item is ABSENT or (item in UNSAID and item not in open_values) for item in defaults)


@pytest.mark.parametrize("name", others())
def test_a_row_states_no_default_that_the_schemas_hold(name: str) -> None:
    """The schema decides; a row says what no schema does: ABSENT, or what the framework's code does with silence."""
    own, copies, listed = dialect(name), [], 0
    for kind, table in own.tables.items():
        for key in (key for rule in flat(table.rules) for key in rule.keys):
            if isinstance(key.default, (Absent, FromSchema)):
                listed += isinstance(key.default, FromSchema)
                continue
            having = [release for release in own.versions if table.has(key, key.path, version_of(release))]
            if having and not any(_left_open(table, key, release) for release in having):
                copies.append(f"{kind}: {key.name} repeats {key.default!r}")
    assert copies == []
    assert listed > 200


@pytest.mark.parametrize("name", others())
def test_no_row_reads_a_default_of_another_composition(name: str) -> None:
    """In every release and composition: a row's default is the one of that composition, or what the row states of code."""
    own, strange = dialect(name), []
    for kind, table in own.tables.items():
        for release in own.versions:
            version = version_of(release)
            for engine in _engines(table, release):
                composed = table.composed_for(Composition(engine))
                for key in (key for rule in flat(table.rules) for key in rule.keys):
                    has = followed(table.schema.default(key.path, version, composed.composition))
                    read = composed.default_of(key, key.path, version)
                    stated = () if isinstance(key.default, FromSchema) else (key.default_in(version),)
                    if read is not ABSENT and read not in (has, None, *stated):
                        strange.append(f"{kind} {release} {engine}: {key.name} is read as {read!r}")
    assert strange == []
