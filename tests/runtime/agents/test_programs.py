"""Agents of type ``program``: code written for the plain OpenAI client, whose calls are recorded token by token."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.runtime.agents.kinds import returned
from rlctl.runtime.agents.loop import AgentLoop
from rlctl.runtime.agents.making import make_agent
from rlctl.runtime.processes.ray_access import address_of_this_machine
from rlctl.runtime.types import Request, Response, Sampling
from tests.runtime.agents import made
from tests.runtime.agents.made import call, config_of, generated, ids, prompt, saying
from tests.runtime.conftest import Task
from tests.runtime.local import run_here
from tests.waiting import until

LONG = 120.0
PROGRAM = '''
import asyncio, json, os, time
from openai import APIStatusError, AsyncOpenAI, OpenAI
from relay import DESCRIPTION

TOOLS = [{"type": "function", "function": {"name": "calculate", "description": DESCRIPTION, "parameters": {
    "type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}]

def solve(row):
    """Written for any OpenAI endpoint: nothing here is rlctl's."""
    client, messages = OpenAI(), [dict(each) for each in row["messages"]]
    while True:
        choice = client.chat.completions.create(model="gpt-5", messages=messages, tools=TOOLS, temperature=0.2).choices[0]
        messages.append(choice.message.model_dump(exclude_none=True))
        if not choice.message.tool_calls:
            return choice.message.content
        for call in choice.message.tool_calls:
            left, right = json.loads(call.function.arguments)["expression"].split("*")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(int(left) * int(right))})

def streams(row, base_url, api_key, greeting="hi"):
    client = OpenAI(base_url=base_url, api_key=api_key)
    stream = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": greeting}], tools=TOOLS, stream=True)
    text, names, arguments = "", [], ""
    for chunk in stream:
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for part in delta.tool_calls or []:
            names.append(part.function.name)
            arguments += part.function.arguments
    return f"{text}|{names}|{arguments}"

async def forks(row):
    client = AsyncOpenAI()
    async def ask(*texts, before=()):
        messages = [*before, *({"role": "user", "content": text} for text in texts)]
        answer = await client.chat.completions.create(model="any", messages=messages)
        return [*messages, {"role": "assistant", "content": answer.choices[0].message.content}]
    first = await ask("start")
    both = await asyncio.gather(ask("left", before=first), ask("right", before=first))
    return "+".join(each[-1]["content"] for each in both)

def asks_forever(row):
    messages = list(row["messages"])
    while True:
        answer = OpenAI(max_retries=0).chat.completions.create(model="any", messages=messages)
        messages += [{"role": "assistant", "content": answer.choices[0].message.content}, {"role": "user", "content": "go on"}]

def crashes(row):
    raise ValueError("the program broke")

def exits(row):
    os._exit(7)

def silent(row):
    return "1"

def hangs(row, pid_file):
    OpenAI().chat.completions.create(model="any", messages=list(row["messages"]))
    open(pid_file, "w").write(str(os.getpid()))
    time.sleep(600)

def sleeps(row):
    time.sleep(600)

def wrong(row):
    OpenAI().chat.completions.create(model="any", messages=list(row["messages"]))
    return {"score": 3}

def foreign(row, file):
    if not os.path.exists(file):
        OpenAI().chat.completions.create(model="any", messages=list(row["messages"]))
        open(file, "w").write(json.dumps([os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]]))
        return None
    url, token = json.load(open(file))  # of a trajectory that has ended
    seen = []
    for client in (OpenAI(base_url=url, api_key=token), OpenAI(api_key=token), OpenAI(api_key="x")):
        try:
            client.chat.completions.create(model="any", messages=[{"role": "user", "content": "mine"}])
        except APIStatusError as error:
            seen.append(str(error.status_code))
    OpenAI().chat.completions.create(model="any", messages=list(row["messages"]))
    return ",".join(seen)

