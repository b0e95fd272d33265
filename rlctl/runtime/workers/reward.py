"""The reward worker: scores responses with all the config's rewards. Knows nothing of Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.rewards import FunctionReward, JudgeReward, ModelReward, Reward, RuleReward, SandboxReward
from rlctl.planning import arithmetic
from rlctl.runtime.auxiliary import NO_AUXILIARIES, Auxiliaries, chosen
from rlctl.runtime.rewards import late
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.judge import Judge
from rlctl.runtime.rewards.local_programs import LocalPrograms
from rlctl.runtime.rewards.outcome import attempt
from rlctl.runtime.rewards.pool import CallPool
from rlctl.runtime.rewards.routing import Score, combine, rewards_for
from rlctl.runtime.rewards.sandbox_fusion import Sandbox
from rlctl.runtime.rewards.scorers import FunctionScorer, RuleScorer
from rlctl.runtime.rewards.service import score_by_service
from rlctl.runtime.serialization.records import Records
from rlctl.runtime.types import Prompt, Response

SHOWN_CHARACTERS = 400
"""Of a prompt or response, in an error."""
OWN = "agent"
"""Name of the reward that an agent gives, among the components of a score."""
BROKEN_AFTER = 8
"""Calls that fail, on as many prompts or on all of several that are scored together, before any gives an outcome: then the
reward is broken, and neither a response nor a row is to blame."""

Scorer = RuleScorer | FunctionScorer | Judge | Sandbox | LocalPrograms


@dataclass(frozen=True, slots=True)
class RewardItem:
    """One response to score."""

    prompt: Prompt
    response_text: str
    response_tokens: int
    truncated: bool = False
    """Whether the response was cut at the limit."""
    group: int = 0
    """Number of the prompt among those scored together."""
    conversation: Sequence[Mapping[str, Any]] = ()
    """Of an agent; as ``Call`` has it."""
    turn_rewards: Sequence[float] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    stop: str = ""
    own: float | None = None
    """The reward that the agent gives; added to the others, of which there may be none then."""
    counts_nothing: bool = False
    """Whether its reward is 0, whatever rewards say."""
    failure: str = ""
    """Why an agent failed; no reward scores it then."""

    @classmethod
    def of(cls, prompt: Prompt, text: str, response: Response, group: int = 0) -> RewardItem:
        """A response to a prompt."""
        turns = sorted(response.turns, key=lambda turn: turn.number) if response.turns else ()
        return cls(
            prompt,
            text,
            len(response.token_ids),
            truncated=response.finish_reason == "length",
            group=group,
            conversation=response.messages,
            turn_rewards=tuple(turn.reward for turn in turns),
            info=response.info,
            stop=response.stop,
            own=response.reward,
            counts_nothing=response.treatment == "zero_reward",
            failure=response.failure,
        )

    @property
    def call(self) -> Call:
        """What a reward is told of it."""
        extra = self.prompt.extra
        return Call(
            source=self.prompt.source,
            response=self.response_text,
            answer=self.prompt.answer,
            extra=extra.get("extra_info", {}),
            tokens=self.response_tokens,
            truncated=self.truncated,
            args=extra.get("reward_args", {}),
            prompt=self.prompt.text,
            messages=self.prompt.messages,
            tag=str(extra["tag"]) if extra.get("tag") is not None else None,
            group=self.group,
            columns=extra.get("columns", {}),
            conversation=self.conversation,
            turn_rewards=self.turn_rewards,
            info=self.info,
            stop=self.stop,
        )

    def applying(self, rewards: Sequence[Reward]) -> list[int]:
        """The positions of the rewards that score it. Rule auto does not score a response to which an agent gave a reward.

        An agent that a limit stopped may not have given one; if nothing else scores it, its reward is 0.
        """
        if self.failure:
            return []
        found = rewards_for(self.prompt, rewards, required=self.own is None and self.stop in ("", "done"))
        return found if self.own is None else [i for i in found if not _is_auto(rewards[i])]

    def whole(self, score: Score) -> Score:
        """The score of the config's rewards with what the agent gives."""
        if self.failure:
            return Score(0.0, error=self.failure)
        if self.own is not None:
            success = self.info.get("success", self.info.get("is_success"))
            correct = bool(success) if score.correct is None and success is not None else score.correct
            components = {**score.components, OWN: self.own}
            score = replace(score, total=score.total + self.own, components=components, correct=correct)
        return replace(score, total=0.0) if self.counts_nothing else score


