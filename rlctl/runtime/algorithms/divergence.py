"""How far a student's distribution is from a teacher's at every counted token, out of the logits of both: [N, V] to [N].

Rows are walked through in chunks whose softmaxes are worked out again in the backward pass. ``p`` is the teacher, ``q`` the
student, at temperatures of their own; with ``top_k`` only the teacher's likeliest tokens are compared, after both are made
distributions over these (``renormalize``), or with the probabilities that they have among all tokens.

Source: forward and reverse KL, Hinton et al., arXiv:1503.02531, and MiniLLM, arXiv:2306.08543; skewed, DistiLLM,
arXiv:2402.03898; adaptive, arXiv:2404.02657; as in ROLL's various_divergence.py. Not renormalized: forward_kl_topk in verl.

To add one: see ``rlctl.runtime.algorithms``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlctl.common.errors import ConfigError
from rlctl.common.messages.reasons import said
from rlctl.runtime.algorithms.entropy import rows_at_once
from rlctl.runtime.algorithms.table import Algorithm, lookup

LEAST = 1e-9
"""Added to probabilities before their log in ``js_divergence``, as in ROLL."""


def forward_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p || q): the student covers what the teacher finds likely. [rows, K] to [rows]."""
    return _sum(log_p.exp() * (log_p - log_q), log_p, log_q)


def reverse_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(q || p): the student seeks a mode of the teacher."""
    return _sum(log_q.exp() * (log_q - log_p), log_p, log_q)


def adaptive_kl(log_p: Tensor, log_q: Tensor, *, adaptive_kl_alpha: float = 0.5) -> Tensor:
    """Return a forward and a reverse KL, weighed by where the two differ: in the teacher's head or in its tail.

    The tail are its least likely tokens, ``adaptive_kl_alpha`` of its mass at most. The weights are constants.
    """
    p, q = log_p.exp(), log_q.detach().exp()
    ordered, places = p.sort(-1)
    gap = (ordered - q.gather(-1, places)).abs()
    tail = (ordered.cumsum(-1) <= adaptive_kl_alpha).to(gap.dtype)
    head, rest = (gap * (1 - tail)).sum(-1), (gap * tail).sum(-1)
    share = head / (head + rest).clamp(min=torch.finfo(gap.dtype).tiny)
    return share * forward_kl(log_p, log_q) + (1 - share) * reverse_kl(log_p, log_q)


def skewed_forward_kl(log_p: Tensor, log_q: Tensor, *, skew_lambda: float = 0.1) -> Tensor:
    """Return KL(p || lambda p + (1 - lambda) q)."""
    mixed = (skew_lambda * log_p.exp() + (1 - skew_lambda) * log_q.exp()).log()
    return _sum(log_p.exp() * (log_p - mixed), log_p, log_q)


def skewed_reverse_kl(log_p: Tensor, log_q: Tensor, *, skew_lambda: float = 0.1) -> Tensor:
    """Return KL(q || (1 - lambda) p + lambda q)."""
    mixed = ((1 - skew_lambda) * log_p.exp() + skew_lambda * log_q.exp()).log()
    return _sum(log_q.exp() * (log_q - mixed), log_p, log_q)


def js_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return the mean of KL(p || m) and KL(q || m) with m halfway between the two."""
    p, q = log_p.exp(), log_q.exp()
    middle = ((p + q) / 2 + LEAST).log()
    apart = p * ((p + LEAST).log() - middle) + q * ((q + LEAST).log() - middle)
    return _sum(apart / 2, log_p, log_q)


DIVERGENCES: dict[str, Algorithm] = {
    "adaptive_kl": Algorithm(adaptive_kl),
    "forward_kl": Algorithm(forward_kl),
    "js_divergence": Algorithm(js_divergence),
    "reverse_kl": Algorithm(reverse_kl),
    "skewed_forward_kl": Algorithm(skewed_forward_kl),
    "skewed_reverse_kl": Algorithm(skewed_reverse_kl),
}


