"""The tools agent with a scripted engine: calls, answers, limits, and tokens that are trained as they were generated."""

from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.planning import arithmetic
from rlctl.runtime.agents.formats import ToolCall, Unreadable, parse, prove_format
from rlctl.runtime.agents.tools import agent_prompts, told
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.types import Request, Response, Sampling
from tests.runtime.agents.made import (
    CALCULATOR,
    LONG,
    call,
    chat,
    config_of,
    generated,
    ids,
    looping,
    prompt,
    saying,
    solver,
    tokenizer,
    trajectory,
)

TOOLS = '''
import time
released, made = [], []

async def slow(seconds: float) -> str:
    """Wait.

    Args:
        seconds: How long.
    """
    import asyncio
    await asyncio.sleep(seconds)
    return "waited"

def broken(expression: str) -> str:
    """Fail.

    Args:
        expression: Anything.
    """
    raise ValueError("no " + expression)

def long(expression: str) -> str:
    """Answer at length.

    Args:
        expression: Anything.
    """
    return "abcdefghij"

def graded(expression: str):
    """Answer, and grade the call.

    Args:
        expression: The grade.
    """
    return "graded", float(expression), {"calls": 1}

def escapes(expression: str):
    """End more than itself.

    Args:
        expression: How.
    """
    import asyncio, sys
    if expression == "exit":
        sys.exit(3)
    if expression == "interrupt":
        raise KeyboardInterrupt
    if expression == "cancel":
        raise asyncio.CancelledError
    if expression == "stop":
        raise StopIteration
    if expression == "late":
        raise TimeoutError("its own")
    if expression == "surrogate":
        return "1\\ud800"
    if expression == "marker":
        return "MARK0MARK"

async def escapes_too(expression: str):
    """End more than itself.

    Args:
        expression: How.
    """
    return escapes(expression)

def awaited(expression: str):
    """Return a coroutine.

    Args:
        expression: How.
    """
    return escapes_too(expression)

def undocumented(expression):
    return expression

class Memory:
    def __init__(self, start=0):
        self.total = start
        made.append(start)
    def create(self, row, more=0):
        self.row = row.index
        self.total += more
    def execute(self, expression: str) -> int:
        """Add to a sum.

        Args:
            expression: A number.
        """
        self.total += int(expression)
        return self.total
    def release(self):
        released.append(self.total)

class Refusing(Memory):
    def create(self, row):
        self.total += 1
        raise ValueError("full")
    def execute(self, expression: str) -> int:
        """Never called.

        Args:
            expression: A number.
        """
'''


@pytest.fixture
def tools(tmp_path: Path) -> Any:
    file = tmp_path / "mine.py"
    file.write_text(TOOLS)
    return lambda name, **more: [{"type": "python", "path": str(file), "name": name, **more}]


def answers_of(response: Response) -> list[str]:
    return [message["content"] for message in response.messages if message["role"] == "tool"]


def all_tokens(response: Response) -> list[int]:
    tokens: list[int] = []
    begin = 0
    for turn in response.turns:
        tokens += [*turn.inserted, *response.token_ids[begin : begin + turn.tokens]]
        begin += turn.tokens
    return tokens


def test_a_call_is_answered_and_the_answer_read() -> None:
    said = [call("12*34") + "<end>", "408<end>"]
    config = config_of(solver())
    response, asked = trajectory(
        config, saying(*said), prompt(tools=agent_prompts(arithmetic.agents_of(config))["solver"].tools)
    )
    assert answers_of(response) == ["408"]
    assert response.text == "408"
    assert response.finish_reason == "stop"
    assert len(response.turns) == 2
    assert response.counts["calls"] == 1
    assert response.counts["token_drift"] == 0
    text = tokenizer().decode(all_tokens(response), skip_special_tokens=False)
    assert text == f"<tools>calculate<user>12*34=<assistant>{call('12*34')}<end><tool>408<assistant>408<end>"
    assert tuple(response.token_ids) == ids(said[0]) + ids(said[1]), "trained tokens are those that were generated"
    assert asked[1].token_ids[: len(asked[0].token_ids)] == asked[0].token_ids
    assert asked[0].seed == 9
    assert asked[1].seed != 9