class RewardWorker:
    """Scores responses. Rules that cannot hang run here, services are asked from here, everything else is in child processes.

    Reward models, and judges that the run serves, are roles of their own (``workers/reward_model.py``, ``workers/judge.py``):
    their outcomes come with the responses.

    Args:
        rewards: of the config.
        log_folder: gets ``reward-<name>.log`` with what user code prints; None sends it to stderr.
        models: auxiliary models, which judges may be.

    Raises:
        RunError: a reward is of a kind that the runtime does not run, or cannot be loaded.
        MissingDependency: a rule needs a package that is not there.
    """

    def __init__(
        self, rewards: Sequence[Reward], log_folder: Path | None = None, models: Auxiliaries = NO_AUXILIARIES
    ) -> None:
        self._rewards = tuple(rewards)
        _check_names(self._rewards)
        self._scorers = {
            i: scorer_of(each, models) for i, each in enumerate(self._rewards) if not scored_by_workers(each)
        }
        self._pools: dict[int, CallPool] = {}
        self._failing: dict[int, set[tuple[str, int]]] = {i: set() for i in range(len(self._rewards))}
        """Of each reward, the prompts on which it has failed since it last gave an outcome."""
        try:
            for i, scorer in self._scorers.items():
                if isinstance(scorer, FunctionScorer | LocalPrograms) or (
                    isinstance(scorer, RuleScorer) and scorer.needs_process
                ):
                    reward = self._rewards[i]
                    log = log_folder / f"reward-{_file_name(reward.name)}.log" if log_folder else None
                    timeout = scorer.call_seconds if isinstance(scorer, LocalPrograms) else reward.timeout
                    told = partial(late.note, log_folder, reward.name, timeout)
                    self._pools[i] = CallPool(scorer, processes=reward.workers, timeout=timeout, log=log, late=told)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def score(
        self,
        items: Sequence[RewardItem],
        modelled: Mapping[int, Sequence[Outcome | Failure]] | None = None,
    ) -> Sequence[Score]:
        """Score responses, in their order; all rewards at the same time.

        Args:
            items: what to score.
            modelled: what each reward model or judge served here says of the responses that it applies to, by its position in
                the config.

        Raises:
            RunError: a reward fails whose ``on_error`` is stop, or fails on everything, or none applies to a prompt.
        """
        if not items:
            return []
        applying = [item.applying(self._rewards) for item in items]
        chosen = {i: [k for k, applies in enumerate(applying) if i in applies] for i in range(len(self._rewards))}

        def found_by(i: int) -> Sequence[Outcome | Failure]:
            if scored_by_workers(self._rewards[i]):
                return (modelled or {})[i] if chosen[i] else []
            return self._call(i, [items[k].call for k in chosen[i]])

        with ThreadPoolExecutor(max_workers=max(len(self._rewards), 1)) as threads:
            found = list(threads.map(found_by, range(len(self._rewards))))
        outcomes: list[dict[int, Outcome | Failure]] = [{} for _ in items]
        for i, reward in enumerate(self._rewards):
            mine = [items[k] for k in chosen[i]]
            _stop_at_failure(reward, mine, found[i], self._fails_always(i, mine, found[i]))
            for k, outcome in zip(chosen[i], found[i], strict=True):
                outcomes[k][i] = outcome
        return Records(
            item.whole(combine(outcome, self._rewards)) for item, outcome in zip(items, outcomes, strict=True)
        )

    def _fails_always(self, i: int, items: Sequence[RewardItem], found: Sequence[Outcome | Failure]) -> bool:
        """Whether a reward is broken; ``BROKEN_AFTER`` says when, and ``HANGS_AFTER`` of one that hangs."""
        if i in self._pools and self._pools[i].hangs:
            return True
        if not all(isinstance(each, Failure) for each in found):
            self._failing[i] = set()
            return False
        prompts = {(item.prompt.source, item.prompt.index) for item in items}
        self._failing[i] |= prompts
        return len(self._failing[i]) >= BROKEN_AFTER or (len(items) >= BROKEN_AFTER and len(prompts) > 1)

    def close(self) -> None:
        """End the child processes."""
        for pool in self._pools.values():
            pool.close()

    def _call(self, i: int, calls: list[Call]) -> Sequence[Outcome | Failure]:
        reward, scorer = self._rewards[i], self._scorers[i]
        if not calls:
            return []
        if i in self._pools:
            return self._pools[i].map(calls, stop_on_failure=reward.on_error == "stop", give_up_after=BROKEN_AFTER)
        if isinstance(scorer, RuleScorer | FunctionScorer):
            score = scorer.load().one
            assert score is not None, "a rule scores responses one by one"
            return [attempt(score, call) for call in calls]
        assert not isinstance(scorer, LocalPrograms), "it has a pool"
        assert isinstance(reward, JudgeReward | SandboxReward), "only these ask services"
        secret = (reward.api_key or "") if isinstance(reward, JudgeReward) else ""
        if isinstance(scorer, Judge) and scorer.auxiliary is not None:
            secret = scorer.auxiliary.api_key
        return score_by_service(
            scorer, calls, max_concurrent=reward.max_concurrent, timeout=reward.timeout, secret=secret
        )


