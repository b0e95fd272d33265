"""Agents that act in environments: FrozenLake of gymnasium, and environments of the user's that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config
from rlctl.config.sections.agents import EnvironmentAgent
from rlctl.planning import arithmetic
from rlctl.runtime.agents.acting import Acting, check_templates
from rlctl.runtime.agents.hosting import EnvironmentFailed, ProcessHost, ThreadHost, Unplayable
from rlctl.runtime.agents.making import make_agent
from rlctl.runtime.agents.played import Played, Task
from rlctl.runtime.types import Prompt, Response
from tests.runtime.agents.made import chat, config_of, generated, saying, tokenizer, trajectory
from tests.waiting import until

ACTIONS = {"1": 0, "2": 1, "3": 2, "4": 3}
"""Left, down, right, up: the tokenizer of the tests knows digits."""
LAKE = {
    "type": "gymnasium",
    "isolation": "thread",
    "id": "FrozenLake-v1",
    "args": {"is_slippery": False, "desc": ["SF", "FG"]},
}
EPISODE = Prompt(0, "episodes", (1,), "", messages=({"role": "user", "content": ""},))


def playing(environment: dict[str, Any], **options: Any) -> Config:
    options = {"actions": ACTIONS, "observation": "value", "max_turns": 5, **options}
    return config_of({"type": "environment", "environment": environment, **options})


def agent_of(config: Config) -> EnvironmentAgent:
    found = arithmetic.agent_of(config)
    assert isinstance(found, EnvironmentAgent)
    return found


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """An environment of a class that is written in a file."""
    file = tmp_path / "world.py"

    def made(body: str, **more: Any) -> dict[str, Any]:
        file.write_text("import ctypes, os, threading, time\n\nclass World:\n" + body)
        return {"type": "python", "path": str(file), "name": "World", "isolation": "thread", **more}

    return made


COUNTS = """
    def reset(self, seed=None):
        self.seed, self.count = seed, 0
        return "0", {"seed": seed}
    def step(self, action):
        self.count += 1
        return str(self.count), 0.5, self.count == 3, False, {"seed": self.seed, "success": self.count == 3}
