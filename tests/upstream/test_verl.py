"""verl composes and validates what rlctl writes for it, and trains with the numbers that rlctl reads."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from rlctl.adapters.engine.rules import split
from rlctl.common.report import Report
from rlctl.config import Config, Loaded
from rlctl.documents import read_yaml
from rlctl.planning import arithmetic
from rlctl.translation.translate import read_document, translate_loaded
from tests.upstream import canonical_numbers as ours
from tests.upstream.drive_verl import ADVANTAGES, KL, LOGITS, MASK
from tests.upstream.frameworks import ROOT, framework

pytestmark = pytest.mark.upstream

CORPUS = ROOT.parent / "shared" / "corpus" / "verl" / "overrides"
RELEASES = ("verl-0.9.1", "verl-0.9.0")
"""An example is asked of the newest release that accepts it."""
HOME = re.compile(r"~/")
"""What a shell would have expanded."""
ROWS, AT = 50_000, [0, 1, 2, 5, 10, 20, 50, 100]


@cache
def corpus() -> dict[str, dict[str, Any]]:
    """The captured command lines of verl's examples, where the corpus is beside the repository."""
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted(CORPUS.glob("*.yaml"))}


def composed_by(item: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The config file that an example's entry point composes, and its overrides without Hydra's own options."""
    own = [HOME.sub("/home/me/", text) for text in item["overrides"] if not text.startswith(("--", "hydra.searchpath"))]
    if any("ppo_megatron_trainer" in text for text in item["overrides"]):
        own.insert(0, "model_engine=megatron")
    programs = {
        "sft": "sft_trainer_engine",
        "generation": "generation",
        "fully_async": "fully_async_ppo_trainer",
    }
    return next((config for part, config in programs.items() if part in item["module"]), "ppo_trainer"), own


def read(overrides: list[str], dialect: str = "verl") -> tuple[Loaded, Report]:
    loaded, report = read_document(
        read_yaml("", "overrides", allow_empty=True), dialect=dialect, overrides=overrides, environment={}
    )
    assert loaded is not None, report.findings
    return loaded, report


def written(loaded: Loaded, report: Report, target: str) -> list[str]:
    """The overrides that rlctl writes for a release."""
    made = translate_loaded(loaded, report, target, options={"format": "overrides", "carried": "none"})
    assert made.text is not None, made.report.findings
    return [line for line in made.text.splitlines() if line]


def ask(config: str, overrides: list[str], releases: tuple[str, ...] = RELEASES) -> dict[str, Any]:
    """The answer of the first release that accepts it, or the refusal of the first."""
    answers = []
    for release in releases:
        verl = framework(release, "drive_verl.py")
        answers.append(verl.ask(config=config, overrides=overrides, rows=ROWS, ticks=AT))
        assert "broken" not in answers[-1], answers[-1]["broken"]
        if answers[-1]["accepted"]:
            return answers[-1]
    return answers[0]


def rl_numbers(config: Config, theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a canonical config, in verl's units and under the driver's names."""
    batch, schedule, algorithm = config.batch, config.schedule, config.algorithm
    each, steps = arithmetic.optimizer_steps_per_step(config), ours.steps_of(config, ROWS)
    share = arithmetic.devices_per_sequence(config.train.engine)
    rates = ours.learning_rates(config.train.lr_scheduler, config.train.optimizer.lr, steps, each, AT)
    numbers: dict[str, Any] = {
        "prompts_per_step": batch.prompts_per_step,
        "responses_per_prompt": batch.responses_per_prompt,
        "actor.mini_batch_responses": arithmetic.mini_batch_responses(config),
        "actor.epochs": batch.ppo_epochs,
        "actor.shuffle": batch.shuffle,
        "actor.temperature": config.rollout.sampling.temperature,
        "total_steps": steps,
        "save_every": interval(config, config.checkpoint.every),
        "evaluate_every": interval(config, schedule.evaluate_every),
        "evaluate_at_start": schedule.evaluate_at_start,
        "max_prompt_tokens": config.data.max_prompt_tokens,
        "max_response_tokens": config.rollout.max_response_tokens,
        "sampling.temperature": config.rollout.sampling.temperature,
        "sampling.top_p": config.rollout.sampling.top_p,
        "sampling.top_k": config.rollout.sampling.top_k or -1,
        "entropy": algorithm.entropy_coefficient,
        "needs_reference": algorithm.kl_in_loss is not None or algorithm.kl_in_reward is not None,
        "needs_critic": arithmetic.needs_critic(config),
        "optimizer.weight_decay": config.train.optimizer.weight_decay,
        "optimizer.betas": list(config.train.optimizer.betas),
        "optimizer.clip": config.train.optimizer.max_grad_norm or 0.0,
        "rollout_tensor": config.rollout.parallel.tensor_parallel_size,
    }
    if config.placement.layout == "colocated":
        numbers["devices"] = arithmetic.devices(config)
    if theirs["micro_batch"]["size"] is not None:
        numbers["micro_batch"] = scaled(ours.micro(batch.micro_batch), share)
    if theirs["log_prob_micro_batch"]["size"] is not None:
        numbers["log_prob_micro_batch"] = scaled(ours.micro(batch.log_prob_micro_batch or batch.micro_batch), share)
    if "rates" in theirs:
        numbers["rates"] = rates
    if config.data.eval and theirs.get("evaluation"):
        sampling = config.data.eval[0].evaluation_sampling
        numbers["evaluation.temperature"] = sampling.temperature
        numbers["evaluation.top_p"] = sampling.top_p
        numbers["evaluation.top_k"] = sampling.top_k or -1
        numbers["evaluation.n"] = config.data.eval[0].responses_per_prompt
    if config.critic is not None and "critic_rates" in theirs:
        critic = config.critic
        mini = critic.mini_batch_responses or arithmetic.mini_batch_responses(config)
        numbers["critic.mini_batch_responses"] = mini
        numbers["critic.epochs"] = critic.ppo_epochs or batch.ppo_epochs
        numbers["critic_rates"] = ours.learning_rates(critic.lr_scheduler, critic.optimizer.lr, steps, each, AT)
    return numbers | loss_numbers(config)


def loss_numbers(config: Config) -> dict[str, Any]:
    """Policy loss and KL on the driver's tokens."""
    algorithm = config.algorithm
    numbers: dict[str, Any] = {}
    value = ours.policy_loss(config, LOGITS, ADVANTAGES, MASK)
    if value is not None:
        numbers["losses.policy"] = value
    if algorithm.kl_in_loss is not None:
        numbers["losses.kl_in_loss"] = ours.kl(algorithm.kl_in_loss.estimator, KL)
        numbers["losses.kl_in_loss_coefficient"] = algorithm.kl_in_loss.coefficient
    if algorithm.kl_in_reward is not None and algorithm.kl_in_reward.estimator in ours.KL_ESTIMATORS:
        numbers["losses.kl_in_reward"] = ours.kl(algorithm.kl_in_reward.estimator, KL)
        numbers["losses.kl_in_reward_coefficient"] = algorithm.kl_in_reward.coefficient
        numbers["losses.kl_in_reward_adaptive"] = algorithm.kl_in_reward.adaptive
    return numbers


def sft_numbers(config: Config, theirs: Mapping[str, Any]) -> dict[str, Any]:
    steps = ours.steps_of(config, ROWS)
    train, share = config.train, arithmetic.devices_per_sequence(config.train.engine)
    numbers = {
        "rows_per_step": config.batch.prompts_per_step,
        "total_steps": steps,
        "max_tokens": config.data.max_sequence_tokens,
        "save_every": interval(config, config.checkpoint.every),
        "evaluate_every": interval(config, config.schedule.evaluate_every),
        "micro_batch": scaled(ours.micro(config.batch.micro_batch), share),
        "optimizer.weight_decay": train.optimizer.weight_decay,
        "optimizer.betas": list(train.optimizer.betas),
        "optimizer.clip": train.optimizer.max_grad_norm or 0.0,
    }
    if theirs.get("rates"):
        peak = train.optimizer.lr
        numbers["rates"] = ours.learning_rates(train.lr_scheduler, peak, steps, 1, AT)
    return numbers


def generation_numbers(config: Config) -> dict[str, Any]:
    sampling = config.rollout.sampling
    return {
        "responses_per_prompt": config.batch.responses_per_prompt,
        "sampling.temperature": sampling.temperature,
        "sampling.top_p": sampling.top_p,
        "max_response_tokens": config.rollout.max_response_tokens,
        "rollout_tensor": config.rollout.parallel.tensor_parallel_size,
        "devices": arithmetic.devices(config),
    }


def interval(config: Config, every: Any) -> int:
    return arithmetic.interval_in_steps(every, config, ROWS) or -1


def scaled(cut: dict[str, Any] | None, share: int) -> dict[str, Any] | None:
    """A micro-batch in verl's unit: tokens of one GPU, of the GPUs that share a sequence."""
    if cut is not None and cut["unit"] == "tokens":
        return cut | {"size": cut["size"] // share}
    return cut


def differences(numbers: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Each number that is not theirs, with both values."""
    found = []
    for name, value in numbers.items():
        place: Any = theirs
        for part in split(name):
            place = place[part]
        if not same(value, place):
            found.append(f"{name}: rlctl {value}, verl {place}")
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-12)
    return bool(one == other)


def numbers_of(config: Config, answer: Mapping[str, Any]) -> dict[str, Any]:
    theirs = answer["numbers"]
    if config.run.mode == "rollout_only":
        return generation_numbers(config)
    return sft_numbers(config, theirs) if "rows_per_step" in theirs else rl_numbers(config, theirs)


@pytest.mark.parametrize("name", corpus())
def test_an_example_means_what_verl_makes_of_it(name: str) -> None:
    config, overrides = composed_by(corpus()[name])
    answer = ask(config, overrides)
    if not answer["accepted"]:
        pytest.skip(f"this release refuses it: {answer['error'][:200]}")
    loaded, _ = read(overrides)
    assert differences(numbers_of(loaded.config, answer), answer["numbers"]) == []


@pytest.mark.parametrize("name", corpus())
def test_an_example_written_again_is_accepted_and_means_the_same(name: str) -> None:
    config, overrides = composed_by(corpus()[name])
    loaded, report = read(overrides)
    again = written(loaded, report, "verl@0.9")
    answer = ask(config, again)
    assert answer["accepted"], answer["error"]
    assert differences(numbers_of(loaded.config, answer), answer["numbers"]) == []
    before = ask(config, overrides)
    if before["accepted"]:
        assert differences(flat(before["numbers"]), answer["numbers"]) == []


def flat(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """What verl computed from the example itself, without what says how and not what."""
    return {name: value for name, value in numbers.items() if name not in ("strategy", "epochs", "nodes", "critic")}
