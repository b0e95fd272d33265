"""The same tensors through Trinity-RFT's own functions and through the loss and estimator that rlctl makes of Trinity's config."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlctl.common.errors import RlctlError
from rlctl.config import Config, config_from
from rlctl.documents import read_yaml
from rlctl.planning.support import refusals
from rlctl.runtime.algorithms.advantages import estimate
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.algorithms.distributions import STATISTICS, statistics_of_logits
from rlctl.runtime.algorithms.kl import estimate as estimate_kl
from rlctl.runtime.experience.selection import estimator_of
from rlctl.runtime.specs.trained import loss_spec, teaching_of
from rlctl.runtime.train.distillation import into_advantages
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.trainer import make_loss
from rlctl.translation.translate import read_document
from tests.upstream.frameworks import framework

pytestmark = pytest.mark.upstream

WIDTH = 7
LENGTHS = torch.tensor([7, 2, 5, 1, 6, 3, 4, 7])
GROUPS = [0, 0, 0, 1, 1, 1, 2, 2]
MASK = torch.arange(WIDTH) < LENGTHS[:, None]


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


LOG_PROBS = -randn(8, WIDTH, seed=4).abs()
OLD = LOG_PROBS + 0.4 * randn(8, WIDTH, seed=5)
ADVANTAGES = randn(8, 1, seed=6) * MASK


def trinity(of: str, **ask: Any) -> Any:
    plain = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in ask.items()}
    return framework("trinity-0.6.0", "drive_trinity_algorithms.py").ask(of=of, **plain)["value"]


def config_of(**algorithm: Any) -> Config:
    """A config of Trinity's with these settings of its section ``algorithm``, as rlctl reads it."""
    whole = {
        "mode": "both",
        "model": {"model_path": "/m"},
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 4, "kl_loss_fn": "none", **algorithm},
        "buffer": {"batch_size": 2, "total_steps": 1, "explorer_input": {"taskset": {"path": "/d"}}},
        "cluster": {"node_num": 1, "gpu_per_node": 2},
    }
    loaded, report = read_document(read_yaml(json.dumps(whole), "t.yaml"), dialect="trinity@0.6", environment={})
    assert loaded is not None, [finding.message for finding in report.errors]
    return loaded.config


# sapo is not here: Trinity stops its gradient at the gate, and rlctl says so of every config that goes there or comes from there.
LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("ppo", {"clip_range_low": 0.2, "clip_range_high": 0.28, "clip_ratio_c": 1.5}),
    ("ppo", {"clip_range": 0.1, "loss_agg_mode": "seq-mean-token-mean"}),
    ("ppo", {"clip_range": 0.1, "loss_agg_mode": "seq-mean-token-sum"}),
    ("opmd", {"loss_agg_mode": "seq-mean-token-mean"}),
    ("opmd", {"tau": 2.0}),
    ("gspo", {"clip_range_low": 0.1, "clip_range_high": 0.2}),
    ("topr", {}),
    ("cispo", {"clip_range_low": 0.3, "clip_range_high": 0.2}),
    ("sppo", {"epsilon": 0.2}),
    ("importance_sampling", {}),
    ("sft", {}),
    ("sft_is", {}),
    ("sft_phi", {"cutoff_prob": 0.6}),
    *(("rec", {"clip_mode": mode}) for mode in ("none", "two-side", "one-side", "gspo-one-side")),
    ("rec", {"clip_mode": "ring", "epsilon_low_prime": 0.3, "epsilon_high_prime": 0.5}),
    ("rec", {"weight": "importance_sampling", "regularizer": "k2", "regularizer_coef": 0.3}),
    ("rec", {"weight": "advantage", "temp": 2.0, "regularizer": "forward-kl", "regularizer_coef": 0.1}),
]


@pytest.mark.parametrize(("name", "args"), LOSSES, ids=[f"{name}-{index}" for index, (name, _) in enumerate(LOSSES)])
def test_policy_losses(name: str, args: dict[str, Any]) -> None:
    expected, gradient = trinity(
        "loss", name=name, args=args, log_probs=LOG_PROBS, old_log_probs=OLD, advantages=ADVANTAGES, mask=MASK.double()
    )
    log_probs = LOG_PROBS.clone().requires_grad_()
    tensors = {
        "log_probs": log_probs[MASK],
        "old_log_probs": OLD[MASK],
        "rollout_log_probs": OLD[MASK],
        "advantages": ADVANTAGES[MASK],
        "entropy": torch.zeros(int(MASK.sum()), dtype=torch.float64),
        "lengths": LENGTHS,
    }
    mode = (
        {"loss_agg_mode": args["loss_agg_mode"]} if "loss_agg_mode" in args else {}
    )  # Trinity puts it into the arguments
    config = config_of(policy_loss_fn=name, policy_loss_fn_args=args, entropy_loss_fn="none", **mode)
    loss = make_loss(loss_spec(config))(tensors, Totals.of(LENGTHS)).loss
    if name != "importance_sampling":  # there Trinity has the ratio where the log-prob is here: the same gradient
        assert loss.item() == pytest.approx(expected, rel=1e-7, abs=1e-9)
    found = torch.autograd.grad(loss, log_probs)[0]
    assert_close(found, torch.tensor(gradient, dtype=torch.float64), rtol=1e-7, atol=1e-9)


