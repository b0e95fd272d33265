"""Tool formats: each family's calls as its published format writes them, rendered by a template of it and parsed back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.agents.conversation import Renderer
from rlctl.runtime.agents.formats import AUTO, FORMATS, ToolCall, Unreadable, format_of, parse, prove_format
from rlctl.runtime.data.chat import Chat

SCHEMA = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City."},
                "days": {"type": "integer", "description": "Days."},
                "hourly": {"type": "boolean", "description": "By hour."},
            },
        },
    },
}
CALL = ToolCall("get_weather", {"city": "São Paulo", "days": 3, "hourly": True})
JSON = json.dumps(dict(CALL.arguments), ensure_ascii=False)
WRITTEN = {
    "hermes": f'<tool_call>\n{{"name": "get_weather", "arguments": {JSON}}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nSão Paulo\n</parameter>\n<parameter=days>\n3\n"
    "</parameter>\n<parameter=hourly>\nTrue\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>São Paulo</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>3</arg_value>\n<arg_key>hourly</arg_key>\n<arg_value>true</arg_value>\n</tool_call>",
    "seed": "<seed:tool_call>\n<function=get_weather>\n<parameter=city>São Paulo</parameter>\n<parameter=days>3</parameter>\n"
    "<parameter=hourly>True</parameter>\n</function>\n</seed:tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">São Paulo</parameter>\n'
    '<parameter name="days">3</parameter>\n<parameter name="hourly">true</parameter>\n</invoke>\n</minimax:tool_call>',
    "kimi": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{JSON}"
    "<|tool_call_end|><|tool_calls_section_end|>",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    f"{JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v4": '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n'
    '<｜DSML｜parameter name="city" string="true">São Paulo</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="hourly" string="false">true</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
    "gemma4": '<|tool_call>call:get_weather{city:<|"|>São Paulo<|"|>,days:3,hourly:true}<tool_call|>',
    "gpt-oss": f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{JSON}<|call|>",
    "mistral": f"[TOOL_CALLS]get_weather[ARGS]{JSON}",
    "llama3_json": f'{{"name": "get_weather", "parameters": {JSON}}}',
    "pythonic": '[get_weather(city="São Paulo", days=3, hourly=True)]',
}
SECOND = {  # where a second call differs from the first one written again
    "kimi": "<|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{}<|tool_call_end|>",
}
# What a family's chat template writes of a message with one call.
CALL_TEMPLATES = {
    "hermes": '<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}<parameter={{ k }}>\n"
    "{{ v if v is string else v | tojson if v is mapping or v is iterable else v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>",
    "glm": "<tool_call>{{ f.name }}\n{% for k, v in f.arguments.items() %}<arg_key>{{ k }}</arg_key>\n"
    "<arg_value>{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>",
    "seed": "<seed:tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}<parameter={{ k }}>"
    "{{ v if v is string else v | tojson }}</parameter>\n{% endfor %}</function>\n</seed:tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="{{ f.name }}">\n{% for k, v in f.arguments.items() %}'
    '<parameter name="{{ k }}">{{ v if v is string else v | tojson }}</parameter>\n{% endfor %}</invoke>\n</minimax:tool_call>',
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>{{ f.arguments | tojson }}"
    "<|tool_call_end|><|tool_calls_section_end|>",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ call.type }}<｜tool▁sep｜>{{ f.name }}\n```json\n"
    "{{ f.arguments | tojson }}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ f.name }}<｜tool▁sep｜>{{ f.arguments | tojson }}"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v4": '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="{{ f.name }}">\n{% for k, v in f.arguments.items() %}'
    "<｜DSML｜parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">"
    "{{ v if v is string else v | tojson }}</｜DSML｜parameter>\n{% endfor %}</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    "gemma4": '<|tool_call>call:{{ f.name }}{ {%- for k, v in f.arguments.items() %}{{ k }}:{% if v is string %}<|"|>{{ v }}<|"|>'
    "{% else %}{{ v | tojson }}{% endif %}{{ ',' if not loop.last }}{% endfor -%} }<tool_call|>",
    "gpt-oss": "<|channel|>commentary to=functions.{{ f.name }} <|constrain|>json<|message|>{{ f.arguments | tojson }}<|call|>",
    "mistral": "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}",
    "llama3_json": '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}',
    "pythonic": "[{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={{ v | tojson if v is string else v }}"
    "{{ ', ' if not loop.last }}{% endfor %})]",
}
TEMPLATE = """{% for m in messages %}{% if m.role == 'assistant' %}<A>{{ m.content }}{% for call in m.tool_calls or [] %}\
{% set f = call.function %}CALL{% endfor %}<E>
{% elif m.role == 'tool' %}{% if messages[loop.index0 - 1].role == 'user' %}{{ raise_exception('no call') }}{% endif %}\
<T>{{ m.content }}<E>
{% else %}<U>{{ m.content }}<E>
{% endif %}{% endfor %}{% if add_generation_prompt %}<A>{% endif %}"""


class Characters:
    """A tokenizer whose tokens are characters, and the end of a turn."""

    eos = "<E>"

    def __init__(self, template: str) -> None:
        from transformers import PreTrainedTokenizerFast

        self.chat_template = template
        self._render = PreTrainedTokenizerFast.apply_chat_template

    def apply_chat_template(self, messages: Any, *, tools: Any, add_generation_prompt: bool, tokenize: bool) -> str:
        from transformers.utils.chat_template_utils import render_jinja_template

        rendered, _ = render_jinja_template(
            [messages], tools=tools, chat_template=self.chat_template, add_generation_prompt=add_generation_prompt
        )
        return str(rendered[0])

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, list[list[int]]]:
        return {"input_ids": [[ord(each) for each in text.replace(self.eos, "\0")] for text in texts]}

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, ids)).replace("\0", "" if skip_special_tokens else self.eos)


def chat_of(name: str) -> Chat:
    return Chat(Characters(TEMPLATE.replace("CALL", CALL_TEMPLATES[name])))


@pytest.mark.parametrize("name", FORMATS)
def test_calls_are_read_as_the_family_writes_them(name: str) -> None:
    before = "" if name in ("llama3_json", "pythonic") else "Let me look.\n"
    found = parse(before + WRITTEN[name], name, [SCHEMA])
    assert list(found.calls) == [CALL]
    assert found.content == ("" if name == "gpt-oss" else before.strip())
    assert parse("The answer is 4.", name, [SCHEMA]).calls == []


@pytest.mark.parametrize("name", FORMATS)
def test_the_template_of_a_family_is_proved_and_found(name: str) -> None:
    prove_format(chat_of(name), name, [SCHEMA], agent="a")
    assert format_of(chat_of(name), AUTO, [SCHEMA], agent="a") == name


def test_a_template_without_calls_has_no_format() -> None:
    bare = Chat(Characters(TEMPLATE.replace("CALL", "")))
    assert format_of(bare, AUTO, [SCHEMA], agent="a", needed=False) is None
    with pytest.raises(RunError, match="writes calls in no format that rlctl parses"):
        format_of(bare, AUTO, [SCHEMA], agent="a")
    with pytest.raises(RunError, match="there is no tool format 'hermse'") as refused:
        format_of(bare, "hermse", [SCHEMA], agent="a")
    assert "hermes" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "a", </tool_call>'),
        ("glm", "<tool_call>a {}</tool_call>"),
        ("minimax", "<minimax:tool_call>nothing</minimax:tool_call>"),
        ("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>a:0<|tool_call_argument_begin|>{<|tool_call_end|>"),
        ("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>a {}"),
        ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>[1]"),
        (
            "deepseek_v4",
            '<｜DSML｜tool_calls><｜DSML｜invoke name="a"><｜DSML｜parameter name="b" string="false">x</｜DSML｜parameter>',
        ),
        ("gemma4", "<|tool_call>call:a{b:}<tool_call|>"),
        ("gpt-oss", "<|channel|>commentary to=functions.a <|constrain|>json<|message|>nothing<|call|>"),
        ("mistral", "[TOOL_CALLS]a[ARGS]{"),
        ("llama3_json", '{"name": "a", "parameters": '),
        ("llama3_json", '<|python_tag|>{"name": 3}'),
        ("pythonic", "[a(b=c)]"),
    ],
)
def test_what_looks_like_a_call_and_cannot_be_read_is_told(name: str, text: str) -> None:
    calls = parse(text, name, [SCHEMA]).calls
    assert len(calls) == 1
    assert isinstance(calls[0], Unreadable)


def test_several_calls_and_other_spellings() -> None:
    two = WRITTEN["llama3_json"] + "; " + '{"name": "b", "arguments": {}}'
    assert list(parse("<|python_tag|>" + two, "llama3_json", []).calls) == [CALL, ToolCall("b", {})]
    assert parse('{"answer": 4}', "llama3_json", []).calls == [], "an answer in JSON"
    listed = f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {JSON}}}, {{"name": "b", "arguments": {{}}}}]'
    assert list(parse(listed, "mistral", []).calls) == [CALL, ToolCall("b", {})]
    assert list(parse(WRITTEN["mistral"] * 2, "mistral", []).calls) == [CALL, CALL]
    assert list(parse("[a(), b.c(d=[1, {'e': None}])]", "pythonic", []).calls) == [
        ToolCall("a", {}),
        ToolCall("b.c", {"d": [1, {"e": None}]}),
    ]
    nested = '<|tool_call>call:a{b:{c:[1,<|"|>x,}]<|"|>],d:null},e:-1.5}<tool_call|><|tool_call>call:f{}<tool_call|>'
    assert list(parse(nested, "gemma4", []).calls) == [
        ToolCall("a", {"b": {"c": [1, "x,}]"], "d": None}, "e": -1.5}),
        ToolCall("f", {}),
    ]
    harmony = (
        "<|channel|>analysis<|message|>I think<|end|><|start|>assistant<|channel|>commentary<|message|>Looking.<|end|>"
    )
    harmony += "<|start|>assistant to=functions.a<|channel|>commentary json<|message|>{}"
    assert parse(harmony, "gpt-oss", []).content == "Looking."
    assert list(parse(harmony, "gpt-oss", []).calls) == [ToolCall("a", {})]
    older = WRITTEN["deepseek_v4"].replace("tool_calls", "function_calls")
    assert list(parse(older, "deepseek_v4", []).calls) == [CALL]
    assert list(parse("<tool_call>now</tool_call>", "glm", []).calls) == [ToolCall("now", {})]


@pytest.mark.parametrize("name", FORMATS)
def test_answers_follow_calls_in_templates_that_want_a_call_before_them(name: str) -> None:
    """The template refuses an answer that follows no call; the line after the end of the turn is inserted, its end token not."""
    chat = chat_of(name)
    renderer = Renderer(chat, [SCHEMA], agent="a")
    generated = chat.encode([WRITTEN[name] + "<E>"])[0]
    answer = {"role": "tool", "name": "get_weather", "content": "sunny"}
    assert renderer.between([answer], generated) == chat.encode(["\n<T>sunny<E>\n<A>"])[0]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "parser"),
    [
        ("hermes", "hermes"),
        ("deepseek_v3", "deepseek_v3"),
        ("deepseek_v31", "deepseek_v31"),
        ("llama3_json", "llama3_json"),
        ("pythonic", "pythonic"),
        ("minimax", "minimax_m2"),
        ("kimi", "kimi_k2"),
        ("glm", "glm47"),
        ("seed", "seed_oss"),
        ("qwen3_coder", "qwen3_coder"),
        ("deepseek_v4", "deepseek_v4"),
        ("gemma4", "gemma4"),
    ],
)
def test_vllm_reads_the_same_calls(name: str, parser: str) -> None:
    from tokenizers import AddedToken, Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    special = re_markers(" ".join(WRITTEN.values()))
    tokenizer = Tokenizer(models.WordLevel({"x": 0}, unk_token="x"))
    tokenizer.add_tokens([AddedToken(each, normalized=False) for each in special])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="x", eos_token="x")
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "q"}], tools=[SCHEMA])
    reading = ToolParserManager.get_tool_parser(parser)(wrapped, request.tools)
    found = reading.extract_tool_calls(WRITTEN[name], request)
    assert [(each.function.name, json.loads(each.function.arguments)) for each in found.tool_calls] == [
        (CALL.name, CALL.arguments)
    ]


def re_markers(text: str) -> list[str]:
    import re

    extra = [
        "<think>",
        "</think>",
        "<seed:think>",
        "</seed:think>",
        "<|channel>",
        "<channel|>",
        "<|im_start|>",
        "<|im_end|>",
    ]
    return sorted({*re.findall(r"<[^<>\s=]+>", text), '<|"|>', "<|python_tag|>", "[TOOL_CALLS]", *extra})
