"""What is learned from what: section ``algorithm``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, Fraction, Local, NonNegative, Positive, Range, Tokens, Unit, section

Scope = Literal["batch", "group", "running"]
KlEstimator = Literal["k1", "abs", "k2", "k3", "k3_unclamped", "k3_corrected", "full", "k1+", "abs+", "k2+", "k3+"]


@section
class Advantage(Choice):
    """How rewards become advantages."""

    whiten: bool = False
    """Shift and scale advantages to mean 0 and variance 1 over the batch, after the estimator."""
    clip: Annotated[float, Range(above=0)] | None = None
    """Advantages are clipped to plus and minus this, after they are whitened. null = off."""


@section
class Gae(Advantage, type="gae"):
    """Generalised advantage estimation (Schulman et al. 2016). Needs a critic."""

    gamma: Fraction = 1.0
    """Discount per token. Lower values give later rewards less weight."""
    lambda_: Fraction = 1.0
    """Bias-variance trade-off, written ``lambda`` in files. Lower values rely more on the critic: less variance,
    more bias."""
    whiten: bool = True
    level: Literal["token", "turn"] = "token"
    """Unit of the discount: generated tokens, or turns of an agent. The tokens of a turn then share one advantage."""


@section
class Grpo(Advantage, type="grpo"):
    """Group-relative advantages (Shao et al. 2024): reward minus the group's mean, over its standard deviation."""

    normalize_by_std: bool = True
    """Divide by the group's standard deviation. false = Dr. GRPO (Liu et al. 2025)."""
    epsilon: Positive = 1e-6
    """Added to the standard deviation."""
    kl_order: Literal["before_normalisation", "after_normalisation"] = "before_normalisation"
    """Whether rewards are clipped and KL is subtracted before group normalization (verl) or after it (ROLL)."""


@section
class GrpoPassK(Advantage, type="grpo_passk"):
    """Only the best response of a group gets an advantage: its margin over the second best."""

    normalize_by_std: bool = True
    """Divide by the group's standard deviation."""
    epsilon: Positive = 1e-6
    """Added to the standard deviation."""


@section
class Rloo(Advantage, type="rloo"):
    """Reward minus the mean of the group's other responses (Ahmadian et al. 2024)."""


@section
class ReinforcePlusPlus(Advantage, type="reinforce_plus_plus"):
    """Discounted returns, whitened over the batch (Hu 2025)."""

    gamma: Fraction = 1.0
    """Discount per token. Lower values give early tokens less of the final reward."""
    whiten: bool = True


@section
class ReinforcePlusPlusBaseline(Advantage, type="reinforce_plus_plus_baseline"):
    """Reward minus the group's mean, whitened over the batch."""

    whiten: bool = True


@section
class Remax(Advantage, type="remax"):
    """Reward minus the reward of the greedy response (Li et al. 2023)."""

    gamma: Fraction = 1.0
    """Discount per token. Lower values give early tokens less of the final reward."""


@section
class Reinforce(Advantage, type="reinforce"):
    """The discounted reward itself, normalized only if ``reward_shaping`` or ``whiten`` requests it."""

    gamma: Fraction = 1.0
    """Discount per token. Lower values give early tokens less of the final reward."""


@section
class Opo(Advantage, type="opo"):
    """Length-weighted optimal baseline of the group (Hao et al. 2025)."""


@section
class Opmd(Advantage, type="opmd"):
    """Online policy mirror descent (Trinity): reward minus a soft baseline of the group."""

    baseline: Literal["mean", "logavgexp"] = "mean"
    """mean: the group's mean. logavgexp: tau times the log of the mean of exp(reward / tau)."""
    tau: Positive = 1.0
    """Temperature of the soft baseline. Higher values bring it closer to the mean."""


@section
class StepWiseGrpo(Advantage, type="step_wise_grpo"):
    """GRPO over an agent's trajectories whose sequences share the trajectory's advantage (Trinity's multi_step_grpo)."""

    divide_by_steps: bool = False
    """Divide a trajectory's advantage by its number of sequences, so that long trajectories count no more than short ones."""
    std_over: Literal["group", "batch", "none"] = "group"
    """Scope of the standard deviation. none = don't divide."""
    drop_below_std: NonNegative | None = None
    """Groups with at most this standard deviation are not trained on. null = train on all groups."""
    epsilon: Positive = 1e-6
    """Added to the standard deviation."""


