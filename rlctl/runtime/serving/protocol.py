"""Requests and answers of the OpenAI API: what rlctl reads of a request, and what it writes.

Fields that would change what is generated, and that an engine cannot do, are refused with status 400; further fields that nothing
here reads are ignored, and named (``Asked.ignored``). Everything here is plain data; see
https://platform.openai.com/docs/api-reference for the fields.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, TypeGuard

from rlctl.common.messages.reasons import said, translated
from rlctl.runtime.agents.formats import ToolCall

FinishReason = Literal["stop", "length", "tool_calls"]
SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)
"""Fields of a request about sampling."""
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "top_logprobs": (None, 0),
    "functions": (None, []),
    "function_call": (None, "auto", "none"),
    "audio": (None,),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "web_search_options": (None,),
    "suffix": (None, ""),
    "best_of": (None, 1),
}
"""Fields that are not supported, with the values that ask for nothing."""
_COUNTED = {"n": 128, "max_tokens": None, "max_completion_tokens": None}
"""Fields that count something, and how much they may be."""
_WHOLE = ("top_k", "seed")
"""Fields of sampling that are whole numbers of 64 bits."""
MOST_STOPS, LONGEST_STOP = 16, 256
"""Texts that end an answer, and characters of one: a generation is searched for each after each token."""
_ROLES = ("system", "user", "assistant", "tool")


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param

    def body(self) -> dict[str, Any]:
        """The answer."""
        kind = {401: "authentication_error", 404: "not_found_error"}.get(self.status, "invalid_request_error")
        if self.status >= 500:
            kind = "server_error"
        return {"error": {"message": translated(self.message), "type": kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for generations."""

    model: str
    number: str = ""
    """Under which it is answered."""
    n: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """The fields of ``SAMPLING`` that the request sets."""
    log_probs: bool = False
    stream: bool = False
    include_usage: bool = False
    messages: Sequence[dict[str, Any]] = ()
    """Of a chat: text contents, and arguments of calls as objects, as chat templates read them."""
    tools: Sequence[dict[str, Any]] = ()
    """Schemas that the model is shown; empty if it may not call any."""
    parallel_calls: bool = True
    prompt: str | tuple[int, ...] = ""
    """Of a completion."""
    echo: bool = False
    ignored: Sequence[str] = ()
    """Fields with a value that nothing reads."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One generation."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    generated_tokens: int
    tokens: Sequence[tuple[str, float]] = ()
    """Its tokens as texts, with their log-probs, if they were asked for."""
    calls: Sequence[ToolCall] = ()
    call_ids: Sequence[str] = ()


class _Fields(dict[str, Any]):
    """An object of a request, which notes what is read of it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def unread(self) -> list[str]:
        """The fields with a value that nothing has read."""
        return [name for name, value in self.items() if name not in self.read and value not in (None, [], {}, "")]


def read_chat(body: Any) -> Asked:
    """Read a chat request.

    Raises:
        ApiError: it isn't one, or asks for something that is not supported.
    """
    asked = _object(body)
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages is missing or empty; expected a list of messages", param="messages")
    names: dict[str, str] = {}
    ignored: dict[str, None] = {}
    read = [_message(each, f"messages[{place}]", names, ignored) for place, each in enumerate(messages)]
    most = asked.get("max_completion_tokens")
    return _read(
        asked,
        max_tokens=most if most is not None else asked.get("max_tokens"),
        log_probs=bool(asked.get("logprobs")),
        messages=read,
        tools=_tools(asked),
        parallel_calls=asked.get("parallel_tool_calls") is not False,
        ignored=list(ignored),
    )


def read_completion(body: Any) -> Asked:
    """Read a completion request: one prompt, as a text or as token ids.

    Raises:
        ApiError: see ``read_chat``.
    """
    asked = _object(body)
    prompt = asked.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(_is_count(token) for token in prompt):
        prompt = tuple(prompt)
    elif not isinstance(prompt, str):
        raise ApiError(
            400, "prompt must be one string or one list of token ids; send one request per prompt", param="prompt"
        )
    if asked.get("logprobs") not in (None, False, True):  # True is 1, and False 0
        raise ApiError(400, "logprobs is above 1; only the sampled token's log-prob is known", param="logprobs")
    return _read(
        asked,
        max_tokens=asked.get("max_tokens", 16),
        log_probs=asked.get("logprobs") not in (None, False),
        prompt=prompt,
        echo=bool(asked.get("echo")),
    )


