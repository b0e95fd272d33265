"""How each family of models writes tool calls, and what reads them.

A generation is text, then calls. ``Blocks`` is the common form: a marker after which there is no more text, and around each call
two markers. Formats are those of the families' published chat templates:

    hermes         NousResearch's Hermes-2-Pro, Qwen2.5, Qwen3     <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    qwen3_coder    Qwen3-Coder, Qwen3.5                            <tool_call><function=NAME><parameter=KEY>...
    glm            GLM-4.5 to 4.7                                  <tool_call>NAME<arg_key>KEY</arg_key><arg_value>...
    seed           Seed-OSS                                        <seed:tool_call><function=NAME>...
    minimax        MiniMax-M2                                      <minimax:tool_call><invoke name="NAME">...
    kimi           Kimi-K2                                         <|tool_call_begin|>functions.NAME:0, then JSON
    deepseek_v3    DeepSeek-V3, R1                                 <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, a JSON block
    deepseek_v31   DeepSeek-V3.1                                   <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}
    deepseek_v4    DeepSeek-V3.2 and V4                            <｜DSML｜invoke name="NAME">...
    gemma4         Gemma 4                                         <|tool_call>call:NAME{KEY:...}<tool_call|>
    gpt-oss        gpt-oss (harmony)                               <|channel|>commentary to=functions.NAME ...
    mistral        Mistral, Devstral                               [TOOL_CALLS]NAME[ARGS]{...}, or [TOOL_CALLS][{...}]
    llama3_json    Llama 3.1 to 3.3                                {"name": ..., "parameters": {...}}
    pythonic       Llama 4, OLMo 3                                 [NAME(KEY=...), ...]
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
"""Of a tool: ``{"type": "function", "function": {"name", "description", "parameters"}}``."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model wrote."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What looks like a call and is none."""

    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A generation."""

    content: str
    """Before the first call; everything if there is none."""
    calls: Sequence[ToolCall | Unreadable]
    """In the order in which they are written."""


Found = ToolCall | Unreadable
Schemas = Mapping[str, Schema]
"""By name of the tool."""
ReadBlock = Callable[[str, Schemas], Found]


@dataclass(frozen=True)
class Format:
    """One family's way."""

    parse: Callable[[str, Schemas], Parsed]
    stops: tuple[str, ...] = ()
    """Tokens with which the model ends a turn of calls, besides the tokenizer's end token."""


def blocks(start: str, opening: str, closing: str, read: ReadBlock) -> Callable[[str, Schemas], Parsed]:
    """A parser of calls between markers.

    Args:
        start: marker of the first call or of the section of calls; the text before it is the content.
        opening: before each call.
        closing: after each call; the last one may miss it.
        read: what reads the text between them.
    """
    each = re.compile(rf"{re.escape(opening)}(.*?)(?:{re.escape(closing)}|\Z)", re.DOTALL)

    def parse(text: str, schemas: Schemas) -> Parsed:
        content, found, rest = text.partition(start)
        if not found:
            return Parsed(text.strip(), [])
        inside = each.findall(found + rest)
        if not inside:
            return Parsed(content.strip(), [Unreadable(found + rest, f"there is no {opening} after {start}")])
        return Parsed(content.strip(), [read(block.strip(), schemas) for block in inside])

    return parse


def _call(name: str, arguments: str, block: str) -> Found:
    """A call whose arguments are a JSON object."""
    try:
        read = json.loads(arguments)
    except ValueError as error:
        return Unreadable(block, f"not JSON: {error}")
    if not isinstance(read, dict):
        return Unreadable(block, "arguments is not an object")
    return ToolCall(name, read)


def _types_of(schema: Schema | None) -> dict[str, Any]:
    properties = schema["function"].get("parameters", {}).get("properties", {}) if schema else {}
    return {name: each.get("type") for name, each in properties.items()}


