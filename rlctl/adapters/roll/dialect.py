"""The ROLL dialect: a table for each pipeline, and which of them a file is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlctl.adapters.engine.agents import plays
from rlctl.adapters.engine.dialect import Detection, Dialect, TrainerProgram
from rlctl.adapters.engine.reading import Read, unknown_keys
from rlctl.adapters.engine.resolvers import COMPOSED
from rlctl.adapters.engine.rules import CustomRule, Dropped, Key, Noted, Rule, version_of
from rlctl.adapters.engine.schema import schema
from rlctl.adapters.engine.table import Table, Tables, joined
from rlctl.adapters.engine.tree import find, put
from rlctl.adapters.engine.values import Names, Off
from rlctl.adapters.engine.writing import ConfigView, ConfigWithOrigins, Written
from rlctl.adapters.roll import (
    agentic,
    algorithm,
    batch,
    correction,
    data,
    distill,
    model,
    notes,
    placement,
    rewards,
    rollout,
    run,
    supervised,
    train,
    worker_notes,
)
from rlctl.adapters.roll.memory import memory_terms
from rlctl.adapters.roll.needs import needs
from rlctl.adapters.roll.ranks import RANKS
from rlctl.adapters.roll.reference_only_keys import explained, unexplained
from rlctl.adapters.roll.renamed_roles import spelled, spelled_notes, without
from rlctl.common.errors import TranslationError
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.common.report import Level, Origin, OriginEntry, finding
from rlctl.config import Config
from rlctl.config.sections.agents import EnvironmentAgent
from rlctl.documents import Document, parse_dotted

UNSTARTED = {
    "train_only": "its trainer trains only on its own rollout, not on a file or database",
    "rollout_only": "its rollout pipelines only evaluate and save no training data",
}
"""Modes of reinforcement learning that no start script of ROLL's has."""
ONLINE_ROLES = {"actor_train": "student_train", "actor_infer": "student_infer", "reference": "teacher"}
MIXED_ROLES = {"reference": "teacher"}
SFT_ROLES = {"actor_train": "sft_train"}
OFFLINE_ROLES = {"actor_train": "student", "reference": "teacher"}
AWAY = ("algorithm", "critic", "rewards", "reward_loop", "batch")
"""Sections that supervised training has nothing for, but what its own rules say."""


def _model(*keys: str) -> list[Rule]:
    """The rules of the model, with one key for its path where not each role has its own."""
    paths = [Key(key, "model.path", always=True) for key in keys]
    return [
        *paths,
        *(rule for rule in model.RULES if not (isinstance(rule, CustomRule) and rule.name == "model paths")),
    ]


def _away(objective: str, *kept: str) -> list[Rule]:
    reason = said("ROLL's {objective} does not use this key", objective=objective)
    idle = "there is no rollout"
    found: list[Rule] = [
        algorithm.PRESET,
        *(Dropped(f"{name}.**", idle, idle=True) for name in ("weight_sync", "buffer", "service", "rollout")),
        Dropped("batch.balance", "ROLL always balances tokens across ranks", idle=True),
        *(Dropped(f"{name}.**", reason) for name in AWAY if name not in kept),
    ]
    return [*found, Dropped("critic", reason, None), Dropped("run.**", reason), Dropped("model.**", reason)]