def _read(asked: _Fields, *, ignored: Sequence[str] = (), **known: Any) -> Asked:
    for name, nothing in _REFUSED.items():
        if (value := asked.get(name)) not in nothing:
            raise _refused(name, value, said("it is not supported here"))
    for name, most in _COUNTED.items():
        count = asked.get(name)
        if count is not None and (not _is_count(count) or count < 1):
            raise _refused(name, count, said("expected a whole number above 0"))
        if count is not None and most is not None and count > most:
            raise _refused(name, count, said("expected at most {most}", most=most))
    model = asked.get("model")
    if not isinstance(model, str | None):
        raise _refused("model", model, said("expected a string"))
    options = asked.get("stream_options")
    return Asked(
        model=model or "",
        n=asked.get("n") or 1,
        stop=_stops(asked.get("stop") or []),
        sampling=_sampling(asked),
        stream=bool(asked.get("stream")),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        ignored=[*asked.unread(), *ignored],
        **known,
    )


def _sampling(asked: _Fields) -> dict[str, Any]:
    sampling = {name: value for name in SAMPLING if (value := asked.get(name)) is not None}
    for name, value in sampling.items():
        if not is_number(value):
            raise _refused(name, value, said("expected a number"))
        if name in _WHOLE and (not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63):
            raise _refused(name, value, said("expected a whole number of 64 bits"))
    return sampling