@section
class Gigpo(Advantage, type="gigpo"):
    """Advantage of the trajectory in its group plus that of each step among steps from the same state (Feng et al. 2025)."""

    episode_weight: NonNegative = 1.0
    """Weight of the trajectory's advantage."""
    step_weight: NonNegative = 1.0
    """Weight of the steps' advantages."""
    gamma: Fraction = 0.95
    """Discount per step. Lower values count only rewards that follow soon."""
    normalize_by_std: bool = True
    """Divide both advantages by their standard deviation. false = only subtract the mean."""
    epsilon: Positive = 1e-6
    """Added to the standard deviation."""
    anchor_scope: Literal["group", "batch"] = "group"
    """Where equal states are searched: among the responses to one prompt, as in the paper, or in the whole batch, as
    in ROLL and Trinity."""


@section
class StepReinforce(Advantage, type="step_reinforce"):
    """Discounted sum of the rewards of this and all later turns, for each turn of an agent (ROLL)."""

    gamma: Fraction = 0.95
    """Discount per turn. Lower values count only rewards that follow soon."""


@section
class SegmentReinforce(Advantage, type="segment_reinforce"):
    """Discounted rewards of this and later turns, each at its turn's last token (ROLL's agentic_reinforce)."""

    gamma: Fraction = 1.0
    """Discount per turn. Lower values count only rewards that follow soon."""


@section
class Other(
    Advantage,
    type="other",
    further=(
        *("asymre", "asymre_verl", "clipb", "clipv", "gdpo", "gpg", "grpo_verl", "none", "opmd_verl"),
        *("optimal_token_baseline", "rec", "reward", "tir_optimal_token_baseline"),
        *("agentic_reinforce", "grpo_grouped", "duplicate_grpo", "jsd", "on_policy_distill", "opmd_reweight_adv"),
    ),
):
    """An estimator with its framework's arguments: ``{type: gdpo, args: {...}}``.

    The support page lists the ones that rlctl computes. One that rlctl does not know is written with its framework's name:
    ``verl.my_estimator``.
    """

    kind: str
    """The type."""
    args: dict[str, Any] = {}
    """Arguments in its framework, by name."""
    whiten: bool | None = None  # type: ignore[assignment]
    """Normalize advantages to mean 0 and variance 1 over the batch. null = as the estimator's source does."""


@section
class PolicyLoss(Choice):
    """The loss on the policy's log-probs."""


@section
class PpoClip(PolicyLoss, type="ppo_clip"):
    """Clipped surrogate (Schulman et al. 2017), with asymmetric bounds and dual clip (Ye et al. 2020)."""

    clip_low: NonNegative = 0.2
    """The ratio is clipped below 1 minus this value. Higher values let the policy move further per step."""
    clip_high: NonNegative = 0.2
    """The ratio is clipped above 1 plus this value. Values above clip_low let unlikely tokens grow (DAPO's
    clip-higher)."""
    dual_clip: Annotated[float, Range(above=1)] | None = 3.0
    """Upper bound on the loss of tokens with negative advantage and a large ratio: this value times the advantage.
    null = off."""
    ratio: Literal["token", "segment"] = "token"
    """Ratio that is clipped: each token's, or the geometric mean over a turn of an agent (ROLL)."""


@section
class Gspo(PolicyLoss, type="gspo"):
    """Sequence-level ratio (Zheng et al. 2025)."""

    clip_low: NonNegative = 3e-4
    """The sequence ratio is clipped below 1 minus this value."""
    clip_high: NonNegative = 4e-4
    """The sequence ratio is clipped above 1 plus this value."""
    dual_clip: Annotated[float, Range(above=1)] | None = None
    """Upper bound on the loss of responses with negative advantage and a large ratio: this value times the
    advantage. null = off."""


@section
class Cispo(PolicyLoss, type="cispo"):
    """Clipped importance weight on the log-prob gradient (MiniMax-M1)."""

    clip_low: NonNegative = 1.0
    """The importance weight is clipped below 1 minus this value."""
    clip_high: NonNegative = 0.28
    """The importance weight is clipped above 1 plus this value."""


