"""A judge that the run serves: asked and read as one at an endpoint, on an engine of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.checks import check
from rlctl.common.errors import MissingDependency, PlanError, RunError
from rlctl.config import Config, config_from
from rlctl.planning.plan import make_plan
from rlctl.planning.rollout_schedule import sleep_level
from rlctl.runtime.judges import Judges, SideBySide
from rlctl.runtime.processes.group import LocalGroup
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.roles import Rewards
from rlctl.runtime.specs.served import check_served, judge_config, judge_spec
from rlctl.runtime.types import Prompt
from rlctl.runtime.workers.judge import JudgeWorker, judge_sampling
from rlctl.runtime.workers.reward import RewardWorker
from tests.runtime.workers.speaking import save_speaker


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Says YES after a ``+`` and NO after a ``-``, a list after ``]`` and nothing that can be read after ``?``."""
    return save_speaker(tmp_path_factory.mktemp("judge"), "+YES", "-NO", "?why", "=[1,0.5]")


def config(*rewards: dict[str, Any], **more: Any) -> Config:
    return config_from(
        {
            "model": {"path": "m"},
            "schedule": {"total_steps": 1},
            "train": {"precision": {"compute": "float32"}},
            "placement": {"device": "cpu", "devices_per_node": 2},
            "rewards": [{"type": "judge", **reward} for reward in rewards],
            **more,
        }
    )


def asks(judge: str, **settings: Any) -> dict[str, Any]:
    return {
        "name": "judge",
        "model": judge,
        "prompt": "{prompt}{response}",
        "scoring": "yes_no",
        "sampling": {"temperature": 0.0, "max_tokens": 16},
        **settings,
    }


def worker(*rewards: dict[str, Any]) -> JudgeWorker:
    return JudgeWorker(*judge_spec(config(*rewards), "transformers", "cpu"))


def calls(*responses: str, group: int = 0) -> list[Call]:
    return [Call("s", response, prompt="q", group=group) for response in responses]


def test_answers_are_read_as_those_of_an_endpoint(judge: str) -> None:
    found = worker(asks(judge)).score({0: calls("a+", "b-", "c?", "d+")})[0]
    assert found[:2] == [Outcome(1.0, True), Outcome(0.0, False)]
    assert found[3] == Outcome(1.0, True)
    assert isinstance(found[2], Failure)
    assert "YES or NO" in found[2].message


def test_responses_that_are_compared_are_asked_about_together(judge: str) -> None:
    reward = asks(judge, scoring="ruler", prompt="{responses}=")
    both = [*calls("a", "b", group=0), *calls("c", "d", group=1), *calls("e", group=2)]
    found = worker(reward).score({0: both})[0]
    assert found[:4] == [Outcome(1.0), Outcome(0.5), Outcome(1.0), Outcome(0.5)]
    assert isinstance(found[4], Failure), "two numbers for one response"


def test_a_question_that_has_no_room_costs_its_response_alone(judge: str) -> None:
    found = worker(asks(judge, max_context_tokens=40)).score({0: calls("a" * 60 + "+", "+")})[0]
    assert isinstance(found[0], Failure)
    assert "the judge's context is 40" in found[0].message
    assert found[1] == Outcome(1.0, True)
    silent = worker(asks(judge, sampling={"temperature": 0.0}, max_context_tokens=40))
    assert silent.score({0: calls("+")})[0] == [Outcome(1.0, True)], "an answer takes what room there is"


def test_answers_do_not_depend_on_what_else_is_asked(judge: str) -> None:
    hot = asks(judge, sampling={"temperature": 5000.0, "max_tokens": 8})
    one = worker(hot)
    alone = [one._answers([one._request(one._rewards[0], calls(text))])[0] for text in ("a+", "b-")]
    both = one._answers([one._request(one._rewards[0], calls(text)) for text in ("b-", "x?", "a+")])
    assert [both[2], both[0]] == alone
    assert len(set(both)) == 3
    seeded = worker({**hot, "sampling": {**hot["sampling"], "seed": 5}})
    assert seeded._answers([seeded._request(seeded._rewards[0], calls("a+"))])[0] != alone[0]


class Two:
    """A group of two workers in this process."""

    def __init__(self, *workers: JudgeWorker) -> None:
        self.workers = workers
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 2

    def each(self, method: Any, arguments: Any, again: Any = None) -> list[Any]:
        self.asked += [sum(map(len, one[0].values())) for one in arguments]
        return [method(worker, *one) for worker, one in zip(self.workers, arguments, strict=True)]


