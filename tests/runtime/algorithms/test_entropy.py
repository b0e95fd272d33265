"""Log-probs and entropies are torch's own, in value and gradient, whatever the chunk, and cost less memory."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from rlctl.runtime.algorithms import entropy as module
from rlctl.runtime.algorithms.entropy import log_probs, log_probs_and_entropy, log_probs_of_hidden


def naive(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    log_p = torch.log_softmax(logits / temperature, -1)
    return log_p.gather(-1, targets[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def random_logits(rows: int, vocabulary: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = 4 * torch.randn(rows, vocabulary, dtype=torch.float64, generator=generator)
    return logits.to(dtype).requires_grad_(), torch.randint(0, vocabulary, (rows,), generator=generator)


def test_by_hand() -> None:
    # p = 1/2, 1/4, 1/4: entropy = ln 2 / 2 + 2 * ln 4 / 4 = 1.5 ln 2
    logits = torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64).log()
    selected, entropy = log_probs_and_entropy(logits, torch.tensor([2]))
    assert float(selected) == pytest.approx(math.log(0.25))
    assert float(entropy) == pytest.approx(1.5 * math.log(2))


@pytest.mark.parametrize("chunk", [None, 1, 4, 7, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_are_those_of_log_softmax(chunk: int | None, temperature: float) -> None:
    logits, targets = random_logits(7, 13)
    weights = torch.randn(2, 7, dtype=torch.float64)
    ours = torch.stack(log_probs_and_entropy(logits, targets, temperature=temperature, chunk=chunk))
    expected = torch.stack(naive(logits, targets, temperature))
    assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    gradient, expected_gradient = (torch.autograd.grad((weights * x).sum(), logits)[0] for x in (ours, expected))
    assert_close(gradient, expected_gradient, rtol=1e-12, atol=1e-12)


def test_log_probs_alone_are_the_same_in_value_and_gradient() -> None:
    logits, targets = random_logits(7, 13)
    alone, (together, _) = log_probs(logits, targets), log_probs_and_entropy(logits, targets)
    assert torch.equal(alone, together)
    gradients = [torch.autograd.grad(x.sum(), logits)[0] for x in (alone, together)]
    assert_close(*gradients, rtol=0.0, atol=1e-15)


def test_gradient_against_finite_differences() -> None:
    logits, targets = random_logits(3, 5)
    assert torch.autograd.gradcheck(lambda x: log_probs_and_entropy(x, targets, temperature=0.9, chunk=2), (logits,))


def test_low_precision_logits_are_worked_on_in_float32_when_asked() -> None:
    logits, targets = random_logits(16, 64, torch.bfloat16)
    ours = log_probs_and_entropy(logits, targets)
    for result, expected in zip(ours, naive(logits.float(), targets, 1.0), strict=True):
        assert_close(result, expected)
    assert torch.autograd.grad(sum(ours).sum(), logits)[0].dtype == torch.bfloat16  # type: ignore[union-attr]
    assert log_probs(logits, targets, upcast=False).dtype == torch.bfloat16


def test_a_token_that_cannot_be_drawn_adds_nothing() -> None:
    allowed, targets = random_logits(3, 5)
    barred = torch.full((3, 2), -math.inf, dtype=torch.float64)
    logits = torch.cat((allowed.detach(), barred), -1).requires_grad_()
    ours, expected = (torch.stack(log_probs_and_entropy(x, targets)) for x in (logits, allowed))
    assert_close(ours, expected)
    gradient, expected_gradient = (torch.autograd.grad(r.sum(), x)[0] for r, x in ((ours, logits), (expected, allowed)))
    assert_close(gradient[:, :5], expected_gradient)
    assert (gradient[:, 5:] == 0).all()


def test_large_logits_lose_nothing() -> None:
    logits, targets = random_logits(4, 9, torch.float32)
    shifted = logits.detach() + 2.0**13  # exact in float32 up to 2^-10 per logit
    rounded = shifted - 2.0**13
    for result, expected in zip(log_probs_and_entropy(shifted, targets), naive(rounded, targets, 1.0), strict=True):
        assert_close(result, expected, rtol=0.0, atol=2e-3)


def test_autograd_keeps_the_logits_and_a_few_numbers_a_row() -> None:
    logits, targets = random_logits(64, 512, torch.float32)
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        log_probs_and_entropy(logits, targets, chunk=8)
    assert kept.pop(logits.data_ptr()) == 64 * 512
    assert sum(kept.values()) == 3 * 64  # targets, normalizers, entropies


def test_no_rows_no_numbers() -> None:
    selected, entropy = log_probs_and_entropy(torch.empty(0, 5), torch.empty(0, dtype=torch.int64))
    assert selected.shape == entropy.shape == (0,)


def hidden_and_head(dtype: torch.dtype = torch.float64) -> tuple[list[Tensor], Tensor]:
    """Hidden states [19, 6], a head [40, 6], its bias [40], all with gradient, and targets [19]."""
    generator = torch.Generator().manual_seed(5)
    shapes = ((19, 6), (40, 6), (40,))
    parts = [
        torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_() for shape in shapes
    ]
    return parts, torch.randint(0, 40, (19,), generator=generator)


@pytest.mark.parametrize("chunk", [None, 1, 4, 19])
@pytest.mark.parametrize("with_bias", [False, True])
def test_out_of_hidden_states_they_are_those_of_whole_logits(chunk: int | None, with_bias: bool) -> None:
    (hidden, head, bias), targets = hidden_and_head()
    used = (hidden, head, bias) if with_bias else (hidden, head)
    logits = torch.nn.functional.linear(hidden, head, bias if with_bias else None)
    expected = torch.stack(log_probs_and_entropy(logits, targets, temperature=0.7))
    ours = torch.stack(
        log_probs_of_hidden(hidden, head, bias if with_bias else None, targets, temperature=0.7, chunk=chunk)
    )
    assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn(2, 19, dtype=torch.float64)
    found, wanted = (torch.autograd.grad((weights * x).sum(), used) for x in (ours, expected))
    for mine, theirs in zip(found, wanted, strict=True):
        assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_a_head_that_is_not_trained_gets_no_gradient() -> None:
    (hidden, head, _), targets = hidden_and_head()
    head.requires_grad_(False)
    log_p, entropy = log_probs_of_hidden(hidden, head, None, targets, with_entropy=False, chunk=4)
    log_p.sum().backward()  # type: ignore[no-untyped-call]
    assert head.grad is None
    assert hidden.grad is not None
    assert not entropy.any()


def test_the_gradient_of_a_head_in_bfloat16_is_added_up_in_float32() -> None:
    (hidden, head, _), targets = hidden_and_head(torch.bfloat16)
    grads = [
        torch.autograd.grad(log_probs_of_hidden(hidden, head, None, targets, chunk=chunk)[0].sum(), head)[0]
        for chunk in (1, 19)
    ]
    assert_close(grads[0], grads[1], rtol=2e-2, atol=2e-2)
    assert grads[0].dtype == torch.bfloat16


def test_whole_logits_never_are() -> None:
    """The largest tensor that is made has the size of a chunk, forward and backward."""
    sizes: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            made = function(*args, **(kwargs or {}))
            if isinstance(made, Tensor):
                sizes.append(made.numel())
            return made

    hidden = torch.randn(300, 4, requires_grad=True)
    head = torch.randn(100, 4)
    with Sizes():
        log_probs_of_hidden(hidden, head, None, torch.zeros(300, dtype=torch.int64), chunk=10)[0].sum().backward()
    assert 10 * 100 in sizes
    assert max(sizes) <= 300 * 4


@pytest.mark.soak
def test_compiled_they_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, targets = random_logits(40, 64, torch.float32)
    plain = torch.stack(log_probs_and_entropy(logits, targets, chunk=16))
    [gradient] = torch.autograd.grad(plain.sum(), logits)
    for name in ("_read", "_slope"):
        monkeypatch.setattr(module, name, getattr(module, name))  # compile_rows is for the whole process
    module.compile_rows()
    assert module._read is not module._read_rows
    compiled = torch.stack(log_probs_and_entropy(logits, targets, chunk=16))
    assert_close(compiled, plain, rtol=1e-5, atol=1e-6)
    assert_close(torch.autograd.grad(compiled.sum(), logits)[0], gradient, rtol=1e-4, atol=1e-6)


def test_entropy_that_no_loss_reads_costs_no_gradient_and_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    hidden, head = torch.randn(12, 8), torch.randn(32, 8)
    targets = torch.randint(32, (12,))
    read: list[bool] = []
    slope = module._slope_rows

    def noted(*args: Tensor | None) -> Tensor:
        read.append(args[4] is not None)
        return slope(*args)  # type: ignore[arg-type]

    def gradients(coefficient: float | None) -> list[Tensor]:
        inputs = [hidden.clone().requires_grad_(), head.clone().requires_grad_()]
        for drawn, entropies in (
            log_probs_and_entropy(inputs[0] @ inputs[1].T, targets, chunk=5),
            log_probs_of_hidden(inputs[0], inputs[1], None, targets, chunk=5),
        ):
            loss = drawn.sum() if coefficient is None else drawn.sum() + coefficient * entropies.sum()
            loss.backward()
        return [each.grad for each in inputs if each.grad is not None]

    monkeypatch.setattr(module, "_slope", noted)
    without = gradients(None)
    assert read == [False] * 6
    for mine, theirs in zip(without, gradients(0.0), strict=True):
        assert torch.equal(mine, theirs)
    assert read == [False] * 6 + [True] * 6


class Products(TorchDispatchMode):
    """Rows of hidden states of each product with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.mm.default:
            self.rows.append(args[0].shape[0])
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("trained", [True, False])
def test_on_a_gpu_a_head_gets_its_gradient_from_many_rows_at_a_time(trained: bool) -> None:
    """Each time the whole gradient is read and written; nothing is, if the head is frozen, and fewer rows need less memory."""
    hidden = torch.empty(16_384, 32, dtype=torch.bfloat16, device="meta", requires_grad=True)
    head = torch.empty(151_936, 32, dtype=torch.bfloat16, device="meta", requires_grad=trained)
    with Products() as forward:
        drawn, _ = log_probs_of_hidden(hidden, head, None, torch.empty(16_384, dtype=torch.int64, device="meta"))
    assert set(forward.rows[:-1]) == {384}
    with Products() as backward:
        drawn.sum().backward()  # type: ignore[no-untyped-call]
    logits = [rows for rows in backward.rows if rows != len(head)]
    assert backward.rows.count(len(head)) == (8 if trained else 0)
    assert max(logits) == (2176 if trained else 384)
    assert sum(logits) == 2 * 16_384  # the logits again, and the gradient of the hidden states


@pytest.mark.parametrize(("gib", "rows"), [(141, 2176), (80, 2176), (24, 640), (0.1, 16)])
def test_rows_at_a_time_depend_on_the_memory_of_the_gpu(monkeypatch: pytest.MonkeyPatch, gib: float, rows: int) -> None:
    properties = SimpleNamespace(total_memory=int(gib * 2**30))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)

    class OnGpu(list[int]):
        device = torch.device("cuda")

    assert module.rows_of_gradient(OnGpu(range(151_936))) == rows  # type: ignore[arg-type]
