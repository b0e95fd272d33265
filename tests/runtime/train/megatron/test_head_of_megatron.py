"""A vocabulary that two workers share gives the numbers and gradients of one that is whole."""

from __future__ import annotations

import torch

from rlctl.runtime.algorithms.distributions import LOG_PROBS, STATISTICS, statistics_of_logits
from rlctl.runtime.algorithms.entropy import log_probs_and_entropy
from tests.runtime.train.megatron import engine_jobs
from tests.runtime.train.processes import Workers

VOCABULARY = 37  # an odd number: one row of a part fills it up
TEMPERATURE = 0.7


def test_numbers_and_gradients_are_those_of_a_whole_vocabulary(two: Workers) -> None:
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(11, 8, generator=generator, dtype=torch.float64)
    weight = torch.randn(VOCABULARY, 8, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, VOCABULARY, (11,), generator=generator)
    grads = torch.randn(2, 11, generator=generator, dtype=torch.float64).unbind()
    whole, head = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    expected = log_probs_and_entropy(whole @ head.T, targets, temperature=TEMPERATURE)
    torch.autograd.backward(expected, grads)
    told = two.run(engine_jobs.shared_head, hidden, weight, targets, grads, TEMPERATURE, 3)
    for log_probs, entropy, grad_hidden, _ in told:
        torch.testing.assert_close(log_probs, expected[0].detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(entropy, expected[1].detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(grad_hidden, whole.grad, rtol=1e-9, atol=1e-9)
    parts = torch.cat([part for *_, part in told])
    torch.testing.assert_close(parts[:VOCABULARY], head.grad, rtol=1e-9, atol=1e-9)
    assert not parts[VOCABULARY:].any()


def test_statistics_are_those_of_a_whole_vocabulary(two: Workers) -> None:
    """Also where one part has nearly all of the probability, and where it has none of the tokens that there are."""
    generator = torch.Generator().manual_seed(6)
    hidden = torch.randn(7, 8, generator=generator, dtype=torch.float64)
    weight = torch.randn(VOCABULARY, 8, generator=generator, dtype=torch.float64)
    weight[:5] *= 20
    for head in (weight, weight[:1]):
        targets = torch.randint(0, len(head), (7,), generator=generator)
        expected = statistics_of_logits(hidden @ head.T, targets, (LOG_PROBS, *STATISTICS), temperature=TEMPERATURE)
        for told in two.run(engine_jobs.shared_statistics, hidden, head, targets, TEMPERATURE, 3):
            torch.testing.assert_close(told, expected, rtol=1e-9, atol=1e-9)
