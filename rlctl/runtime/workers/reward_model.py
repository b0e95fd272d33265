"""The reward-model worker: sequence classifiers, whole on this worker's device, that score conversations.

    chat + response ──own chat template──▶ text ──own tokenizer──▶ tokens ──classifier──▶ logit of the last label

The classifier is Transformers' ``AutoModelForSequenceClassification``, which reads its number at the last token that is no
padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.model import Model
from rlctl.config.sections.rewards import ModelReward
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.messages import Messages
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.models.config import import_modules
from rlctl.runtime.pickles import reason_of
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.outcome import as_outcome, failure_of


class RewardModels:
    """Holds the reward models of a config and scores with them."""

    def __init__(
        self,
        rewards: Mapping[int, ModelReward],
        dtype: str,
        device: str,
        threads: int | None = None,
        policy: Model | None = None,
    ) -> None:
        """Load them.

        Args:
            rewards: by their position in the config.
            dtype: of the weights, as ``train.precision.compute``.
            device: ``cpu`` or ``cuda``.
            threads: cores to compute with, on CPU.
            policy: ``model`` of the config, whose ``import_modules`` may register architectures of reward models too.

        Raises:
            RunError: a model or tokenizer cannot be loaded, or a module cannot be imported.
        """
        if policy is not None:
            import_modules(policy)
        if threads:
            torch.set_num_threads(threads)
        kind = getattr(torch, dtype)
        self._models = {i: Classifier(reward, dtype=kind, device=device) for i, reward in rewards.items()}

    def score(self, calls: Mapping[int, Sequence[Call]]) -> dict[int, list[Outcome | Failure]]:
        """The outcomes of each model's calls, in order."""
        return {i: self._models[i].score(found) for i, found in calls.items()}


@dataclass(frozen=True, slots=True)
class _Encoded:
    place: int
    ids: list[int]


class Classifier:
    """One sequence classifier with its tokenizer."""

    def __init__(self, reward: ModelReward, *, dtype: torch.dtype, device: str) -> None:
        self._reward = reward
        self._device = torch.device(device)
        named = Model(path=reward.path, tokenizer=reward.tokenizer, chat_template=reward.chat_template)
        self.tokenizer = load_tokenizer(named, trust_remote_code=reward.trust_remote_code)
        self._chat = Chat(self.tokenizer)
        self.model = _load(reward, dtype).to(self._device)
        self._padding: int | None = self.model.config.pad_token_id
        self._longest: int | None = reward.max_tokens or getattr(self.model.config, "max_position_embeddings", None)

    def score(self, calls: Sequence[Call]) -> list[Outcome | Failure]:
        """Score conversations, longest first, so that a micro-batch pads little; in order."""
        results: list[Outcome | Failure | None] = [None] * len(calls)
        encoded: list[_Encoded] = []
        for place, call in enumerate(calls):
            try:
                encoded.append(_Encoded(place, self.encode(call)))
            except (RunError, ValueError, TypeError) as error:
                results[place] = failure_of(error)
        encoded.sort(key=lambda one: -len(one.ids))
        size = self._reward.micro_batch_size
        for start in range(0, len(encoded), size):
            batch = encoded[start : start + size]
            for one, value in zip(batch, self._logits([one.ids for one in batch]), strict=True):
                results[one.place] = _outcome(value)
        return [result for result in results if result is not None]

    def encode(self, call: Call) -> list[int]:
        """The tokens of a conversation, cut on the right at the longest input.

        A chat goes through the model's own template. A raw prompt has no turns: the response is put behind it.

        Raises:
            RunError: the model has no chat template, or its template refuses the messages.
        """
        if call.messages:
            chat: Messages = [
                *(dict(message) for message in call.messages),
                {"role": "assistant", "content": call.response},
            ]
            ids = self._chat.encode([self._rendered(chat)])[0]
        else:
            ids = self._chat.encode([call.prompt + call.response], special=True)[0]
        return ids[: self._longest]

    def _rendered(self, chat: Messages) -> str:
        if not self.tokenizer.chat_template:
            raise RunError(
                said("the tokenizer of the reward model {path} has no chat template", path=self._reward.path),
                hint=said("set the chat_template of the reward {name!r}", name=self._reward.name),
            )
        return self._chat.render(chat, generate=False)

    @torch.no_grad()
    def _logits(self, rows: Sequence[Sequence[int]]) -> list[float]:
        width, pad = max(map(len, rows)), self._pad(rows)
        ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], device=self._device)
        lengths = torch.tensor([len(row) for row in rows], device=self._device)
        mask = (torch.arange(width, device=self._device) < lengths[:, None]).long()
        logits = self.model(input_ids=ids, attention_mask=mask).logits
        found: list[float] = logits[:, -1].float().tolist()
        return found

    def _pad(self, rows: Sequence[Sequence[int]]) -> int:
        """The model's padding; where it has none, a token that no row holds: by its padding a model finds each row's end."""
        if self._padding is not None:
            return self._padding
        used = {token for row in rows for token in row}
        self.model.config.pad_token_id = next(token for token in range(len(used) + 1) if token not in used)
        return self.model.config.pad_token_id


def _outcome(value: float) -> Outcome | Failure:
    try:
        return as_outcome(value)
    except ValueError as error:
        return Failure(str(error))


def _load(reward: ModelReward, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForSequenceClassification

    try:
        model, found = AutoModelForSequenceClassification.from_pretrained(
            reward.path, dtype=dtype, trust_remote_code=reward.trust_remote_code, output_loading_info=True
        )
    except (OSError, ValueError, ImportError, KeyError, SafetensorError, UnpicklingError) as error:
        raise RunError(
            said(
                "the reward model {path} could not be loaded: {reason_of}", path=reward.path, reason_of=reason_of(error)
            ),
            hint=said("set the path of the reward {name!r} to a sequence classifier", name=reward.name),
        ) from error
    if found["missing_keys"]:
        raise RunError(
            said(
                "{path} is not a sequence classifier: it has no weights for {names}",
                path=reward.path,
                names=", ".join(sorted(found["missing_keys"])),
            ),
            hint=said("set the path of the reward {name!r} to a model with a trained head", name=reward.name),
        )
    return model.eval().requires_grad_(False)
