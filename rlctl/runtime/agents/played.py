"""One environment as an agent plays it: texts in, texts out. Runs where the environment runs, so it holds no Ray and no torch.

text ──action_pattern──▶ action ──step──▶ observation ──▶ text, reward, whether it is over
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rlctl.common import packages
from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import EnvironmentAgent, GymnasiumEnvironment, PythonEnvironment, RunningEnvironment
from rlctl.runtime.user_code import encodable, last_lines, load_object

MOST_CHARACTERS = 1_000_000
"""Of an observation, or of a text in ``info``."""
MOST_NUMBERS = 256
"""Numbers of an array in ``info`` that are kept."""
_HIGHLIGHTED = re.compile(r"\x1b\[\d+(?:;\d+)*m(.*?)\x1b\[0?m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Task:
    """What an environment is made of."""

    agent: str
    environment: RunningEnvironment
    observation: str
    action_pattern: str | None
    actions: Mapping[str, Any]

    @classmethod
    def of(cls, agent: EnvironmentAgent) -> Task:
        """The task of an agent of the config."""
        assert isinstance(agent.environment, RunningEnvironment), "the others are refused before"
        return cls(agent.name, agent.environment, agent.observation, agent.action_pattern, agent.actions)


@dataclass(frozen=True, slots=True)
class Observed:
    """What an environment says after ``reset`` or an action."""

    text: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    action: str | None = None
    """The text that was taken as the action; None if there was none, and the environment was not stepped."""
    actions: str = ""
    """The valid actions, for messages."""
    state: str = ""
    """A mark of the observation: equal for equal ones."""


class Played:
    """An environment that was made and reset."""

    def __init__(self, task: Task, load: Callable[..., Any] = load_object) -> None:
        """Make it, of a class that ``load`` returns.

        Raises:
            RunError: there is no such environment.
        """
        self._task = task
        self._environment, self._renders = _made(task, load)
        self._by_text = {str(name).strip().lower(): value for name, value in task.actions.items()}
        self._space = getattr(self._environment, "action_space", None)
        self._last = Observed("")

    def reset(self, seed: int) -> Observed:
        """Begin an episode."""
        found = self._environment.reset(seed=seed)
        observation, info = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
        self._last = self._observed(observation, info)
        return self._last

    def act(self, text: str) -> Observed:
        """Take the action that a text names; without a valid one the last observation comes back.

        Raises:
            RunError: the environment returns something else than gymnasium's five values.
        """
        named = self._named(text)
        action = self._action(named) if named is not None else None
        if action is None:
            last = self._last
            return Observed(last.text, info=last.info, actions=self._choices(), state=last.state)
        found = self._environment.step(action[0])
        if not isinstance(found, Sequence) or len(found) != 5:
            raise RunError(
                said(
                    "the environment of the agent {agent!r} returned {kind} from step; expected observation, reward, "
                    "terminated, truncated and info",
                    agent=self._task.agent,
                    kind=_kind(found),
                ),
                hint="return the five values of gymnasium's step",
            )
        observation, reward, terminated, truncated, info = found
        if not math.isfinite(reward):
            raise ValueError(f"the reward of the step is {reward}; expected a finite number")
        self._last = self._observed(
            observation,
            info,
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            action=named,
        )
        return self._last

    def _named(self, text: str) -> str | None:
        pattern = self._task.action_pattern
        if pattern is None:
            return text.strip() or None
        found = list(re.finditer(pattern, text, re.DOTALL))
        if not found:
            return None
        last = found[-1]
        return (last.group(1) if last.re.groups and last.group(1) is not None else last.group()).strip() or None

    def _action(self, named: str) -> tuple[Any] | None:
        """The action of a text, in a tuple; None if there is none."""
        if self._by_text:
            value = self._by_text.get(named.lower(), self)
            return None if value is self else (value,)
        kind = type(self._space).__name__
        if kind == "Discrete":
            with suppress(ValueError):
                number = int(named)
                return (number,) if self._space.contains(number) else None  # type: ignore[union-attr]
            return None
        if kind in ("MultiDiscrete", "MultiBinary", "Box"):
            with suppress(ValueError, TypeError):
                import numpy as np

                values = np.asarray(json.loads(named), dtype=self._space.dtype)  # type: ignore[union-attr]
                return (values,) if self._space.contains(values) else None  # type: ignore[union-attr]
            return None
        return (named,)

    def _choices(self) -> str:
        if self._by_text:
            return ", ".join(str(name) for name in self._task.actions)
        if type(self._space).__name__ == "Discrete":
            first = int(self._space.start)  # type: ignore[union-attr]
            return f"the numbers {first} to {first + int(self._space.n) - 1}"  # type: ignore[union-attr]
        return "text"

    def _observed(self, observation: Any, info: Any, **more: Any) -> Observed:
        text = encodable(_text(self._environment.render() if self._renders else observation))
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"the observation has {len(text):,} characters; expected up to {MOST_CHARACTERS:,}")
        info = plain(info) if isinstance(info, Mapping) else {}
        named = info.get("state_hash")
        state = str(named) if named is not None else hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:16]
        return Observed(text, info=info, actions=self._choices(), state=state, **more)

    def close(self) -> None:
        """End it; what it raises is dropped, as nothing can be done about it."""
        with suppress(Exception):
            if hasattr(self._environment, "close"):
                self._environment.close()


def _made(task: Task, load: Callable[..., Any]) -> tuple[Any, bool]:
    """The environment, and whether observations are what it renders."""
    chosen = task.environment
    if isinstance(chosen, PythonEnvironment):
        made = _loaded(task, chosen, load)(**chosen.args)
        for method in ("reset", "step"):
            if not callable(getattr(made, method, None)):
                raise RunError(
                    said(
                        "{where}: what {path}:{name} makes has no method {method}",
                        where=_where(task),
                        path=chosen.path,
                        name=chosen.name,
                        method=method,
                    ),
                    hint="write reset(seed=...) and step(action), as gymnasium defines them",
                )
        return made, _renders(task, made)
    assert isinstance(chosen, GymnasiumEnvironment), f"environments of type {chosen.choice} are refused before"
    return _registered(task, chosen)


def _where(task: Task) -> str:
    return said("the environment of the agent {agent!r}", agent=task.agent)


def _loaded(task: Task, chosen: PythonEnvironment, load: Callable[..., Any]) -> Any:
    return load(chosen.path, chosen.name, where=_where(task))


def import_code(task: Task, load: Callable[..., Any]) -> None:
    """Import the code of an environment, so that processes forked from this one need not.

    Raises:
        RunError: it cannot be imported.
    """
    chosen = task.environment
    if isinstance(chosen, PythonEnvironment):
        _loaded(task, chosen, load)
    elif isinstance(chosen, GymnasiumEnvironment) and importlib.util.find_spec("gymnasium") is not None:
        import gymnasium

        with suppress(gymnasium.error.Error, ImportError):  # making one says what is wrong
            entry = gymnasium.spec(chosen.id).entry_point
            if isinstance(entry, str):
                importlib.import_module(entry.partition(":")[0])


def _registered(task: Task, chosen: GymnasiumEnvironment) -> tuple[Any, bool]:
    try:
        import gymnasium
        from gymnasium.envs.registration import load_env_creator
    except ImportError as error:
        raise RunError(
            said("the agent {agent!r} needs gymnasium, which is not installed", agent=task.agent),
            hint=packages.install(packages.RUNTIME),
        ) from error
    args = dict(chosen.args)
    try:
        spec = gymnasium.spec(chosen.id)
        creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
        modes = getattr(creator, "metadata", {}).get("render_modes", ())
        if task.observation != "value" and "ansi" in modes:
            args.setdefault("render_mode", "ansi")
        made = gymnasium.make(chosen.id, disable_env_checker=True, **args)
    except gymnasium.error.UnregisteredEnv as error:
        known = [str(name) for name in gymnasium.registry]
        raise RunError(
            said(
                "the agent {agent!r}: gymnasium has no environment {id!r}: {error}",
                agent=task.agent,
                id=chosen.id,
                error=error,
            ),
            hint=nearest(chosen.id, known) or "write module:id if a module registers it",
        ) from error
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        raise RunError(
            said(
                "the agent {agent!r}: {id} cannot be made with {args}: {kind}: {error}",
                agent=task.agent,
                id=chosen.id,
                args=args,
                kind=type(error).__name__,
                error=error,
            ),
            hint="correct environment.args of the agent",
        ) from error
    return made, _renders(task, made)


def _renders(task: Task, made: Any) -> bool:
    if task.observation != "auto":
        return task.observation == "render"
    is_text = type(getattr(made, "observation_space", None)).__name__ == "Text"
    return not is_text and getattr(made, "render_mode", None) == "ansi"


def _text(value: Any) -> str:
    """An observation as text. What a terminal would highlight stands in brackets: it is often where the player is."""
    if not isinstance(value, str):
        return json.dumps(_plain(value), ensure_ascii=False)
    return _ESCAPE.sub("", _HIGHLIGHTED.sub(r"[\1]", value)).strip("\n")


def plain(info: Mapping[Any, Any]) -> dict[str, Any]:
    """The part of a mapping that is plain data."""
    found = {str(key): _plain(value) for key, value in info.items()}
    return {key: value for key, value in found.items() if value is not _NOT_PLAIN}


_NOT_PLAIN = object()


def _plain(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return _NOT_PLAIN
    if isinstance(value, str):
        return encodable(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if hasattr(value, "tolist"):  # an array, or a number of numpy
        return value.tolist() if getattr(value, "size", 1) <= MOST_NUMBERS else _NOT_PLAIN
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, list | tuple):
        return [each for each in map(_plain, value) if each is not _NOT_PLAIN]
    return _NOT_PLAIN


def _kind(value: Any) -> str:
    return (
        f"{len(value)} values" if isinstance(value, Sequence) and not isinstance(value, str) else type(value).__name__
    )


@dataclass(frozen=True, slots=True)
class Failed:
    """Why an operation has no result."""

    text: str
    is_config: bool = False
    """Whether the config is at fault, and every trajectory would fail."""


class Loader:
    """As ``load_object``, but once: environments share what the module holds."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._loaded: dict[tuple[str, str], Any] = {}

    def __call__(self, path: str, name: str, *, where: str) -> Any:
        with self._loading:
            if (path, name) not in self._loaded:
                self._loaded[path, name] = load_object(path, name, where=where)
            return self._loaded[path, name]


class Held:
    """The environments of one process, in threads."""

    def __init__(self) -> None:
        self._played: dict[int, Played] = {}
        self._load = Loader()

    def do(self, operation: str, environment: int, arguments: Sequence[Any]) -> Observed | Failed | None:
        """Carry out one operation."""
        try:
            if operation == "open":
                return self._open(environment, *arguments)
            if operation == "act":
                return self._played[environment].act(*arguments)
            played = self._played.pop(environment, None)
            if played is not None:
                played.close()
        except RunError as error:
            return Failed(str(error), is_config=True)
        except BaseException as error:  # noqa: BLE001 - an environment may raise anything, also SystemExit
            return Failed(last_lines(error))
        return None

    def _open(self, environment: int, task: Task, seed: int) -> Observed:
        played = self._played[environment] = Played(task, self._load)
        return played.reset(seed)