def retries(row, keep):
    client, ids = OpenAI(max_retries=0), []
    for number in range(3):
        answer = client.chat.completions.create(model="any", messages=list(row["messages"]), n=2 if number == 2 else 1)
        ids.append(answer.id)
    seen = []
    for body in ({"id": ids[0]}, {"id": ids[0]}, {"id": ids[2], "choices": [keep]}, {"id": "x"}, {"id": ids[1], "choices": [3]}):
        try:
            client.post("/discard", body=body, cast_to=object)
            seen.append("200")
        except APIStatusError as error:
            seen.append(f"{error.status_code}")
    if keep is None:
        client.post("/discard", body={"id": ids[1]}, cast_to=object)
        client.post("/discard", body={"id": ids[2]}, cast_to=object)
    else:
        open(row["extra"]["seen"], "w").write(" ".join(seen))

def dispatch(row, base_url, api_key):
    chosen = row["extra"]
    given = {"base_url": base_url, "api_key": api_key} if chosen["run"] == "streams" else {}
    return globals()[chosen["run"]](row, **given, **chosen["args"])

def where(row, word="", **rest):
    once(row)
    return f"{os.environ['OPENAI_BASE_URL']} {word} {sorted(rest)}"

def once(row):
    OpenAI().chat.completions.create(model="any", messages=list(row["messages"]))
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("program") / "agent.py"
    written.write_text(PROGRAM)
    (written.parent / "relay.py").write_text('DESCRIPTION = "Calculate."\n')  # rlctl has a module of this name
    return written


@contextmanager
def looping(config: Config, context: int | None = None) -> Iterator[AgentLoop]:
    chosen = arithmetic.agent_of(config)
    assert chosen is not None
    with ThreadPoolExecutor(2) as threads:
        agents = {chosen.name: make_agent(chosen, made.chat(), threads, config.run.seed)}
        loop = AgentLoop(agents, chosen.name, max_context_tokens=context)
        try:
            yield loop
        finally:
            loop.close()


def request_of(max_tokens: int = 300, row: Any = None) -> Request:
    row = row or prompt()
    return Request(
        row.token_ids, Sampling(max_tokens, stop_token_ids=(made.tokenizer().eos_token_id,)), 1, seed=9, row=row
    )


Answers = Callable[[Any], Response]


def run(
    loop: AgentLoop, answers: Answers, request: Request, ticket: int = 1, *, seconds: float = LONG
) -> tuple[Response, list[Request]]:
    """A trajectory whose calls are answered, and the requests that it made."""
    asked: list[Request] = []
    loop.submit({ticket: request}, {})
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        progress = loop.collect(1.0)
        if progress.finished:
            return progress.finished[0].response, asked
        asked += [each.request for each in progress.calls]
        loop.submit({}, {each.number: answers(each) for each in progress.calls})
    raise AssertionError("the program does not end")


Run = Callable[..., tuple[Response, list[Request]]]


@pytest.fixture(scope="module")
def loops(file: Path) -> Iterator[Callable[..., AgentLoop]]:
    """Loops whose program calls the function that a row names, one for each set of options."""
    made_of = {"type": "python", "path": str(file), "function": "dispatch"}
    known: dict[str, AgentLoop] = {}
    with ExitStack() as stack:

        def loop(context: int | None = None, **options: Any) -> AgentLoop:
            key = repr((context, options))
            if key not in known:
                config = config_of({"type": "program", "program": made_of, **options})
                known[key] = stack.enter_context(looping(config, context))
            return known[key]

        yield loop


@pytest.fixture
def ran(loops: Callable[..., AgentLoop]) -> Run:
    """Runs a function of the file as a program."""

    def made(
        function: str, answers: Answers, *, max_tokens: int = 300, args: Any = None, extra: Any = None, **options: Any
    ) -> tuple[Response, list[Request]]:
        row = replace(prompt(), extra={"run": function, "args": args or {}, **(extra or {})})
        return run(loops(**options), answers, request_of(max_tokens, row))

    return made


def trajectory(config: Config, answers: Answers) -> tuple[Response, list[Request]]:
    with looping(config) as loop:
        return run(loop, answers, request_of())


