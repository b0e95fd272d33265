"""What is learned from what: section ``algorithm``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, Fraction, NonNegative, Positive, Range, Tokens, Unit, section

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
    """Discount over tokens. Lowered, later rewards count less."""
    lambda_: Fraction = 1.0
    """Lowered, it leans more on the critic: less variance, more bias. Written ``lambda`` in files."""
    whiten: bool = True
    level: Literal["token", "turn"] = "token"
    """Steps over which it discounts: generated tokens, or turns of an agent, whose tokens then share one advantage."""


@section
class Grpo(Advantage, type="grpo"):
    """Group-relative advantages (Shao et al. 2024): reward minus the group's mean, over its standard deviation."""

    normalize_by_std: bool = True
    """Divide by the group's standard deviation; false is Dr. GRPO (Liu et al. 2025)."""
    epsilon: Positive = 1e-6
    """Added to the standard deviation."""
    kl_order: Literal["before_normalisation", "after_normalisation"] = "before_normalisation"
    """Whether KL in the reward is subtracted, and rewards are clipped, before the group is normalised (verl) or after (ROLL)."""


@section
class GrpoPassK(Advantage, type="grpo_passk"):
    """Only the best response of a group gets an advantage: its lead over the second best."""

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
    """Discount over tokens. Lowered, early tokens get less of the reward at the end."""
    whiten: bool = True


@section
class ReinforcePlusPlusBaseline(Advantage, type="reinforce_plus_plus_baseline"):
    """Reward minus the group's mean, whitened over the batch."""

    whiten: bool = True


@section
class Remax(Advantage, type="remax"):
    """Reward minus the reward of the greedy response (Li et al. 2023)."""

    gamma: Fraction = 1.0
    """Discount over tokens. Lowered, early tokens get less of the reward at the end."""


@section
class Reinforce(Advantage, type="reinforce"):
    """The reward itself, discounted; normalised where ``reward_shaping`` or the options here say so."""

    gamma: Fraction = 1.0
    """Discount over tokens. Lowered, early tokens get less of the reward at the end."""


@section
class Opo(Advantage, type="opo"):
    """Length-weighted optimal baseline of the group (Hao et al. 2025)."""


@section
class Opmd(Advantage, type="opmd"):
    """Online policy mirror descent (Trinity): reward minus a soft baseline of the group."""

    baseline: Literal["mean", "logavgexp"] = "mean"
    """The group's mean, or tau times the log of the mean of exp(reward / tau)."""
    tau: Positive = 1.0
    """Temperature of the soft baseline. Raised, it nears the mean."""


@section
class StepWiseGrpo(Advantage, type="step_wise_grpo"):
    """GRPO over an agent's trajectories whose sequences share the trajectory's advantage (Trinity's multi_step_grpo)."""

    divide_by_steps: bool = False
    """Divide a trajectory's advantage by its number of sequences, so that long trajectories count no more than short ones."""
    std_over: Literal["group", "batch", "none"] = "group"
    """Over what the standard deviation is taken; none divides by nothing."""
    drop_below_std: NonNegative | None = None
    """Groups whose standard deviation is at most this are not trained on; null trains on all."""
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
    """Discount over steps. Lower values count only rewards that follow soon."""
    normalize_by_std: bool = True
    """Divide both advantages by their standard deviation; false only subtracts the mean."""
    epsilon: Positive = 1e-6
    """Added to the standard deviation."""
    anchor_scope: Literal["group", "batch"] = "group"
    """Where equal states are looked for: among the responses to one prompt, as in the paper; or in the whole batch, as ROLL and
    Trinity do."""


@section
class StepReinforce(Advantage, type="step_reinforce"):
    """Discounted rewards of the turns to come, for each turn of an agent (ROLL)."""

    gamma: Fraction = 0.95
    """Discount over turns. Lower values count only rewards that follow soon."""