"""


def test_frozen_lake_is_played_to_its_goal() -> None:
    response, asked = trajectory(playing(LAKE, opening_template="{observation}"), saying("3", "2"), EPISODE)
    assert [turn.reward for turn in response.turns] == [0.0, 1.0]  # right to F, down to G
    assert (response.stop, response.reward, response.finish_reason) == ("done", 1.0, "stop")
    contents = [message["content"] for message in response.messages]
    assert contents == ["0", "3", "1", "2"], "observations are the number of the field, in turns with actions"
    assert asked[1].token_ids[: len(asked[0].token_ids)] == asked[0].token_ids, "one row, which grows"
    assert [turn.starts_row for turn in response.turns] == [True, False]


def test_the_rendered_lake_shows_the_player_in_brackets() -> None:
    task = Task.of(agent_of(playing(LAKE, observation="auto", actions={})))
    played = Played(task)
    assert played.reset(1).text == "[S]F\nFG"
    assert played.act("2").text.splitlines()[1:] == ["S[F]", "FG"], (
        "what gymnasium writes: the last action, then the map"
    )
    assert played.act("9").actions == "the numbers 0 to 3"
    played.close()


def test_a_text_without_a_valid_action_steps_nothing() -> None:
    config = playing(
        LAKE, invalid_action_reward=-0.5, invalid_action_text="0={observation}", action_pattern=r"=(\d)", max_turns=3
    )
    response, _ = trajectory(config, saying("12", "=3", "=2"), EPISODE)
    assert [turn.reward for turn in response.turns] == [-0.5, 0.0, 1.0]
    assert response.counts["invalid_actions"] == 1
    assert response.messages[2]["content"] == "0=0", "the last observation, in the template of invalid actions"
    config = playing(LAKE, on_invalid_action="end")
    response, _ = trajectory(config, saying("9"), EPISODE)
    assert (response.stop, len(response.turns)) == ("done", 1)


def test_turns_and_tokens_end_an_episode_and_say_so() -> None:
    config = playing(LAKE, max_turns=2, on_turn_limit="mask")
    response, _ = trajectory(config, saying("1", "1"), EPISODE)
    assert (response.stop, response.treatment, response.counts["stop_turns"]) == ("turns", "mask", 1.0)
    config = playing(LAKE, on_token_limit="zero_reward")
    response, _ = trajectory(config, saying("1", "1", "1"), EPISODE, max_tokens=4)
    assert (response.stop, response.treatment, response.finish_reason) == ("length", "zero_reward", "length")


def test_the_last_turns_are_shown_in_one_message_and_each_turn_is_a_row(own: Callable[..., dict[str, Any]]) -> None:
    config = playing(
        own(COUNTS),
        history_turns=1,
        template="{history}={observation}*{turns_done}*{history_length}",
        history_template="{observation}*{action}",
        actions={},
    )
    response, asked = trajectory(config, saying("7", "8", "9"), EPISODE)
    shown = [tokenizer().decode(request.token_ids) for request in asked]
    assert [text[text.index("=") - 3 : text.index("=") + 2] for text in shown[1:]] == ["0*7=1", "1*8=2"]
    assert [text[text.index("=") + 2 :][:4] for text in shown[1:]] == ["*1*1", "*2*1"]
    assert [turn.starts_row for turn in response.turns] == [True, True, True]
    assert response.info["success"] is True


def test_members_of_a_group_have_one_seed_and_other_groups_another(own: Callable[..., dict[str, Any]]) -> None:
    def seed(config: Config, row: Prompt = EPISODE) -> Any:
        return trajectory(config, saying("7", "8", "9"), row)[0].info["seed"]

    by_group = playing(own(COUNTS), actions={})
    assert seed(by_group) == seed(by_group)
    by_row = playing(own(COUNTS, seed="row"), actions={})
    other = Prompt(1, "episodes", (1,), "", messages=EPISODE.messages)
    assert seed(by_row) not in (seed(by_row, other), seed(by_group))
    fixed = playing(own(COUNTS, seed="fixed"), actions={})
    assert seed(fixed) == seed(fixed, other) != seed(by_row)


@pytest.mark.parametrize(("credit", "reward"), [({}, 1.5), ({"reward": "last"}, 0.5), ({"reward": "function"}, None)])
def test_credit_says_what_the_environments_rewards_are_worth(
    own: Callable[..., dict[str, Any]], credit: dict[str, Any], reward: float | None
) -> None:
    response, _ = trajectory(playing(own(COUNTS), actions={}, credit=credit), saying("7", "8", "9"), EPISODE)
    assert response.reward == reward


def test_sokoban_is_solved_and_equal_states_have_one_mark() -> None:
    file = Path(__file__).with_name("sokoban.py")
    config = playing({"type": "python", "path": str(file), "name": "Sokoban", "isolation": "thread"}, actions={})
    played = Played(Task.of(agent_of(config)))
    first = played.reset(1)
    assert first.text.splitlines()[1:3] == ["#P__O#", "#_X__#"]
    wall = played.act("up")
    assert (wall.state, round(wall.reward, 6)) == (first.state, -0.1), "nothing has moved"
    assert played.act("jump").info["action_is_valid"] is False
    played.act("right")
    there = played.act("down")  # pushes the box
    assert there.text.splitlines()[3] == "#_X__#"
    assert not there.terminated
    played.reset(0)
    solved = played.act("right")
    assert (solved.terminated, round(solved.reward, 6), solved.info["success"]) == (True, 1.9, True)
    assert solved.text == "#####\n#_P√#\n#####"


HANGS = """
    def reset(self, seed=None):
        return "0", {}
    def step(self, action):
        if action == "9":
            time.sleep(60)
        if action == "8":
            os._exit(3)
        if action == "7":
            raise ValueError("broken world")
        if action == "4":
            World.leaked = b"1" * (1 << 29)
            time.sleep(60)
        if action == "3":
            libc = ctypes.PyDLL(None)
            libc.signal(15, ctypes.c_void_p(1))  # SIG_IGN
            libc.sleep(60)  # with the interpreter's lock
        if action == "2":
            return "1" * 1_000_001, 1.0, True, False, {}
        reward = float("nan") if action == "1" else 1.0
        return "1", reward, action == "5", False, {"pid": os.getpid(), "text": "1" * 1_000_001}