def test_a_program_for_the_openai_client_is_trained_on_the_tokens_that_were_generated(ran: Run) -> None:
    said = "let me see" + call("12*34") + "<end>"
    response, asked = ran("solve", saying(said, "408<end>"))
    assert response.text == "408"
    assert len(asked) == 2
    assert asked[0].sampling.temperature == 1.0
    tools = [{"type": "function", "function": {"name": "calculate"}}]
    opening = made.chat().render([{"role": "user", "content": "12*34="}], generate=True, tools=tools)
    assert asked[0].token_ids == ids(opening)
    assert asked[1].token_ids == (*asked[0].token_ids, *ids(said), *ids("<tool>408<assistant>"))
    assert tuple(response.token_ids) == (*ids(said), *ids("408<end>"))
    assert [(turn.inserted, turn.tokens, turn.starts_row) for turn in response.turns] == [
        (asked[0].token_ids, len(ids(said)), True),
        (ids("<tool>408<assistant>"), len(ids("408<end>")), False),
    ]
    assert [message["role"] for message in response.messages] == ["assistant", "tool", "assistant"]
    assert response.messages[0]["tool_calls"][0]["function"] == {
        "name": "calculate",
        "arguments": {"expression": "12*34"},
    }
    assert response.counts["calls"] == 1
    assert response.counts["overridden_sampling"] == 2


def test_calls_that_a_program_discards_are_not_trained_on(ran: Run, tmp_path: Path) -> None:
    said = ["1<end>", "2<end>", "3<end>", "4<end>"]
    response, asked = ran("retries", saying(*said), args={"keep": 1}, extra={"seen": str(tmp_path / "seen")})
    assert len(asked) == 4
    assert (tmp_path / "seen").read_text() == "200 200 200 404 400"
    assert [tuple(response.token_ids)] == [(*ids("2<end>"), *ids("3<end>"))]
    assert response.text == "3", "what was discarded is not scored"
    assert response.counts["discarded_calls"] == 2
    response, _ = ran("retries", saying(*said), args={"keep": None}, on_failure="drop_response")
    assert response.failure.startswith("discarded: the agent discarded all its 4 calls")


def test_a_call_that_cannot_be_read_is_text_for_the_program(ran: Run) -> None:
    broken = '<tool_call>{"name": "calculate", <end>'
    response, _ = ran("solve", saying(broken))
    assert response.text == broken.removesuffix("<end>")
    assert response.counts["unreadable_calls"] == 1


def test_a_streamed_answer_has_its_calls(ran: Run) -> None:
    response, _ = ran("streams", saying("first" + call("1*2") + "<end>"), args={"greeting": "12"})
    assert response.text == """first|['calculate']|{"expression": "1*2"}"""


def test_branches_of_calls_at_the_same_time_are_rows_whatever_comes_first(ran: Run) -> None:
    def answers(asked: Any) -> Response:
        text = made.tokenizer().decode(asked.request.token_ids)
        return generated("L<end>" if "left" in text else "R<end>" if "right" in text else "S<end>")

    found = [ran("forks", answers) for _ in range(2)]
    response, _ = found[0]
    assert response.text == "L+R"
    assert sorted(turn.starts_row for turn in response.turns) == [False, True, True]
    seeds = [{request.token_ids: request.seed for request in requests} for _, requests in found]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0].values())) == 3


def test_limits_are_the_servers(ran: Run) -> None:
    answers = lambda asked: generated("x" * min(9, asked.request.sampling.max_tokens), finish="length")  # noqa: E731
    response, asked = ran("asks_forever", answers, max_turn_tokens=9, max_tokens=40)
    assert all(request.sampling.max_tokens <= 9 for request in asked)
    first = len(asked[0].token_ids)
    assert len(asked[-1].token_ids) - first + asked[-1].sampling.max_tokens <= 40
    assert response.finish_reason == "length"
    response, asked = ran("asks_forever", saying("a<end>", "b<end>", "c<end>"), max_turns=2)
    assert len(asked) == 2
    assert response.counts["stopped_by_turns"] == 1
    assert response.text == "b"
    context = len(prompt().token_ids) + 12
    response, asked = ran("asks_forever", answers, context=context)
    assert len(asked[-1].token_ids) + asked[-1].sampling.max_tokens <= context