@section
class SegmentReinforce(Advantage, type="segment_reinforce"):
    """Discounted rewards of the turns to come, with the reward at each turn's last token (ROLL's agentic_reinforce)."""

    gamma: Fraction = 1.0
    """Discount over turns. Lower values count only rewards that follow soon."""


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
    """An estimator with arguments of its framework: ``{type: gdpo, args: {...}}``; the support page says which are computed.

    A framework's estimator that rlctl does not know follows the framework's name: ``verl.my_estimator``.
    """

    kind: str
    """The type."""
    args: dict[str, Any] = {}
    """Its arguments in its framework, by name."""
    whiten: bool | None = None  # type: ignore[assignment]
    """Shift and scale advantages to mean 0 and variance 1 over the batch; null = as the estimator's source does."""


@section
class PolicyLoss(Choice):
    """The loss on the policy's log-probs."""


@section
class PpoClip(PolicyLoss, type="ppo_clip"):
    """Clipped surrogate (Schulman et al. 2017), with asymmetric bounds and dual clip (Ye et al. 2020)."""

    clip_low: NonNegative = 0.2
    """The ratio is clipped below 1 minus this. Raised, the policy may move farther per step."""
    clip_high: NonNegative = 0.2
    """The ratio is clipped above 1 plus this. Raised above clip_low, unlikely tokens can grow (DAPO's clip-higher)."""
    dual_clip: Annotated[float, Range(above=1)] | None = 3.0
    """Bound on the loss of bad tokens whose ratio explodes: this times the advantage. null is off."""
    ratio: Literal["token", "segment"] = "token"
    """Ratio that is clipped: each token's, or the geometric mean over a turn of an agent (ROLL)."""


@section
class Gspo(PolicyLoss, type="gspo"):
    """Sequence-level ratio (Zheng et al. 2025)."""

    clip_low: NonNegative = 3e-4
    """The sequence ratio is clipped below 1 minus this."""
    clip_high: NonNegative = 4e-4
    """The sequence ratio is clipped above 1 plus this."""
    dual_clip: Annotated[float, Range(above=1)] | None = None
    """Bound on the loss of bad responses whose ratio explodes: this times the advantage. null is off."""


@section
class Cispo(PolicyLoss, type="cispo"):
    """Clipped importance weight on the log-prob gradient (MiniMax-M1)."""

    clip_low: NonNegative = 1.0
    """The weight is clipped below 1 minus this."""
    clip_high: NonNegative = 0.28
    """The weight is clipped above 1 plus this."""


@section
class Topr(PolicyLoss, type="topr"):
    """Tapered off-policy REINFORCE (Le Roux et al. 2025)."""

    positive_weight: NonNegative = 1.0
    """Weight of good responses."""
    negative_weight: NonNegative = 1.0
    """Weight of bad responses."""


@section
class Sapo(PolicyLoss, type="sapo"):
    """Soft adaptive gate instead of a clip (Qwen 2025)."""

    tau_positive: Positive = 1.0
    """Sharpness of the gate for good tokens."""
    tau_negative: Positive = 1.05
    """Sharpness of the gate for bad tokens."""


@section
class PolicyGradient(PolicyLoss, type="policy_gradient"):
    """REINFORCE: minus log-prob times advantage, with or without an importance weight."""

    importance_weight: Literal["none", "ratio", "truncated_ratio"] = "none"
    """Multiply by the ratio to the old policy, or by the ratio cut at ``weight_bound``."""
    weight_bound: Positive = 1.0
    """Largest importance weight, for truncated_ratio."""


@section
class OtherLoss(
    PolicyLoss,
    type="other",
    further=(
        *("clip_cov", "dppo_kl", "dppo_tv", "dro", "geo_mean", "kimi15", "kl_cov", "opmd", "rec"),
        *("sft", "sft_is", "sft_phi", "sppo", "dpo", "mix", "mix_chord", "segment"),
    ),
):
    """A loss with arguments of its framework: ``{type: geo_mean, args: {...}}``; the support page says which are computed.

    A framework's loss that rlctl does not know follows the framework's name: ``verl.my_loss``.
    """

    kind: str
    """The type."""
    args: dict[str, Any] = {}
    """Its arguments in its framework, by name."""


