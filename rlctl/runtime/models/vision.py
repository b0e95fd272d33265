"""Models that read images: which they are, how they are loaded, and where the tokens and patches of a prompt go.

Such a model puts what its vision tower makes of the patches over the embeddings of its image tokens, one after the other: so
where sequences lie end to end the patches of their images do too. A token has three rotary positions (time, height, width):
those of text go on together, those of an image are its grid's, and what follows goes on from the largest.
Source: Wang et al. 2024, Qwen2-VL, arXiv:2409.12191.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig, PreTrainedModel

from rlctl.common.messages.reasons import said

if TYPE_CHECKING:
    from rlctl.runtime.types import Inputs

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
"""Values of ``model_type``: models whose images are patches with a grid, and whose tokens attend causally, images too."""

PIXELS, GRIDS = "pixel_values", "image_grid_thw"
INPUTS = (PIXELS, GRIDS)
"""What these models read of a prompt's images (``types.Inputs``)."""


def reads_images(config: PreTrainedConfig) -> bool:
    """Whether a model is one of ``FAMILIES``."""
    return config.model_type in FAMILIES


def auto_class(config: PreTrainedConfig) -> Any:
    """The class of Transformers that makes a model which generates."""
    return AutoModelForImageTextToText if reads_images(config) else AutoModelForCausalLM


def set_text_attention(model: PreTrainedModel, implementation: str) -> None:
    """Have the layers that read tokens attend with ``implementation``; a vision tower keeps its own, which is not causal."""
    if reads_images(model.config):
        towers = {"vision_config": model.config.vision_config._attn_implementation}
        model.set_attn_implementation({"": implementation, "text_config": implementation, **towers})
    else:
        model.set_attn_implementation(implementation)


def vision_tower(model: PreTrainedModel) -> Iterable[torch.nn.Module]:
    """The modules of a model that read patches."""
    return model.model.visual.modules() if reads_images(model.config) else ()


class Vision:
    """Places of tokens and patches, for one model that reads images."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model: Any = model.model
        self.image_token: int = model.config.image_token_id
        self.never_drawn: tuple[int, ...] = (model.config.image_token_id, model.config.video_token_id)
        """Tokens of a prompt only: in a response, nothing would be there to put over them."""
        self._merged: int = model.config.vision_config.spatial_merge_size
        patches = self._model.visual.patch_embed
        self._numbers: int = patches.in_channels * patches.temporal_patch_size * patches.patch_size**2

    def image_tokens(self, inputs: Inputs) -> int:
        """Image tokens of a prompt with these inputs."""
        return int(inputs[GRIDS].prod(-1).sum()) // self._merged**2 if inputs else 0

    def problem(self, token_ids: Sequence[int], inputs: Inputs) -> str:
        """What does not fit between the tokens of a prompt and its images; empty where all does."""
        expected, found = self.image_tokens(inputs), token_ids.count(self.image_token)
        if found == expected:
            return ""
        return said("{found} image tokens, but its images need {expected}", found=found, expected=expected)

    def positions(self, token_ids: Tensor, inputs: Inputs) -> Tensor:
        """Rotary positions of a sequence: int64 [3, T] for its tokens [T], a response's among them."""
        if not inputs:
            return torch.arange(len(token_ids)).expand(3, -1)
        types = (token_ids == self.image_token).int()[None]
        found: Tensor = self._model.get_rope_index(token_ids[None], types, image_grid_thw=inputs[GRIDS])[0]
        return found[:, 0]

    def blank(self) -> tuple[Tensor, Inputs]:
        """The smallest image there is, and a sequence of nothing else: tokens int64 [1], and inputs."""
        side = self._merged
        inputs = {PIXELS: torch.zeros(side**2, self._numbers), GRIDS: torch.tensor([[1, side, side]])}
        return torch.tensor([self.image_token]), inputs

    def fed(self, token_ids: Tensor, inputs: Inputs) -> Inputs:
        """The inputs of a sequence that is fed up to some token: none where it ends before its images."""
        return inputs if bool((token_ids == self.image_token).any()) else {}


def joined(parts: Sequence[Inputs]) -> dict[str, Tensor]:
    """The inputs of several sequences, in their order; not all of them have some."""
    having = [inputs for inputs in parts if inputs]
    return {name: torch.cat([inputs[name] for inputs in having]) for name in INPUTS} if having else {}
