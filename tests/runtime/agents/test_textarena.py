"""Games of textarena, as an agent plays them."""

from __future__ import annotations

import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.agents.textarena import TextArena
from tests.runtime.agents.made import config_of, saying, trajectory

HANOI = {"type": "python", "path": "pkg://rlctl.runtime.agents.textarena", "name": "TextArena", "isolation": "thread"}


def test_a_game_is_solved_and_says_only_what_is_new() -> None:
    game = TextArena("TowerOfHanoi-v0")
    opening, _ = game.reset(seed=3)
    assert "3 disks" in opening
    text, reward, over, _, _ = game.step("I move [A C]")
    assert text == "You moved disk 1 from A to C.\nCurrent Board: \nA: [3, 2]\nB: []\nC: [1]\n."
    assert (reward, over) == (0.0, False)
    for move in ("[A B]", "[C B]", "[A C]", "[B A]", "[B C]"):
        game.step(move)
    text, reward, over, _, info = game.step("[A C]")
    assert (reward, over, info["success"], info["turn_count"]) == (1.0, True, True, 7)
    assert text.startswith("Congratulations")


def test_an_invalid_move_is_answered_and_a_seed_gives_the_same_game() -> None:
    found = []
    for _ in range(2):
        game = TextArena("GuessTheNumber-v0")
        game.reset(seed=3)
        assert "invalid move" in game.step("ten")[0]
        found.append([game.step(f"[{number}]")[0] for number in (10, 5)])
    assert found[0] == found[1]
    with pytest.raises(RunError, match="NoSuchGame"):
        TextArena("NoSuchGame-v0")


def test_an_agent_plays_it() -> None:
    agent = {"type": "environment", "environment": {**HANOI, "args": {"id": "TowerOfHanoi-v0"}}, "max_turns": 2}
    response, _ = trajectory(config_of(agent), saying("1<end>", "2<end>"), max_tokens=2000)
    assert (response.stop, response.info["invalid_move"]) == ("done", True), "the game ends at the second invalid move"
    assert response.reward is not None
    assert response.reward < 1
    assert [message["role"] for message in response.messages][-3:] == ["assistant", "user", "assistant"]
