"""How a reward function of the user's is called: rlctl's own form, and those of the three frameworks.

    form      arguments, by name                                                    result
    rlctl     those it takes of prompt, response, answer, source, tag, extra,       number, or mapping with ``score``
              messages, tokens, truncated
    verl      data_source, solution_str, ground_truth, extra_info                   the same
    verl      data_sources, solution_strs, ground_truths, extra_infos: all          a list of those
    (batch)   responses of a step in one call
    trinity   a class with ``__call__``: response, truth, prompt, response_token;   mapping of numbers, whose sum is the
              the reward's ``args`` make the object                                 score
    roll      those it takes of prompt, response, ground_truth, tag                 number, mapping with ``score``, or
                                                                                    (answer, score, format, correct)

A coroutine function scores all responses of a step at the same time, as in verl.

Sources: verl's reward managers ``naive`` and ``batch``; ``SimpleWorkflow.run`` of Trinity's workflows; ROLL's plain functions in
roll/pipeline/rlvr/rewards.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.reward_signatures import VERL_ARGUMENTS, Parameters, arguments_of, form_of, missing_arguments
from rlctl.runtime.rewards.interface import Call, Failure, Loaded, Outcome
from rlctl.runtime.rewards.outcome import as_outcome, failure_of, is_number

Function = Callable[..., Any]


def _parameters(function: Function) -> Parameters:
    """What a function can be called with; of a class, what its objects can be called with."""
    is_class = inspect.isclass(function)
    called: Any = inspect.getattr_static(function, "__call__", None) if is_class else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return Parameters(frozenset(), anything=True, is_class=is_class)
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items() if name != "self"}
    anything = inspect.Parameter.VAR_KEYWORD in kinds.values()
    names = frozenset(name for name, kind in kinds.items() if kind is not inspect.Parameter.VAR_KEYWORD)
    return Parameters(names, anything, is_class)


def _select(parameters: Parameters, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that a function takes."""
    return {name: value for name, value in values.items() if parameters.anything or name in parameters.names}


@dataclass(frozen=True)
class _Form:
    """A function, the values it is called with, and how its result is read."""

    function: Function
    takes: Parameters
    values: Callable[[Call], dict[str, Any]]
    args: Mapping[str, Any]
    read: Callable[[Any], Outcome] = as_outcome

    def loaded(self, seconds: float) -> Loaded:
        """Responses are scored one by one; of a coroutine function all at once, each within ``seconds``."""
        if inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(type(self.function).__call__):
            return Loaded(together=lambda calls: asyncio.run(self._all(calls, seconds)))
        return Loaded(one=lambda call: self.read(_run(self._start(call))))

    def _start(self, call: Call) -> Any:
        return self.function(**{**_select(self.takes, self.values(call)), **self.args, **call.args})

    async def _all(self, calls: Sequence[Call], seconds: float) -> list[Outcome | Failure]:
        return await asyncio.gather(*(self._attempt(call, seconds) for call in calls))

    async def _attempt(self, call: Call, seconds: float) -> Outcome | Failure:
        try:
            async with asyncio.timeout(seconds) as limit:
                return self.read(await self._start(call))
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything
            return (
                Failure(said("the call took longer than {seconds:g} s", seconds=seconds), late=True)
                if limit.expired()
                else failure_of(error)
            )


def bind(function: Function, signature: str, args: Mapping[str, Any], path: str, seconds: float) -> Loaded:
    """Make a scorer of a function.

    Args:
        function: the function, or a class with ``__call__``.
        signature: ``auto`` or a form of the table above.
        args: of the reward.
        path: where the function is from, for messages.
        seconds: longest time of one coroutine; others are timed from outside.

    Raises:
        RunError: it cannot be called so.
    """
    takes = _parameters(function)
    form = _form_of(takes, path) if signature == "auto" else signature
    if form == "trinity":
        made, rest = (_made(function, args, path), {}) if takes.is_class else (function, args)
        return _Form(made, _parameters(made), _trinity_values, rest, _summed).loaded(seconds)
    _check_takes(form, takes, path)
    if form == "verl" and "solution_strs" in takes.names:
        return Loaded(together=lambda calls: _call_batch(function, calls, args))
    values, read = {
        "verl": (_verl_values, as_outcome),
        "rlctl": (_own_values, as_outcome),
        "roll": (_roll_values, _roll_outcome),
    }[form]
    return _Form(function, takes, values, args, read).loaded(seconds)