@section
class Aggregation:
    """How token losses become one number, normalised over the whole mini-batch of all replicas."""

    mode: Literal["token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"] = (
        "token_mean"
    )
    """Mean over tokens; their sum; mean over responses of token sums; of token means; of token sums over a constant."""
    scale_factor: Positive | None = None
    """The constant of seq_mean_token_sum_norm; null is the longest response allowed."""
    unit: Literal["row", "trajectory"] = "row"
    """What a response is in these means, if an agent's trajectory has several sequences: each of them, or all together."""
    per_micro_batch: bool = False
    """Aggregate each micro-batch by itself, weighing as its share of the responses, as Trinity 0.5 does: the loss then
    depends on how a mini-batch is split."""


@section
class KlInLoss:
    """KL to the reference added to the loss."""

    estimator: KlEstimator = "k3"
    """Estimator from log-probs: k1 = x, k2 = x^2/2, k3 = exp(-x)-1+x clamped; ``+`` takes the gradient of k2 under its value."""
    coefficient: NonNegative = 0.001
    """Raised, the policy stays nearer to the reference."""


@section
class KlInReward:
    """KL to the reference subtracted from each token's reward."""

    estimator: KlEstimator = "k1"
    """Estimator from log-probs, as in ``kl_in_loss``."""
    coefficient: NonNegative = 0.001
    """Raised, the policy stays nearer to the reference."""
    adaptive: bool = False
    """Move the coefficient so that the KL nears ``target`` (Ziegler et al. 2019)."""
    target: Positive = 0.1
    """KL that the adaptive controller steers to."""
    horizon: Annotated[int, Unit("responses"), Range(at_least=1)] = 10000
    """Responses over which the adaptive coefficient moves. Raised, it moves more slowly."""


@section
class ImportanceSampling:
    """Weights on the loss: the probability under the training engine over that under the rollout engine."""

    level: Literal["none", "token", "sequence", "segment", "geometric"] = "none"
    """What a weight is of; none weighs nothing."""
    threshold: Positive = 2.0
    """Weights above this are cut to it. Higher values mean less bias and more variance."""
    lower_threshold: Positive | None = None
    """Weights below this, and then those above ``threshold`` too, become 0 (IcePop); null only cuts."""
    normalize: bool = False
    """Scale weights to mean 1 over the step."""


@section
class RolloutCorrection:
    """Corrects for the difference between the engine that drew a response and the one that trains on it."""

    importance_sampling: ImportanceSampling = ImportanceSampling()
    """Weights on the loss."""
    rejection: tuple[str, ...] = ()
    """Rejection rules, each ``LEVEL_STATISTIC`` as verl names them (``token_k1``, ``seq_mean_k1``, ``seq_max_k2``)."""
    rejection_bounds: tuple[Positive | tuple[float, float], ...] = ()
    """One upper bound or ``[low, high]`` for each rule, or one for all. For k1 they bound the ratio rollout / training, and a
    single number ``x`` means ``[1/x, x]``."""
    veto_threshold: Positive | None = None
    """A response with a token whose ratio is below this is dropped whole; null is off."""
    use_policy_gradient: bool = False
    """With ``old_log_probs: rollout``: plain policy gradient instead of the clipped loss."""


@section
class Normalization:
    """Shift by a mean and divide by a standard deviation."""

    mean: Scope | None = None
    """Over what the mean is taken; null subtracts nothing."""
    std: Scope | None = None
    """Over what the standard deviation is taken; null divides by nothing."""