@pytest.mark.parametrize(
    ("function", "cause", "message"),
    [
        ("crashes", "crashed", "ValueError: the program broke"),
        ("exits", "crashed", "its process ended with status 7"),
        ("silent", "no_call", "made no call for prompt 0 of s"),
        ("wrong", "crashed", "expected a reward, a string, or an object with reward and text"),
    ],
)
def test_a_program_that_fails_is_a_failed_trajectory(ran: Run, function: str, cause: str, message: str) -> None:
    response, _ = ran(function, lambda asked: generated("1<end>"))
    assert response.stop == "failed"
    assert response.failure.startswith(f"{cause}: ")
    assert message in response.failure


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_that_hangs_is_killed_with_its_trajectory(
    loops: Callable[..., AgentLoop], ran: Run, tmp_path: Path
) -> None:
    pid_file, loop = tmp_path / "pid", loops()
    row = replace(prompt(), extra={"run": "hangs", "args": {"pid_file": str(pid_file)}})
    loop.submit({2: request_of(row=row)}, {})
    until = time.monotonic() + LONG
    while not (pid_file.is_file() and pid_file.read_text()) and time.monotonic() < until:
        progress = loop.collect(0.1)
        loop.submit({}, {each.number: generated("1<end>") for each in progress.calls})
    pid = int(pid_file.read_text())
    assert alive(pid)
    loop.submit({}, {}, [2])
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(pid)
    assert ran("once", saying("1<end>"))[0].text == "1", "the next trajectory finds everything as it was"


def test_a_program_ends_at_its_time_limit(ran: Run, tmp_path: Path) -> None:
    limited: dict[str, Any] = {"time_limit": 6.0, "on_failure": "drop_response"}
    while ran("once", saying("1<end>"), **limited)[0].failure:
        """The process that starts programs is slow only at first."""
    response, _ = ran("hangs", saying("1<end>"), args={"pid_file": str(tmp_path / "pid")}, **limited)
    assert (response.stop, response.text, response.failure) == ("time", "1", "")
    response, _ = ran("sleeps", saying(), **limited)
    assert response.failure == "timeout: it made no call of the model within time_limit of the agent"


def test_a_program_that_loads_slowly_is_started_once(tmp_path: Path) -> None:
    """Trajectories whose time is over before it has loaded leave the process to those that come after."""
    file, starts = tmp_path / "slow.py", tmp_path / "starts"
    file.write_text(f"""
import os, time
from pathlib import Path

if "OPENAI_BASE_URL" in os.environ:  # not where the file is only looked at
    with Path({str(starts)!r}).open("a") as file:
        print("started", file=file)
    while not Path({str(tmp_path / "go")!r}).exists():
        time.sleep(0.1)

def solve(row):
    return {{"text": "done"}}
""")
    program = {"type": "python", "path": str(file), "function": "solve"}
    config = config_of({"type": "program", "program": program, "time_limit": 0.5, "on_failure": "drop_response"})
    with looping(config) as loop:
        for ticket in range(1, 4):
            response, _ = run(loop, saying(), request_of(), ticket)
            assert response.failure.startswith("timeout")
        until(starts.exists, "the program is not started")
        (tmp_path / "go").touch()
        ended = run(loop, saying(), request_of(), 4)[0].failure
        while ended.startswith("timeout"):
            ended = run(loop, saying(), request_of(), 5)[0].failure
    assert ended.startswith("no_call")
    assert starts.read_text().splitlines() == ["started"]


def test_a_token_opens_the_trajectory_that_it_was_made_for_and_only_while_it_runs(ran: Run, tmp_path: Path) -> None:
    kept = {"file": str(tmp_path / "kept.json")}
    ran("foreign", saying("1<end>"), args=kept)
    response, asked = ran("foreign", saying("2<end>"), args=kept)
    assert response.text == "401,401,401"
    assert len(asked) == 1


def test_programs_beyond_the_limit_wait(loops: Callable[..., AgentLoop]) -> None:
    loop = loops(max_concurrent=1)
    row = replace(prompt(), extra={"run": "once", "args": {}})
    loop.submit({3: replace(request_of(row=row), n=3)}, {})
    calls, finished = 0, 0
    until = time.monotonic() + LONG
    while finished < 3 and time.monotonic() < until:
        progress = loop.collect(1.0)
        calls, finished = calls + len(progress.calls), finished + len(progress.finished)
        assert calls <= finished + 1
        loop.submit({}, {each.number: generated("1<end>") for each in progress.calls})
    assert finished == 3


