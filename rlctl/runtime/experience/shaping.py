"""From the rewards of a step to what the loss reads: advantages, weights, and which tokens are trained on.

    rewards + length penalties ─▶ shift, scale ─▶ normalise ─▶ clip ─▶ minus KL, clip, whiten ─▶ estimator ─▶ whiten, clip

Here the config chooses; the numbers come from ``runtime.algorithms``. Statistics are over the step, or over each domain
of it. What lasts from step to step (the KL coefficient, running moments) is in ``Shaping.state``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from rlctl.common.errors import PlanError, RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import RunningAgent, TrajectoryAgent
from rlctl.config.sections.algorithm import (
    Algorithm,
    DifficultyMask,
    Filter,
    GroupMean,
    Grpo,
    LongIncorrect,
    Normalization,
    Overlong,
    StepReinforce,
    ZeroVarianceGroups,
)
from rlctl.config.sections.execution import DataJuicer
from rlctl.planning import arithmetic
from rlctl.runtime.algorithms import correction, feedback, filters, kl, rewards
from rlctl.runtime.algorithms.advantages import ADVANTAGES, Advantages, estimate
from rlctl.runtime.algorithms.divergence import WHOLE_KL
from rlctl.runtime.algorithms.value_loss import explained_variance
from rlctl.runtime.experience.counted_tokens import CountedTokens
from rlctl.runtime.experience.operators import Operators
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.experience.selection import corrects_before_loss, estimator_of, has_weights, reward_parts
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.roles import texts_of
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.types import Response, Sample, Turn

_SHAPED, _SCORE, _RIGHT = {"reward", "seq_reward", "seq_final_reward"}, {"score"}, {"acc", "accuracy"}
"""Names of what a filter compares: the reward with its length penalties, without them, whether the answer is right."""


@dataclass(frozen=True, slots=True)
class ShapingSpec:
    """What rewards become, and for whom."""

    algorithm: Algorithm
    max_response_tokens: int
    agents: Mapping[str, TrajectoryAgent]
    """By name."""
    default_agent: str | None
    seed: int
    """Of the run."""
    service: DataJuicer | None
    """That runs the operators of Data-Juicer."""


@dataclass
class Shaping:
    """Shaping of one stage, with what it remembers between steps."""

    spec: ShapingSpec
    controller: kl.KLController
    running: dict[str, rewards.RunningMoments] = field(default_factory=dict)
    """By domain; one of the name "" where domains are not told apart."""
    operators: Operators = field(default_factory=lambda: Operators(()), compare=False)
    """Those of experiences, which come before the filters."""

    @classmethod
    def of(cls, spec: ShapingSpec, *, explores: bool = True, tokenizer: Any = None) -> Shaping:
        """Begin a stage.

        Args:
            spec: of the stage.
            explores: whether its operators run here: where responses are generated, not where a buffer is read.
            tokenizer: of the responses, for operators that read their texts.

        Raises:
            PlanError: the config asks for something that is not computed.
            ConfigError: a rule that cannot be read.
        """
        algorithm = spec.algorithm
        name, _ = estimator_of(algorithm)
        if ADVANTAGES[name].needs_values and algorithm.objective.choice != "rl":
            raise PlanError(
                said(
                    "{name} needs a critic, but algorithm.objective {choice} trains none",
                    name=name,
                    choice=algorithm.objective.choice,
                ),
                hint="set algorithm.advantage to grpo",
            )
        if ADVANTAGES[name].measures and algorithm.old_log_probs == "rollout":
            raise PlanError(
                said("{name} needs the pass for old log-probs, which algorithm.old_log_probs rollout skips", name=name),
                hint="set algorithm.old_log_probs to recompute",
            )
        chosen = algorithm.rollout_correction
        if chosen is not None:
            correction.Rejection.parse(chosen.rejection, chosen.rejection_bounds)
        penalty = algorithm.kl_in_reward
        late = any(getattr(each, "metric", "") == "seq_final_reward" for each in algorithm.filters)
        if late and penalty is not None:
            raise PlanError(
                "a filter compares seq_final_reward, which includes the KL penalty; the KL is known only after "
                "groups are filtered",
                hint="set the filter's metric to reward",
            )
        shaped = algorithm.reward_shaping
        alone = shaped.group_by == "trajectory" and "group" in (shaped.normalize.mean, shaped.normalize.std)
        if alone and not isinstance(algorithm.advantage, StepReinforce):
            raise PlanError(
                "algorithm.reward_shaping.group_by is trajectory, and a trajectory has one reward: normalized, each would be 0",
                hint="set group_by to prompt, or algorithm.advantage to step_reinforce, which normalizes over turns",
            )
        controller: kl.KLController = kl.FixedKL(penalty.coefficient if penalty else 0.0)
        if penalty is not None and penalty.adaptive:
            controller = kl.AdaptiveKL(penalty.coefficient, penalty.target, penalty.horizon)
        shaping = cls(spec, controller)
        if explores and algorithm.experience_operators:
            shaping.operators = Operators(
                algorithm.experience_operators,
                shaping._penalty,
                None if tokenizer is None else partial(_texts, tokenizer=tokenizer),
                spec.service,
            )
        return shaping

    def state(self) -> dict[str, Any]:
        """What the next step depends on, as plain data."""
        running = {name: dataclasses.asdict(moments) for name, moments in self.running.items()}
        return {"kl_coefficient": self.controller.coefficient, "running": running}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` gave."""
        self.controller.coefficient = state["kl_coefficient"]
        self.running = {name: rewards.RunningMoments(**moments) for name, moments in state["running"].items()}

    @property
    def refills(self) -> bool:
        """Whether groups that a filter leaves out are made up for by further prompts."""
        return self.operators.refills or any(getattr(each, "refill", False) for each in self.spec.algorithm.filters)

    @property
    def drops(self) -> bool:
        """Whether anything may leave groups out."""
        return bool(self.operators or self.spec.algorithm.filters)

    def kept_groups(self, answered: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """The groups as operators leave them, of which all filters of groups let pass."""
        kept = self.operators.applied(answered)
        for each in self.spec.algorithm.filters:
            if isinstance(each, ZeroVarianceGroups | GroupMean) and kept:
                groups = _groups(kept)
                values = self._compared(each, kept)
                passes = _passes(each, values, groups)
                ends = torch.tensor([len(item.responses) for item in kept]).cumsum(0)
                kept = [item for item, end in zip(kept, ends.tolist(), strict=True) if passes[end - 1]]
        return kept

    def _compared(self, chosen: ZeroVarianceGroups | GroupMean, answered: Sequence[RolloutGroup]) -> Tensor:
        """The number of each response that a filter of groups looks at. [B].

        Raises:
            RunError: no reward gives it.
        """
        metric = chosen.metric if isinstance(chosen, ZeroVarianceGroups) else "score"
        if metric in _SHAPED:
            return self._response_rewards(answered)
        if metric in _SCORE:
            return _totals(answered)
        flat = [score for item in answered for score in item.scores]
        if flat and metric in _RIGHT and all(score.correct is not None for score in flat):
            return torch.tensor([float(bool(score.correct)) for score in flat])
        if not flat or not all(metric in score.components for score in flat):
            known = sorted({"reward", "score", "acc", *(name for score in flat for name in score.components)})
            raise RunError(
                said("a filter compares {metric!r}, which no reward returns for every response", metric=metric),
                hint=said("set the metric of algorithm.filters to one of {names}", names=", ".join(known)),
            )
        return torch.tensor([score.components[metric] for score in flat])

    def _response_rewards(self, answered: Sequence[RolloutGroup]) -> Tensor:
        """Rewards with their penalties on length. [B]."""
        lengths = torch.tensor([len(response.token_ids) for item in answered for response in item.responses])
        return _totals(answered) + self._penalties(lengths)

    def _penalty(self, response: Response) -> float:
        """Of one response."""
        return float(self._penalties(torch.tensor([len(response.token_ids)])))

    def _penalties(self, lengths: Tensor) -> Tensor:
        """Of responses of these lengths. [B]."""
        shaping, longest = self.spec.algorithm.reward_shaping, self.spec.max_response_tokens
        result = torch.zeros(len(lengths))
        overlong = shaping.overlong_penalty
        if overlong is not None:
            result += rewards.overlong_penalty(
                lengths,
                limit=overlong.limit or longest,
                buffer=overlong.buffer,
                factor=overlong.factor,
                clamp=overlong.clamp,
            )
        if shaping.length_penalty:
            result += rewards.length_penalty(lengths, limit=longest, coefficient=shaping.length_penalty)
        return result

    @torch.no_grad()
    def shape(self, samples: Sequence[Sample], answered: Sequence[RolloutGroup]) -> dict[str, float]:
        """Write the columns ``advantages`` and, where there are any, ``policy_weights``; narrow the masks; return metrics.

        For a critic, whose ``old_values`` are there, also ``returns`` and ``critic_tokens``: 1 where it learns, which is
        in responses that a filter leaves out too, as in ROLL. ``samples`` are those of ``answered``, group after group.
        """
        if not samples:
            return {}
        packed = CountedTokens(samples)
        weights, passed, metrics = self._corrected(packed)
        kept = self._kept_responses(answered)
        trained = passed & torch.repeat_interleave(kept, packed.lengths)
        advantages, returns = torch.zeros(2, len(trained))
        sifted = torch.ones_like(trained)
        corrected = {"correction_weights": weights, "passed": passed}
        for indices in self._domains(answered):
            tokens = packed.tokens_of(indices)
            found = self._advantages(packed, answered, indices, trained, corrected, metrics)
            advantages[tokens] = found.tokens
            if found.kept is not None:
                sifted[tokens] = found.kept
                metrics["advantage/left_out_share"] = 1 - _mean(sifted.float())
            if found.returns is not None:
                returns[tokens] = found.returns
        if "reward/kl" in metrics:  # once a step: the order of domains changes nothing
            self.controller.update(metrics["reward/kl"], len(packed.lengths))
        trained = trained & sifted
        weights = self._weighted(weights, packed, answered)
        if self._has_critic:
            metrics["critic/return_mean"] = _mean(returns[passed])
            metrics["critic/explained_variance"] = explained_variance(
                packed.read("old_values")[passed], returns[passed]
            )
            packed.write("returns", returns)
            packed.write("critic_tokens", passed.float())
        packed.write("advantages", advantages)
        if has_weights(self.spec.algorithm):
            packed.write("policy_weights", weights)
        if getattr(self.spec.algorithm.policy_loss, "ratio", "token") == "segment":
            packed.write("segments", packed.runs().float())
        packed.narrow(trained)
        counted = kept.tolist()
        for sample, owner in zip(samples, packed.owners, strict=True):
            sample.counted = counted[owner]
        if self.spec.algorithm.filters:
            metrics["filter/trained_share"] = float(kept.float().mean())
        mean, std = packed.moments(advantages, trained)
        return metrics | {"advantage/mean": mean, "advantage/std": std}

    def redrawn(self, samples: Sequence[Sample], answered: Sequence[RolloutGroup], *, step: int) -> Sequence[Sample]:
        """The samples of a step after preference feedback, which draws them anew by score; the same where there is none."""
        chosen = self.spec.algorithm.policy_filtration
        if chosen is None or self.spec.algorithm.advantage.choice != "gae" or not samples:
            return samples
        scores = self._response_rewards(answered)
        weights = feedback.feedback_weights(scores, reweight=chosen.reweight, power=chosen.power)
        seed = derive_seed(self.spec.seed, "preference-feedback", step)
        return [samples[index] for index in feedback.drawn_anew(weights, seed)]

    def _corrected(self, packed: CountedTokens) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Weight of every token, whether it is kept, and metrics, by the old policy's log-probs."""
        ones, every = torch.ones(packed.count), torch.ones(packed.count, dtype=torch.bool)
        chosen = self.spec.algorithm.rollout_correction
        if chosen is None or not corrects_before_loss(self.spec.algorithm):
            return ones, every, {}
        log_ratio = packed.read("old_log_probs") - packed.read("rollout_log_probs")
        rules = correction.Rejection.parse(chosen.rejection, chosen.rejection_bounds)
        passed = correction.keeps(log_ratio, packed.lengths, rules, chosen.veto_threshold)
        metrics = {"correction/rejected_share": 1 - _mean(passed.float())}
        if chosen.importance_sampling.level == "none":
            return ones, passed, metrics
        segments = packed.segments() if chosen.importance_sampling.level == "segment" else None
        weights = correction.weights(
            log_ratio,
            packed.lengths,
            chosen.importance_sampling.level,
            upper=chosen.importance_sampling.threshold,
            lower=chosen.importance_sampling.lower_threshold,
            normalize=chosen.importance_sampling.normalize,
            segments=segments,
        )
        raw = correction.ratios(log_ratio, packed.lengths, chosen.importance_sampling.level, segments)
        metrics |= {
            "correction/weight_mean": _mean(weights),
            "correction/weight_max": float(weights.max()) if len(weights) else 0.0,
            "correction/cut_share": _mean((raw > chosen.importance_sampling.threshold).float()),
            "correction/effective_share": float(weights.sum() ** 2 / (packed.count * weights.square().sum() + 1e-30)),
        }
        return weights, passed, metrics

    def _kept_responses(self, answered: Sequence[RolloutGroup]) -> Tensor:
        """Which responses the filters of responses let pass. bool [B]."""
        kept = torch.ones(sum(len(item.responses) for item in answered), dtype=torch.bool)
        for each in self.spec.algorithm.filters:
            if not isinstance(each, ZeroVarianceGroups | GroupMean):
                kept &= _keeps(each, answered)
        return kept

    def _domains(self, answered: Sequence[RolloutGroup]) -> Iterator[list[int]]:
        """The responses that share statistics, as indices."""
        owners = [self._domain(item) for item in answered for _ in item.responses]
        for domain in dict.fromkeys(owners):
            yield [index for index, owner in enumerate(owners) if owner == domain]

    def _domain(self, item: RolloutGroup) -> str:
        if not self.spec.algorithm.reward_shaping.normalize_per_domain:
            return ""
        return str(item.prompt.extra.get("tag", item.prompt.source))

    def _advantages(
        self,
        packed: CountedTokens,
        answered: Sequence[RolloutGroup],
        indices: list[int],
        trained: Tensor,
        corrected: Mapping[str, Tensor],
        metrics: dict[str, float],
    ) -> Advantages:
        """Of the tokens of one domain; moves its statistics. [N of the domain]."""
        algorithm = self.spec.algorithm
        shaping, chosen = algorithm.reward_shaping, algorithm.advantage
        tokens, lengths = packed.tokens_of(indices), packed.lengths[indices]
        owners = [item for item in answered for _ in item.responses]
        shaped = self._shaped(answered, indices, domain=self._domain(owners[indices[0]]))
        name, options = estimator_of(algorithm)
        result = estimate(
            name,
            shaped,
            lengths,
            groups=_groups(answered)[indices],
            by_turns=self._by_turns(packed, answered, indices) if self._reads_turns else None,
            values=packed.read("old_values")[tokens] if self._has_critic else None,
            baselines=self._baselines(answered)[indices] if ADVANTAGES[name].needs_greedy else None,
            parts=self._parts(answered, indices),
            columns={
                **{column: packed.read(column)[tokens] for column in ADVANTAGES[name].columns},
                **{column: values[tokens] for column, values in corrected.items()},
            },
            token_penalties=self._reward_kl(packed, tokens, lengths, metrics),
            penalties_last=self._normalises_first,
            token_clip=shaping.clip,
            whiten_rewards=shaping.whiten,
            whiten=chosen.whiten,
            trained=trained[tokens],
            **options,
        )
        clip = chosen.clip
        return result if clip is None else dataclasses.replace(result, tokens=result.tokens.clamp(-clip, clip))

    @property
    def _has_critic(self) -> bool:
        return ADVANTAGES[estimator_of(self.spec.algorithm)[0]].needs_values

    def _shaped(self, answered: Sequence[RolloutGroup], indices: list[int], *, domain: str) -> Tensor:
        """Response rewards of a domain, ready for the estimator. [B of the domain]."""
        shaping = self.spec.algorithm.reward_shaping
        result = (self._response_rewards(answered)[indices] + shaping.shift) * shaping.scale
        scopes = shaping.normalize if not self._normalises_steps else Normalization()
        if "running" in (scopes.mean, scopes.std):
            self.running.setdefault(domain, rewards.RunningMoments()).update(result)
        if scopes.mean is not None or scopes.std is not None:
            groups = self._normal_groups(answered)[indices]
            running = self.running.get(domain)
            result = rewards.normalized(result, groups, mean=scopes.mean, std=scopes.std, running=running)
        # the group is what normalises in ROLL's grpo, and rewards are cut after that
        clip = None if self._normalises_first else shaping.clip
        return result if clip is None else result.clamp(-clip, clip)

    @property
    def _normalises_steps(self) -> bool:
        """Whether the estimator itself normalises, over steps."""
        return isinstance(self.spec.algorithm.advantage, StepReinforce)

    @property
    def _reads_turns(self) -> bool:
        """Whether advantages depend on single turns of agents."""
        return ADVANTAGES[estimator_of(self.spec.algorithm)[0]].needs_turns or bool(self._placing)

    @cached_property
    def _agents(self) -> dict[str, RunningAgent]:
        found = self.spec.agents
        return {name: agent for name, agent in found.items() if isinstance(agent, RunningAgent)}

    @cached_property
    def _placing(self) -> frozenset[str]:
        """The agents whose turns' rewards count at the ends of turns."""
        return frozenset(
            name
            for name, agent in self._agents.items()
            if agent.credit.turns == "own" and arithmetic.credit_of(agent) != "function"
        )

    def _by_turns(
        self, packed: CountedTokens, answered: Sequence[RolloutGroup], indices: list[int]
    ) -> dict[str, Tensor]:
        """The turns of some responses, as ``algorithms.turns`` has them, and what a response without turns is there."""
        lengths, states = packed.lengths.tolist(), dict[str, int]()
        owners = [(item.prompt, response) for item in answered for response in item.responses]
        numbers: dict[str, list[Any]] = {name: [] for name in _OF_TURNS}
        counts, rows = [], []
        for index in indices:
            prompt, response = owners[index]
            name = str(prompt.extra.get("agent", self.spec.default_agent))
            agent = self._agents.get(name)
            counted = agent is not None and arithmetic.credit_of(agent) != "function"
            turns = response.turns or (Turn((), len(response.token_ids), starts_row=True),)
            before = len(numbers["turn_places"])
            order = sorted(range(len(turns)), key=lambda place: turns[place].number)
            for place in order:
                turn = turns[place]
                reward = turn.reward if counted else 0.0
                scale = self.spec.algorithm.reward_shaping.scale
                numbers["turn_rewards"].append(reward * scale)
                numbers["placed"].append(reward * scale if name in self._placing else 0.0)
                numbers["turn_lengths"].append(turn.tokens if lengths[index] else 0)
                numbers["turn_places"].append(before + place)
                numbers["turn_states"].append(states.setdefault(turn.state or f"{index} {place}", len(states)))
            counts.append(len(turns))
            rows.append(sum(turn.starts_row for turn in turns))
        found = {name: torch.tensor(values, dtype=_OF_TURNS[name]) for name, values in numbers.items()}
        return {
            **found,
            "turns": torch.tensor(counts),
            "rows": torch.tensor(rows),
            "normal_groups": self._normal_groups(answered)[indices],
        }

    @property
    def _normalises_first(self) -> bool:
        """Whether the estimator comes before the KL in the reward and the clip, as ROLL's grpo does."""
        chosen = self.spec.algorithm.advantage
        return isinstance(chosen, Grpo) and chosen.kl_order == "after_normalisation"

    def _normal_groups(self, answered: Sequence[RolloutGroup]) -> Tensor:
        """What forms a group for normalisation. int64 [B]."""
        by = self.spec.algorithm.reward_shaping.group_by
        if by == "prompt":
            return _groups(answered)
        if by == "trajectory":
            return torch.arange(sum(len(item.responses) for item in answered))
        names = ["" if by == "batch" else str(item.prompt.extra.get("tag", item.prompt.source)) for item in answered]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return torch.tensor([numbers[name] for name, item in zip(names, answered, strict=True) for _ in item.responses])

    def _baselines(self, answered: Sequence[RolloutGroup]) -> Tensor:
        """The greedy response's reward, for each response of its prompt. [B]."""
        shaping, totals = self.spec.algorithm.reward_shaping, []
        for item in answered:
            assert item.greedy is not None, "this estimator needs a greedy response for each prompt"
            response, score = item.greedy
            total = score.total + float(self._penalties(torch.tensor([len(response.token_ids)])))
            totals += [(total + shaping.shift) * shaping.scale] * len(item.responses)
        return torch.tensor(totals)

    def _parts(self, answered: Sequence[RolloutGroup], indices: list[int]) -> Tensor | None:
        """The rewards that the estimator reads one by one, as they were scored. [K, B of the domain]."""
        names = reward_parts(self.spec.algorithm)
        scores = [score for item in answered for score in item.scores] if names else []
        return torch.tensor([[_part(scores[i], name) for i in indices] for name in names]) if names else None

    def _reward_kl(
        self, packed: CountedTokens, tokens: Tensor | slice, lengths: Tensor, metrics: dict[str, float]
    ) -> Tensor | None:
        """The coefficient times the KL to the reference, [N]; None where the reward has none. Adds the KL to the metrics."""
        chosen = self.spec.algorithm.kl_in_reward
        if chosen is None or chosen.coefficient == 0:
            return None
        if chosen.estimator == "full":
            values = packed.read(WHOLE_KL)[tokens]
        else:
            old, reference = packed.read("old_log_probs")[tokens], packed.read("reference_log_probs")[tokens]
            values = kl.estimate(chosen.estimator, old, reference)
        coefficient, current = self.controller.coefficient, kl.mean_over_responses(values, lengths)
        share = len(lengths) / len(packed.lengths)
        metrics["reward/kl"] = metrics.get("reward/kl", 0.0) + share * current
        metrics.setdefault("reward/kl_coefficient", coefficient)
        return coefficient * values

    def _weighted(self, weights: Tensor, packed: CountedTokens, answered: Sequence[RolloutGroup]) -> Tensor:
        """Token weights times the weights of their responses. [N].

        Raises:
            RunError: responses weigh by difficulty and a prompt has none.
        """
        chosen = self.spec.algorithm.loss_weights
        if not chosen.difficulty and not chosen.length:
            return weights
        result = torch.ones(len(packed.lengths))
        if chosen.difficulty:
            difficulty = [_difficulty(item) for item in answered for _ in item.responses]
            result = result * filters.difficulty_weights(torch.tensor(difficulty))
        if chosen.length:
            result = result * filters.length_weights(packed.lengths.float())
        return weights * torch.repeat_interleave(filters.mean_one(result), packed.lengths)


_OF_TURNS = {
    "turn_rewards": torch.float32,
    "placed": torch.float32,
    "turn_lengths": torch.int64,
    "turn_places": torch.int64,
    "turn_states": torch.int64,
}
"""Numbers of turns, and their types."""


def _texts(answered: Sequence[RolloutGroup], tokenizer: Any) -> list[list[str]]:
    return texts_of([item.responses for item in answered], tokenizer)


def _totals(answered: Sequence[RolloutGroup]) -> Tensor:
    return torch.tensor([reward for item in answered for reward in item.rewards], dtype=torch.float32)


def _part(score: Score, name: str) -> float:
    """A reward of this name, or a number of this name that a reward told beside its score; 0 where a reward failed.

    Raises:
        RunError: there is none.
    """
    found = [value for key, value in score.components.items() if name in (key, key.partition("/")[2])]
    if not found and score.error is None:
        raise RunError(
            said(
                "no reward returns {name!r}, which gdpo normalizes; rewards return {names}",
                name=name,
                names=", ".join(score.components),
            ),
            hint="name rewards, or numbers that a reward function returns along with its score, in algorithm.advantage.args",
        )
    return found[0] if found else 0.0


def _groups(answered: Sequence[RolloutGroup]) -> Tensor:
    return torch.tensor([group for group, item in enumerate(answered) for _ in item.responses], dtype=torch.int64)


def _passes(chosen: ZeroVarianceGroups | GroupMean, values: Tensor, groups: Tensor) -> Tensor:
    if isinstance(chosen, ZeroVarianceGroups):
        return filters.unequal_groups(values, groups, threshold=chosen.threshold)
    return filters.group_mean_between(values, groups, low=chosen.low, high=chosen.high)


def _keeps(chosen: Filter, answered: Sequence[RolloutGroup]) -> Tensor:
    """Which responses one filter of responses lets pass. bool [B]."""
    responses = [response for item in answered for response in item.responses]
    if isinstance(chosen, Overlong):
        return torch.tensor([response.finish_reason != "length" for response in responses])
    right = _right(answered)
    if isinstance(chosen, DifficultyMask):
        compared = torch.tensor([len(item.responses) > 1 for item in answered for _ in item.responses])
        between = filters.group_mean_between(right, _groups(answered), low=chosen.low, high=chosen.high)
        return between | ~compared
    assert isinstance(chosen, LongIncorrect), f"{chosen.choice} is not a response filter"
    lengths = torch.tensor([len(response.token_ids) for response in responses])
    return filters.short_or_right(lengths, right > 0, max_tokens=chosen.max_tokens)


def _right(answered: Sequence[RolloutGroup]) -> Tensor:
    """1 for right and 0 for wrong where a reward can tell, else the reward. [B]."""
    told = [
        score.total if score.correct is None else float(score.correct)
        for item in answered
        for score in item.scores or [Score(reward) for reward in item.rewards]
    ]
    return torch.tensor(told, dtype=torch.float32)


def _difficulty(item: RolloutGroup) -> float:
    info = item.prompt.extra.get("extra_info") or {}
    value = info.get("difficulty") if isinstance(info, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RunError(
            said(
                "algorithm.loss_weights.difficulty uses extra_info.difficulty, but prompt {index} of {source} has no "
                "such number",
                index=item.prompt.index,
                source=item.prompt.source,
            ),
            hint="name the column with data.train[].extra_key, or set algorithm.loss_weights.difficulty to false",
        )
    return float(value)


def _mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else 0.0