ESTIMATORS: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {}),
    ("reinforce", {}),
    ("opmd", {"opmd_baseline": "mean"}),
    ("opmd", {"opmd_baseline": "logavgexp", "tau": 0.7}),
    ("asymre", {"baseline_shift": -0.2}),
    ("rec", {"std_normalize": True}),
    ("rec", {}),
]


@pytest.mark.parametrize(
    ("name", "args"), ESTIMATORS, ids=[f"{name}-{index}" for index, (name, _) in enumerate(ESTIMATORS)]
)
def test_advantages(name: str, args: dict[str, Any]) -> None:
    """Of groups of three and two: one number a response. Trinity computes in float32."""
    rewards = randn(8, seed=1)
    expected = trinity("advantage", name=name, args=args, rewards=rewards, groups=GROUPS)
    kind, options = estimator_of(config_of(advantage_fn=name, advantage_fn_args=args).algorithm)
    found = estimate(kind, rewards, torch.ones_like(LENGTHS), groups=torch.tensor(GROUPS), **options).tokens
    assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("grpo_verl", {}),
        ("opmd_verl", {"opmd_baseline": "logavgexp", "tau": 0.7}),
        ("asymre_verl", {"baseline_shift": -0.2}),
    ],
)
def test_advantages_that_trinity_computes_in_the_trainer(name: str, args: dict[str, Any]) -> None:
    rewards, penalties = randn(8, seed=1), 0.1 * randn(8, WIDTH, seed=2) * MASK
    at_tokens = -penalties
    at_tokens[torch.arange(8), LENGTHS - 1] += rewards
    ask = {"at_tokens": at_tokens, "groups": GROUPS, "mask": MASK.double()}
    expected = trinity("token_advantage", name=name, args=args, old_log_probs=OLD, teacher=OLD, **ask)
    kind, options = estimator_of(config_of(advantage_fn=name, advantage_fn_args=args).algorithm)
    found = estimate(
        kind, rewards, LENGTHS, groups=torch.tensor(GROUPS), token_penalties=penalties[MASK], **options
    ).tokens
    assert_close(found, torch.tensor(expected, dtype=torch.float64)[MASK], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("clipb", {}),
        ("clipb", {"mu": 0.5}),
        ("clipb", {"mu": 0.0, "epsilon": 0.1}),
        ("clipv", {}),
        ("clipv", {"mu": 0.3, "max_frac": 1.0}),
        ("clipv", {"mu": 0.3, "max_frac": 0.1}),
        ("clipv", {"mu": 0.3, "max_frac": 1e-4}),
        ("clipv", {"mu": -1.0, "max_frac": 0.2}),
    ],
)
def test_tokens_that_are_left_out(name: str, args: dict[str, Any]) -> None:
    """Of logits, from which the pass before the advantages has entropies and the expected signal; one group is all alike.

    The expected signal is written out as the example's ``compute_N_from_logits`` is.
    """
    logits, drawn = 2 * randn(8, WIDTH, 11, seed=15), torch.arange(8 * WIDTH).view(8, WIDTH) % 11
    rewards = randn(8, seed=1)
    rewards[3:6] = 1.0
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    old, entropy = log_p.gather(-1, drawn[..., None]).squeeze(-1), -(p * log_p).sum(-1)
    rollout = old + 0.1 * randn(8, WIDTH, seed=17)
    at_tokens = torch.zeros(8, WIDTH, dtype=torch.float64)
    at_tokens[torch.arange(8), LENGTHS - 1] += rewards
    ask = {"old_log_probs": old, "rollout_log_probs": rollout, "entropys": entropy}
    ask["necs"] = entropy * (p * p).sum(-1) + (p * p * log_p).sum(-1)
    told = trinity("sifted", name=name, args=args, at_tokens=at_tokens, groups=GROUPS, mask=MASK.double(), **ask)
    expected, mask = (torch.tensor(each, dtype=torch.float64)[MASK] for each in told)
    kind, options = estimator_of(config_of(advantage_fn=name, advantage_fn_args=args or None).algorithm)
    names = ("log_probs", *STATISTICS)
    measured = dict(zip(names, statistics_of_logits(logits[MASK], drawn[MASK], names), strict=True))
    columns = {f"old_{of}": values for of, values in measured.items()} | {"rollout_log_probs": rollout[MASK]}
    found = estimate(kind, rewards, LENGTHS, groups=torch.tensor(GROUPS), columns=columns, **options)
    assert found.kept is not None
    assert_close(found.tokens, expected, rtol=2e-6, atol=2e-6)
    assert found.kept.tolist() == (mask > 0).tolist()
    assert not args or 0 < int(found.kept.sum()) < len(found.kept)