STAYS: list[Rule] = [
    Dropped("train.engine.offload", "ROLL's SFT has no offloading", "none"),
    Dropped("train.engine.offload_gradients", "ROLL's SFT has no offloading", False),
]
OFFLOADS: list[Rule] = [
    Key(
        "is_offload_states",
        "train.engine.offload",
        convert=Names({False: "none", True: "both"}, "ROLL offloads everything or nothing"),
    ),
    Dropped("train.engine.offload_gradients", "ROLL offloads everything or nothing", False),
]
"""What idle roles do with their states in DPO and distillation."""
RL = joined(run.RULES, model.RULES, train.RULES, rollout.RULES, placement.RULES)
RLVR = joined(
    RL,
    batch.RLVR,
    algorithm.RLVR,
    [correction.CORRECTION],
    rewards.RULES,
    data.RLVR,
    agentic.NO_AGENTS,
)
AGENTIC = joined(
    agentic.sampled([*RL, *agentic.TURNS]), batch.AGENTIC, algorithm.AGENTIC, [correction.CORRECTION], agentic.AGENTIC
)
SFT = joined(
    run.RULES,
    without([*_model("pretrain"), *train.POLICY, *placement.RULES], "actor_infer", "reference", "critic"),
    supervised.EPOCHS,
    supervised.RULES,
    data.SFT,
    [Dropped("algorithm.objective.type", "ROLL uses a different start script and config file for it", "sft"), *STAYS],
    _away("SFT"),
    [Dropped("reference.**", "SFT has no reference model")],
)
DPO = joined(
    run.RULES,
    without(
        [model.paths("actor_train", "reference"), *_model(), *train.POLICY, *train.REFERENCE, *placement.RULES],
        "actor_infer",
        "critic",
    ),
    supervised.BOTH,
    supervised.RULES,
    data.DPO,
    algorithm.DPO,
    OFFLOADS,
    _away("DPO"),
)
NO_CLIP = Key("max_grad_norm", "train.optimizer.max_grad_norm", convert=Off(0.0))
"""ROLL's distillation clips no gradient unasked."""
DISTILL = joined(
    run.RULES,
    [NO_CLIP],
    without([*_model("student_pretrain"), *train.POLICY, *train.REFERENCE, *placement.RULES], "actor_infer", "critic"),
    supervised.EPOCHS,
    supervised.RULES,
    data.DISTILL,
    distill.OFFLINE,
    OFFLOADS,
    [Dropped("algorithm.objective.type", "ROLL uses a different start script and config file for it", "sft")],
    _away("distillation"),
)


def _table(
    pipeline: str, rules: Callable[[], Sequence[Rule]], about: Sequence[Noted], roles: Mapping[str, str] | None = None
) -> Callable[[], Table]:
    """What makes the table of a pipeline's config class, with the names that its roles have."""

    def make() -> Table:
        own = tuple(spelled(rules(), roles or {}))
        noted = tuple(spelled_notes((*about, *worker_notes.NOTES), roles or {}))
        return Table(own, noted, schema("roll", pipeline), resolvers=COMPOSED)

    return make


TEACHERS_RLVR = (*notes.TEACHERS, *notes.RLVR_NOTES)
TEACHERS_AGENTIC = (*notes.TEACHERS, *notes.AGENTIC_NOTES)
TABLES = Tables(
    {
        "rlvr": _table("rlvr", lambda: joined(RLVR, distill.WITHOUT_TEACHER), notes.RLVR_NOTES),
        "agentic": _table("agentic", lambda: joined(AGENTIC, distill.WITHOUT_TEACHER), notes.AGENTIC_NOTES),
        "sft": _table("sft", lambda: SFT, notes.SUPERVISED_NOTES, SFT_ROLES),
        "dpo": _table("dpo", lambda: joined(DPO, distill.WITHOUT_TEACHER), notes.SUPERVISED_NOTES),
        "distill": _table("distill", lambda: DISTILL, notes.SUPERVISED_NOTES, OFFLINE_ROLES),
        "opd": _table("rlvr", lambda: joined(distill.ONLINE, RLVR), TEACHERS_RLVR, ONLINE_ROLES),
        "opd_agentic": _table("agentic", lambda: joined(distill.ONLINE, AGENTIC), TEACHERS_AGENTIC, ONLINE_ROLES),
        "rlvr_teacher": _table("rlvr", lambda: joined(distill.ONLINE, RLVR), TEACHERS_RLVR, MIXED_ROLES),
    }
)


SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sft", ("sft_train",)),
    ("distill", ("student", "student_pretrain", "teacher_pretrain", "kd_objective")),
    ("opd", ("student_train", "student_infer")),
    ("dpo", ("chosen_key", "rejected_key", "ipo", "beta", "label_smoothing")),
    ("agentic", ("train_env_manager", "val_env_manager", "custom_envs")),
    ("rlvr_teacher", ("teacher", "use_opd")),
)
"""Keys that only one pipeline has; RLVR is what has none of them."""
SCRIPTS = {
    "start_rlvr_pipeline.py": "",
    "start_rlvr_vl_pipeline.py": "",
    "start_rlvr_rollout_pipeline.py": "",
    "start_agentic_pipeline.py": "agentic",
    "start_agentic_rollout_pipeline.py": "agentic",
    "start_sft_pipeline.py": "sft",
    "start_dpo_pipeline.py": "dpo",
    "start_distill_pipeline.py": "distill",
    "start_distill_vl_pipeline.py": "distill",
    "start_onpolicy_distill_pipeline.py": "",
}


