"""README's table of what differs between the frameworks: what rlctl reads in a GRPO config of each that sets nothing else.

That rlctl's defaults are the frameworks' own is what ``make test-upstream`` asks their code.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.config import Config
from rlctl.translation.translate import read

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
FILES = {
    "verl@0.9": "algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {actor: {ppo_mini_batch_size: 64}, rollout: {n: 8}}\n",
    "trinity@0.6": "algorithm: {algorithm_type: grpo, repeat_times: 8}\nbuffer: {batch_size: 64, train_batch_size: 64}\n",
    "roll": "adv_estimator: grpo\nnum_return_sequences_in_group: 8\n"
    "actor_train: {device_mapping: 'list(range(0,4))', training_args: {per_device_train_batch_size: 64}}\n",
}
"""A mini-batch of 64 in each, in the unit that each counts in."""


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> list[Config]:
    found = []
    for dialect, text in FILES.items():
        file = tmp_path_factory.mktemp("configs") / "config.yaml"
        file.write_text(text, encoding="utf-8")
        loaded, _ = read(file, dialect=dialect)
        assert loaded is not None
        found.append(loaded.config)
    return found


def cells(start: str) -> list[str]:
    """The cells of a row of the table, without emphasis."""
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip().replace("**", "") for cell in row.split("|")[2:-1]]


def test_a_mini_batch_of_64_is_in_the_units_that_the_table_names(configs: list[Config]) -> None:
    assert [cell.split(": ")[1] for cell in cells("mini-batch")] == [
        "prompts",
        "responses",
        "responses per data-parallel rank",
    ]
    assert [config.batch.mini_batch_responses for config in configs] == [64 * 8, 64, 64 * 4]


def test_the_kl_term(configs: list[Config]) -> None:
    terms = [config.algorithm.kl_in_loss for config in configs]
    assert cells("KL term") == [
        f"on: {term.estimator}, coefficient {term.coefficient}" if term else "off" for term in terms
    ]


def test_sampling(configs: list[Config]) -> None:
    sampling = [config.rollout.sampling for config in configs]
    shown = [
        f"temperature {one.temperature:g}, top-p {one.top_p:g}" + (f", top-k {one.top_k}" if one.top_k else "")
        for one in sampling
    ]
    assert cells("sampling") == shown


def test_the_learning_rate(configs: list[Config]) -> None:
    words = {"constant": "constant", "linear": "decays linearly to 0"}
    trains = [config.train for config in configs]
    rates = [f"{train.optimizer.lr:.0e}".replace("e-0", "e-") for train in trains]
    assert cells("learning rate") == [
        f"{rate}, {words[train.lr_scheduler.type]}" for rate, train in zip(rates, trains, strict=True)
    ]