@pytest.mark.parametrize(
    ("name", "args", "loss", "ours"),
    [
        ("on_policy_distill", {"kl_coef": 0.3}, "reverse_kl", {}),
        ("jsd", {"kl_coef": 0.3}, "js_divergence", {}),
        ("jsd", {"kl_coef": 0.3, "lambda_coef": 0.2, "temperature": 2.0}, "js_divergence", {"lambda_coef": 0.2, "temperature": 2}),
        ("jsd", {"kl_coef": 0.3, "lambda_coef": 0}, "js_divergence", {"lambda_coef": 0}),
        ("jsd", {"kl_coef": 0.3, "lambda_coef": 1}, "js_divergence", {"lambda_coef": 1}),
    ],
)  # fmt: skip
def test_a_teacher_in_the_advantages(name: str, args: dict[str, Any], loss: str, ours: dict[str, Any]) -> None:
    """What the refusal of the kind says to set computes the same."""
    teacher = OLD + 0.5 * randn(8, WIDTH, seed=10)
    ask = {"old_log_probs": OLD, "teacher": teacher, "mask": MASK.double(), "at_tokens": OLD, "groups": GROUPS}
    expected = torch.tensor(trinity("token_advantage", name=name, args=args, **ask), dtype=torch.float64)
    section = {"teacher": "t", "loss": loss, "coefficient": 0.3}
    taught = {**section, "args": {"policy_gradient": True, "with_rewards": False, **ours}}
    teaching = teaching_of(config_from({"algorithm": {"distillation": taught}}))
    assert teaching is not None
    samples = [
        Sample(
            torch.zeros(WIDTH, dtype=torch.int64),
            MASK[row],
            {"old_log_probs": OLD[row].float(), "teacher_log_probs": teacher[row].float()},
        )
        for row in range(8)
    ]
    into_advantages(teaching, samples)
    found = torch.stack([sample.columns["advantages"] for sample in samples])
    assert_close(found, expected.float(), rtol=1e-5, atol=1e-6)
    assert loss in problem_with(config_of(advantage_fn=name))


@pytest.mark.parametrize("name", ["k1", "k2", "k3", "low_var_kl", "abs", "corrected_k3"])
def test_kl(name: str) -> None:
    reference = LOG_PROBS + 0.5 * randn(8, WIDTH, seed=9)
    expected, gradient = trinity("kl", name=name, log_probs=LOG_PROBS, reference=reference, old_log_probs=OLD)
    kl = config_of(kl_loss_fn=name, kl_loss_fn_args={"kl_coef": 0.1}).algorithm.kl_in_loss
    assert kl is not None
    log_probs = LOG_PROBS.clone().requires_grad_()
    found = estimate_kl(kl.estimator, log_probs, reference, OLD)
    assert_close(found, torch.tensor(expected, dtype=torch.float64))
    gradients = torch.autograd.grad(found.sum(), log_probs)[0]
    assert_close(gradients, torch.tensor(gradient, dtype=torch.float64))


NOT_COMPUTED = {
    "losses": {"dpo", "mix", "mix_chord"},
    "advantages": {"jsd", "on_policy_distill"},
    "kl": set(),
    "entropy": set(),
    "strategies": set(),
}
"""Names that a run of ``algorithm_type: grpo`` refuses; dpo and mixtures are objectives of their own types."""
SET_BY = {
    "losses": "policy_loss_fn",
    "advantages": "advantage_fn",
    "kl": "kl_loss_fn",
    "entropy": "entropy_loss_fn",
    "strategies": "sample_strategy",
}


@pytest.mark.parametrize("kind", SET_BY)
def test_every_name_that_trinity_registers_is_computed_or_refused(kind: str) -> None:
    found = {name: problem_with(config_of(**{SET_BY[kind]: name})) for name in trinity("registered")[kind]}
    print(f"{kind}: {', '.join(f'{name} ({told})' if told else name for name, told in found.items())}")
    assert {name for name, told in found.items() if told} == NOT_COMPUTED[kind]


def problem_with(config: Config) -> str:
    """Why a run is refused; empty where it is not."""
    told = [refusal.reason for refusal in refusals(config) if refusal.key[0] == "algorithm"]
    if told:
        return told[0]
    try:
        estimator_of(config.algorithm)
        make_loss(loss_spec(config))
    except RlctlError as error:
        return str(error)
    return ""