def _as_worker(value: Any) -> Any:
    if not isinstance(value, Mapping) or not any(key in value for key in ("model_args", "data_args", "strategy_args")):
        return value
    rank = {key: place for place, key in enumerate(WORKER)}
    return {key: value[key] for key in sorted(value, key=lambda key: rank.get(key, len(rank)))}


MODEL = ("model_args", "model_name_or_path")


def _is_of(key: str, names: Sequence[str]) -> bool:
    """Whether a key belongs to a teacher with a name."""
    return any(key.startswith(f"teacher.{name}.") for name in names)


WORKER = (
    "worker_cls",
    "pg_variant",
    "model_args",
    "training_args",
    "data_args",
    "generating_args",
    "strategy_args",
    "use_sequence_packing",
    "device_mapping",
    "num_gpus_per_worker",
    "infer_batch_size",
)
"""The keys of a worker in the order of ROLL's examples; what is not named comes after."""


def _keep_scored_domains(written: Written) -> None:
    """Leave out kept shares of domains whose reward did not come back: ROLL stops at one without."""
    shares = find(written.values, ("actor_train", "data_args", "domain_interleave_probs"))
    rewards = written.values.get("rewards")
    if isinstance(shares, dict) and isinstance(rewards, dict) and set(shares) & set(rewards):
        for name in set(shares) - set(rewards):
            del shares[name]


ENVIRONMENTS = "custom_envs"


def _shows_history(config: Config) -> bool:
    """Whether an environment shows the model earlier turns, of which ROLL's step-wise manager shows others than rlctl."""
    return any(isinstance(agent, EnvironmentAgent) and agent.history_turns for agent in config.rollout.agents)