@section
class Topr(PolicyLoss, type="topr"):
    """Tapered off-policy REINFORCE (Le Roux et al. 2025)."""

    positive_weight: NonNegative = 1.0
    """Weight of responses with positive advantage."""
    negative_weight: NonNegative = 1.0
    """Weight of responses with negative advantage."""


@section
class Sapo(PolicyLoss, type="sapo"):
    """Soft adaptive gate instead of a clip (Qwen 2025)."""

    tau_positive: Positive = 1.0
    """Sharpness of the gate for tokens with positive advantage."""
    tau_negative: Positive = 1.05
    """Sharpness of the gate for tokens with negative advantage."""


@section
class PolicyGradient(PolicyLoss, type="policy_gradient"):
    """REINFORCE: minus log-prob times advantage, with or without an importance weight."""

    importance_weight: Literal["none", "ratio", "truncated_ratio"] = "none"
    """none: no weight. ratio: multiply by the ratio to the old policy. truncated_ratio: that ratio, truncated at
    ``weight_bound``."""
    weight_bound: Positive = 1.0
    """Largest importance weight with truncated_ratio."""


@section
class OtherLoss(
    PolicyLoss,
    type="other",
    further=(
        *("clip_cov", "dppo_kl", "dppo_tv", "dro", "geo_mean", "kimi15", "kl_cov", "opmd", "rec"),
        *("sft", "sft_is", "sft_phi", "sppo", "dpo", "mix", "mix_chord", "segment"),
    ),
):
    """A loss with its framework's arguments: ``{type: geo_mean, args: {...}}``.

    The support page lists the ones that rlctl computes. One that rlctl does not know is written with its framework's name:
    ``verl.my_loss``.
    """

    kind: str
    """The type."""
    args: dict[str, Any] = {}
    """Arguments in its framework, by name."""


@section
class Aggregation:
    """How token losses are reduced to one number, normalized over the whole mini-batch of all replicas."""

    mode: Literal["token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"] = (
        "token_mean"
    )
    """token_mean: mean over tokens. token_sum: sum. seq_mean_*: mean over responses of their token sums, token
    means, or token sums divided by a constant (norm)."""
    scale_factor: Positive | None = None
    """The constant of seq_mean_token_sum_norm. null = ``rollout.max_response_tokens``."""
    unit: Literal["row", "trajectory"] = "row"
    """What counts as a response in these means if a trajectory has several sequences: each sequence, or the whole trajectory."""
    per_micro_batch: bool = False
    """Average per micro-batch, weighted by its share of the responses, like Trinity 0.5. The loss then depends on
    the micro-batch size."""


@section
class KlInLoss:
    """KL to the reference added to the loss."""

    estimator: KlEstimator = "k3"
    """Estimator from log-probs: k1 = x, k2 = x^2/2, k3 = exp(-x)-1+x clamped. ``+`` uses the value of the estimator
    and the gradient of k2."""
    coefficient: NonNegative = 0.001
    """KL penalty weight. Higher values keep the policy closer to the reference."""


@section
class KlInReward:
    """KL to the reference subtracted from each token's reward."""

    estimator: KlEstimator = "k1"
    """Estimator from log-probs, as in ``kl_in_loss``."""
    coefficient: NonNegative = 0.001
    """KL penalty weight. Higher values keep the policy closer to the reference."""
    adaptive: bool = False
    """Adjust the coefficient so that the KL approaches ``target`` (Ziegler et al. 2019)."""
    target: Positive = 0.1
    """Target KL of the adaptive controller."""
    horizon: Annotated[int, Unit("responses"), Range(at_least=1)] = 10000
    """Responses over which the adaptive coefficient changes. Higher values make it change more slowly."""


@section
class ImportanceSampling:
    """Weights on the loss: probability under the training engine divided by probability under the rollout engine."""

    level: Literal["none", "token", "sequence", "segment", "geometric"] = "none"
    """Whether weights are per token, per sequence or per segment. none = no weights."""
    threshold: Positive = 2.0
    """Weights above this value are truncated to it. Higher values mean less bias and more variance."""
    lower_threshold: Positive | None = None
    """Weights below this value, and then also those above ``threshold``, become 0 (IcePop). null = only truncate."""
    normalize: bool = False
    """Scale weights to mean 1 over the step."""