"""


@pytest.mark.parametrize(
    ("action", "cause", "text"),
    [
        ("9", "environment_timeout", "longer than 1 s"),
        ("8", "environment_lost", "ended with status 3"),
        ("7", "environment_error", "broken world"),
        ("4", "environment_memory", "needed more than 256 MiB (memory_limit_mib)"),
        ("2", "environment_error", "the observation has 1,000,001 characters"),
        ("1", "environment_error", "the reward of the step is nan"),
    ],
)
def test_an_environment_that_misbehaves_fails_its_trajectory_and_the_next_one_works(
    own: Callable[..., dict[str, Any]], action: str, cause: str, text: str
) -> None:
    limit = 1.0 if cause == "environment_timeout" else 60.0  # a busy machine takes its time for the others
    world = own(HANGS, isolation="process", timeout=limit, memory_limit_mib=256)
    config = playing(world, actions={}, on_failure="drop_response")
    response, _ = trajectory(config, saying(action), EPISODE)
    assert (response.stop, response.failure.partition(":")[0]) == ("failed", cause)
    assert text in response.failure
    assert response.counts[f"failed_{cause}"] == 1
    assert not response.token_ids
    response, _ = trajectory(playing(world, actions={}), saying("5"), EPISODE)
    assert response.stop == "done"
    assert response.info.keys() == {"pid"}, "a text of a million characters is not kept"


HARMFUL = """
def harm(what):
    if what == "exit":
        os._exit(3)
    if what == "quit":
        raise SystemExit(3)
    if what == "kill":
        os.kill(0, 9)  # all of its group
    if what == "raise":
        raise ValueError("broken world")
    if what == "hang":
        time.sleep(600)
    if what == "lock":
        libc = ctypes.PyDLL(None)
        libc.signal(15, ctypes.c_void_p(1))  # SIG_IGN
        libc.sleep(60)  # with the interpreter's lock
    if what == "leak":
        World.leaked = b"1" * (1 << 29)
        time.sleep(600)
    if what == "fork":
        os.fork()
    if what == "forge":
        told = b'{"number": 1, "observed": {"text": "forged", "reward": 9.0}}\\n{"number": 7, "failed": "", "config": true}\\n'
        for fd in range(3, 64):
            try:
                os.write(fd, told)
            except OSError:
                pass

RETURNED = {
    "four": ("0", 0.0, False, {}),
    "text": "0",
    "none": None,
    "nan": ("0", float("nan"), False, False, {}),
    "no reward": ("0", None, False, False, {}),
    "object": (object(), 0.0, False, False, {}),
    "long": ("0" * 1_000_001, 0.0, False, False, {}),
    "much info": ("0", 0.0, False, False, {str(each): "1" * 999_999 for each in range(17)}),
}

class World:
    def __init__(self):
        self.count = 0
    def reset(self, seed):
        harm({1: "exit", 2: "quit", 3: "raise", 4: "hang"}.get(seed))
        self.seed = seed
        return "0", {}
    def step(self, action):
        self.count += 1
        harm(action)
        return RETURNED.get(action, (f"{self.seed} {self.count}", 0.5, False, False, {"pid": os.getpid()}))
    def close(self):
        harm({11: "exit", 12: "quit", 13: "raise", 14: "hang"}.get(self.seed))