@pytest.mark.parametrize("name", ["escapes", "escapes_too", "awaited"])
def test_what_a_trusted_tool_raises_ends_nothing_else(tools: Any, name: str) -> None:
    hows = ("exit", "interrupt", "cancel", "stop", "late", "surrogate", "marker")
    config = config_of(solver(tools=tools(name), max_parallel_calls=9))
    made = "".join(call(how, name) for how in hows)
    response, _ = trajectory(config, saying(f"{made}<end>", "1<end>"), max_tokens=4000)
    *failed, surrogate, marker = answers_of(response)
    assert failed[0] == "Error: SystemExit: 3"
    assert failed[1] == "Error: KeyboardInterrupt: "
    assert failed[2] == "Error: CancelledError: "
    assert failed[3] in ("Error: StopIteration: ", "Error: RuntimeError: coroutine raised StopIteration")
    assert failed[4] == "Error: TimeoutError: its own"
    assert (surrogate, marker) == ("1?", "MARK0MARK")
    assert response.text == "1"
    assert response.counts["tool_errors"] == 5


def test_an_answer_that_has_no_room_is_shown_all_the_same(tools: Any) -> None:
    response, _ = trajectory(
        config_of(solver(tools=tools("broken"))), saying(f"{call('1', 'broken')}<end>"), max_tokens=20
    )
    assert response.finish_reason == "length"
    assert answers_of(response) == ["Error: ValueError: no 1"]


def test_a_prompt_that_fills_the_context_fails_its_trajectory(tools: Any) -> None:
    row = prompt()
    config = config_of(solver(tools=tools("broken"), on_failure="drop_response"))
    response, asked = trajectory(config, saying(), row, context=len(row.token_ids))
    assert not asked
    assert response.failure.startswith("no_call: the prompt leaves no room for a token")


def test_a_turn_cut_by_its_limit_gets_the_end_that_the_model_did_not_generate() -> None:
    left = iter([generated(call("12*34")), generated("408<end>")])
    response, _ = trajectory(config_of(solver()), lambda asked: next(left))
    assert tokenizer().decode(response.turns[1].inserted, skip_special_tokens=False) == "<end><tool>408<assistant>"


def test_generated_tokens_stay_whatever_the_template_would_make_of_them() -> None:
    """The same characters in other tokens than the tokenizer would choose, and a template that drops them from history."""
    pieces = [tokenizer().convert_tokens_to_ids(each) for each in ["<tool_call>", '{"name": "', *"calculate"]]
    rest = ids('", "arguments": {"expression": "2*3"}}</tool_call><end>')
    odd = Response((*pieces, *rest), (-1.0,) * (len(pieces) + len(rest)), "stop", 0)
    left = iter([odd, generated("6<end>")])
    response, _ = trajectory(config_of(solver()), lambda asked: next(left))
    assert tuple(response.token_ids)[: len(odd.token_ids)] == odd.token_ids
    assert answers_of(response) == ["6"]
    assert response.counts["token_drift"] == 1


DROPPING = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<assistant>"
    "{{ m.content if loop.last else m.content.split('?')[-1] }}"
    "{% for c in m.tool_calls or [] %}<tool_call>"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<end>'
    "{% elif m.role == 'tool' %}<tool>{{ m.content }}{% else %}<user>{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def test_a_template_that_drops_reasoning_changes_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer(), "chat_template", DROPPING)
    said = ["hm?" + call("12*34") + "<end>", "so?408<end>"]
    response, _ = trajectory(config_of(solver()), saying(*said))
    assert tuple(response.token_ids) == ids(said[0]) + ids(said[1])
    assert response.counts["token_drift"] == 1, "the template would have shown another conversation"