@section
class OverlongPenalty:
    """Soft penalty on responses that near the length limit (DAPO)."""

    buffer: Tokens = 512
    """The penalty grows over this many tokens before the limit."""
    factor: NonNegative = 1.0
    """Penalty at the limit. Raised, long responses are punished more."""
    limit: Tokens | None = None
    """The limit; null is ``rollout.max_response_tokens``."""
    clamp: bool = False
    """Never take more than ``factor`` (Trinity); false goes on growing beyond the limit (verl)."""


@section
class RewardShaping:
    """What happens to response rewards before they become advantages, in this order.

    Penalties on length, shift, scale, normalize, clip; then, token by token, KL in the reward, clip, whiten.
    """

    shift: float = 0.0
    """Added to each reward."""
    scale: float = 1.0
    """Each reward is multiplied by this, after the shift."""
    clip: Annotated[float, Range(above=0)] | None = None
    """Rewards are cut to plus and minus this, after normalize, and token rewards again after their KL (ROLL); null is off."""
    normalize: Normalization = Normalization()
    """Shift and scale by statistics."""
    normalize_per_domain: bool = False
    """Take every statistic, and move the KL coefficient, for each tag alone, or source where there is no tag (ROLL)."""
    whiten: bool = False
    """Whiten token rewards over the batch."""
    overlong_penalty: OverlongPenalty | None = None
    """Soft penalty on long responses; null is off."""
    length_penalty: NonNegative = 0.0
    """Taken from the reward of a response as long as the limit, and less in proportion from a shorter one."""
    group_by: Literal["prompt", "trajectory", "tags", "batch"] = "prompt"
    """What forms a group for normalisation in agentic runs."""


@section
class Filter(Choice):
    """Groups or responses left out of training."""


@section
class ZeroVarianceGroups(Filter, type="zero_variance_groups"):
    """Leave out groups whose responses all score alike (DAPO's dynamic sampling)."""

    metric: str = "reward"
    """What is compared: reward, score (without length penalties), acc (whether it is right), or a reward's name."""
    refill: bool = True
    """Roll out further prompts until the batch is full; false trains on what is left."""
    threshold: NonNegative = 0.0
    """Standard deviation up to which a group counts as equal."""


@section
class GroupMean(Filter, type="group_mean"):
    """Leave out groups whose mean reward is outside of bounds (difficulty)."""

    low: float = 0.1
    """Groups at or below this mean reward are left out. Raised, more hard prompts are left out."""
    high: float = 0.95
    """Groups at or above this mean reward are left out. Lowered, more easy prompts are left out."""
    refill: bool = False
    """Roll out further prompts until the batch is full."""


@section
class Overlong(Filter, type="overlong"):
    """Leave responses that were cut at the length limit out of the loss."""


@section
class DifficultyMask(Filter, type="difficulty_mask"):
    """Leave responses of prompts that are too easy or too hard out of the loss (ROLL)."""

    low: Fraction = 0.1
    """Prompts with a success share at or below this are left out."""
    high: Fraction = 0.95
    """Prompts with a success share at or above this are left out."""


@section
class LongIncorrect(Filter, type="long_incorrect"):
    """Leave long wrong responses out of the loss (ROLL's ``error_max_len_clip``)."""

    max_tokens: Tokens = 1024
    """Wrong responses this long or longer are left out."""


@section
class LossWeights:
    """Weights of loss terms and samples."""

    rl: NonNegative = 1.0
    """Weight of the policy loss and its KL (ROLL's ``rl_loss_coef``)."""
    difficulty: bool = False
    """Weight samples by the number ``difficulty`` of their extra info (ROLL's ``difficulty_loss_weight``)."""
    length: bool = False
    """Weight samples by length (ROLL's ``length_loss_weight``)."""


@section
class PolicyFiltration:
    """Draw the training responses anew by score (verl's ``pf_ppo``)."""

    reweight: Literal["pow", "max_min", "max_random"] = "pow"
    """Rule that turns scores into weights."""
    power: NonNegative = 2.0
    """Power of the pow rule."""


@section
class Objective(Choice):
    """What is optimised."""