def _is_auto(reward: Reward) -> bool:
    return isinstance(reward, RuleReward) and reward.rule == "auto"


def scored_by_workers(reward: Reward) -> bool:
    """Whether other workers score it: a reward model, or a judge that the run serves."""
    return isinstance(reward, ModelReward) or arithmetic.is_served_here(reward)


def _check_names(rewards: Sequence[Reward]) -> None:
    names = [reward.name for reward in rewards]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RunError(
            said(
                "{count} rewards are called {twice!r}, so their metrics would collide",
                count=names.count(twice),
                twice=twice,
            ),
            hint="give each reward a unique name (rewards[].name)",
        )


def scorer_of(reward: Reward, models: Auxiliaries = NO_AUXILIARIES) -> Scorer:
    """What computes a reward, of any that ``scored_by_workers`` leaves. ``models`` are the auxiliary models of the run.

    Raises:
        RunError: the runtime does not run it, or it lacks something.
        MissingDependency: a rule needs a package that is not there.
    """
    if isinstance(reward, RuleReward):
        rule = RuleScorer(reward.rule, dict(reward.args), reward.score_right, reward.score_wrong)
        rule.check()
        return rule
    if isinstance(reward, FunctionReward):
        return FunctionScorer(reward.path, reward.function, dict(reward.args), reward.signature, reward.timeout)
    if isinstance(reward, SandboxReward) and reward.url is None:
        local = LocalPrograms(
            reward.timeout,
            reward.memory_limit_mib,
            reward.isolation,
            reward.method,
            partial_credit=reward.partial_credit,
            tests_together=reward.tests_together,
        )
        local.check()
        return local
    if isinstance(reward, SandboxReward):
        if reward.method != "verl":
            raise RunError(
                said(
                    "the sandbox service of the reward {name!r} is called with verl's protocol, not {method}'s",
                    name=reward.name,
                    method=reward.method,
                ),
                hint="remove its url to run programs locally, or set its method to verl",
            )
        assert reward.url is not None, "the others run programs here"
        return Sandbox(
            reward.url, reward.timeout, reward.memory_limit_mib, reward.partial_credit, reward.tests_together
        )
    if isinstance(reward, JudgeReward) and reward.auxiliary_model is not None:
        model = chosen(models, reward.auxiliary_model)
        return Judge("", model.model, reward.scoring, reward.prompt, dict(reward.sampling), model)
    if isinstance(reward, JudgeReward):
        if not reward.base_url or not reward.model:
            raise RunError(
                said(
                    "the judge {name!r} has no {value}",
                    name=reward.name,
                    value="model" if reward.base_url else "base_url",
                ),
                hint="serve a model over an OpenAI-compatible endpoint, and set base_url and model of the reward",
            )
        return Judge(reward.base_url, reward.model, reward.scoring, reward.prompt, dict(reward.sampling))
    raise RunError(
        said(
            "the reward {name!r} is of type {choice}, which rlctl does not support",
            name=reward.name,
            choice=reward.choice,
        ),
        hint="use a reward of type rule, function, model, judge or sandbox",
    )


def _stop_at_failure(
    reward: Reward, items: Sequence[RewardItem], found: Sequence[Outcome | Failure], everything: bool
) -> None:
    failures = [(item, out) for item, out in zip(items, found, strict=True) if isinstance(out, Failure)]
    broken = next((f for f in failures if f[1].broken), None)
    if not failures or not (everything or broken or reward.on_error == "stop"):
        return
    item, failure = broken or next((f for f in failures if not f[1].unanswered), failures[0])
    hint = "fix the reward: it fails on every response"
    if failure.late:
        hint = "fix the reward, which hangs or is slow, or raise its timeout (rewards[].timeout)"
    if not (everything or broken):
        hint = said("fix the reward, or set the on_error of {name!r} to zero to score 0 and continue", name=reward.name)
    raise RunError(
        said(
            "the reward {name!r} failed on a response to prompt {index} of {source}: {message}\n  prompt: "
            "{text}\n  response: {response_text}\n  answer: {answer}",
            name=reward.name,
            index=item.prompt.index,
            source=item.prompt.source,
            message=failure.message,
            text=_shown(item.prompt.text),
            response_text=_shown(item.response_text),
            answer=_shown(str(item.prompt.answer)),
        ),
        hint=hint,
    )


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"... {text[-SHOWN_CHARACTERS:]}"


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