@pytest.mark.parametrize(
    ("text", "kind", "answer"),
    [
        (call("12", name="search"), "unknown_tools", "no tool search; there are calculate"),
        ("<tool_call>{not json}</tool_call>", "unreadable_calls", "not JSON"),
        ('<tool_call>{"name": 3}</tool_call>', "unreadable_calls", "expected an object with name"),
        (call("what"), "tool_errors", "expected a product"),
        ('<tool_call>{"name": "calculate", "arguments": {"x": "1"}}</tool_call>', "tool_errors", "unexpected keyword"),
    ],
)
def test_what_goes_wrong_is_the_answer_and_is_counted(text: str, kind: str, answer: str) -> None:
    response, _ = trajectory(config_of(solver()), saying(text + "<end>", "0<end>"))
    (found,) = answers_of(response)
    assert found.startswith("Error: ")
    assert answer in found
    assert response.counts[kind] == 1


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "sandboxed"])
@pytest.mark.parametrize(
    ("credit", "reward", "by_turn"),
    [
        ({"tool_rewards": "add"}, 3.5, [3.5, 0.0, 0.0]),
        ({"tool_rewards": "add", "reward": "function"}, None, [3.5, 0.0, 0.0]),
        ({}, None, [0.0, 0.0, 0.0]),
    ],
)
def test_rewards_of_tools_are_rewards_of_the_turn_that_called_them(
    tools: Any, credit: dict[str, Any], reward: float | None, by_turn: list[float], trusted: bool
) -> None:
    """Two calls of 1 and 2, and 0.25 for each that succeeds; then one that fails, and one that is not run."""
    agent = solver(tools=tools("graded", reward=0.25, trusted=trusted), credit=credit, max_parallel_calls=2)
    first = call("1", name="graded") + call("2", name="graded") + call("9", name="graded") + "<end>"
    response, _ = trajectory(config_of(agent), saying(first, call("bad", name="graded") + "<end>", "0<end>"))
    assert answers_of(response)[:2] == ["graded", "graded"]
    assert [turn.reward for turn in response.turns] == by_turn
    assert response.reward == reward
    assert response.info == {"tool_rewards": [1.25, 2.25, 0.0]}, "what verl's reward functions find in extra_info"


@pytest.mark.parametrize(
    ("returned", "answer", "reward"),
    [
        (("a", 0.5), "a", 0.5),
        (("a", None, {}), "a", 0.0),
        (("a", "b"), '["a", "b"]', 0.0),
        (("a", True), '["a", true]', 0.0),
        ((1, 2), "[1, 2]", 0.0),
        ({"x": 1}, '{"x": 1}', 0.0),
    ],
)
def test_only_an_answer_with_a_number_has_a_reward(returned: Any, answer: str, reward: float) -> None:
    assert told(returned) == (answer, reward)


def test_a_reward_that_is_not_finite_is_an_error_of_the_tool(tools: Any) -> None:
    agent = solver(tools=tools("graded"), credit={"tool_rewards": "add"})
    response, _ = trajectory(config_of(agent), saying(call("nan", name="graded") + "<end>", "0<end>"))
    assert answers_of(response) == ["Error: ValueError: the reward of the call is nan"]
    assert response.counts["tool_errors"] == 1


def test_surplus_calls_are_answered_with_an_error() -> None:
    said = call("2*3") + call("3*4") + call("4*5") + "<end>"
    response, _ = trajectory(config_of(solver(max_parallel_calls=2)), saying(said, "0<end>"))
    first, second, third = answers_of(response)
    assert (first, second) == ("6", "12")
    assert third == "Error: only 2 calls are run in a turn"


def test_calls_of_the_last_turn_are_not_run() -> None:
    response, asked = trajectory(config_of(solver(max_turns=2)), saying(call("2*3") + "<end>", call("4*5") + "<end>"))
    assert len(asked) == 2
    assert answers_of(response) == ["6"]
    assert response.counts["stopped_by_turns"] == 1


@pytest.mark.parametrize(
    ("limit", "turns", "answers"),
    [
        ({"max_observations": 1}, 2, ["408"]),
        ({"max_calls": 1}, 3, ["408", "Error: only 1 calls are run in a trajectory"]),
    ],
)
def test_turns_with_answers_and_calls_are_limited(limit: dict[str, int], turns: int, answers: list[str]) -> None:
    said = saying(call("12*34") + "<end>", call("1*2") + "<end>", "408<end>")
    response, asked = trajectory(config_of(solver(**limit)), said)
    assert len(asked) == turns
    assert answers_of(response) == answers


def test_a_row_chooses_tools_and_gives_their_objects_arguments(tools: Any) -> None:
    config = config_of(solver(tools=[*tools("Memory"), *solver()["tools"]]))
    row = replace(prompt(), extra={"tools": ["memory"], "tool_args": {"memory": {"more": 5}}})
    said = saying(call("2", "memory") + "<end>", call("1*2") + "<end>", "0<end>")
    response, _ = trajectory(config, said, row)
    assert answers_of(response) == ["7", "Error: no tool calculate; there are memory"]