def test_several_engines_and_several_rewards_share_the_prompts(judge: str) -> None:
    rewards = (
        asks(judge),
        asks(judge, name="compared", scoring="ruler", prompt="{responses}=", applies_to=["pairs"], weight=0.5),
    )
    made = config(*rewards)
    group = Two(worker(*rewards), worker(*rewards))
    prompts = [Prompt(i, source, (1,), "q", None) for i, source in enumerate(["pairs", "single", "pairs"])]
    texts = [["a+", "b-"], ["c+"], ["d-", "e-"]]
    with RewardWorker(made.rewards) as scoring:
        judges = Judges(group, made.rewards)  # type: ignore[arg-type]
        found = Rewards(LocalGroup("reward-0", scoring), None, SideBySide([judges])).score_texts(prompts, texts)
    assert [[one.total for one in each] for each in found] == [[1.5, 0.25], [1.0], [0.5, 0.25]]
    assert found[0][1].components == {"judge": 0.0, "compared": 0.5}
    assert group.asked == [8, 1], "the responses of a prompt go to one engine"


def test_the_plan_places_the_judge() -> None:
    reward = {"model": "org/judge", "replicas": 2}
    role = make_plan(config(reward)).stages[0].role("judge")
    assert role is not None
    assert (role.engine, role.processes, role.devices) == ("transformers", 2, (0, 1))
    explicit = {
        "device": "cuda",
        "devices_per_node": 8,
        "layout": "explicit",
        "roles": {
            name: {"devices": places} for name, places in {"policy": [0, 1, 2, 3], "judge": [4, 5, 6, 7]}.items()
        },
    }
    role = make_plan(config({**reward, "tensor_parallel_size": 2}, placement=explicit)).stages[0].role("judge")
    assert role is not None
    assert (role.engine, role.processes, role.devices) == ("vllm", 2, (4, 5, 6, 7))
    assert make_plan(config({**reward, "base_url": "http://a/v1"})).stages[0].role("judge") is None
    with pytest.raises(PlanError, match="need 3"):
        make_plan(config({"model": "org/judge", "replicas": 3}))
    with pytest.raises(PlanError, match="differ in model"):
        make_plan(config(reward, {**reward, "name": "b", "model": "org/other"}))


def test_what_the_engine_is_made_with() -> None:
    settings = {
        "engine_args": {"block_size": 32},
        "max_context_tokens": 99,
        "max_concurrent": 3,
        "tensor_parallel_size": 2,
    }
    made = config({"model": "org/judge", "sampling": {"stop": "x"}, **settings})
    (reward,) = made.rewards
    own = judge_config(made, reward, "vllm")  # type: ignore[arg-type]
    assert (own.model.path, own.model.max_context_tokens) == ("org/judge", 99)
    assert (own.rollout.engine.args, own.rollout.parallel.tensor_parallel_size) == ({"block_size": 32}, 2)
    assert (own.rollout.memory.max_num_seqs, own.rollout.sampling.stop) == (3, ("x",))
    assert (sleep_level(made), sleep_level(own)) == (2, 1), "the policy's weights come anew every step, a judge's never"


def test_what_cannot_be_served_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlctl.runtime.rollout.vllm_arguments.argument_names", lambda: None)
    with pytest.raises(MissingDependency, match="vLLM is not installed"):
        check_served(config({"model": "org/judge", "engine": "vllm"}), "judge", "vllm")
    with pytest.raises(RunError, match=r"the judge .* sets engine_args, which its engine, transformers, does not"):
        check_served(config({"model": "org/judge", "engine_args": {"block_size": 8}}), "judge", "transformers")
    with pytest.raises(RunError, match="has the sampling setting frequency_penalty, which rlctl does not support"):
        check_served(config({"model": "org/judge", "sampling": {"frequency_penalty": 1.0}}), "judge", "transformers")
    (reward,) = config({"model": "j", "sampling": {"max_completion_tokens": 4, "stop": "x", "n": 1}}).rewards
    assert judge_sampling(reward) == {"max_tokens": 4, "stop": ("x",)}  # type: ignore[arg-type]
    problems = [found.code for found in check(config({}))]
    assert "judge-model" in problems


def test_the_judge_of_another_folder_is_looked_for(tmp_path: Path) -> None:
    problems = [found.key for found in check(config({"model": str(tmp_path / "none")})) if found.code == "path-missing"]
    assert "rewards[0].model" in problems
