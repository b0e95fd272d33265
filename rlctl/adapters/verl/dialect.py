"""The verl dialect: which table holds for which file, and how its overrides are applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from rlctl.adapters.engine.dialect import Detection, Dialect, File, Shipped, TrainerProgram
from rlctl.adapters.engine.one_engine import tell_engines, with_one_engine
from rlctl.adapters.engine.reading import Read, TextView, read_document
from rlctl.adapters.engine.rules import Dropped, Noted, matches, own_name, split, version_of
from rlctl.adapters.engine.schema import Composition, schema
from rlctl.adapters.engine.table import Table, Tables, joined
from rlctl.adapters.engine.tree import find
from rlctl.adapters.engine.writing import ConfigWithOrigins, WriteOutcome, Written
from rlctl.adapters.verl import (
    additions,
    agents,
    algorithm,
    asynchronous,
    batch,
    data,
    distillation,
    forks,
    launch,
    legacy_rewards,
    notes,
    offline,
    output,
    requirement_values,
    rewards,
    rollout,
    sft,
    train,
)
from rlctl.adapters.verl.memory import memory_terms
from rlctl.adapters.verl.ranks import RANKS
from rlctl.common.errors import TranslationError
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.common.report import Entry, Finding, Level, finding
from rlctl.config import Config
from rlctl.documents import Comment, Document, KeyPath, Override, apply_overrides
from rlctl.documents.paths import parse_dotted

TORCHRUN = {"nproc-per-node": "trainer.n_gpus_per_node", "nnodes": "trainer.nnodes"}
PROGRAMS = {
    "verl.trainer.main_ppo": TrainerProgram("hydra", "ppo"),
    "verl.trainer.main_ppo_sync": TrainerProgram("hydra", "ppo", since="0.8"),
    "verl.trainer.sft_trainer": TrainerProgram("hydra", "sft_engine", TORCHRUN, since="0.6"),
    "verl.trainer.sft_trainer_ray": TrainerProgram("hydra", "sft_engine", since="0.7"),
    "verl.trainer.fsdp_sft_trainer": TrainerProgram("hydra", "sft", TORCHRUN),
    "verl.trainer.main_generation": TrainerProgram("hydra", "generation"),
    "verl.trainer.main_generation_server": TrainerProgram("hydra", "generation_server", since="0.6"),
    "verl.trainer.main_eval": TrainerProgram("hydra", "evaluation"),
    "verl.experimental.*main*": TrainerProgram("hydra", "ppo", since="0.7"),
    "verl.trainer.main_*": TrainerProgram("hydra"),
    "recipe.dapo.main_dapo": TrainerProgram("hydra", "ppo"),  # these two train with the trainer's own workers
    "recipe.entropy.main_entropy": TrainerProgram("hydra", "ppo"),
    "recipe.*main*": TrainerProgram("hydra", "ppo", has_own_code=True),
    "recipe.*sft*": TrainerProgram("hydra", has_own_code=True),
}
CONFIGS = {
    "ppo_trainer": Shipped("ppo"),
    "ppo_megatron_trainer": Shipped("ppo", ("model_engine=megatron",)),
    "fully_async_ppo_trainer": Shipped("ppo"),
    "fully_async_ppo_megatron_trainer": Shipped("ppo", ("model_engine=megatron",)),
    "one_step_off_ppo_trainer": Shipped("ppo"),
    "one_step_off_ppo_megatron_trainer": Shipped("ppo", ("model_engine=megatron",)),
    "sft_trainer": Shipped("sft"),
    "sft_trainer_engine": Shipped("sft_engine"),
    "generation": Shipped("generation"),
    "evaluation": Shipped("evaluation"),
}
# 0.7.1 trainer/config/actor/veomni_actor.yaml and torchtitan_actor.yaml, trainer/config/engine/torchtitan.yaml
SINCE_0_7_1 = {("ppo", "veomni"), ("ppo", "torchtitan"), ("sft_engine", "torchtitan")}
"""Kinds of file with engines that their first release lacks."""
GROUPS = {"engine": "engine@engine", "optim": "optim@optim", "model": "model@model"}
RL = Dropped("algorithm.objective.type", "verl's PPO trainer supports only reinforcement learning", "rl")
OBJECTIVES = Dropped("algorithm.objective.**", "verl's PPO trainer supports only reinforcement learning")


@record
class Verl(Dialect):
    """verl, whose users write overrides of a composed config, or YAML of what they override."""

    formats: tuple[str, ...] = field(default=("yaml", "sh", "overrides"), kw_only=True)

    def prepare(self, document: Document, overrides: Sequence[Override]) -> Document:
        """Apply overrides; a choice from a config group becomes a key of its own, ``engine@engine``."""
        plain = [self._as_key(override) for override in overrides]
        return apply_overrides(document, plain) if plain else document

    def _as_key(self, override: Override) -> Override:
        if override.package is not None:
            key = f"{override.key}@{override.package.rpartition('.')[2]}"
            return replace(override, key=key, path=(key,), package=None)
        if override.key in GROUPS and isinstance(override.value, str):
            return replace(override, key=GROUPS[override.key], path=(GROUPS[override.key],))
        return override

    def as_taken(self, document: Document, release: str, kind: str) -> Document:
        """With the reward blocks that the trainer copies before it reads them."""
        view = TextView(self.tables[kind], version_of(release), document.values, {})
        return legacy_rewards.as_copied(document, view)[0]

    def read(
        self,
        document: Document,
        taken: Detection,
        *,
        environment: Mapping[str, str] | None,
        options: Mapping[str, str],
        restored: Mapping[str, Mapping[str, Any]],
    ) -> Read:
        """Read a file, with warnings of tools that its run would not use, of what it would resume from, and of a fork's keys."""
        table, version = self.table_for(document, taken.kind), version_of(taken.version)
        view = TextView(table, version, document.values, options)
        fork = forks.fork_of(document, table) if taken.kind == "ppo" else None
        seen, moves, replaced = legacy_rewards.as_copied(document, view)
        read = read_document(
            f"{self.name}@{taken.version}",
            table if fork is None else forks.with_own(table, fork),
            version,
            seen,
            environment=environment,
            options=options,
            restored=restored,
            composed=self.is_composed(document),
        )
        if moves:
            read = legacy_rewards.in_own_keys(read, moves, replaced)
        read.report.findings += additions.refused(document, table, taken.version, self.versions)
        if taken.kind in launch.ENGINE_KINDS:
            started = self._started(document, taken, str(options.get("program") or ""))
            read.report.findings += additions.of_other_engines(document, started, taken.version)
        if fork is None:
            program, told = str(options.get("program") or ""), {item.key for item in read.report.findings}
            read.report.findings += additions.of_no_release(document, table, taken.version, program, told)
        if fork is not None:
            read.report.findings[:] = forks.told(read.report, fork)
        if read.report.errors:
            read.config, read.loaded = None, None
        if taken.kind == "ppo":
            found = [
                *agents.on_read(document.values, version),
                *output.on_read(document.values),
                *asynchronous.replicas_beside(view),
            ]
            read.report.findings += [replace(item, at=document.at(split(item.key))) for item in found]
        return read

    def _started(self, document: Document, taken: Detection, program: str) -> Table:
        """The table of the config that a command starts from: before verl chose engines by a group, FSDP's if it names none."""
        table = self.table_for(document, taken.kind)
        named = program != requirement_values.MAIN or "model_engine" in document.values
        if named or version_of(taken.version) >= version_of(launch.GROUP_SINCE):
            return table
        return self.tables[taken.kind].composed_for(table.composition._replace(engine=launch.COMPOSED[0]))

    def upgraded(self, entries: Sequence[Entry], source: str, release: str) -> list[Finding]:
        """A note on each key that the newer release would have ignored in silence."""
        found = []
        for entry in entries:
            path = parse_dotted(entry.key)
            for item in notes.LATER_IGNORED:
                newer = version_of(source) < version_of(item.since) <= version_of(release)
                if newer and matches(split(item.key), path) and entry.value is not None:
                    found.append(
                        finding(
                            "newer-ignores",
                            Level.NOTE,
                            entry.key,
                            entry.at,
                            framework="verl",
                            since=item.since,
                            effect=item.message,
                            written="yes" if entry.targets else "no",
                        )
                    )
        return found

    def write_one(self, given: ConfigWithOrigins, version: str, options: Mapping[str, str]) -> Written:
        """Write a config; what it asks of the data is told where the data is not verl's."""
        whole = given.config
        given, other = with_one_engine(given, self.name)
        roles = given.config
        ppo = self.kind_for(given.config, version) == "ppo"
        given, cut = batch.within_a_step(given) if ppo else (given, "")
        written = super().write_one(given, version, options)
        tell_engines(written, whole, roles, self.name)
        written.findings += other
        if cut:
            written.fates.setdefault(batch.MINI, WriteOutcome()).lost = cut
        if ppo:
            written.findings += [*data.needs(given.config), *batch.needs(given.config)]
            keys = {source.key for source in given.sources.values()}
            asynchronous.without_replicas(written, given.config, keys)
            mode = find(written.values, parse_dotted(asynchronous.MODE))
            written.findings += asynchronous.rewritten(keys, mode if isinstance(mode, str) else None)
        return written

    def render(self, file: File, form: str, comments: Mapping[KeyPath, Comment], tail: Sequence[str]) -> str:
        """YAML, a launch script, or the list of overrides."""
        if form == "sh":
            return launch.script_text(file, self.tables[file.kind], comments, tail)
        if form == "overrides":
            return launch.overrides_text(file, self.tables[file.kind])
        return super().render(file, form, comments, tail)

    def composition(self, values: Mapping[str, Any], kind: str) -> Composition:
        """The engine that a file names, and the asynchronous trainer whose keys it has."""
        engine = launch.composed_engine(values)
        trainer = ("fully_async" if "async_training" in values else "one_step_off") if "rollout" in values else ""
        return Composition(engine, trainer if kind == "ppo" else "") if kind in launch.ENGINE_KINDS else Composition()

    def composition_of(self, config: Config) -> Composition:
        """The engine of the trained model; verl's asynchronous trainers are written as the usual one."""
        return Composition(launch.composed_as(own_name(config.train.engine.type_name, self.name)))

    def refuse_patch(self, asked: str, config: Config) -> None:
        """0.7.0 composes no config for two engines of 0.7.1.

        Raises:
            TranslationError: the config is for one of them.
        """
        engine = self.composition_of(config).engine
        if asked == "0.7.0" and (self.kind_for(config, "0.7"), engine) in SINCE_0_7_1:
            raise TranslationError(
                said("verl 0.7.0 has no trainer on {engine}, which 0.7.1 has", engine=engine),
                hint="write it for 0.7.1 (--to verl@0.7.1), and install that release",
            )

    def is_composed(self, document: Document) -> bool:
        """A composed config has hundreds of keys, interpolations between them, and every block."""
        leaves = sum(1 for _ in document.leaves())
        return leaves > 150 and {"actor_rollout_ref", "critic", "algorithm", "trainer", "data"} <= set(document.values)

    def kind_for(self, config: Config, version: str) -> str:
        """The PPO trainer for rl, an SFT trainer for sft, a program of its own for what trains nothing.

        Raises:
            TranslationError: verl has no trainer for the objective or mode.
        """
        objective, mode = config.algorithm.objective.choice, config.run.mode
        if objective == "rl" and mode == "rollout_only":
            return "generation_server" if version_of(version) >= (0, 7) else "generation"
        if objective == "rl" and mode == "evaluate_only" and any(source.response_key for source in config.data.eval):
            return "evaluation"
        if objective == "rl" and mode in ("full", "evaluate_only"):
            return "ppo"
        if objective == "sft":
            return "sft_engine" if version_of(version) >= (0, 6) else "sft"
        what = (
            said("objective {objective}", objective=objective) if objective != "rl" else said("mode {mode}", mode=mode)
        )
        raise TranslationError(
            said("verl has no trainer for {what}", what=what),
            hint="verl supports rl, sft, generation and evaluation; for other objectives, convert to Trinity",
        )