@pytest.mark.parametrize(
    ("side", "expected"),
    [("left", "(truncated)...ghij"), ("right", "abcd...(truncated)"), ("middle", "ab...(truncated)...ij")],
)
def test_a_long_answer_is_cut(tools: Any, side: str, expected: str) -> None:
    agent = solver(tools=tools("long"), max_tool_response_characters=4, tool_truncation=side)
    response, _ = trajectory(config_of(agent), saying(call("x", name="long") + "<end>", "0<end>"))
    assert answers_of(response) == [expected]


def test_a_tool_that_takes_too_long_is_given_up(tools: Any) -> None:
    agent = solver(tools=tools("slow"), tool_timeout=0.05)
    said = '<tool_call>{"name": "slow", "arguments": {"seconds": 60}}</tool_call><end>'
    response, _ = trajectory(config_of(agent), saying(said, "0<end>"))
    assert answers_of(response) == ["Error: slow took longer than 0.05 s"]
    assert response.counts["tool_timeouts"] == 1


def test_a_class_is_an_object_of_its_trajectory_and_is_released(tools: Any) -> None:
    agent = solver(tools=tools("Memory", args={"start": 10}))
    config = config_of(agent)
    said = saying(call("1", name="memory") + "<end>", call("2", name="memory") + "<end>", "0<end>")
    response, _ = trajectory(config, said)
    assert answers_of(response) == ["11", "13"]
    assert released() == [13]


def test_parallel_calls_share_the_object_of_their_trajectory(tools: Any) -> None:
    config = config_of(solver(tools=tools("Memory", args={"start": 10}), max_parallel_calls=2))
    response, _ = trajectory(config, saying(call("1", name="memory") + call("2", name="memory") + "<end>", "0<end>"))
    assert sorted(answers_of(response)) == ["11", "13"]
    assert (noted("made"), released()) == ([10], [13])


def test_an_object_whose_create_fails_is_released(tools: Any) -> None:
    config = config_of(solver(tools=tools("Refusing")))
    response, _ = trajectory(
        config, saying(call("1", name="refusing") + "<end>", call("2", name="refusing") + "<end>", "0<end>")
    )
    assert answers_of(response) == ["Error: ValueError: full"] * 2
    assert released() == [1]


def released() -> list[int]:
    return noted("released")


def noted(name: str) -> list[int]:
    """A list that the module of the tools keeps."""
    found: list[int] = getattr(sys.modules["rlctl_agent_mine"], name)
    return found


def test_an_aborted_trajectory_releases_its_tools(tools: Any) -> None:
    row = prompt()
    with looping(config_of(solver(tools=tools("Memory")))) as loop:
        sampling = Sampling(100, stop_token_ids=(tokenizer().eos_token_id,))
        loop.submit({1: Request(row.token_ids, sampling, 1, seed=9, row=row)}, {})
        (first,) = loop.collect(LONG).calls
        loop.submit({}, {first.number: generated(call("5", name="memory") + "<end>")})
        assert loop.collect(LONG).calls
        loop.abort_all()
        assert released() == [5]
        assert not loop.collect(0.0)


def test_tokens_that_the_agent_inserts_count_towards_the_limit() -> None:
    opening = len(prompt().token_ids)
    said = [call("12*34") + "<end>", "408<end>"]
    first, answer = len(ids(said[0])), len(ids("<tool>408<assistant>"))
    short, asked = trajectory(config_of(solver()), saying(*said), max_tokens=first + answer)
    assert len(asked) == 1
    assert short.finish_reason == "length"
    _, asked = trajectory(config_of(solver()), saying(*said), max_tokens=first + answer + 3)
    assert asked[1].sampling.max_tokens == 3
    _, asked = trajectory(config_of(solver()), saying(*said), context=opening + first + answer + 2)
    assert asked[1].sampling.max_tokens == 2
    _, asked = trajectory(config_of(solver(max_turn_tokens=20)), saying(*said))
    assert [each.sampling.max_tokens for each in asked] == [20, 20]


