"""A teacher's part in a loss: by hand, as torch computes it on whole distributions, and however a step is split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlctl.common.errors import ConfigError, PlanError
from rlctl.config import Config, config_from
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.specs.trained import loss_spec, teaching_of
from rlctl.runtime.train.distillation import Teaching, into_advantages
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.trainer import make_loss
from tests.runtime.train import jobs
from tests.runtime.train.jobs import ALL_AT_ONCE, FLOAT64, make_samples, settings
from tests.runtime.train.processes import Workers


def config(objective: str = "sft", *, args: dict[str, Any] | None = None, **distillation: Any) -> Config:
    section = {"teacher": "teacher", "loss": "forward_kl", "coefficient": 0.4, **distillation, "args": args or {}}
    return config_from({"algorithm": {"objective": objective, "distillation": section}})


def taught(objective: str = "sft", *, args: dict[str, Any] | None = None, **distillation: Any) -> Teaching:
    found = teaching_of(config(objective, args=args, **distillation))
    assert found is not None
    return found


def test_imitation_and_a_teacher_share_the_loss_as_in_plain_pytorch(one: Workers, models: dict[str, Path]) -> None:
    """0.6 * cross-entropy + 0.4 * KL over the teacher's 5 likeliest tokens, student and teacher at temperature 2 and 3."""
    samples = make_samples(9)
    wanted = config(args={"kd_temperature": 2, "teacher_temperature": 1.5}, top_k=5)
    [(_, [metrics])] = one.run(
        jobs.distilled_updates, models["gpt2"], models["llama"], settings(FLOAT64), samples, wanted, ALL_AT_ONCE
    )
    student, teacher = (
        AutoModelForCausalLM.from_pretrained(models[kind], dtype=torch.float64, attn_implementation="eager")
        for kind in ("gpt2", "llama")
    )
    imitation, apart, count = torch.zeros(()), torch.zeros(()), 0
    for sample in samples:
        counted = sample.mask[1:]
        q = student(sample.token_ids[None]).logits[0, :-1][counted]
        with torch.no_grad():
            p = teacher(sample.token_ids[None]).logits[0, :-1][counted]
        imitation = imitation - q.log_softmax(-1).gather(-1, sample.token_ids[1:][counted][:, None]).sum()
        best, places = p.topk(5, -1)
        log_p, log_q = (best / 3).log_softmax(-1), (q.gather(-1, places) / 2).log_softmax(-1)
        apart = apart + (log_p.exp() * (log_p - log_q)).sum()
        count += int(counted.sum())
    loss = (0.6 * imitation + 0.4 * apart) / count
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(student.parameters(), float("inf"))
    for name, value in (("loss", loss.item()), ("divergence", apart.item() / count), ("grad_norm", norm.item())):
        assert metrics[name] == pytest.approx(value, rel=1e-6)  # eager attention takes its softmax in float32


@pytest.mark.parametrize("case", ["imitation", "policy"])
def test_splits_do_not_change_a_step_with_a_teacher(
    one: Workers, two: Workers, models: dict[str, Path], case: str
) -> None:
    samples, train = make_samples(9), settings(FLOAT64, epsilon=1.0)
    wanted = config(loss="adaptive_kl") if case == "imitation" else config("rl", top_k=4)
    arguments = (models["gpt2"], models["llama"], train, samples, wanted)
    [(whole, metrics)] = one.run(jobs.distilled_updates, *arguments, ALL_AT_ONCE)
    for group, micro in (
        (one, MicroBatchSize(unit="responses", size=2)),
        (two, MicroBatchSize(unit="tokens", size=30)),
    ):
        (parts, found), *_ = group.run(jobs.distilled_updates, *arguments, micro)
        assert found[0] == pytest.approx(metrics[0], rel=1e-11, abs=1e-11)
        for name, tensor in parts.items():
            torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-12)


def tensors() -> dict[str, Any]:
    return {
        "log_probs": torch.tensor([-1.0, -2.0, -0.5], requires_grad=True),
        "old_log_probs": torch.tensor([-1.0, -2.0, -0.5]),
        "rollout_log_probs": torch.tensor([-1.0, -2.0, -0.5]),
        "teacher_log_probs": torch.tensor([-1.5, -22.0, -0.5]),
        "divergence": torch.tensor([0.5, 30.0, 0.25], requires_grad=True),
        "advantages": torch.tensor([1.0, -1.0, 2.0]),
        "entropy": torch.tensor([0.3, 0.6, 0.9]),
        "lengths": torch.tensor([2, 1]),
    }


POLICY = (-1.0 + 1.0 - 2.0) / 3


