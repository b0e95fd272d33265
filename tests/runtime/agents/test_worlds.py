"""FrozenLake and Sokoban by text: ROLL's maps, symbols and rewards."""

from __future__ import annotations

import pytest

from rlctl.runtime.agents.worlds import MOVES, FrozenLake, Sokoban

# Printed by ROLL's own generate_random_map(size, p, seed).
ROLLS_MAPS = {(4, 0.8, 3): ["FFHF", "FFGF", "FFFF", "FSFH"]}


@pytest.mark.parametrize(("of", "expected"), ROLLS_MAPS.items())
def test_a_seed_gives_rolls_map(of: tuple[int, float, int], expected: list[str]) -> None:
    size, ice, seed = of
    text, info = FrozenLake(size, ice, is_slippery=False).reset(seed=seed)
    symbols = {"F": "_", "H": "O", "G": "G", "S": "P"}
    assert text == "\n".join("".join(symbols[letter] for letter in row) for row in expected)
    assert "Left, Down, Right, Up" in info["env_instruction"]


def test_the_goal_ends_an_episode_with_reward_1() -> None:
    lake = FrozenLake(is_slippery=False)
    lake.reset(seed=3)
    rewards = [lake.step(f"<answer>{name}</answer>") for name in ("Up", "right", "UP")]
    assert [(result[1], result[2]) for result in rewards] == [(0.0, False), (0.0, False), (1.0, True)]
    assert rewards[-1][4]["success"] is True


def test_a_text_without_an_action_costs_the_penalty_and_moves_nothing() -> None:
    lake = FrozenLake(is_slippery=False, format_penalty=-0.5)
    before, _ = lake.reset(seed=3)
    text, reward, over, _, info = lake.step("I go <answer>nowhere</answer>")
    assert (text, reward, over, info["action_is_valid"]) == (before, -0.5, False, False)


def test_the_second_group_of_a_pattern_is_the_action() -> None:
    lake = FrozenLake(is_slippery=False, action_pattern=r"<think>(.*?)</think>\s*<answer>(.*?)</answer>")
    assert lake.action_in("<think>left?</think> <answer> Down </answer><|im_end|>") == 1


def test_a_room_of_sokoban_is_the_same_for_a_seed_and_can_be_solved() -> None:
    for seed in range(20):
        one, other = Sokoban((6, 6), 1, max_steps=100), Sokoban((6, 6), 1)
        assert one.reset(seed=seed)[0] == other.reset(seed=seed)[0]
        assert _solution(one) is not None


def test_sokoban_pays_for_steps_boxes_and_the_end() -> None:
    room = Sokoban((6, 6), 1, max_steps=100, format_penalty=-0.15)
    room.reset(seed=0)
    assert room.step("none")[1] == pytest.approx(-0.25)
    path = _solution(room) or []
    rewards = [room.step(f"<answer>{room.actions[number]}</answer>") for number in path]
    assert [result[1] for result in rewards[:-1]] == pytest.approx([-0.1] * (len(path) - 1))
    assert rewards[-1][1] == pytest.approx(-0.1 + 1 + 10)
    assert rewards[-1][2:4] == (True, False)


def _solution(room: Sokoban) -> list[int] | None:
    """The moves that solve a room, by a search from the first position."""
    start = (room.boxes, room.player)
    waiting, seen = [(start, [])], {start}
    while waiting:
        (boxes, player), path = waiting.pop(0)
        if boxes == room.targets:
            return path
        for number, by in MOVES.items():
            to, beyond = (player[0] + by[0], player[1] + by[1]), (player[0] + 2 * by[0], player[1] + 2 * by[1])
            pushes = to in boxes
            if to not in room.floor or (pushes and (beyond not in room.floor or beyond in boxes)):
                continue
            state = (boxes - {to} | {beyond} if pushes else boxes, to)
            if state not in seen:
                seen.add(state)
                waiting.append((state, [*path, number]))
    return None
