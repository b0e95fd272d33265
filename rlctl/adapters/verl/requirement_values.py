"""Numbers of a verl file that several of its requirements are about: devices, ranks, roles and lengths."""

from __future__ import annotations

from collections.abc import Callable

from rlctl.adapters.engine.requirements import Values

ACTOR, ROLLOUT, REF, CRITIC = (
    "actor_rollout_ref.actor",
    "actor_rollout_ref.rollout",
    "actor_rollout_ref.ref",
    "critic",
)

MODEL = "actor_rollout_ref.model"
MAIN = "verl.trainer.main_ppo"
SEPARATE = ("one_step_off_policy", "fully_async")
"""Parts of the names of programs whose rollout has its own GPUs."""


def gpus(values: Values) -> int:
    return values.number("trainer.nnodes") * values.number("trainer.n_gpus_per_node")


def strategy(values: Values, role: str = ACTOR) -> str:
    """What trains a role: its own strategy, or the one that ``model_engine`` chooses."""
    chosen = {"dp": "fsdp"}.get(values["model_engine"], values["model_engine"])
    return str(values[f"{role}.strategy"] if values.written(f"{role}.strategy") or chosen is None else chosen)


def static(role: str) -> Callable[[Values], bool]:
    return lambda values: not values[f"{role}.use_dynamic_bsz"]


def model_parallel(values: Values) -> int:
    sizes = (
        values.number(f"{ACTOR}.megatron.{name}_parallel_size")
        for name in ("tensor_model", "pipeline_model", "context")
    )
    product = 1
    for size in sizes:
        product *= size
    return product


def sequence_parallel(values: Values, role: str) -> int:
    return values.number(f"{role}.ulysses_sequence_parallel_size")


def smallest_batch(values: Values) -> int:
    """The responses that a step's must divide by, without dynamic batches."""
    if strategy(values) != "megatron":
        return gpus(values)
    replicas = gpus(values) // model_parallel(values)
    return replicas * values.number(f"{ACTOR}.ppo_micro_batch_size_per_gpu")


def replicas(values: Values) -> int:
    """Data-parallel ranks of the actor."""
    if strategy(values) == "megatron":
        return gpus(values) // model_parallel(values)
    return gpus(values) // sequence_parallel(values, ACTOR)


def uses_critic(values: Values) -> bool:
    enabled = values["critic.enable"]
    if has_own_config(values) and not values.written("algorithm.adv_estimator"):
        return False
    return bool(values["algorithm.adv_estimator"] == "gae" if enabled is None else enabled)


def has_own_config(values: Values) -> bool:
    """Whether a recipe starts from a config of its own, or a program trains nothing: verl's defaults say nothing of the run."""
    return values.program.startswith("recipe.") or "main_generation" in values.program


def uses_reference(values: Values) -> bool:
    return bool(values["algorithm.use_kl_in_reward"] or values[f"{ACTOR}.use_kl_loss"])


def in_turns(values: Values) -> bool:
    """Whether the actor's devices generate too."""
    return bool(values["trainer.v1.trainer_mode"] != "separate_async")


def engine_devices(values: Values) -> int:
    return (
        values.number(f"{ROLLOUT}.tensor_model_parallel_size")
        * values.number(f"{ROLLOUT}.data_parallel_size")
        * values.number(f"{ROLLOUT}.pipeline_model_parallel_size")
    )


def longest(values: Values) -> int:
    """The longest sequence of a step, padding included."""
    return values.number("data.max_prompt_length", 0) + values.number("data.max_response_length", 0)


def serves(values: Values) -> bool:
    """Whether the rollout engine is a server, which releases until 0.6 start only if the mode says so."""
    return values.written(f"{ROLLOUT}.mode") and bool(values[f"{ROLLOUT}.mode"] == "async")


def uses_engine(engine: str) -> Callable[[Values], bool]:
    """Whether a rollout engine generates."""
    return lambda values: bool(values[f"{ROLLOUT}.name"] == engine)


def is_on(switch: str) -> Callable[[Values], bool]:
    """Whether a switch is true."""
    return lambda values: values[switch] is True


def is_fully_async(values: Values) -> bool:
    """Whether the fully asynchronous trainer runs the file."""
    return "fully_async" in values.program or values.written("async_training")


def is_separate(values: Values) -> bool:
    """Whether a trainer runs the file whose rollout has its own GPUs."""
    return any(part in values.program for part in SEPARATE) or values.written("async_training")