def test_the_endpoint_is_where_the_cluster_reaches_it(file: Path) -> None:
    made_of = {"type": "python", "path": str(file), "function": "where", "args": {"word": "w"}}
    config = config_of({"type": "program", "listen": "cluster", "program": made_of})
    response, _ = trajectory(config, saying("1<end>"))
    url, word, rest = str(response.text).split(" ", 2)
    assert url.startswith(f"http://{address_of_this_machine()}:")
    assert (word, rest) == ("w", "['api_key', 'base_url', 'model']")


COMMAND = """
import json, os, sys
from openai import OpenAI
row = json.load(sys.stdin)
answer = OpenAI().chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=row["messages"])
print("a log line")
print(os.environ.get("GREETING", ""), file=sys.stderr)
if os.environ.get("GREETING") == "fail":
    sys.exit(3)
print(json.dumps({"text": answer.choices[0].message.content + os.getcwd()}))
"""


def command(folder: Path, **options: Any) -> Config:
    (folder / "program.py").write_text(COMMAND)
    made_of = {"type": "command", "command": [sys.executable, "program.py"], "folder": str(folder), **options}
    return config_of({"type": "program", "program": made_of})


def test_a_command_reads_the_row_and_prints_what_it_returns(tmp_path: Path) -> None:
    response, _ = trajectory(command(tmp_path), saying("9<end>"))
    assert response.text == f"9{tmp_path}"
    failed, _ = trajectory(command(tmp_path, env_vars={"GREETING": "fail"}), saying("9<end>"))
    assert "ended with status 3:\nfail" in failed.failure


def test_a_command_that_is_not_there_is_refused_before_the_run(tmp_path: Path) -> None:
    made_of = {"type": "command", "command": ["no-such-agent"]}
    config = config_of({"type": "program", "program": made_of})
    with pytest.raises(RunError, match="there is no command no-such-agent"):
        trajectory(config, saying())


@pytest.mark.parametrize("value", [{"error": "mine"}, {"reward": float("nan")}, {"text": 3}, [1.0]])
def test_what_an_agent_may_not_return(value: Any) -> None:
    with pytest.raises(ValueError, match="expected a"):
        returned(value)


def test_a_program_that_cannot_be_imported_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("import not_there\n")
    config = config_of({"type": "program", "program": {"type": "python", "path": str(tmp_path / "agent.py")}})
    with pytest.raises(RunError, match="No module named 'not_there'"):
        trajectory(config, saying())


class Service(BaseHTTPRequestHandler):
    """An agent that runs elsewhere."""

    def do_POST(self) -> None:
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        client = openai.OpenAI(base_url=task["base_url"], api_key=task["api_key"])
        answer = client.chat.completions.create(model=task["model"], messages=task["messages"])
        body = json.dumps({"text": f"{answer.choices[0].message.content} of {task['index']}"}).encode()
        self.send_response(200 if answer.choices[0].message.content != "5" else 500)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_service_is_asked_for_each_trajectory() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made_of = {"type": "url", "url": f"http://127.0.0.1:{server.server_port}/run"}
        config = config_of({"type": "program", "program": made_of})
        assert trajectory(config, saying("7<end>"))[0].text == "7 of 0"
        assert "answers with 500" in trajectory(config, saying("5<end>"))[0].failure
        server.shutdown()


def test_a_run_with_a_program_that_calls_once_is_the_run_without_an_agent(
    task: Task, tmp_path: Path, file: Path
) -> None:
    from tests.runtime.agents.test_runs import differing, steps

    rollout: dict[str, Any] = {"precision": "float32", "max_response_tokens": 32}
    agent = {"name": "mine", "type": "program", "program": {"type": "python", "path": str(file), "function": "once"}}
    changes: dict[str, Any] = {
        "schedule": {"total_steps": 2, "evaluate_at_start": False, "evaluate_every": 2},
        "reward_loop": {"overlap_with_rollout": True},
    }
    plain = run_here(task.config(tmp_path, rollout=rollout, **changes), tmp_path / "plain")
    rollout |= {"default_agent": "mine", "agents": [agent]}
    with_program = run_here(task.config(tmp_path, rollout=rollout, **changes), tmp_path / "program")
    assert all(name.startswith("agent/") for name in differing(with_program, plain))
    assert steps(with_program)[2]["agent/turns"] == 1