"""
LOST, ERROR, TIMEOUT = "environment_lost", "environment_error", "environment_timeout"
HARMS = {
    "exit": (LOST, "ended with status 3"),
    "quit": (ERROR, "SystemExit: 3"),
    "kill": (LOST, "ended by signal SIGKILL"),
    "raise": (ERROR, "broken world"),
    "hang": (TIMEOUT, "longer than 15 s"),
    "lock": (TIMEOUT, "longer than 15 s"),
    "leak": ("environment_memory", "needed more than 400 MiB"),
    "four": (ERROR, "returned 4 values from step"),
    "text": (ERROR, "returned str from step"),
    "none": (ERROR, "returned NoneType from step"),
    "nan": (ERROR, "the reward of the step is nan"),
    "no reward": (ERROR, "TypeError"),
    "object": (ERROR, "TypeError"),
    "long": (ERROR, "the observation has 1,000,001 characters"),
    "much info": (ERROR, "observation and info have 17,"),
    "forge": (ERROR, "wrote something else than an answer"),
}


@pytest.fixture
def harmful(tmp_path: Path) -> Task:
    file = tmp_path / "world.py"
    file.write_text("import ctypes, os, time\n" + HARMFUL)
    return Task.of(agent_of(playing({"type": "python", "path": str(file), "name": "World"}, actions={})))


def test_whatever_an_environment_does_fails_its_own_trajectory_only(harmful: Task) -> None:
    async def play() -> dict[str, Any]:
        host, found = ProcessHost(15.0, None, 400), {}
        try:
            opened = {harm: (await host.open(harmful, 100 + place))[0] for place, harm in enumerate(HARMS)}
            others = [(await host.open(harmful, 200 + place))[0] for place in range(4)]

            async def harmed(harm: str) -> tuple[str, str]:
                try:
                    await host.act(opened[harm], harm)
                    await host.act(opened[harm], "on")  # of a forged answer the next one shows it
                except (EnvironmentFailed, Unplayable) as error:
                    await host.close(opened[harm])
                    return error.cause, str(error)
                return "", ""

            async def counted(place: int) -> list[str]:
                shown = []
                for _ in range(4):
                    shown.append((await host.act(others[place], "on")).text)
                    await asyncio.sleep(0.2)
                return shown

            for place, shown in enumerate(await asyncio.gather(*map(counted, range(4)), *map(harmed, HARMS))):
                found[place if place < 4 else list(HARMS)[place - 4]] = shown
            number, _ = await host.open(harmful, 300)
            found["later"] = (await host.act(number, "fork")).text, (await host.act(number, "on")).text
            return found
        finally:
            host.end()

    found = asyncio.run(play())
    for place in range(4):
        assert found[place] == [f"{200 + place} {count}" for count in range(1, 5)]
    for harm, (cause, text) in HARMS.items():
        assert found[harm][0] == cause, (harm, found[harm])
        assert text in found[harm][1], (harm, found[harm])
    assert found["later"] == ("300 1", "300 2")


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 11, 12, 13, 14])
def test_environments_that_fail_at_their_start_or_end_leave_nothing_behind(harmful: Task, seed: int) -> None:
    async def play() -> tuple[str, int]:
        host = ProcessHost(2.0, None)
        try:
            first, _ = await host.open(harmful, 100)
            pid = int((await host.act(first, "on")).info["pid"])
            with pytest.raises(EnvironmentFailed) if seed < 5 else nullcontext() as failed:
                number, _ = await host.open(harmful, seed)
                pid = int((await host.act(number, "on")).info["pid"])
                await host.close(number)
                if seed != 14:
                    await asyncio.to_thread(until, lambda: not Path(f"/proc/{pid}").exists(), "it is still there")
            assert (await host.act(first, "on")).text == "100 2"
            return (failed.value.cause if failed else ""), pid
        finally:
            host.end()

    cause, pid = asyncio.run(play())
    assert cause == {1: LOST, 2: ERROR, 3: ERROR, 4: TIMEOUT}.get(seed, "")
    until(lambda: not Path(f"/proc/{pid}").exists(), "the process is still there")


def test_a_failed_trajectory_is_made_again_with_the_same_seeds(
    own: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    once = f"""
    def reset(self, seed=None):
        return "0", {{"seed": seed}}
    def step(self, action):
        if not os.path.exists({str(tmp_path / "tried")!r}):
            open({str(tmp_path / "tried")!r}, "w").close()
            raise ValueError("only once")
        return "1", 1.0, True, False, {{}}
"""
    from rlctl.runtime.agents.loop import AgentLoop

    config = playing(own(once), actions={})
    with ThreadPoolExecutor(2) as threads:
        made = {"solver": make_agent(agent_of(config), chat(), threads, config.run.seed)}
        loop = AgentLoop(made, "solver", max_context_tokens=None, retries=1)
        try:
            response, asked = _made(loop, ["1", "1"])
        finally:
            loop.close()
    assert (response.stop, response.counts["retries"]) == ("done", 1.0)
    assert asked[0] == asked[1], "the same request, seed included"


def _made(loop: Any, texts: list[str]) -> tuple[Response, list[Any]]:
    from rlctl.runtime.types import Request, Sampling

    asked: list[Any] = []
    loop.submit({1: Request((1,), Sampling(50), 1, seed=9, row=EPISODE)}, {})
    while True:
        progress = loop.collect(20.0)
        assert progress, "the agent does nothing"
        if progress.finished:
            return progress.finished[0].response, asked
        asked += [each.request for each in progress.calls]
        loop.submit({}, {each.number: generated(texts.pop(0)) for each in progress.calls})


def test_the_opening_has_the_rows_prompt_and_a_system_message(own: Callable[..., dict[str, Any]]) -> None:
    row = Prompt(3, "s", (1,), "", messages=({"role": "user", "content": "12*34"},))
    config = playing(own(COUNTS), actions={}, opening_template="{prompt}={observation}={turns_left}", template="{turn}")
    response, asked = trajectory(config, saying("7", "8", "9"), row)
    assert "12*34=0=5" in tokenizer().decode(asked[0].token_ids)
    assert response.messages[2]["content"] == "2", "the template of later observations"
    config = playing(own(COUNTS), actions={}, system_prompt="play", max_turns=1)
    response, asked = trajectory(config, saying("7"), row)
    assert response.messages[0] == {"role": "system", "content": "play"}
    assert response.messages[1]["content"] == "12*34\n0", "without {prompt} in the template, the prompt comes first"


def test_a_random_model_plays_without_an_engine(own: Callable[..., dict[str, Any]]) -> None:
    config = playing(LAKE, model="random", max_turns=3, action_pattern=r"=(\d)")
    response, asked = trajectory(config, saying(), EPISODE)
    assert not asked
    assert len(response.turns) <= 3
    assert response.token_ids
    again, _ = trajectory(config, saying(), EPISODE)
    assert again.token_ids == response.token_ids, "the same seeds, the same tokens"


def test_samples_are_turns_or_must_be_one_trajectory(own: Callable[..., dict[str, Any]]) -> None:
    response, _ = trajectory(playing(own(COUNTS), actions={}, samples="turn"), saying("7", "8", "9"), EPISODE)
    assert [turn.starts_row for turn in response.turns] == [True, True, True]
    assert response.turns[1].inserted[: len(response.turns[0].inserted)] == response.turns[0].inserted
    config = playing(own(COUNTS), actions={}, samples="trajectory", history_turns=1, on_failure="drop_response")
    response, _ = trajectory(config, saying("7", "8"), EPISODE)
    assert response.failure.startswith("context_rewritten")


SLOW = """
    def reset(self, seed=None):
        return "0", {}
    def step(self, action):
        time.sleep(0.2)
        return "0", 0.0, action == "9", False, {}
