"""The optimizer is the class that the config names, with the arguments that it takes."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from rlctl.common.errors import PlanError
from rlctl.config.sections.train import LrScheduler, Optimizer
from rlctl.runtime.train.losses import SftLoss
from rlctl.runtime.train.optimizer import arguments, make_optimizer, optimizer_class
from rlctl.runtime.train.preflight import check_section
from rlctl.runtime.train.schedule import curve_of, decay_of, set_rates
from tests.runtime.train import jobs
from tests.runtime.train.jobs import ALL_AT_ONCE, FLOAT64, make_samples, settings
from tests.runtime.train.processes import Workers

SECTION = {"lr": 0.1, "weight_decay": 0.2, "betas": (0.8, 0.9), "epsilon": 1e-6}
ADAM = {"lr": 0.1, "weight_decay": 0.2, "betas": (0.8, 0.9), "eps": 1e-6}


@pytest.mark.parametrize(
    ("chosen", "kind", "expected"),
    [
        ({}, torch.optim.AdamW, {**ADAM, "fused": True}),
        ({"type": "AdamW", "module": "torch.optim"}, torch.optim.AdamW, {**ADAM, "fused": True}),
        ({"type": "adam"}, torch.optim.Adam, {**ADAM, "fused": True}),
        ({"type": "sgd"}, torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.2}),
        (
            {"type": "sgd", "args": {"momentum": 0.9, "fused": False}},
            torch.optim.SGD,
            {"lr": 0.1, "weight_decay": 0.2, "fused": False, "momentum": 0.9},
        ),
        ({"type": "adagrad"}, torch.optim.Adagrad, {"lr": 0.1, "weight_decay": 0.2}),
        ({"args": {"amsgrad": True}}, torch.optim.AdamW, {**ADAM, "fused": True, "amsgrad": True}),
    ],
)
def test_a_class_gets_what_it_takes(chosen: dict[str, Any], kind: type, expected: dict[str, Any]) -> None:
    section = Optimizer(**SECTION | chosen)  # type: ignore[arg-type]
    assert optimizer_class(section) is kind
    assert arguments(section) == expected


def test_a_class_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of bitsandbytes or torchao: their names and arguments, and no ``fused``, which is PyTorch's."""

    class AdamW8bit(torch.optim.SGD):
        def __init__(
            self, parameters: Any, lr: float, betas: Any, eps: float, weight_decay: float, block: int = 1
        ) -> None:
            super().__init__(parameters, lr=lr)
            self.given = (lr, betas, eps, weight_decay, block)

    package = types.ModuleType("some_optimizers")
    package.AdamW8bit = AdamW8bit  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_optimizers", package)
    section = Optimizer(**SECTION, type="AdamW8bit", module="some_optimizers", args={"block": 64})  # type: ignore[arg-type]
    frozen, free = torch.nn.Parameter(torch.zeros(1), requires_grad=False), torch.nn.Parameter(torch.zeros(1))
    made = make_optimizer([frozen, free], section)
    assert made.given == (0.1, (0.8, 0.9), 1e-6, 0.2, 64)  # type: ignore[attr-defined]
    assert made.param_groups[0]["params"] == [free]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"module": "torchao.optim", "type": "AdamW8bit"}, r"torchao\.optim cannot be imported"),
        ({"type": "admw"}, "admw, which torch.optim does not have"),
        ({"type": "lbfgs"}, "lbfgs, which torch.optim does not have"),
        ({"type": "sgd", "args": {"fused": True}}, "SGD supports only for whole parameters"),
        ({"args": {"amsgard": True}}, "args has amsgard, which AdamW does not take"),
        ({"args": {"amsgrad": True, "lr": -1.0}}, "args has lr, which has its own key"),
        ({"args": {"betas": (2.0, 0.9)}}, "AdamW does not take its arguments: Invalid beta"),
    ],
)
def test_what_there_is_not_is_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_optimizer([torch.nn.Parameter(torch.zeros(1))], Optimizer(**chosen))


@pytest.mark.parametrize(
    ("name", "kind", "further"),
    [("adam", torch.optim.Adam, {}), ("sgd", torch.optim.SGD, {"momentum": 0.9, "nesterov": True})],
)
def test_steps_are_those_of_pytorch(
    two: Workers, models: dict[str, Path], name: str, kind: Any, further: dict[str, Any]
) -> None:
    """Two steps in float64, then two more from a checkpoint, whose state the optimizer takes up."""
    from transformers import AutoModelForCausalLM

    samples = make_samples(5)
    train = settings(FLOAT64, type=name, args=further, lr=1e-2, weight_decay=0.1)
    (weights, _), *_ = two.run(jobs.updates, models["gpt2"], train, samples, SftLoss(), ALL_AT_ONCE, 2)
    model = AutoModelForCausalLM.from_pretrained(models["gpt2"], dtype=torch.float64, attn_implementation="eager")
    optimizer = kind(model.parameters(), lr=1e-2, weight_decay=0.1, **further)
    tokens = sum(int(sample.mask.sum()) for sample in samples)
    for _ in range(2):
        optimizer.zero_grad()
        for sample in samples:
            log_p = model(sample.token_ids[None]).logits[0, :-1].log_softmax(-1)
            drawn = log_p.gather(-1, sample.token_ids[1:, None]).squeeze(-1)
            (-(drawn * sample.mask[1:]).sum() / tokens).backward()
        optimizer.step()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(weights[key], parameter.detach(), rtol=1e-6, atol=1e-5)


def test_a_checkpoint_holds_the_state_of_any_optimizer(two: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    own = {"type": "Momentum", "module": jobs.__name__, "args": {"keep": 0.9}}
    for index, chosen in enumerate(({"type": "sgd", "args": {"momentum": 0.9}}, own)):
        run = (models["qwen2"], settings(**chosen), make_samples(5), SftLoss(), tmp_path / str(index))
        straight, resumed = two.run(jobs.train_and_save, *run)[0], two.run(jobs.load_and_train, *run)[0]
        assert all(torch.equal(tensor, straight[0][name]) for name, tensor in resumed[0].items())
        assert resumed[1] == straight[1]


@pytest.mark.parametrize("fused", [True, False])
def test_norms_and_biases_are_left_where_they_are(fused: bool) -> None:
    """Without a gradient only weight decay moves a weight, and it pulls on matrices alone."""
    weights = [torch.nn.Parameter(torch.ones(shape)) for shape in ((2,), (2, 2), (2, 2, 2))]
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    settings = Optimizer(lr=0.1, weight_decay=0.2, decay_norms_and_biases=False, args={"fused": fused})
    optimizer = make_optimizer(weights, settings)
    curve = curve_of(LrScheduler(), peak=0.1, scheduler_steps=None)
    assert set_rates(optimizer.param_groups, curve, decay_of(settings, scheduler_steps=None), 0) == 0.1
    optimizer.step()
    assert [weight.flatten()[0].item() for weight in weights] == pytest.approx([1.0, 0.98, 0.98])


def test_weights_that_are_kept_in_float16_are_refused() -> None:
    precision = dataclasses.replace(FLOAT64, parameters="float16", compute="float16")
    with pytest.raises(PlanError, match=r"train\.precision\.parameters is float16.*round to 0"):
        check_section(settings(precision), scheduler_steps=1)
    check_section(settings(dataclasses.replace(precision, parameters="float32")), scheduler_steps=1)