@section
class RlObjective(Objective, type="rl"):
    """Reinforcement learning on rollouts."""


@section
class SftObjective(Objective, type="sft"):
    """Imitate the responses of the data set."""


@section
class DpoObjective(Objective, type="dpo"):
    """Direct preference optimisation (Rafailov et al. 2023)."""

    beta: Positive = 0.1
    """Raised, the policy stays nearer to the reference."""
    label_smoothing: Annotated[float, Range(at_least=0, below=0.5)] = 0.0
    """Share of preferences taken to be wrong."""
    ipo: bool = False
    """Squared loss instead (Azar et al. 2023)."""


@section
class MixObjective(Objective, type="mix"):
    """Rollouts and expert responses in each batch (Trinity's MIX)."""

    mu: Fraction = 0.1
    """Weight of the expert part. Raised, it imitates more."""
    expert_share: Fraction = 0.25
    """Share of a batch that is expert responses."""
    args: dict[str, Any] = {}
    """Further arguments of the dialect's mix loss."""


@section
class Distillation:
    """Learn from a teacher's log-probs on the policy's own responses."""

    teacher: str = ""
    """Model path of the teacher."""
    loss: str = "reverse_kl"
    """Which divergence is minimised."""
    coefficient: NonNegative = 1.0
    """Weight of the divergence in the loss. Raised, the policy nears the teacher faster."""
    top_k: Count | None = None
    """Compare only this many likeliest tokens; null compares those drawn."""
    args: dict[str, Any] = {}
    """Further settings of the dialect."""


@section
class Algorithm:
    """Objective, advantage, loss, and what is done to rewards."""

    objective: Objective = RlObjective()
    """What is optimised: rl, sft, dpo or mix."""
    preset: str | None = None
    """The dialect's own name for this combination (Trinity's ``algorithm_type``); it decides nothing here."""
    advantage: Advantage = Grpo()
    """How rewards become advantages."""
    policy_loss: PolicyLoss = PpoClip()
    """The loss on the policy's log-probs."""
    loss_aggregation: Aggregation = Aggregation()
    """How token losses become one number."""
    kl_in_loss: KlInLoss | None = None
    """KL to the reference in the loss; null is off."""
    kl_in_reward: KlInReward | None = None
    """KL to the reference in the reward; null is off."""
    entropy_coefficient: float = 0.0
    """Entropy times this is taken from the loss. Raised, the policy explores more."""
    old_log_probs: Literal["recompute", "rollout", "auto"] = "recompute"
    """The old policy's log-probs: computed again by the training engine, those of the rollout engine, or rollout's
    where a step is one optimizer step and the engines agree."""
    train_temperature: Literal["sampling", "one"] = "sampling"
    """Divide training logits by the sampling temperature (verl, Trinity) or not (ROLL)."""
    rollout_correction: RolloutCorrection | None = None
    """Correction between rollout and training engine; null is off."""
    reward_shaping: RewardShaping = RewardShaping()
    """What happens to rewards before they become advantages."""
    filters: tuple[Filter, ...] = ()
    """Groups or responses left out of training, in this order."""
    loss_weights: LossWeights = LossWeights()
    """Weights of loss terms and samples."""
    policy_filtration: PolicyFiltration | None = None
    """Draw training responses anew by score; null is off."""
    distillation: Distillation | None = None
    """Learn from a teacher; null is off."""
    sample_strategy: str = "default"
    """Rule by which the trainer picks responses from the buffer (Trinity's ``sample_strategy``)."""
    sample_strategy_args: dict[str, Any] = {}
    """Arguments of the sample strategy, by name."""
    experience_operators: tuple[dict[str, Any], ...] = ()
    """Operators on responses between rollout and training (Trinity's ``experience_pipeline``), each ``name`` and ``args``."""
    router_replay: Literal["off", "rollout", "recompute"] = "off"
    """Mixture-of-experts routing replayed in training from the rollout engine or the log-prob pass."""
