"""A group as plain data that JSON holds, and back: what files, databases and checkpoints keep of it.

    {"prompt": {"index": 17, "source": "arithmetic", ...}, "responses": [{"token_ids": [...], ...}], "rewards": [1.0], ...}

Numbers come back as they were, bit for bit. Of what a prompt brings along (``answer``, ``extra``), values that JSON has no
word for, such as dates, come back as text.
"""

from __future__ import annotations

import dataclasses
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.types import Numbers, Prompt, Response, Turn


def plain_of(group: RolloutGroup) -> dict[str, Any]:
    """A group as plain data."""
    found = _fields_of(group)
    found["prompt"] = _fields_of(group.prompt) | {"inputs": _written(group.prompt.inputs)}
    found["responses"] = [_plain_response(response) for response in group.responses]
    found["rewards"] = list(group.rewards)
    found["scores"] = [_fields_of(score) for score in group.scores]
    found["greedy"] = None if group.greedy is None else [_plain_response(group.greedy[0]), _fields_of(group.greedy[1])]
    return found


def group_of(plain: Mapping[str, Any]) -> RolloutGroup:
    """The group that ``plain_of`` wrote down.

    Raises:
        RunError: it is none.
    """
    try:
        greedy = plain.get("greedy")
        own = {
            "prompt": _made(Prompt, {**plain["prompt"], "inputs": _read(plain["prompt"].get("inputs", {}))}),
            "responses": [_response(each) for each in plain["responses"]],
            "scores": [_made(Score, each) for each in plain.get("scores", ())],
            "greedy": None if greedy is None else (_response(greedy[0]), _made(Score, greedy[1])),
        }
        group: RolloutGroup = _made(RolloutGroup, {**plain, **own})
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(
            said("a group of responses cannot be read: {kind}: {error}", kind=type(error).__name__, error=error),
            hint="expected what rlctl writes: prompt, responses with token_ids, log_probs, finish_reason and "
            "weight_version, and rewards",
        ) from error
    return group


def text_of(group: RolloutGroup) -> str:
    """A group as one line of JSON."""
    return json.dumps(plain_of(group), ensure_ascii=False, default=str, separators=(",", ":"))


def _plain_response(response: Response) -> dict[str, Any]:
    turns = [_fields_of(turn) for turn in response.turns]
    experts = {} if response.routed_experts is None else _written({"": response.routed_experts})
    return _fields_of(response) | {"turns": turns, "routed_experts": experts}


def _response(plain: Mapping[str, Any]) -> Response:
    experts = _read(plain.get("routed_experts") or {}).get("")
    turns = [_made(Turn, turn) for turn in plain.get("turns", ())]
    found: Response = _made(Response, {**plain, "turns": turns, "routed_experts": experts})
    return found


def _fields_of(record: Any) -> dict[str, Any]:
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: list(value) if isinstance(value, Numbers) else value for name, value in values.items()}


def _made(kind: Any, plain: Mapping[str, Any]) -> Any:
    """A record of its fields; fields of another release that this one does not know are left out."""
    tuples, names = _names(kind)
    values = {name: plain[name] for name in names if name in plain}
    return kind(**{n: tuple(v) if n in tuples and isinstance(v, list) else v for n, v in values.items()})


@cache
def _names(kind: Any) -> tuple[frozenset[str], tuple[str, ...]]:
    """Which fields of a record are tuples, and all of them."""
    fields = dataclasses.fields(kind)
    tuples = frozenset(field.name for field in fields if str(field.type).startswith("tuple["))
    return tuples, tuple(field.name for field in fields)


def _written(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Tensors as text: type, shape, and the bytes in base 64."""
    return {
        name: [str(each.dtype).removeprefix("torch."), list(each.shape), b64encode(_bytes_of(each)).decode()]
        for name, each in tensors.items()
    }


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _read(written: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {
        name: torch.frombuffer(bytearray(b64decode(data)), dtype=getattr(torch, kind)).reshape(shape)
        if data
        else torch.empty(shape, dtype=getattr(torch, kind))
        for name, (kind, shape, data) in written.items()
    }
