"""ROLL: environments, managers and tags as agents and sources of episodes."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.adapters.roll.templates import FIELDS, STEP_FIELDS, read_template, write_template
from rlctl.common.report import Bucket
from rlctl.config import to_plain
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document

from .texts import AGENTIC, bucket, read, written

LAKE = {
    "env_type": "frozen_lake",
    "max_steps": 8,
    "max_tokens_per_step": 64,
    "agent_system_template": "Play.",
    "agent_template": "Turn {turn_idx}: {observation} ({actions_left} left, {max_response_length} tokens)",
    "use_thread_lock": True,
    "env_config": {"is_slippery": False, "format_penalty": -0.01, "action_pattern": "<answer>(.*?)</answer>"},
}
_MANAGERS = "roll.pipeline.agentic.env_manager"


def agents(text: str, **changes: Any) -> list[dict[str, Any]]:
    return list(to_plain(read(text, **changes)[0].config)["rollout"]["agents"])


def test_an_environment_becomes_an_agent_and_comes_back() -> None:
    loaded, _ = read(AGENTIC, custom_envs__Sokoban=LAKE)
    [agent] = to_plain(loaded.config)["rollout"]["agents"]
    assert agent["type"] == "environment"
    assert (agent["max_turns"], agent["max_turn_tokens"], agent["system_prompt"]) == (8, 64, "Play.")
    assert agent["template"] == "Turn {turn}: {observation} ({turns_left} left, 64 tokens)"
    assert agent["opening_template"] == "{info[env_instruction]}\n" + agent["template"]
    assert (agent["environment"]["name"], agent["environment"]["args"]) == ("FrozenLake", LAKE["env_config"])
    again = written(loaded)[0]["custom_envs"]["Sokoban"]
    assert {**LAKE, "agent_template": again["agent_template"]}.items() <= again.items()
    assert again["agent_template"] == LAKE["agent_template"].replace("{max_response_length}", "64")


def test_a_step_manager_shows_turns_of_before_and_trains_turn_by_turn() -> None:
    template = "{history} {current_observation} {step_count}"
    step = {**LAKE, "env_manager_cls": f"{_MANAGERS}.step_env_manager.StepEnvManager", "history_length": 5}
    [agent] = agents(AGENTIC, custom_envs__Sokoban={**step, "agent_template": template})
    assert (agent["history_turns"], agent["template"]) == (4, "{history} {observation} {turns_done}")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"env_type": "webshop"}, "webshop"),
        ({"env_config": {"render_mode": "rgb_array"}}, "frozen_lake"),
        ({"env_config": {"something_else": 1}}, "frozen_lake"),
    ],
)
def test_an_environment_that_rlctl_lacks_is_kept_by_its_name(changes: dict[str, Any], kind: str) -> None:
    [agent] = agents(AGENTIC, custom_envs__Sokoban={**LAKE, **changes})
    environment = agent["environment"]
    assert (environment["type"], environment["framework"], environment["kind"]) == ("other", "roll", kind)


@pytest.mark.parametrize(
    "changes",
    [
        {"tool_wrapper": {"wrapper_args": {}, "tool_configs": []}},
        {"env_manager_cls": f"{_MANAGERS}.proxy_env_manager.ProxyEnvManager", "agent_runner_cls": "a.B"},
    ],
)
def test_what_is_no_play_by_text_alone_is_an_agent_of_roll_s(changes: dict[str, Any]) -> None:
    loaded, _ = read(AGENTIC, custom_envs__Sokoban={**LAKE, **changes})
    [agent] = to_plain(loaded.config)["rollout"]["agents"]
    assert (agent["type"], agent["framework"]) == ("other", "roll")
    again = written(loaded)[0]["custom_envs"]["Sokoban"]
    assert {**LAKE, **changes}.items() <= again.items()


def test_tags_are_sources_weighed_by_their_groups() -> None:
    loaded, _ = read(
        AGENTIC,
        custom_envs__Lake=LAKE,
        train_env_manager={
            "num_env_groups": 16,
            "group_size": 8,
            "tags": ["Sokoban", "Lake"],
            "num_groups_partition": [12, 4],
        },
    )
    sources = [(one.agent, one.format, one.max_samples, one.weight) for one in loaded.config.data.train]
    assert sources == [("Sokoban", "episodes", 12, 12.0), ("Lake", "episodes", 4, 4.0)]
    values, _ = written(loaded)
    assert values["train_env_manager"]["tags"] == ["Sokoban", "Lake"]
    assert values["train_env_manager"]["num_groups_partition"] == [12, 4]


def test_a_tag_without_a_definition_is_an_error() -> None:
    text = AGENTIC.replace("group_size: 8, tags: [Sokoban]", "group_size: 8, tags: [Other]")
    _, report = read_document(read_yaml(text, "run.yaml"), dialect="roll", environment={})
    assert {error.key for error in report.errors} == {"train_env_manager.tags"}
    assert "Sokoban" in report.errors[0].message


def test_copies_of_random_sequences_are_told_where_a_trajectory_has_several() -> None:
    step = {**LAKE, "env_manager_cls": f"{_MANAGERS}.step_env_manager.StepEnvManager", "agent_template": "{history}"}
    assert bucket(read(AGENTIC, batch_adjust_mode="copy")[1], "batch_adjust_mode") is Bucket.MAPPED
    report = read(AGENTIC, batch_adjust_mode="copy", custom_envs__Sokoban=step)[1]
    assert bucket(report, "batch_adjust_mode") is Bucket.UNSUPPORTED


@pytest.mark.parametrize(
    ("fields", "template", "expected"),
    [
        (FIELDS, "{turn_idx} {{kept}} {suffix}", "{turn} {{kept}} {info[suffix]}"),
        (STEP_FIELDS, "{current_step}/{max_response_length}", "{turn}/9"),
    ],
)
def test_templates_are_translated_and_back(fields: dict[str, str], template: str, expected: str) -> None:
    found = read_template(template, fields, 9)
    assert (found.text, found.lost) == (expected, ())
    assert write_template(found.text, fields).text == template.replace("{max_response_length}", "9")


def test_a_field_that_is_not_known_is_named() -> None:
    assert read_template("{mine}", FIELDS, 9).lost == ("mine",)