def _stops(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise _refused("stop", stop, said("expected a string or a list of strings"))
    if len(stops) > MOST_STOPS or max(map(len, stops), default=0) > LONGEST_STOP:
        raise _refused(
            "stop",
            stop,
            said(
                "expected at most {most} strings of at most {longest} characters", most=MOST_STOPS, longest=LONGEST_STOP
            ),
        )
    return tuple(stops)


def _refused(name: str, value: Any, why: str) -> ApiError:
    """A field's value that is not possible here."""
    return ApiError(400, said("{name} is {value}; {why}", name=name, value=reprlib.repr(value), why=why), param=name)


def _object(body: Any) -> _Fields:
    if not isinstance(body, dict):
        raise ApiError(400, "the request is not a JSON object")
    return _Fields(body)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value of JSON is a number that a computer can calculate with."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number of more than 308 digits
        return False


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _message(given: Any, where: str, names: dict[str, str], ignored: dict[str, None]) -> dict[str, Any]:
    """A message as chat templates read it.

    Args:
        given: the message.
        where: what errors call it.
        names: the tools of the calls so far, by the calls' ids.
        ignored: gets the fields of messages that nothing reads.
    """
    if not isinstance(given, dict):
        raise ApiError(400, said("{where} is not an object", where=where), param=where)
    message = _Fields(given)
    role = message.get("role")
    role = "system" if role == "developer" else role
    if role not in _ROLES:
        raise _refused(f"{where}.role", role, said("expected {roles}", roles=", ".join(_ROLES)))
    read: dict[str, Any] = {"role": role, "content": _content(message.get("content"), f"{where}.content")}
    if calls := message.get("tool_calls"):
        if not isinstance(calls, list):
            raise _refused(f"{where}.tool_calls", calls, said("expected a list"))
        read["tool_calls"] = [_call(each, f"{where}.tool_calls", names) for each in calls]
    if role == "tool":
        known = message.get("tool_call_id")
        read |= {"tool_call_id": known} if known is not None else {}
        name = message.get("name") or names.get(str(known))
        read |= {"name": name} if name else {}
    ignored.update((f"messages[].{name}", None) for name in message.unread())
    return read


def _content(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError(400, said("{where} is neither a string nor a list of content parts", where=where), param=where)
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else part
            raise ApiError(
                400,
                said("{where} has a part of type {kind!r}; only text is supported", where=where, kind=kind),
                param=where,
            )
    return "".join(part["text"] for part in content)


def _call(call: Any, where: str, names: dict[str, str]) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ApiError(400, said("{where} has a call without function.name", where=where), param=where)
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise ApiError(
                400,
                said(
                    "{where}: arguments of {name} are not JSON: {error}",
                    where=where,
                    name=function["name"],
                    error=error,
                ),
                param=where,
            ) from error
    if call.get("id") is not None:
        names[str(call["id"])] = function["name"]
    made = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return {"id": call["id"], **made} if call.get("id") is not None else made


def _tools(asked: _Fields) -> list[dict[str, Any]]:
    tools, choice = asked.get("tools") or [], asked.get("tool_choice", "auto")
    if choice not in (None, "auto", "none"):
        raise _refused("tool_choice", choice, said("a call cannot be forced, expected 'auto' or 'none'"))
    if not isinstance(tools, list):
        raise _refused("tools", tools, said("expected a list"))
    for place, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ApiError(400, said("tools[{place}] is not a function with a name", place=place), param="tools")
    return [] if choice == "none" else [_schema(tool) for tool in tools]


def _schema(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with the fields that templates show."""
    function = {key: value for key, value in tool["function"].items() if key != "strict"}
    empty = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"description": "", "parameters": empty, **function}}


# Answers.


def chat_answer(number: str, created: int, model: str, generated: Sequence[Generated], asked: Asked) -> dict[str, Any]:
    """A chat completion."""
    choices = [
        {
            "index": place,
            "message": {"role": "assistant", **_said(each), "refusal": None},
            "logprobs": _chat_log_probs(each) if asked.log_probs else None,
            "finish_reason": each.finish_reason,
        }
        for place, each in enumerate(generated)
    ]
    head = {"id": number, "object": "chat.completion", "created": created, "model": model}
    return {**head, "choices": choices, "usage": usage(generated)}


def completion_answer(
    number: str, created: int, model: str, generated: Sequence[Generated], asked: Asked, echoed: str
) -> dict[str, Any]:
    """A text completion."""
    choices = [
        {
            "index": place,
            "text": echoed + each.text,
            "logprobs": _text_log_probs(each) if asked.log_probs else None,
            "finish_reason": each.finish_reason,
        }
        for place, each in enumerate(generated)
    ]
    head = {"id": number, "object": "text_completion", "created": created, "model": model}
    return {**head, "choices": choices, "usage": usage(generated)}


def usage(generated: Sequence[Generated]) -> dict[str, int]:
    """Tokens of an answer; the prompt counts once."""
    prompt, sampled = generated[0].prompt_tokens, sum(each.generated_tokens for each in generated)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _said(each: Generated) -> dict[str, Any]:
    if not each.calls:
        return {"content": each.text}
    return {"content": each.text or None, "tool_calls": _calls(each)}


def _calls(each: Generated) -> list[dict[str, Any]]:
    return [
        {
            "id": known,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for known, call in zip(each.call_ids, each.calls, strict=True)
    ]


def _chat_log_probs(each: Generated) -> dict[str, Any]:
    content = [
        {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
        for text, value in each.tokens
    ]
    return {"content": content, "refusal": None}


def _text_log_probs(each: Generated) -> dict[str, Any]:
    texts, values = [text for text, _ in each.tokens], [value for _, value in each.tokens]
    offsets = [0, *accumulate(map(len, texts))][:-1]
    return {"tokens": texts, "token_logprobs": values, "top_logprobs": None, "text_offset": offsets}


class Chunks:
    """The chunks of a streamed answer: pieces of text as they come, then the rest of each finished generation."""

    def __init__(self, number: str, created: int, model: str, asked: Asked, *, chat: bool) -> None:
        kind = "chat.completion.chunk" if chat else "text_completion"
        self._head = {"id": number, "object": kind, "created": created, "model": model}
        self._asked, self._chat = asked, chat
        self._sent: dict[int, int] = {}
        """Characters of each choice that were sent."""

    def _chunk(self, place: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        said = {"delta": delta} if self._chat else {"text": delta.get("content", "")}
        choice = {"index": place, **said, "logprobs": None, "finish_reason": None, **more}
        usage_yet = {"usage": None} if self._asked.include_usage else {}
        return {**self._head, "choices": [choice], **usage_yet}

    def text(self, place: int, text: str) -> Iterator[dict[str, Any]]:
        """What is new of a generation whose text is so far ``text``."""
        if place not in self._sent:
            self._sent[place] = 0
            if self._chat:
                yield self._chunk(place, {"role": "assistant", "content": ""})
        new = text[self._sent[place] :]
        if new:
            self._sent[place] += len(new)
            yield self._chunk(place, {"content": new})

    def finished(self, place: int, each: Generated) -> Iterator[dict[str, Any]]:
        """The rest of a generation."""
        yield from self.text(place, each.text)
        for index, call in enumerate(_calls(each)):
            yield self._chunk(place, {"tool_calls": [{"index": index, **call}]})
        log_probs = None
        if self._asked.log_probs:
            log_probs = _chat_log_probs(each) if self._chat else _text_log_probs(each)
        yield self._chunk(place, {}, finish_reason=each.finish_reason, logprobs=log_probs)

    def usage(self, generated: Sequence[Generated]) -> Iterator[dict[str, Any]]:
        """What the answer took, if the request wants it."""
        if self._asked.include_usage:
            yield {**self._head, "choices": [], "usage": usage(generated)}


def model_list(models: Sequence[str], created: int) -> dict[str, Any]:
    """The answer to ``/models``."""
    return {"object": "list", "data": [model_card(name, created) for name in models]}


def model_card(name: str, created: int) -> dict[str, Any]:
    """A model of that list."""
    return {"id": name, "object": "model", "created": created, "owned_by": "rlctl"}
