"""The agent of type ``environment``: the model reads observations and writes actions until the episode is over."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import EnvironmentAgent, RunningEnvironment
from rlctl.runtime.agents.conversation import Message, Renderer
from rlctl.runtime.agents.hosting import EnvironmentFailed, Host, ProcessHost, ThreadHost, Unplayable
from rlctl.runtime.agents.kinds import Ended, Model, OutOfTokens
from rlctl.runtime.agents.played import Observed, Task
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.types import Prompt

SEED_BITS = 31
"""Of seeds of environments: numpy's and most others take no more."""
_AROUND = re.compile(r"([^()\\[\]{}.*+?|^$\\]*)\(.*\)([^()\\[\]{}.*+?|^$\\]*)")
"""A pattern with plain text around one group."""
_OF_TURNS = ("observation", "turn", "turns_done", "turns_left", "reward", "history", "history_length", "info")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "template": _OF_TURNS,
    "opening_template": (*_OF_TURNS, "prompt"),
    "history_template": ("observation", "action", "reward", "turn"),
    "invalid_action_text": ("actions", "observation"),
}
"""What each template may name."""


@dataclass(slots=True)
class _Episode:
    """What has happened so far."""

    row: Prompt
    seen: Observed
    turn: int = 0
    """Actions so far."""
    reward: float = 0.0
    """Of the last one."""
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Acting:
    """Plays an environment."""

    config: EnvironmentAgent
    run_seed: int
    chat_of: Renderer
    host: Host

    async def run(self, row: Prompt, model: Model) -> Ended:
        """Play one episode.

        Raises:
            EnvironmentFailed: the environment did not do what it was asked.
            Unplayable: it can no longer be made, or no longer fits a template.
        """
        task = Task.of(self.config)
        number, seen = await self.host.open(task, self._seed(row, model))
        messages: list[Message] = []
        try:
            episode = _Episode(row, seen)
            stop = await self._played(number, episode, model, messages)
        finally:
            await self.host.close(number)
        return Ended(
            model.last_text,
            messages,
            {**model.counts, "environment_turns": float(episode.turn)},
            stop=stop,
            info=dict(episode.seen.info),
        )

    async def probe(self) -> None:
        """Make and reset the environment once, and fill in the opening.

        Raises:
            RunError: it cannot be made.
        """
        try:
            number, seen = await self.host.open(Task.of(self.config), 0)
        except EnvironmentFailed as error:
            raise RunError(
                said(
                    "the environment of the agent {name!r} fails at its first reset: {error}",
                    name=self.config.name,
                    error=error,
                ),
                hint="correct the environment of the agent in rollout.agents",
            ) from error
        self._opening(_Episode(Prompt(0, "", (), ""), seen))
        await self.host.close(number)

    async def close(self) -> None:
        """End all environments."""
        self.host.end()

    def expected_texts(self) -> list[str]:
        """Texts that are valid actions, as far as the config says which there are."""
        pattern, names = self.config.action_pattern, list(map(str, self.config.actions))
        if pattern is None:
            return names
        around = _AROUND.fullmatch(pattern)
        texts = [f"{around[1]}{name}{around[2]}" for name in names] if around else names
        return [text for text in texts if re.search(pattern, text)]

    def _seed(self, row: Prompt, model: Model) -> int:
        chosen = self.config.environment
        assert isinstance(chosen, RunningEnvironment), "the others are refused before"
        by = {
            "group": (model.request.seed, "environment"),
            "row": (self.run_seed, "environment", row.source, row.index),
            "fixed": (self.run_seed, "environment"),
        }
        base, *parts = by[chosen.seed]
        return derive_seed(int(base), *parts) >> (62 - SEED_BITS)

    async def _played(self, number: int, episode: _Episode, model: Model, messages: list[Message]) -> str:
        """Take turns until something ends the episode; what did."""
        opening = self._opening(episode)
        messages += opening[len(episode.row.messages) :] if _continues(opening, episode.row) else opening
        ids = self.chat_of.opening(opening)
        while True:
            try:
                response = await model.generate(ids, max_tokens=self.config.max_turn_tokens)
            except OutOfTokens:
                return "length"
            text = model.last_text
            messages.append({"role": "assistant", "content": text})
            before, found = episode.seen, await self.host.act(number, text)
            self._take(episode, before, found, model)
            if found.terminated or found.truncated or self._ends(found):
                return "done"
            if response.finish_reason == "length" and model.truncated:
                return "length"
            if model.over:
                return model.over
            shown = self._shown(episode, found)
            if self.config.history_turns is None:
                added: Message = {"role": "user", "content": shown}
                inserted = self.chat_of.between([added], response.token_ids)
                ids = [*ids, *response.token_ids, *inserted]
                messages.append(added)
            else:
                opening = self._opening(episode, invalid=shown if found.action is None else None)
                messages.append(opening[-1])
                ids = self.chat_of.opening(opening)
            if model.room(ids) < 1:
                model.truncated = True
                return "length"

    def _take(self, episode: _Episode, before: Observed, found: Observed, model: Model) -> None:
        """Note what an action led to."""
        valid = found.action is not None and found.info.get("action_is_valid") is not False
        reward = found.reward if found.action is not None else self.config.invalid_action_reward
        episode.turn += 1
        episode.reward = reward
        episode.seen = found
        action = found.action if found.action is not None else model.last_text
        episode.history.append({"observation": before.text, "action": action, "reward": reward, "turn": episode.turn})
        model.recorder.reward(reward, state=before.state)
        model.counts["invalid_actions"] += not valid

    def _ends(self, found: Observed) -> bool:
        return found.action is None and self.config.on_invalid_action == "end"

    def _opening(self, episode: _Episode, *, invalid: str | None = None) -> list[Message]:
        """The conversation up to the first generation; with ``history_turns``, that of every turn."""
        row = episode.row
        asked = [dict(message) for message in row.messages if message["role"] != "user" or message["content"]]
        system = [message for message in asked if message["role"] == "system"]
        if not system and self.config.system_prompt:
            system = [{"role": "system", "content": self.config.system_prompt}]
        rest = [message for message in asked if message["role"] != "system"]
        prompt = rest.pop()["content"] if rest and rest[-1]["role"] == "user" else ""
        first = episode.turn == 0 or self.config.history_turns is not None
        template = (self.config.opening_template if first else None) or self.config.template
        text = invalid if invalid is not None else self._formatted(template, episode, prompt=prompt)
        if prompt and "{prompt" not in template:
            text = f"{prompt}\n{text}"
        return [*system, *rest, {"role": "user", "content": text}]

    def _shown(self, episode: _Episode, found: Observed) -> str:
        if found.action is None:
            return self.config.invalid_action_text.format(actions=found.actions, observation=found.text)
        return self._formatted(self.config.template, episode)

    def _formatted(self, template: str, episode: _Episode, *, prompt: str = "") -> str:
        limit, turns = self.config.max_turns, self.config.history_turns
        shown = episode.history[len(episode.history) - turns :] if turns else []
        values = {
            "observation": episode.seen.text,
            "turn": episode.turn + 1,
            "turns_done": episode.turn,
            "turns_left": "unlimited" if limit is None else limit - episode.turn,
            "reward": f"{episode.reward:g}",
            "history": "".join(self.config.history_template.format(**each) for each in shown),
            "history_length": len(shown),
            "info": episode.seen.info,
            "prompt": prompt,
        }
        try:
            return template.format(**values)
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            raise Unplayable(
                said(
                    "a template of the agent {name!r} cannot be filled in: {kind}: {error}; the environment's info has "
                    "{value}",
                    name=self.config.name,
                    kind=type(error).__name__,
                    error=error,
                    value=", ".join(episode.seen.info) or "nothing",
                ),
                hint="name only what the environment returns, and write {{ and }} for braces",
            ) from error


