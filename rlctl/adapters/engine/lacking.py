"""What a framework lacks that has no key for a canonical one, and what follows for the run. Data, and one sentence made of it."""

from __future__ import annotations

from collections.abc import Mapping

from rlctl.common.messages.reasons import said
from rlctl.common.ranks import LOSS_TERMS, Rank, rank_of
from rlctl.documents import KeyPath

SHOWN: Mapping[str, str] = {"verl": "verl", "trinity": "Trinity", "roll": "ROLL", "rlctl": "rlctl"}
"""The frameworks' own spelling of their names."""
ENGINE = "the policy's settings apply; memory and speed may differ"
SERVER = ("settings for an OpenAI-compatible rollout server", "programs that call that server cannot connect")
SCALED = "advantages follow the estimator of this file"
OWN_REWARD = "its own reward scores the responses"
LACKS: Mapping[str, tuple[str, str]] = {
    "rollout.agents.model": ("separate model for an agent", "the policy generates the trajectory"),
    "rollout.agents.max_turns": (
        "limit on the generations of a trajectory",
        "a trajectory ends only at its token limit or when the agent stops",
    ),
    "rollout.agents.max_turn_tokens": ("token limit for one turn", "only the whole trajectory is limited"),
    "rollout.agents.max_observations": ("limit on turns of tool answers", "trajectories may have more turns"),
    "rollout.agents.max_calls": ("limit on the tool calls of a trajectory", "trajectories may make more calls"),
    "rollout.agents.time_limit": ("time limit for a trajectory", "a slow trajectory delays the step"),
    "rollout.agents.on_token_limit": (
        "rule for trajectories that the token limit ends",
        "they are trained on with their reward",
    ),
    "rollout.agents.on_turn_limit": (
        "rule for trajectories that a limit of turns ends",
        "they are trained on with their reward",
    ),
    "rollout.agents.samples": ("choice of training sequences", "a trajectory is one sequence"),
    "rollout.agents.tokens": ("choice of trained tokens", "the generated tokens are trained on"),
    "rollout.agents.credit": ("rule for the rewards of turns and tools", "rewards score the whole trajectory"),
    "rollout.agents.on_failure": ("rule for failed trajectories", "its own rule applies; the batch may differ"),
    "rollout.agents.stop_run_above_failures": ("limit on failed trajectories", "the run continues"),
    "rollout.agents.system_prompt": (
        "system message of an agent",
        "each row must contain its own; otherwise prompts have no system message",
    ),
    "rollout.agents.tool_selection_key": ("column for the tools of a row", "every row may call all tools"),
    "rollout.agents.tool_args_key": ("column for the arguments of a row's tools", "tools are made without them"),
    "rollout.agents.tool_timeout": ("time limit for one tool call", "a call that hangs delays the step"),
    "rollout.agents.tools.reward": ("reward for a tool call", "tool calls get no reward"),
    "rollout.agents.args": (
        "arguments for another framework's workflow",
        "its environments bring their own settings",
    ),
    "rollout.oversampling.additional_responses": (
        "redundant responses in a group",
        "a step waits for its slowest response",
    ),
    "algorithm.advantage.level": ("advantages over turns", "advantages discount over tokens"),
    "algorithm.advantage.divide_by_steps": (
        "division of an advantage by a trajectory's sequences",
        "long trajectories count more than short ones",
    ),
    "algorithm.advantage.std_over": ("choice of the scope of the standard deviation", SCALED),
    "algorithm.advantage.drop_below_std": ("minimum standard deviation of a group", "all groups are trained on"),
    "algorithm.advantage.episode_weight": ("weights of trajectories and steps", SCALED),
    "algorithm.advantage.step_weight": ("weights of trajectories and steps", SCALED),
    "algorithm.advantage.anchor_scope": ("comparison of steps from the same state", SCALED),
    "algorithm.loss_aggregation.unit": ("mean over trajectories", "each sequence counts as a response"),
    "algorithm.policy_loss.ratio": ("ratio over a turn", "each token's ratio is clipped"),
    "rollout.auxiliary_models": ("auxiliary models", "workflows and rewards that call it fail"),
    "rollout.openai_server": SERVER,
    "rollout.sampling.stop": ("stop strings", "a response ends at the end-of-text token or at its length limit"),
    "rollout.sampling.include_stop": ("switch for stop strings in responses", "the rollout engine's default applies"),
    "rollout.sampling.ignore_eos": ("switch to generate past the end-of-text token", "a response ends at that token"),
    "rollout.sampling.min_response_tokens": ("minimum response length", "responses may be shorter"),
    "rollout.sampling.seed": ("sampling seed", "responses differ from run to run"),
    "reference.engine": ("separate engine settings for the reference", ENGINE),
    "reference.model": ("separate model settings for the reference", "the reference uses the policy's"),
    "critic.engine": ("separate engine settings for the critic", ENGINE),
    "critic.model": ("separate model settings for the critic", "the critic uses the policy's"),
    "rollout.sampling.min_p": ("min-p sampling", "only the other sampling settings apply"),
    "rollout.sampling.num_beams": ("beam search", "responses are sampled"),
    "rollout.sampling.repetition_penalty": ("repetition penalty", "responses are sampled without it"),
    "rollout.env_vars": ("environment variables for rollout alone", "set them for the whole job"),
    "rollout.max_running_prompts": (
        "limit on prompts in flight",
        "the engine's own limit applies; speed may differ, results don't",
    ),
    "rollout.split_groups": ("switch to spread a group over engines", "speed may differ, results don't"),
    "rewards.weight": ("weights for rewards", "the score is used unchanged"),
    "rewards.applies_to": ("choice of rewards by a row's tag", "the row's data source decides what scores it"),
    "rewards.on_error": ("choice of what an error in a reward does", "an error may end the run"),
    "rewards.timeout": ("time limit for one reward", "a call that hangs delays the step"),
    "rewards.workers": ("process count for one reward", "speed may differ, results don't"),
    "rewards.name": ("names for rewards", "metrics have other names"),
    **dict.fromkeys(("rewards.type", "rewards.rule", "rewards.method"), ("reward of this kind", OWN_REWARD)),
    "rewards.args": ("arguments for this reward", "the reward's own values apply"),
    **dict.fromkeys(
        ("rewards.score_right", "rewards.score_wrong"),
        ("choice of the scores that a reward gives", "the reward keeps its own scores"),
    ),
    "data.operators": ("operators on data", "run them before training, and name their output"),
    "data.operators_input": ("operators on data", "run them before training, and name their output"),
    "data.curriculum": ("selector of tasks by difficulty or reward", "rows come in their usual order"),
    "data.trust_remote_code": ("switch to run the code that data sets bring", "data sets that bring code do not load"),
    "critic.forward_micro_batch": (
        "forward micro-batch for the critic alone",
        "the training micro-batch applies; speed may differ, results don't",
    ),
    "rollout.parallel.replicas": (
        "number of rollout engines apart from devices",
        "the devices decide; speed may differ, results don't",
    ),
    "schedule.total_epochs": ("epochs for a run that does not train", "each row is used once"),
    "extensions.roll.custom_envs": ("environments", "no tag of the run uses this environment"),
    "extensions.trinity.buffer.explorer_input.taskset.rollout_args.max_tokens": (
        "token limit for one generation of an agent",
        "only the whole response is limited",
    ),
    "algorithm.advantage.args": ("arguments for this estimator", "the estimator's own values apply"),
    "weight_sync.max_steps_ahead": ("rollout ahead of training in this layout", "rollout and training take turns"),
    "weight_sync.max_staleness_steps": ("limit on staleness in this layout", "rollout and training take turns"),
    "train.engine.args": (
        "settings of this training engine",
        "the engine's default applies; memory and speed may differ, results don't",
    ),
    "train.engine.source_args": (
        "settings of the source's variant of FSDP",
        "the engine's default applies; memory and speed may differ, results don't",
    ),
    "train.engine.optimizer_overrides": (
        "overrides of Megatron's optimizer config",
        "the engine's default applies; memory and speed may differ, results don't",
    ),
    "train.engine.offload_gradients": (
        "switch to offload gradients with FSDP",
        "the engine's default applies; memory and speed may differ, results don't",
    ),
    "train.engine.expert_parallel_size": ("expert parallelism with FSDP", "experts are sharded like all weights"),
    "train.engine.moe.freeze_router": ("switch to freeze the router", "the router is trained too"),
    "train.lr_scheduler.decay_steps": (
        "decay length apart from the run's",
        "the learning rate decays until the run ends",
    ),
    "train.lr_scheduler.total_steps": ("schedule length apart from the run's", "the schedule ends with the run"),
    "train.lr_scheduler.restore_from_checkpoint": (
        "switch to ignore the schedule of a checkpoint",
        "a resumed run continues the checkpoint's schedule",
    ),
    "train.optimizer.epsilon": ("epsilon of the optimizer", "the optimizer's default applies"),
    "train.optimizer.start_weight_decay": ("schedule for the weight decay", "the weight decay stays constant"),
    "train.optimizer.end_weight_decay": ("schedule for the weight decay", "the weight decay stays constant"),
    "train.optimizer.weight_decay_style": ("schedule for the weight decay", "the weight decay stays constant"),
    "checkpoint.delete_previous": ("switch to delete the previous checkpoint", "remove old checkpoints yourself"),
    "checkpoint.delete_after_load": ("switch to delete a loaded checkpoint", "remove it yourself"),
    "checkpoint.writers": ("limit on processes that write checkpoints", "speed may differ, results don't"),
    "runtime.ray": ("settings for starting Ray", "start Ray with them before the run"),
    "runtime.plugins": ("plug-in folders", "import the modules in the start script"),
    "run.deterministic": ("deterministic mode", "two runs may differ"),
    "run.max_restarts": ("automatic restarts", "restart a failed run yourself"),
    "run.max_steps_this_session": ("step limit for one session", "the run continues to its end"),
    "run.on_end": ("command for the end of a run", "no command runs"),
    "run.on_failure": ("command for a failed run", "no command runs"),
    "run.skip": ("replay of saved rollouts", "responses are generated"),
    "runtime.log_level": ("log level", "its own log level applies"),
    "runtime.logs_by_node": ("log folders by node", "all logs are in one folder"),
    "runtime.device_memory_check": ("check of free GPU memory", "the run starts without the check"),
    "critic.precision": (
        "choice of the critic's number type",
        "the engine's default applies; memory and speed may differ, results don't",
    ),
    "critic.memory": (
        "such memory setting for the critic",
        "the engine's default applies; memory and speed may differ, results don't",
    ),
    "critic.fused_kernels": (
        "fused kernels for the critic",
        "the engine's default applies; memory and speed may differ, results don't",
    ),
    "train.lr_scheduler.wsd_decay_steps": (
        "warmup-stable-decay schedule",
        "the learning-rate schedule of this file applies",
    ),
    "train.lr_scheduler.wsd_decay_style": (
        "warmup-stable-decay schedule",
        "the learning-rate schedule of this file applies",
    ),
    "train.optimizer.module": ("choice of the optimizer's module", "training uses torch's optimizer"),
    "run.time_limit": ("time limit for a run", "only the job scheduler can end the run"),
    "run.seed": ("seed for the whole run", "random choices differ from the source's"),
}
"""By the beginning of a canonical key: what is lacking, and what follows. The longest beginning decides."""
EFFECTS: Mapping[Rank, str] = {
    Rank.BREAKS: "the run may fail",
    Rank.OBJECTIVE: "its own setting applies, and the loss or the update may differ",
    Rank.SCHEDULE: "its own setting applies, and the schedule or the batch may differ",
    Rank.DATA: "its own setting applies, and data, sampling or rewards may differ",
    Rank.RESOURCES: "its own setting applies; memory and speed may differ, results don't",
    Rank.NAMES: "its own setting applies; names, files and logs may differ, results don't",
}
"""What follows of a key that no row is about, by the key's rank."""


def lacking(dialect: str, canonical: KeyPath) -> str:
    """What a framework lacks, and what follows."""
    parts = [str(part) for part in canonical if not isinstance(part, int)]
    name, key = SHOWN.get(dialect, dialect), ".".join(parts)
    if parts[-1] in LOSS_TERMS:
        what, follows = said("loss term {key}", key=parts[-1]), EFFECTS[Rank.OBJECTIVE]
        return said("{name} has no {what}: {follows}", name=name, what=what, follows=follows)
    beginnings = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    row = next((LACKS[one] for one in beginnings if one in LACKS), None)
    what, follows = row or (said("key for {key}", key=key), EFFECTS[rank_of(key) or Rank.NAMES])
    return said("{name} has no {what}: {follows}", name=name, what=what, follows=follows)