@section
class RolloutCorrection:
    """Corrects for the mismatch between the engine that sampled a response and the engine that trains on it."""

    importance_sampling: ImportanceSampling = ImportanceSampling()
    """Weights on the loss."""
    rejection: tuple[str, ...] = ()
    """Rejection rules, each ``LEVEL_STATISTIC`` as verl names them (``token_k1``, ``seq_mean_k1``, ``seq_max_k2``)."""
    rejection_bounds: tuple[Positive | tuple[float, float], ...] = ()
    """One upper bound or ``[low, high]`` per rule, or one for all rules. For k1 they bound the ratio rollout /
    training, and a single number ``x`` means ``[1/x, x]``."""
    veto_threshold: Positive | None = None
    """Drop the whole response if one of its tokens has a ratio below this value. null = off."""
    use_policy_gradient: bool = False
    """With ``old_log_probs: rollout``, use the plain policy gradient instead of the clipped loss."""


@section
class Normalization:
    """Subtract a mean and divide by a standard deviation."""

    mean: Scope | None = None
    """Scope of the mean that is subtracted. null = don't subtract."""
    std: Scope | None = None
    """Scope of the standard deviation that rewards are divided by. null = don't divide."""


@section
class OverlongPenalty:
    """Soft penalty on responses close to the length limit (DAPO)."""

    buffer: Tokens = 512
    """The penalty grows linearly over this many tokens before the limit."""
    factor: NonNegative = 1.0
    """Penalty at the limit. Higher values punish long responses more."""
    limit: Tokens | None = None
    """Length limit of the penalty. null = ``rollout.max_response_tokens``."""
    clamp: bool = False
    """Cap the penalty at ``factor`` (Trinity). false = it keeps growing beyond the limit (verl)."""


@section
class RewardShaping:
    """What happens to rewards before they become advantages, in this order.

    Length penalties, shift, scale, normalize, clip; then per token: KL in the reward, clip, whiten."""

    shift: float = 0.0
    """Added to each reward."""
    scale: float = 1.0
    """Multiplies each reward, after the shift."""
    clip: Annotated[float, Range(above=0)] | None = None
    """Rewards are clipped to plus or minus this value after normalize, and token rewards again after their KL
    (ROLL). null = off."""
    normalize: Normalization = Normalization()
    """Normalize rewards by their statistics."""
    normalize_per_domain: bool = False
    """Keep every statistic separately per tag, or per source if there are no tags (ROLL). An adaptive KL coefficient
    moves once a step, by the KL of all responses; ROLL moves it after each domain, in the order of the batch."""
    whiten: bool = False
    """Whiten token rewards over the batch."""
    overlong_penalty: OverlongPenalty | None = None
    """Soft penalty on long responses. null = off."""
    length_penalty: NonNegative = 0.0
    """Subtracted from the reward of a response that reaches the length limit. Shorter responses lose proportionally
    less."""
    group_by: Literal["prompt", "trajectory", "tags", "batch"] = "prompt"
    """What forms a group for normalization. prompt: the responses to a prompt. trajectory: the turns of one, for
    ``step_reinforce``. tags, batch: all responses of a tag or source, or of the step."""


@section
class Filter(Choice):
    """Excludes groups or responses from training."""


@section
class ZeroVarianceGroups(Filter, type="zero_variance_groups"):
    """Drop groups whose responses all get the same score (DAPO's dynamic sampling)."""

    metric: str = "reward"
    """What is compared: reward, score (without length penalties), acc (correctness), or the name of a reward."""
    refill: bool = True
    """Sample further prompts until the batch is full. false = train on the remaining groups."""
    threshold: NonNegative = 0.0
    """Largest standard deviation at which a group still counts as equal."""


@section
class GroupMean(Filter, type="group_mean"):
    """Drop groups whose mean reward is out of bounds (too hard or too easy)."""

    low: float = 0.1
    """Groups with a mean reward at or below this value are dropped. Higher values drop more hard prompts."""
    high: float = 0.95
    """Groups with a mean reward at or above this value are dropped. Lower values drop more easy prompts."""
    refill: bool = False
    """Sample further prompts until the batch is full."""


@section
class Overlong(Filter, type="overlong"):
    """Exclude responses that were truncated at the length limit from the loss."""