def divergence(
    name: str,
    student: Tensor,
    teacher: Tensor,
    *,
    top_k: int | None = None,
    temperature: float = 1.0,
    teacher_temperature: float = 1.0,
    renormalize: bool = True,
    least_log_prob: float | None = None,
    chunk: int | None = None,
    **options: float,
) -> Tensor:
    """Return the divergence called ``name`` at every row, [N], with a gradient to ``student`` [N, V].

    Args:
        name: of ``DIVERGENCES``.
        student: logits.
        teacher: logits [N, W]; those past V, which are padding, are left out.
        top_k: compare the teacher's so many likeliest tokens; None compares all.
        temperature: the student's.
        teacher_temperature: the teacher's.
        renormalize: make distributions of those compared.
        least_log_prob: log-probs below are raised to it, on both sides; None raises none.
        chunk: rows at a time.
        options: of the divergence.

    Raises:
        ConfigError: there is no such divergence or option, or the teacher has fewer tokens than the student.
    """
    rule = lookup(DIVERGENCES, name, "divergence")
    unknown = sorted(set(options) - set(rule.options))
    if unknown:
        raise ConfigError(said("the divergence {name} has no argument {unknown}", name=name, unknown=unknown[0]))
    if teacher.shape[-1] < student.shape[-1]:
        raise ConfigError(
            said(
                "the teacher has {shape} tokens and the student {shape2}",
                shape=teacher.shape[-1],
                shape2=student.shape[-1],
            ),
            hint="a teacher needs the student's tokenizer; choose one of the same family",
        )
    teacher = teacher[:, : student.shape[-1]]

    def of_rows(q: Tensor, p: Tensor) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        q, p = q.to(dtype) / temperature, p.to(dtype) / teacher_temperature
        if renormalize:
            p, q = _likeliest(p, q, top_k)
            log_p, log_q = p.log_softmax(-1), q.log_softmax(-1)
        else:
            log_p, log_q = _likeliest(p.log_softmax(-1), q.log_softmax(-1), top_k)
        if least_log_prob is not None:
            log_p, log_q = log_p.clamp(min=least_log_prob), log_q.clamp(min=least_log_prob)
        return rule.function(log_p, log_q, **options)

    rows = rows_at_once(student, chunk)
    parts = zip(student.split(rows), teacher.split(rows), strict=True)
    found = [checkpoint(of_rows, q, p, use_reentrant=False) for q, p in parts]
    return torch.cat(found) if found else student.new_zeros(0)


def drawn_js(log_probs: Tensor, teacher: Tensor, *, lambda_coef: float = 0.5, temperature: float = 1.0) -> Tensor:
    """Return b log(p / m) + (1 - b) log(q / m) of the tokens drawn, with m = b p + (1 - b) q and b = ``lambda_coef``, [N].

    With b = 0 that is log(q / p), with b = 1 log(p / q). Log-probs are divided by ``temperature`` before.

    Source: Trinity-RFT's jsd_advantage.py.

    Raises:
        ConfigError: b is not within 0 and 1, or the temperature not above 0.
    """
    if not 0 <= lambda_coef <= 1 or temperature <= 0:
        raise ConfigError(
            said(
                "the estimate jsd takes a lambda_coef within 0 and 1 and a temperature above 0, not {lambda_coef}, "
                "{temperature}",
                lambda_coef=lambda_coef,
                temperature=temperature,
            )
        )
    q, p = log_probs / temperature, teacher / temperature
    if lambda_coef in (0, 1):
        return q - p if lambda_coef == 0 else p - q
    middle = torch.logaddexp(q + math.log1p(-lambda_coef), p + math.log(lambda_coef))
    return lambda_coef * (p - middle) + (1 - lambda_coef) * (q - middle)


WHOLE_KL = "whole_kl"
"""What holds ``whole_kl`` of the policy to the reference: the tensor of an update, and the column of samples."""


def whole_kl(student: Tensor, reference: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return KL(student || reference) over the whole vocabulary, both at one temperature, [N]: what k1 to k3 estimate."""
    return divergence("reverse_kl", student, reference, temperature=temperature, teacher_temperature=temperature)


def _likeliest(p: Tensor, q: Tensor, top_k: int | None) -> tuple[Tensor, Tensor]:
    """Both at the places where the first is largest."""
    if top_k is None or top_k >= p.shape[-1]:
        return p, q
    found, places = p.topk(top_k, -1)
    return found, q.gather(-1, places)


def _sum(values: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
    """Over the tokens that both can draw."""
    return values.masked_fill(log_p.isinf() | log_q.isinf(), 0.0).sum(-1)