def _form_of(takes: Parameters, path: str) -> str:
    """The form that a function's parameters tell."""
    form = form_of(takes)
    if form is None:
        raise RunError(
            said(
                "the reward function of {path} takes ({takes}), which matches no supported signature",
                path=path,
                takes=takes,
            ),
            hint="take response and answer, or verl's data_source, solution_str, ground_truth and extra_info",
        )
    return form


def _check_takes(form: str, takes: Parameters, path: str) -> None:
    if missing := missing_arguments(form, takes):
        raise RunError(
            said(
                "the reward function of {path} takes ({takes}) and not {names}; it is called with "
                "{arguments_of_names} by name",
                path=path,
                takes=takes,
                names=", ".join(missing),
                arguments_of_names=", ".join(arguments_of(form, takes)),
            ),
            hint="give it those parameters, or **kwargs",
        )


def _run(result: Any) -> Any:
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _own_values(call: Call) -> dict[str, Any]:
    return {
        "prompt": call.prompt,
        "response": call.response,
        "answer": call.answer,
        "source": call.source,
        "tag": call.tag,
        "extra": call.extra,
        "messages": list(call.messages),
        "tokens": call.tokens,
        "truncated": call.truncated,
        "conversation": list(call.conversation),
        "tool_calls": [each for message in call.conversation for each in message.get("tool_calls", ())],
        "turn_rewards": list(call.turn_rewards),
        "info": dict(call.info),
        "stop": call.stop,
    }


def _roll_values(call: Call) -> dict[str, Any]:
    return {"prompt": call.prompt, "response": call.response, "ground_truth": call.answer, "tag": call.tag}


def _roll_outcome(result: Any) -> Outcome:
    """ROLL's functions also return (answer, score, format right, answer right)."""
    if isinstance(result, tuple) and len(result) == 4:
        _, score, right_format, correct = result
        return Outcome(as_outcome(score).score, bool(correct), {"format": float(right_format)})
    return as_outcome(result)


def _verl_values(call: Call) -> dict[str, Any]:
    extra = call.extra
    if call.stop and isinstance(extra, Mapping):
        tools = list(call.info.get("tool_rewards", ()))
        turns = {"num_turns": len(call.turn_rewards), "turn_scores": list(call.turn_rewards), "tool_rewards": tools}
        extra = {**extra, **turns}
    values = (call.source, call.response, call.answer, extra)
    return dict(zip(VERL_ARGUMENTS, values, strict=True))


def _trinity_values(call: Call) -> dict[str, Any]:
    return {
        "response": call.response,
        "truth": call.answer,
        "prompt": call.prompt,
        "response_token": range(call.tokens),  # Trinity's own functions take its length only
    }


def _call_batch(function: Function, calls: Sequence[Call], args: Mapping[str, Any]) -> list[Outcome]:
    results = _run(
        function(
            data_sources=[call.source for call in calls],
            solution_strs=[call.response for call in calls],
            ground_truths=[call.answer for call in calls],
            extra_infos=[call.extra for call in calls],
            **args,
        )
    )
    found = [as_outcome(result) for result in results]
    if len(found) != len(calls):
        raise ValueError(
            said("the function returned {count} scores for {count2} responses", count=len(found), count2=len(calls))
        )
    return found


def _made(function: Function, args: Mapping[str, Any], path: str) -> Function:
    try:
        made: Function = function(**args)
    except TypeError as error:
        raise RunError(
            said("the reward class of {path} cannot be instantiated: {error}", path=path, error=error),
            hint="set the args of the reward",
        ) from error
    if not callable(made):
        raise RunError(
            said("instances of the reward class of {path} are not callable", path=path),
            hint="give the class a __call__",
        )
    return made


def _summed(result: Any) -> Outcome:
    if not isinstance(result, Mapping):
        return as_outcome(result)
    wrong = [name for name, value in result.items() if not is_number(value)]
    if wrong or not result:
        raise TypeError(
            said(
                "the reward is a mapping whose values are not all numbers: {value}",
                value=", ".join(map(str, wrong)) or "empty",
            )
        )
    parts = {str(name): float(value) for name, value in result.items()}
    correct = parts["accuracy"] > 0 if "accuracy" in parts else None
    return Outcome(as_outcome(sum(parts.values())).score, correct, parts)