def _valued(text: str, kind: Any) -> Any:
    """A parameter's text as a value of its type; text if it isn't one."""
    if kind in (None, "string"):
        return text
    try:
        return json.loads(text.lower() if kind == "boolean" else text)
    except ValueError:
        return text


def _named(found: Any, block: str, key: str) -> Found:
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return Unreadable(block, f"expected an object with name and {key}")
    arguments = found.get("arguments", found.get("parameters", {}))
    if not isinstance(arguments, dict):
        return Unreadable(block, f"{key} is not an object")
    return ToolCall(found["name"], arguments)


def _hermes(block: str, schemas: Schemas) -> Found:
    try:
        found = json.loads(block)
    except ValueError as error:
        return Unreadable(block, f"not JSON: {error}")
    return _named(found, block, "arguments")


_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*?)(?:</function>)?\s*\Z", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)


def _qwen3_coder(block: str, schemas: Schemas) -> Found:
    found = _FUNCTION.match(block)
    if found is None:
        return Unreadable(block, "expected <function=name> with <parameter=name> inside")
    name, body = found.groups()
    types = _types_of(schemas.get(name))
    return ToolCall(name, {key: _valued(value, types.get(key)) for key, value in _PARAMETER.findall(body)})


_GLM = re.compile(r"([^\s<]+)\s*(.*)\Z", re.DOTALL)
_GLM_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def _glm(block: str, schemas: Schemas) -> Found:
    found = _GLM.match(block)
    if found is None or (found[2] and not found[2].startswith("<arg_key>")):
        return Unreadable(block, "expected a name, then <arg_key> and <arg_value>")
    types = _types_of(schemas.get(found[1]))
    arguments = _GLM_ARGUMENT.findall(found[2])
    return ToolCall(found[1], {key.strip(): _valued(value, types.get(key.strip())) for key, value in arguments})


_INVOKE = re.compile(r"""["']?([^"'>]+)["']?>(.*)\Z""", re.DOTALL)
_MINIMAX = re.compile(r"""<parameter name=["']?([^"'>]+)["']?>\n?(.*?)\n?</parameter>""", re.DOTALL)
_DSML = re.compile(r'<｜DSML｜parameter name="([^"]+)" string="(true|false)">(.*?)</｜DSML｜parameter>', re.DOTALL)


def _minimax(block: str, schemas: Schemas) -> Found:
    found = _INVOKE.match(block)
    if found is None:
        return Unreadable(block, 'expected <invoke name="...">')
    types = _types_of(schemas.get(found[1]))
    return ToolCall(found[1], {key: _valued(value, types.get(key)) for key, value in _MINIMAX.findall(found[2])})


def _deepseek_v4(block: str, schemas: Schemas) -> Found:
    found = _INVOKE.match(block)
    if found is None:
        return Unreadable(block, 'expected <｜DSML｜invoke name="...">')
    arguments: dict[str, Any] = {}
    for key, is_text, value in _DSML.findall(found[2]):
        try:
            arguments[key] = value if is_text == "true" else json.loads(value)
        except ValueError as error:
            return Unreadable(block, f"{key} is not JSON: {error}")
    return ToolCall(found[1], arguments)


_KIMI = re.compile(r"(?:functions\.)?([^:\s]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>(.*)\Z", re.DOTALL)
_DEEPSEEK_V3 = re.compile(r"\w*<｜tool▁sep｜>([^\n]+)\n```json\n(.*?)\n?```\s*\Z", re.DOTALL)
_DEEPSEEK_V31 = re.compile(r"([^<\n]+)<｜tool▁sep｜>(.*)\Z", re.DOTALL)


def _matched(pattern: re.Pattern[str], expected: str) -> ReadBlock:
    """What reads a name and a JSON object by a pattern with these two groups."""

    def read(block: str, schemas: Schemas) -> Found:
        found = pattern.match(block)
        return Unreadable(block, f"expected {expected}") if found is None else _call(found[1].strip(), found[2], block)

    return read


