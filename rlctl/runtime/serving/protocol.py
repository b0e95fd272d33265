"""Requests and answers of the OpenAI API: what rlctl reads of a request, and what it writes.

Fields that would change what is generated, and that an engine cannot do, are refused with status 400. Everything here is plain
data; see https://platform.openai.com/docs/api-reference for the fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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
_COUNTED = ("n", "max_tokens", "max_completion_tokens")
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


@dataclass(frozen=True, slots=True)
class Generated:
    """One generation."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    tokens: Sequence[tuple[str, float]]
    """Its tokens as texts, with their log-probs."""
    calls: Sequence[ToolCall] = ()
    call_ids: Sequence[str] = ()


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
    read = [_message(each, f"messages[{place}]", names) for place, each in enumerate(messages)]
    most = asked.get("max_completion_tokens")
    return _read(
        asked,
        max_tokens=most if most is not None else asked.get("max_tokens"),
        log_probs=bool(asked.get("logprobs")),
        messages=read,
        tools=_tools(asked),
        parallel_calls=asked.get("parallel_tool_calls") is not False,
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
    if asked.get("logprobs") not in (None, False, 0, 1, True):
        raise ApiError(400, "logprobs is above 1; only the sampled token's log-prob is known", param="logprobs")
    return _read(
        asked,
        max_tokens=asked.get("max_tokens", 16),
        log_probs=asked.get("logprobs") not in (None, False),
        prompt=prompt,
        echo=bool(asked.get("echo")),
    )


def _read(asked: Mapping[str, Any], **known: Any) -> Asked:
    for name, nothing in _REFUSED.items():
        if asked.get(name) not in nothing:
            raise ApiError(
                400, said("{name} is {value!r}; it is not supported here", name=name, value=asked[name]), param=name
            )
    for name in _COUNTED:
        if asked.get(name) is not None and (not _is_count(asked[name]) or asked[name] < 1):
            raise ApiError(
                400,
                said("{name} is {value!r}; expected a whole number above 0", name=name, value=asked[name]),
                param=name,
            )
    sampling = {name: asked[name] for name in SAMPLING if asked.get(name) is not None}
    for name, value in sampling.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ApiError(400, said("{name} is {value!r}; expected a number", name=name, value=value), param=name)
    stop = asked.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise ApiError(400, said("stop is {stop!r}; expected a string or a list of strings", stop=stop), param="stop")
    options = asked.get("stream_options") or {}
    return Asked(
        model=str(asked.get("model", "")),
        n=asked.get("n") or 1,
        stop=tuple(stops),
        sampling=sampling,
        stream=bool(asked.get("stream")),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        **known,
    )


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ApiError(400, "the request is not a JSON object")
    return body


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _message(message: Any, where: str, names: dict[str, str]) -> dict[str, Any]:
    """A message as chat templates read it; ``names`` are the tools of the calls so far, by the calls' ids."""
    if not isinstance(message, dict):
        raise ApiError(400, said("{where} is not an object", where=where), param=where)
    role = {"developer": "system"}.get(message.get("role", ""), message.get("role"))
    if role not in _ROLES:
        raise ApiError(
            400,
            said("{where}.role is {role!r}; expected {roles}", where=where, role=role, roles=", ".join(_ROLES)),
            param=f"{where}.role",
        )
    read: dict[str, Any] = {"role": role, "content": _content(message.get("content"), f"{where}.content")}
    if message.get("tool_calls"):
        read["tool_calls"] = [_call(each, f"{where}.tool_calls", names) for each in message["tool_calls"]]
    if role == "tool":
        known = message.get("tool_call_id")
        read |= {"tool_call_id": known} if known is not None else {}
        name = message.get("name") or names.get(str(known))
        read |= {"name": name} if name else {}
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


def _tools(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    tools, choice = asked.get("tools") or [], asked.get("tool_choice", "auto")
    if choice not in (None, "auto", "none"):
        raise ApiError(
            400,
            said("tool_choice is {choice!r}; a call cannot be forced, expected 'auto' or 'none'", choice=choice),
            param="tool_choice",
        )
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
    prompt, sampled = generated[0].prompt_tokens, sum(len(each.tokens) for each in generated)
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
    offsets = [sum(len(text) for text in texts[:place]) for place in range(len(texts))]
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