PPO = joined(
    [RL, OBJECTIVES],
    output.RULES,
    data.RULES,
    train.RULES,
    batch.RULES,
    algorithm.RULES,
    rollout.RULES,
    rewards.RULES,
    distillation.RULES,
)


SFT_BLOCKS = ("model", "engine", "optim", "checkpoint")
PPO_BLOCKS = ("actor_rollout_ref", "critic", "reward", "reward_model", "distillation", "rollout", "async_training")


def _notes(*without: str) -> tuple[Noted, ...]:
    """The notes but those on blocks that a kind of file does not have."""
    return tuple(note for note in notes.NOTES if note.path[0] not in without)


RECIPES = {
    "algorithm.filter_groups.**": "",
    "data.gen_batch_size": "",
    "rollout.**": "0.5",
    "async_training.**": "0.7",
    "actor_rollout_ref.actor.use_rollout_log_probs": "0.7",
}
"""Keys of recipes with configs of their own: recipe/dapo, recipe/one_step_off_policy and recipe/fully_async_policy."""
CHOICES = dict.fromkeys(("model_engine", "engine.strategy", "trainer.nnodes", "trainer.n_gpus_per_node"), "")
"""What a config file's name or torchrun says instead in releases without the key."""


TABLES = Tables(
    {
        "ppo": lambda: Table(PPO, _notes(*SFT_BLOCKS), schema("verl", "ppo"), unlisted={**RECIPES, **CHOICES}),
        "sft_engine": lambda: Table(
            tuple(sft.ENGINE),
            _notes(*PPO_BLOCKS),
            schema("verl", "sft_engine"),
            frozenset({"0.6", "0.7", "0.8", "0.9"}),
            unlisted=CHOICES,
        ),
        "sft": lambda: Table(
            tuple(sft.OLD),
            _notes(*PPO_BLOCKS),
            schema("verl", "sft"),
            frozenset({"0.3", "0.4", "0.5", "0.6", "0.7"}),
            unlisted=CHOICES,
        ),
        "evaluation": lambda: Table(tuple(offline.EVALUATION), offline.NOTES, schema("verl", "evaluation")),
        "generation": lambda: Table(
            tuple(offline.GENERATION),
            offline.NOTES,
            schema("verl", "generation"),
            frozenset({"0.3", "0.4", "0.5", "0.6"}),
        ),
        "generation_server": lambda: Table(
            offline.server(PPO),
            _notes(*SFT_BLOCKS),
            schema("verl", "ppo"),
            frozenset({"0.6", "0.7", "0.8", "0.9"}),
            unlisted=CHOICES,
        ),
    }
)


VERL = Verl(
    "verl",
    ("0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"),
    TABLES,
    (
        "model_engine",
        "data",
        "model",
        "actor_rollout_ref",
        "critic",
        "engine",
        "optim",
        "reward",
        "custom_reward_function",
        "algorithm",
        "trainer",
    ),
    PROGRAMS,
    CONFIGS,
    ranks=RANKS,
    memory=memory_terms,
)


def describe(config: Any) -> str:
    """Which of verl's entry points runs a config."""
    return "verl.trainer.sft_trainer" if config.algorithm.objective.choice == "sft" else "verl.trainer.main_ppo"