@record
class Roll(Dialect):
    """ROLL, whose users write one Hydra YAML for a start script."""

    def detect(self, document: Document, *, version: str = "", kind: str = "") -> Detection:
        """The pipeline whose own keys the file has. Keys that only name values for other keys are no unknown ones."""
        kind = kind or self._pipeline(document.values)
        release = version or self.newest
        leaves = [path for path, _ in document.leaves()]
        counted = unexplained(document)
        missing = sum(1 for _ in unknown_keys(self.tables[kind], version_of(release), release, counted))
        return Detection(release, kind, missing, len(leaves))

    def _pipeline(self, values: Mapping[str, Any]) -> str:
        found = next((kind for kind, keys in SIGNS if any(key in values for key in keys)), "rlvr")
        return "opd_agentic" if found == "opd" and values.get("pure_opd_pipeline_type") == "agentic" else found

    def read(
        self,
        document: Document,
        taken: Detection,
        *,
        environment: Mapping[str, str] | None,
        options: Mapping[str, str],
        restored: Mapping[str, Mapping[str, Any]],
    ) -> Read:
        """As any dialect, with keys that only other keys name told apart from those that nothing knows."""
        found = super().read(document, taken, environment=environment, options=options, restored=restored)
        explained(found.report, document)
        if found.config is not None and _shows_history(found.config):
            found.report.findings.append(
                finding("other-observations", Level.NOTE, ENVIRONMENTS, document.at((ENVIRONMENTS,)))
            )
        return found

    def write_one(self, given: ConfigWithOrigins, version: str, options: Mapping[str, str]) -> Written:
        """Write a config; what ROLL asks of its data is told where the data was made for another framework."""
        written = super().write_one(given, version, options)
        self._name_teachers(written, given)
        _keep_scored_domains(written)
        kind = self.kind_for(given.config, version)
        view = ConfigView(self.tables[kind], given, version_of(version), options)
        written.findings += needs(view, kind)
        if _shows_history(given.config) and not any(
            item.key.startswith(ENVIRONMENTS) for item in given.sources.values()
        ):
            written.findings.append(finding("other-observations", Level.WARNING, ENVIRONMENTS))
        return written

    def _name_teachers(self, written: Written, given: ConfigWithOrigins) -> None:
        """Put the first of several teachers, which came with their names, among the others instead of beside them."""
        block = written.values.get("teacher")
        table = self.tables["opd"]
        known = (*table.index, *(note.path for note in table.notes))
        fields = {path[1] for path in known if path[0] in ("teacher", "*") and len(path) > 1}
        kept = [parse_dotted(key) for key in given.config.carried_for("roll") if key.startswith("teacher.")]
        names = [str(path[1]) for path in kept if len(path) > 2 and path[1] not in fields]
        if not names or not isinstance(block, dict):
            return
        path = find(block, MODEL)
        for key in [key for key in block if key not in names]:
            del block[key]
        put(block, (names[0], *MODEL), path)
        place = f"teacher.{names[0]}.{'.'.join(MODEL)}"
        own = [entry for entry in written.origins if not entry.key.startswith("teacher.") or _is_of(entry.key, names)]
        written.origins[:] = [*own, OriginEntry(place, Origin.DERIVED, path, "the first of several teachers")]

    def ordered(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """As any dialect, and the keys of each worker in the order of ROLL's examples."""
        return {key: _as_worker(value) for key, value in super().ordered(values).items()}

    def kind_for(self, config: Config, version: str) -> str:
        """The pipeline that trains so.

        Raises:
            TranslationError: ROLL has no pipeline for the objective.
        """
        objective, distillation = config.algorithm.objective.choice, config.algorithm.distillation
        if objective == "sft":
            return "distill" if distillation is not None else "sft"
        if objective == "dpo":
            return "dpo"
        if objective != "rl":
            raise TranslationError(
                said("ROLL has no pipeline for objective {objective}", objective=objective),
                hint="ROLL trains with rl, sft and dpo; Trinity has mix",
            )
        if config.run.mode in UNSTARTED:
            raise TranslationError(
                said(
                    "ROLL has no pipeline for mode {mode}: {unstarted}",
                    mode=config.run.mode,
                    unstarted=UNSTARTED[config.run.mode],
                ),
                hint="convert a run that both generates and trains, or run this half with Trinity",
            )
        agents = bool(plays(config))
        if distillation is None:
            return "agentic" if agents else "rlvr"
        if distillation.args.get("with_rewards") and not agents:
            return "rlvr_teacher"
        return "opd_agentic" if agents else "opd"


ROLL = Roll(
    "roll",
    ("2026.8",),
    TABLES,
    (
        "defaults",
        "hydra",
        "exp_name",
        "seed",
        "logging_dir",
        "output_dir",
        "rollout_dump_dir",
        "system_envs",
        "checkpoint_config",
        "track_with",
        "tracker_kwargs",
        "num_gpus_per_node",
        "max_steps",
        "save_steps",
        "max_ckpt_to_keep",
        "logging_steps",
        "eval_steps",
        "resume_from_checkpoint",
        "async_generation_ratio",
        "rollout_batch_size",
        "val_batch_size",
        "prompt_length",
        "response_length",
        "sequence_length",
        "val_prompt_length",
        "val_sequence_length",
        "num_return_sequences_in_group",
        "is_num_return_sequences_expand",
        "is_use_additional_prompts",
        "max_additional_running_prompts",
        "max_running_requests",
        "ppo_epochs",
        "adv_estimator",
        "critic_warmup",
        "gamma",
        "lambd",
        "use_pg_clip_range",
        "pg_clip",
        "pg_clip_low",
        "pg_clip_high",
        "dual_clip_loss",
        "importance_sampling",
        "ratio_type",
        "value_clip",
        "reward_clip",
        "advantage_clip",
        "loss_agg_mode",
        "rl_loss_coef",
        "entropy_loss_coef",
        "use_kl_loss",
        "kl_loss_coef",
        "add_token_level_kl",
        "init_kl_coef",
        "kl_penalty",
        "target_kl",
        "kl_horizon",
        "norm_mean_type",
        "norm_std_type",
        "reward_normalization",
        "whiten_rewards",
        "whiten_advantages",
        "max_len_mask",
        "difficulty_mask",
        "difficulty_low_threshold",
        "difficulty_high_threshold",
        "error_max_len_clip",
        "error_max_len_threshold",
        "difficulty_loss_weight",
        "length_loss_weight",
        "train_infer_correction",
        "max_grad_norm",
        "beta",
        "ipo",
        "label_smoothing",
        "pretrain",
        "reward_pretrain",
        "student_pretrain",
        "teacher_pretrain",
        "global_template",
        "prompt_key",
        "query_key",
        "response_key",
        "system_key",
        "chosen_key",
        "rejected_key",
        "validation",
        "actor_train",
        "actor_infer",
        "critic",
        "reference",
        "sft_train",
        "student",
        "student_train",
        "student_infer",
        "teacher",
        "rewards",
        "train_env_manager",
        "val_env_manager",
        "custom_envs",
    ),
    programs={f"*{name}": TrainerProgram("file", kind) for name, kind in SCRIPTS.items()},
    ranks=RANKS,
    memory=memory_terms,
)