@section
class DifficultyMask(Filter, type="difficulty_mask"):
    """Exclude responses to prompts that are too easy or too hard from the loss (ROLL)."""

    low: Fraction = 0.1
    """Prompts with a success rate at or below this value are excluded."""
    high: Fraction = 0.95
    """Prompts with a success rate at or above this value are excluded."""


@section
class LongIncorrect(Filter, type="long_incorrect"):
    """Exclude long wrong responses from the loss (ROLL's ``error_max_len_clip``)."""

    max_tokens: Tokens = 1024
    """Wrong responses with at least this many tokens are excluded."""


@section
class ExperienceOperator(Choice):
    """Drops, scores or changes responses between rollout and training."""


@section
class RewardFilter(ExperienceOperator, type="reward_filter"):
    """Drop responses whose reward is below a threshold (Trinity)."""

    threshold: float = 0.0
    """Lowest reward that is kept, with its length penalties."""
    refill: bool = False
    """Sample further prompts for groups that lose all their responses."""


@section
class RewardStdFilter(ExperienceOperator, type="reward_std_filter"):
    """Drop groups whose rewards hardly differ, and groups of one response (Trinity)."""

    threshold: NonNegative = 0.0
    """Largest population standard deviation at which a group is dropped."""
    refill: bool = False
    """Sample further prompts until the batch is full."""


@section
class DapoDynamicSampling(ExperienceOperator, type="dapo_dynamic_sampling"):
    """Keep groups with both right and wrong responses (DAPO, as Trinity computes it)."""

    metric: str = "accuracy"
    """Metric that counts a response as correct: accuracy, or a reward's name. If a response lacks it, its reward is used."""
    correct_threshold: float = 0.0
    """A response is right if the number is above this value."""
    refill: bool = False
    """Sample further prompts until the batch is full."""


@section
class InvalidRewardFilter(ExperienceOperator, type="invalid_reward_filter"):
    """Drop responses whose reward failed or is not a number (Trinity)."""

    refill: bool = False
    """Sample further prompts for groups that lose all their responses."""


@section
class ShapingRule:
    """One change of a reward by a number of its response."""

    stats_key: str | None = None
    """Number of a response that an operator, an environment, a reward or an agent returned. null = no change."""
    op_type: Literal["ADD", "SUB", "MUL", "DIV"] = "ADD"
    """What is done to the reward. Dividing by 0 leaves it unchanged."""
    weight: float = 1.0
    """Factor of the number, applied first."""


@section
class RewardShapingMapper(ExperienceOperator, type="reward_shaping_mapper"):
    """Adjust rewards by other values of the same response (Trinity)."""

    reward_shaping_configs: tuple[ShapingRule, ...] = ()
    """Changes, applied in this order. Responses without the number keep their reward."""


@section
class PassRateCalculator(ExperienceOperator, type="pass_rate_calculator"):
    """Measure each prompt's mean reward at this point of the pipeline, for ``data.curriculum`` difficulty (Trinity).

    Without this operator the curriculum uses the rewards before all operators.
    """


@section
class FunctionOperator(ExperienceOperator, type="function"):
    """Your own operator: a function that receives the responses and returns those to keep."""

    path: str
    """Python file with the function, or ``pkg://package.module``. It runs in the controller."""
    function: str = "operate"
    """Name of the function."""
    args: dict[str, Any] = {}
    """Further arguments of the function, by name."""
    refill: bool = False
    """Sample further prompts for groups that lose all their responses."""


@section
class ExternalOperator(ExperienceOperator, type="external"):
    """Operators of Data-Juicer, which ``service.data_juicer`` runs; or a plugin class of Trinity, which rlctl only converts."""

    kind: str
    """Name in Trinity: ``data_juicer``, or that of a plugin class."""
    args: dict[str, Any] = {}
    """Arguments in Trinity. For ``data_juicer``: ``operators`` (a list of ``{NAME: ARGS}``) or ``config_path``, and
    ``np``."""


@section
class LossWeights:
    """Weights of loss terms and samples."""

    rl: NonNegative = 1.0
    """Weight of the policy loss and its KL (ROLL's ``rl_loss_coef``)."""
    difficulty: bool = False
    """Weight samples by ``difficulty`` in their extra info (ROLL's ``difficulty_loss_weight``)."""
    length: bool = False
    """Weight samples by length (ROLL's ``length_loss_weight``)."""