def test_trajectories_of_one_process_run_at_the_same_time(tools: Any) -> None:
    agent = solver(tools=tools("slow"))
    said = '<tool_call>{"name": "slow", "arguments": {"seconds": 0.2}}</tool_call><end>'
    row, sampling = prompt(), Sampling(100, stop_token_ids=(tokenizer().eos_token_id,))
    with looping(config_of(agent)) as loop:
        loop.submit({1: Request(row.token_ids, sampling, 64, seed=9, row=row)}, {})
        asked: dict[int, int] = {}
        finished = 0
        began = asyncio.new_event_loop().time()
        while finished < 64:
            progress = loop.collect(LONG)
            finished += len(progress.finished)
            answers = {}
            for each in progress.calls:
                index = each.trajectory[1]
                asked[index] = asked.get(index, 0) + 1
                answers[each.number] = generated(said if asked[index] == 1 else "0<end>")
            loop.submit({}, answers)
        assert asyncio.new_event_loop().time() - began < 64 * 0.2 / 2
    assert threading.active_count() < 32


QWEN3_CODER = "<tool_call>\n<function=f>\n<parameter=text>\na\nb\n</parameter>\n<parameter=count>\n3\n</parameter>\n</function>\n</tool_call>"
SCHEMA = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}},
    },
}


@pytest.mark.parametrize(
    ("name", "text", "content", "calls"),
    [
        ("hermes", "12", "12", []),
        ("hermes", 'a\n<tool_call>\n{"name": "f", "arguments": {"count": 3}}\n</tool_call>', "a", [{"count": 3}]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}', "", [{}]),
        ("hermes", '<tool_call>{"name": "f"', "", [None]),
        ("qwen3_coder", QWEN3_CODER, "", [{"text": "a\nb", "count": 3}]),
        ("qwen3_coder", f"so\n{QWEN3_CODER}\n{QWEN3_CODER}", "so", [{"text": "a\nb", "count": 3}] * 2),
        ("qwen3_coder", '<tool_call>{"name": "f"}</tool_call>', "", [None]),
    ],
)
def test_a_format_is_read(name: str, text: str, content: str, calls: list[Any]) -> None:
    found = parse(text, name, [SCHEMA])
    assert found.content == content
    assert [each.arguments if isinstance(each, ToolCall) else None for each in found.calls] == calls
    assert all(isinstance(each, ToolCall | Unreadable) for each in found.calls)


def test_a_format_that_the_template_does_not_write_is_refused() -> None:
    schemas = agent_prompts(arithmetic.agents_of(config_of(solver())))["solver"].tools
    prove_format(chat(), "hermes", schemas, agent="solver")
    with pytest.raises(RunError, match="parses tool calls as qwen3_coder, but the chat template writes a call"):
        prove_format(chat(), "qwen3_coder", schemas, agent="solver")


def test_a_template_without_calls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer(), "chat_template", "{% for m in messages %}<user>{{ m.content }}{% endfor %}")
    with pytest.raises(RunError, match="does not parse back"):
        prove_format(
            Chat(tokenizer()),
            "hermes",
            agent_prompts(arithmetic.agents_of(config_of(solver())))["solver"].tools,
            agent="solver",
        )


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ({"type": "python", "path": "nowhere.py", "name": "f"}, "there is no file"),
        ({"type": "python", "path": str(CALCULATOR / "tools.py"), "name": "calculat"}, "has no 'calculat'"),
        (
            {"type": "python", "path": str(CALCULATOR / "tools.py"), "name": "calculate", "args": {"a": 1}},
            "only a class is made with args",
        ),
    ],
)
def test_a_tool_that_cannot_be_loaded_is_refused(tool: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        agent_prompts(arithmetic.agents_of(config_of(solver(tools=[tool]))))


def test_tools_without_a_schema_or_with_one_name_are_refused(tools: Any) -> None:
    with pytest.raises(RunError, match="no schema can be made"):
        agent_prompts(arithmetic.agents_of(config_of(solver(tools=tools("undocumented")))))
    with pytest.raises(RunError, match="2 tools of the agent 'solver' are called long"):
        agent_prompts(arithmetic.agents_of(config_of(solver(tools=tools("long") * 2))))
    with pytest.raises(RunError, match="has no tools"):
        agent_prompts(arithmetic.agents_of(config_of(solver(tools=[]))))
    (given,) = agent_prompts(arithmetic.agents_of(config_of(solver(tools=tools("undocumented", schema=SCHEMA)))))[
        "solver"
    ].tools
    assert given == SCHEMA