_GEMMA_CALL = re.compile(r"call:([\w.-]+)(\{.*\})\Z", re.DOTALL)
_GEMMA_QUOTE = '<|"|>'
_GEMMA_BARE = re.compile(r"[^,\]}]*")


class _Gemma:
    """Reads Gemma's notation of values: bare keys, and texts between two tokens of their own."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def value(self) -> Any:
        """The next value.

        Raises:
            ValueError: there is none.
        """
        self._skip()
        if self._text.startswith(_GEMMA_QUOTE, self._at):
            start = self._at + len(_GEMMA_QUOTE)
            end = self._text.index(_GEMMA_QUOTE, start)
            self._at = end + len(_GEMMA_QUOTE)
            return self._text[start:end]
        if self._text.startswith("{", self._at):
            return dict(self._items("}", self._pair))
        if self._text.startswith("[", self._at):
            return list(self._items("]", self.value))
        found = _GEMMA_BARE.match(self._text, self._at)
        assert found is not None, "it matches nothing as well"
        self._at = found.end()
        return json.loads(found[0].strip())

    def _pair(self) -> tuple[str, Any]:
        self._skip()
        end = self._text.index(":", self._at)
        key = self._text[self._at : end].strip().replace(_GEMMA_QUOTE, "")
        self._at = end + 1
        return key, self.value()

    def _items(self, closing: str, item: Callable[[], Any]) -> list[Any]:
        self._at += 1
        items: list[Any] = []
        while True:
            self._skip()
            if self._text.startswith(closing, self._at):
                self._at += 1
                return items
            items.append(item())
            self._skip()
            if self._text.startswith(",", self._at):
                self._at += 1
            elif not self._text.startswith(closing, self._at):
                raise ValueError(f"expected , or {closing} at {self._text[self._at : self._at + 20]!r}")

    def _skip(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1


def _gemma4(block: str, schemas: Schemas) -> Found:
    found = _GEMMA_CALL.match(block)
    if found is None:
        return Unreadable(block, "expected call:name{...}")
    try:
        return ToolCall(found[1], _Gemma(found[2]).value())
    except ValueError as error:
        return Unreadable(block, f"the arguments cannot be read: {error}")


_HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?(?:<\|channel\|>(?:commentary|analysis))? to=functions\.([\w.-]+)"
    r"(?:<\|channel\|>(?:commentary|analysis))?[^{<]*(?:<\|constrain\|>\w+)?\s*<\|message\|>(.*?)(?:<\|call\|>|<\|end\|>|\Z)",
    re.DOTALL,
)
_HARMONY_SAID = re.compile(r"<\|channel\|>(\w+)[^<]*<\|message\|>(.*?)(?:<\|end\|>|<\|return\|>|\Z)", re.DOTALL)


def _gpt_oss(text: str, schemas: Schemas) -> Parsed:
    """Harmony: messages in channels; a call is one to ``functions.NAME``, and the content is what the final channel says."""
    calls = [_call(name, arguments.strip(), arguments) for name, arguments in _HARMONY.findall(text)]
    contents = [content for channel, content in _HARMONY_SAID.findall(_HARMONY.sub("", text)) if channel != "analysis"]
    return Parsed("\n".join(contents).strip() if calls else text.strip(), calls)


_MISTRAL_ARGS = re.compile(r"\s*([\w.-]+)\[ARGS\]")


def _mistral(text: str, schemas: Schemas) -> Parsed:
    content, found, _ = text.partition("[TOOL_CALLS]")
    if not found:
        return Parsed(text.strip(), [])
    calls: list[Found] = []
    for part in text.split("[TOOL_CALLS]")[1:]:
        named = _MISTRAL_ARGS.match(part)
        if named is not None:
            calls.append(_call(named[1], part[named.end() :].strip(), part))
            continue
        try:
            listed = json.loads(part)
        except ValueError as error:
            calls.append(Unreadable(part, f"not JSON: {error}"))
            continue
        calls += [_named(each, part, "arguments") for each in (listed if isinstance(listed, list) else [listed])]
    return Parsed(content.strip(), calls)


_PYTHON_TAG = "<|python_tag|>"


def _llama3_json(text: str, schemas: Schemas) -> Parsed:
    """One object, or several with semicolons between them, and nothing else; an answer that starts otherwise calls nothing."""
    content, tag, rest = text.partition(_PYTHON_TAG)
    written = (rest if tag else text).strip()
    if not written.startswith("{") or (tag and content.strip()):
        return Parsed(text.strip(), [])
    calls: list[Found] = []
    decoder = json.JSONDecoder()
    while written:
        try:
            found, end = decoder.raw_decode(written)
        except ValueError as error:
            calls.append(Unreadable(written, f"not JSON: {error}"))
            break
        calls.append(_named(found, written[:end], "parameters"))
        written = written[end:].lstrip().removeprefix(";").lstrip()
    if all(isinstance(call, Unreadable) for call in calls) and not tag and '"name"' not in text:
        return Parsed(text.strip(), [])  # an answer in JSON
    return Parsed("", calls)


def _pythonic(text: str, schemas: Schemas) -> Parsed:
    """A list of calls with keyword arguments, and nothing else."""
    written = text.strip().removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
    if not re.match(r"\[\s*[A-Za-z_][\w.]*\(", written):
        return Parsed(text.strip(), [])
    try:
        tree = ast.parse(written, mode="eval").body
        if not isinstance(tree, ast.List):
            raise ValueError("not a list")
        return Parsed("", [_python_call(each) for each in tree.elts])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Parsed("", [Unreadable(written, f"not a list of calls with literal arguments: {error}")])


def _python_call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("expected name(key=value, ...)")
    arguments = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords if each.arg is not None}
    return ToolCall(ast.unparse(node.func), arguments)


_TOOL_CALL = "<tool_call>", "<tool_call>", "</tool_call>"
_SEED = "<seed:tool_call>", "<seed:tool_call>", "</seed:tool_call>"
_DEEPSEEK = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_KIMI_SECTION = "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>"

FORMATS: Mapping[str, Format] = {
    "hermes": Format(blocks(*_TOOL_CALL, _hermes)),
    "qwen3_coder": Format(blocks(*_TOOL_CALL, _qwen3_coder)),
    "glm": Format(blocks(*_TOOL_CALL, _glm), stops=("<|observation|>",)),
    "seed": Format(blocks(*_SEED, _qwen3_coder)),
    "minimax": Format(blocks("<minimax:tool_call>", "<invoke name=", "</invoke>", _minimax)),
    "kimi": Format(blocks(*_KIMI_SECTION, _matched(_KIMI, "functions.name:0<|tool_call_argument_begin|>{...}"))),
    "deepseek_v3": Format(blocks(*_DEEPSEEK, _matched(_DEEPSEEK_V3, "function<｜tool▁sep｜>name and a block of JSON"))),
    "deepseek_v31": Format(blocks(*_DEEPSEEK, _matched(_DEEPSEEK_V31, "name<｜tool▁sep｜>{...}"))),
    "deepseek_v4": Format(blocks("<｜DSML｜", "<｜DSML｜invoke name=", "</｜DSML｜invoke>", _deepseek_v4)),
    "gemma4": Format(blocks("<|tool_call>", "<|tool_call>", "<tool_call|>", _gemma4), stops=("<|tool_response>",)),
    "gpt-oss": Format(_gpt_oss, stops=("<|call|>",)),
    "mistral": Format(_mistral),
    "llama3_json": Format(_llama3_json, stops=("<|eom_id|>",)),
    "pythonic": Format(_pythonic, stops=("<|eom|>",)),
}
"""By the name that ``tool_format`` has, in the order in which ``auto`` tries them."""