@section
class PolicyFiltration:
    """Policy filtration (PF-PPO): resample the training responses by score (verl's ``pf_ppo``)."""

    reweight: Literal["pow", "max_min", "max_random"] = "pow"
    """How scores become sampling weights."""
    power: NonNegative = 2.0
    """Exponent of the pow rule."""


@section
class Objective(Choice):
    """What is optimized."""


@section
class RlObjective(Objective, type="rl"):
    """Reinforcement learning on rollouts."""


@section
class SftObjective(Objective, type="sft"):
    """Imitate the responses of the data set."""


@section
class DpoObjective(Objective, type="dpo"):
    """Direct preference optimization (Rafailov et al. 2023)."""

    beta: Positive = 0.1
    """DPO temperature. Higher values keep the policy closer to the reference."""
    label_smoothing: Annotated[float, Range(at_least=0, below=0.5)] = 0.0
    """Assumed share of wrong preference labels."""
    ipo: bool = False
    """Use the squared loss of IPO (Azar et al. 2023)."""


@section
class MixObjective(Objective, type="mix"):
    """Rollouts and expert responses in each batch (Trinity's MIX)."""

    mu: Fraction = 0.1
    """Weight of the expert loss. Higher values imitate the expert more."""
    expert_share: Fraction = 0.25
    """Share of expert responses in a batch."""
    args: dict[str, Any] = {}
    """Further arguments of the framework's mix loss."""


@section
class Distillation:
    """Learn from a teacher's log-probs on the policy's own responses."""

    teacher: Annotated[str, Local()] = ""
    """Model path of the teacher."""
    loss: str = "reverse_kl"
    """Divergence that is minimized."""
    coefficient: NonNegative = 1.0
    """Weight of the divergence in the loss. Higher values move the policy to the teacher faster."""
    top_k: Count | None = None
    """Compare only this many most likely tokens. null = compare the sampled tokens."""
    args: dict[str, Any] = {}
    """Further settings of the framework."""


@section
class Algorithm:
    """Objective, advantages, loss, and reward shaping."""

    objective: Objective = RlObjective()
    """What is optimized: rl, sft, dpo or mix."""
    preset: str | None = None
    """The source framework's preset name (Trinity's ``algorithm_type``). Informational only."""
    advantage: Advantage = Grpo()
    """How rewards become advantages."""
    policy_loss: PolicyLoss = PpoClip()
    """The loss on the policy's log-probs."""
    loss_aggregation: Aggregation = Aggregation()
    """How token losses are reduced to one number."""
    kl_in_loss: KlInLoss | None = None
    """KL to the reference in the loss. null = off."""
    kl_in_reward: KlInReward | None = None
    """KL to the reference in the reward. null = off."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus. Higher values make the policy explore more."""
    old_log_probs: Literal["recompute", "rollout", "auto"] = "recompute"
    """Log-probs of the old policy. recompute: by the training engine. rollout: those of the rollout engine. auto:
    rollout's if a step is one optimizer step and the engines agree."""
    train_temperature: Literal["sampling", "one"] = "sampling"
    """sampling: divide training logits by the sampling temperature (verl, Trinity). one: don't (ROLL)."""
    rollout_correction: RolloutCorrection | None = None
    """Correction of the mismatch between rollout and training engine. null = off."""
    reward_shaping: RewardShaping = RewardShaping()
    """What happens to rewards before they become advantages."""
    filters: tuple[Filter, ...] = ()
    """Which groups or responses are excluded from training, applied in this order."""
    loss_weights: LossWeights = LossWeights()
    """Weights of loss terms and samples."""
    policy_filtration: PolicyFiltration | None = None
    """Resample training responses by score (PF-PPO). null = off."""
    distillation: Distillation | None = None
    """Learn from a teacher. null = off."""
    sample_strategy: str = "default"
    """How the trainer picks responses from the buffer (Trinity's ``sample_strategy``)."""
    sample_strategy_args: dict[str, Any] = {}
    """Arguments of the sample strategy, by name."""
    experience_operators: tuple[ExperienceOperator, ...] = ()
    """Operators on each step's responses before filters and advantages, applied in this order (Trinity's
    ``experience_pipeline``)."""
    router_replay: Literal["off", "rollout", "recompute"] = "off"
    """Replay the expert routing of the rollout engine or of the log-prob pass in training (mixture of experts)."""