def _continues(opening: Sequence[Message], row: Prompt) -> bool:
    known = len(row.messages)
    return list(opening[:known]) == list(row.messages) and len(opening) > known


def check_templates(config: EnvironmentAgent) -> None:
    """Check that templates name only fields that there are.

    Raises:
        RunError: one names something else, or is not a template.
    """
    for name, known in FIELDS.items():
        template = getattr(config, name)
        if template is None:
            continue
        try:
            named = [each for _, each, _, _ in string.Formatter().parse(template) if each is not None]
        except ValueError as error:
            raise RunError(
                said(
                    "{name} of the agent {config_name!r} is not a template: {error}",
                    name=name,
                    config_name=config.name,
                    error=error,
                ),
                hint="write {{ and }} for braces",
            ) from error
        for each in named:
            if each.partition("[")[0].partition(".")[0] not in known:
                raise RunError(
                    said(
                        "{name} of the agent {config_name!r} has the field {{{each}}}; expected one of {names}",
                        name=name,
                        config_name=config.name,
                        each=each,
                        names=", ".join("{" + field + "}" for field in known),
                    ),
                    hint="name one of these, or write {{ and }} for braces",
                )


def _check_pattern(config: EnvironmentAgent) -> None:
    try:
        re.compile(config.action_pattern or "")
    except re.error as error:
        raise RunError(
            said(
                "action_pattern of the agent {name!r} is no regular expression: {error}", name=config.name, error=error
            ),
            hint="write one whose first group is the action",
        ) from error


def host_of(config: EnvironmentAgent, threads: ThreadPoolExecutor) -> Host:
    """Where the environments of an agent run."""
    chosen = config.environment
    assert isinstance(chosen, RunningEnvironment), "the others are refused before"
    if chosen.isolation == "thread":
        return ThreadHost(threads, chosen.timeout, chosen.max_concurrent_steps)
    return ProcessHost(chosen.timeout, chosen.max_concurrent_steps, chosen.memory_limit_mib)


def make_acting(agent: EnvironmentAgent, chat: Chat, threads: ThreadPoolExecutor, seed: int) -> Acting:
    """The agent of a config, checked.

    Raises:
        RunError: a template or pattern is wrong, or the chat template does not show where an observation starts.
    """
    check_templates(agent)
    _check_pattern(agent)
    renderer = Renderer(chat, None, agent=agent.name)
    renderer.between([{"role": "user", "content": "observation"}], [])
    return Acting(agent, seed, renderer, host_of(agent, threads))