@pytest.mark.parametrize(
    ("distillation", "expected"),
    [
        # k2 of 0.5, 20 (at most 10) and 0
        ({"loss": "reverse_kl", "args": {"estimator": "k2"}}, POLICY + 0.4 * (0.125 + 10) / 3),
        ({"loss": "reverse_kl", "args": {"estimator": "mse", "with_rewards": False}}, (0.125 + 10) / 3),
        ({"loss": "reverse_kl", "args": {"estimator": "k2", "distillation_loss.loss_max_clamp": 100.0}},
         POLICY + 0.4 * (0.125 + 100) / 3),
        ({"loss": "forward_kl", "top_k": 8}, POLICY + 0.4 * (0.5 + 10 + 0.25) / 3),
        ({"loss": "forward_kl", "args": {"with_rewards": False}}, (0.5 + 10 + 0.25) / 3),
        # in the advantages, so not in the loss
        ({"loss": "reverse_kl", "args": {"policy_gradient": True}}, POLICY),
    ],
)  # fmt: skip
def test_a_teacher_beside_rewards_by_hand(distillation: dict[str, Any], expected: float) -> None:
    loss = make_loss(loss_spec(config("rl", **distillation)))
    assert loss(tensors(), Totals(3, 2)).loss.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("top_k", "expected"), [(8, 0.5), (None, 0.5 - 0.25)])
def test_a_divergence_below_0_counts_as_0_over_the_likeliest_tokens(top_k: int | None, expected: float) -> None:
    loss = make_loss(loss_spec(config("rl", top_k=top_k, args={"with_rewards": False})))
    found = loss(tensors() | {"divergence": torch.tensor([0.5, 0.0, -0.25])}, Totals(3, 2))
    assert found.loss.item() == pytest.approx(expected / 3)


@pytest.mark.parametrize(
    ("with_rewards", "expected"), [(True, [0.0, 2 - 0.4 * 0.5, 2 + 0.4 * 0.75]), (False, [0.0, -0.2, 0.3])]
)
def test_a_teacher_in_the_advantages(with_rewards: bool, expected: list[float]) -> None:
    """Of k1: the first token is a prompt's; the teacher finds the second less likely, the third more."""
    columns = {
        "advantages": torch.tensor([0.0, 2.0, 2.0]),
        "old_log_probs": torch.tensor([0.0, -1.0, -1.0]),
        "teacher_log_probs": torch.tensor([0.0, -1.5, -0.25]),
    }
    sample = Sample(torch.tensor([1, 2, 3]), torch.tensor([False, True, True]), columns)
    teaching = taught("rl", loss="reverse_kl", args={"policy_gradient": True, "with_rewards": with_rewards})
    assert into_advantages(teaching, [sample]) == {"distillation/divergence": pytest.approx((0.5 - 0.75) / 2)}
    assert sample.columns["advantages"].tolist() == pytest.approx(expected)


def test_the_estimate_of_the_js_divergence_from_the_tokens_drawn() -> None:
    """p = 1/2 and q = 1/4 with a share of 1/2: m = 3/8."""
    log_probs, teacher = torch.tensor([0.25]).log(), torch.tensor([0.5]).log()
    middle = math.log(3 / 8)
    expected = 0.5 * (math.log(0.5) - middle) + 0.5 * (math.log(0.25) - middle)
    assert taught("rl", loss="js_divergence", args={"policy_gradient": True}).of_log_probs(
        log_probs, teacher
    ).item() == pytest.approx(expected)
    least = {"policy_gradient": True, "lambda_coef": 0.0, "temperature": 2.0}
    assert taught("rl", loss="js_divergence", args=least).of_log_probs(log_probs, teacher).item() == pytest.approx(
        -0.5 * math.log(2)
    )


REFUSED: Sequence[tuple[Config, type[Exception], str]] = [
    (config("dpo"), PlanError, "names a teacher"),
    (config(teacher=""), PlanError, "names no teacher"),
    (config(args={"with_rewards": True}), PlanError, "no argument with_rewards"),
    (config("rl", args={"kd_temprature": 2}), PlanError, "no argument kd_temprature"),
    (config("rl", args={"policy_gradient": True}), PlanError, "forward_kl covers many tokens"),
    (config("rl", loss="reverse_kl", args={"estimator": "k1"}), PlanError, "teaches nothing"),
    (config("rl", loss="reverse_kl", args={"estimator": "k9"}), ConfigError, "unknown estimator"),
    (config("rl", loss="js_divergence", args={"lambda_coef": 0.1}), PlanError, "lambda_coef is only for js_divergence"),
    (config(loss="hinge"), ConfigError, "hinge"),
]


@pytest.mark.parametrize(("wanted", "kind", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_is_not_computed_is_refused(wanted: Config, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make_loss(loss_spec(wanted))