"""
MEETING = """
    running = most = 0
    lock, together = threading.Lock(), threading.Event()
    def reset(self, seed=None):
        return "0", {}
    def step(self, action):
        with World.lock:
            World.running += 1
            World.most = max(World.most, World.running)
            if World.running == int(action):
                World.together.set()
        World.together.wait(60.0)
        time.sleep(0.2)
        with World.lock:
            World.running -= 1
        return "0", 0.0, False, False, {"most": World.most}
"""
"""Steps wait until as many run as the action says, and then for one too many."""


def test_a_time_limit_ends_an_episode_after_a_turn(own: Callable[..., dict[str, Any]]) -> None:
    config = playing(own(SLOW), actions={}, max_turns=None, time_limit=0.5, on_turn_limit="zero_reward")
    response, _ = trajectory(config, saying(*["1"] * 20), EPISODE)
    assert (response.stop, response.treatment) == ("time", "zero_reward")
    assert 1 < len(response.turns) < 10


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (2, 2), (None, 3)])
def test_steps_at_the_same_time_are_limited(own: Callable[..., dict[str, Any]], limit: int | None, most: int) -> None:
    config = playing(own(MEETING, max_concurrent_steps=limit), actions={})
    task = Task.of(agent_of(config))

    async def play() -> Any:
        with ThreadPoolExecutor(8) as threads:
            host = ThreadHost(threads, 100.0, limit)
            opened = [await host.open(task, 1) for _ in range(3)]
            found = await asyncio.gather(*(host.act(number, str(most)) for number, _ in opened))
            return max(each.info["most"] for each in found)

    assert asyncio.run(play()) == most


@pytest.mark.parametrize(
    ("environment", "options", "said"),
    [
        ({"type": "gymnasium", "id": "FrozenLek-v1"}, {}, "gymnasium has no environment 'FrozenLek-v1'"),
        ({**LAKE, "args": {"dsc": 1}}, {}, "FrozenLake-v1 cannot be made with"),
        ({"type": "python", "path": "nowhere.py", "name": "World"}, {}, "there is no file"),
        (LAKE, {"template": "{board}"}, "has the field {board}; expected one of {observation}"),
        (LAKE, {"template": "{info[none]}"}, "cannot be filled in: KeyError: 'none'"),
        (LAKE, {"template": "{"}, "is not a template"),
        (LAKE, {"action_pattern": "("}, "action_pattern of the agent 'solver' is no regular expression"),
    ],
)
def test_what_cannot_be_played_is_refused_before_the_run(
    environment: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    config = playing(environment, **options)

    async def probe() -> None:
        with ThreadPoolExecutor(2) as threads:
            agent = make_agent(agent_of(config), chat(), threads, config.run.seed)
            assert isinstance(agent, Acting)
            try:
                await agent.probe()
            finally:
                await agent.close()

    with pytest.raises(RunError) as shown:
        asyncio.run(probe())
    assert said in str(shown.value)


def test_the_defaults_are_templates() -> None:
    check_templates(agent_of(playing(LAKE)))
