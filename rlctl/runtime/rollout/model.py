"""A Transformers causal model as the built-in engine calls it: loading it, and its two forwards, prompts and rows.

The model's own classes compute everything; this module only chooses the attention implementation, the masks and the cache.
"""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, get_layer_types_and_kwargs

from rlctl.common.errors import MissingDependency, RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.models.config import files_are_told
from rlctl.runtime.models.routers import Routers
from rlctl.runtime.models.vision import Vision, auto_class, reads_images, set_text_attention
from rlctl.runtime.rollout import attention
from rlctl.runtime.rollout.cache import PromptLayer, RowCache

if TYPE_CHECKING:
    from rlctl.runtime.types import Request

ATTENTIONS = ("auto", "sdpa", "eager")
PACKED = "flash_attention_2"
"""What takes packed sequences in training; here it is auto, since its kernels ignore the masks that this engine builds."""
_LAYER_TYPES = {"full_attention", "sliding_attention"}


def load_model(
    path: str,
    *,
    dtype: torch.dtype,
    device: torch.device,
    implementation: str,
    trust_remote_code: bool,
    config: PreTrainedConfig | None = None,
) -> PreTrainedModel:
    """Load the causal language model at ``path`` for inference.

    Args:
        path: a folder, or a name on the Hugging Face hub.
        dtype: of the weights and the computation.
        device: where they are.
        implementation: one of ``ATTENTIONS``, or ``PACKED``; auto is the fastest that the model supports.
        trust_remote_code: whether code in the folder may run.
        config: of the model, where it is not the one at ``path``.

    Raises:
        RunError: there is no such model, or it is not one that this engine can run.
        MissingDependency: the model's code wants a package that is not there.
    """
    if implementation == PACKED:
        implementation = "auto"
    if implementation not in ATTENTIONS:
        raise RunError(
            said(
                "the Transformers engine has no attention {implementation!r}; expected one of {names}",
                implementation=implementation,
                names=", ".join(ATTENTIONS),
            ),
            hint="use one of these, or the vllm engine: other implementations ignore the masks that this engine builds",
        )
    try:
        with files_are_told(f"cannot load a causal language model from {path}"):
            config = config or AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
            _check_architecture(path, config)
            model = auto_class(config).from_pretrained(
                path,
                config=config,
                dtype=dtype,
                attn_implementation=None if implementation == "auto" else implementation,
                trust_remote_code=trust_remote_code,
            )
    except ImportError as error:
        raise MissingDependency(
            said("the model {path} needs a package that is not installed: {error}", path=path, error=error)
        ) from error
    if (
        implementation == "auto"
        and model.config._attn_implementation == "sdpa"
        and model._can_set_attn_implementation()
    ):
        attention.register()
        set_text_attention(model, attention.GROUPED)
    return model.to(device).eval().requires_grad_(False)


def _check_architecture(path: str, config: Any) -> None:
    text = config.get_text_config(decoder=True)
    if config.is_encoder_decoder:
        raise RunError(
            said("{path} is an encoder-decoder model; the transformers engine runs decoder-only models", path=path)
        )
    try:
        types = set(get_layer_types_and_kwargs(text)[0])
    except AttributeError as error:
        raise RunError(
            said(
                "cannot determine the layers of {path} ({model_type}): {error}",
                path=path,
                model_type=config.model_type,
                error=error,
            )
        ) from error
    if not types <= _LAYER_TYPES:
        others = ", ".join(sorted(types - _LAYER_TYPES))
        raise RunError(
            said(
                "{path} ({model_type}) has layers without a plain key-value cache ({others}); the transformers "
                "engine caches {names}",
                path=path,
                model_type=config.model_type,
                others=others,
                names=" and ".join(sorted(_LAYER_TYPES)),
            ),
            hint="use the vllm engine for this model",
        )


class CausalModel:
    """The two forwards of a causal model, with this engine's masks and caches."""

    def __init__(self, path: str, model: PreTrainedModel) -> None:
        """Take a loaded model.

        Args:
            path: where it is from.
            model: the model.

        Raises:
            RunError: it has no key-value cache.
        """
        accepted = inspect.signature(model.forward).parameters
        if "past_key_values" not in accepted or model._is_stateful:
            raise RunError(
                said(
                    "{path} ({model_type}) has no key-value cache, so each token would recompute all previous ones",
                    path=path,
                    model_type=model.config.model_type,
                ),
                hint="use the vllm engine for this model",
            )
        self.path = path
        self.module = model
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        text = model.config.get_text_config(decoder=True)
        types, options = get_layer_types_and_kwargs(text)
        self.layers = len(types)
        self.vocab_size: int = text.vocab_size
        self.max_positions: int | None = getattr(text, "max_position_embeddings", None)
        self.sliding_window: int | None = next((o["sliding_window"] for o in options if "sliding_window" in o), None)
        self._mask_per_type = self.sliding_window is not None and getattr(text, "layer_types", None) is not None
        self._causal_without_mask = model.config._attn_implementation == attention.GROUPED and not self.sliding_window
        self._extra = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._vision = Vision(model) if reads_images(model.config) else None
        self._routers: Routers | None = None
        self.experts: torch.Tensor | None = None
        """int64 [rows, tokens, layers, k]: where the tokens of the last forward went, if that is recorded."""
        self.never_drawn = () if self._vision is None else self._vision.never_drawn
        """Tokens that stand in prompts only."""

    def record_experts(self) -> None:
        """Keep the experts that tokens go to from now on.

        Raises:
            PlanError: the model has no experts, or chooses them in a way that is not known.
        """
        self._routers = Routers(self.module)

    def new_cache(self) -> RowCache:
        """Return an empty cache for rows."""
        return RowCache(self.layers)

    def problem(self, request: Request) -> str:
        """Why the images of a request cannot be read; empty where they can, or there are none."""
        if self._vision is not None:
            return self._vision.problem(request.token_ids, request.inputs)
        return said("the prompt has images, but {path} reads only text", path=self.path) if request.inputs else ""

    def image_prompt(self, request: Request) -> tuple[Cache, torch.Tensor, int]:
        """Compute a prompt with images.

        Returns:
            As ``prompts``; and how much further on in rotary positions than in places its response begins.
        """
        assert self._vision is not None, "a request with images was let in"
        tokens = torch.tensor(request.token_ids)
        positions = self._vision.positions(tokens, request.inputs)
        inputs = {name: tensor.to(self.device) for name, tensor in request.inputs.items()}
        padding = torch.zeros(1, dtype=torch.int64, device=self.device)
        found = self._prompts(tokens[None].to(self.device), positions[:, None].to(self.device), padding, inputs)
        return *found, int(positions.max()) + 1 - len(tokens)

    def prompts(self, prompts: list[tuple[int, ...]]) -> tuple[Cache, torch.Tensor]:
        """Compute prompts, each once, padded on the left to the longest.

        Returns:
            Their keys and values, and the logits after each prompt, [prompts, vocab].
        """
        length = max(map(len, prompts))
        tokens = torch.tensor([(0,) * (length - len(p)) + p for p in prompts], device=self.device)
        padding = torch.tensor([length - len(p) for p in prompts], device=self.device)
        positions = (torch.arange(length, device=self.device) - padding[:, None]).clamp(min=0)
        return self._prompts(tokens, positions, padding, {})

    def _prompts(
        self, tokens: torch.Tensor, positions: torch.Tensor, padding: torch.Tensor, inputs: dict[str, torch.Tensor]
    ) -> tuple[Cache, torch.Tensor]:
        length = tokens.shape[1]
        cache = Cache(layers=[PromptLayer() for _ in range(self.layers)])
        mask: Any = None
        if not self._causal_without_mask or bool(padding.any()):
            mask = self._mask(lambda window: attention.prompt_mask(padding, length, window=window, dtype=self.dtype))
        logits = self._forward(tokens, positions, mask, cache, inputs)
        if not all(layer.is_initialized for layer in cache.layers):
            raise RunError(
                said("{path} left its key-value cache empty; the transformers engine cannot run it", path=self.path)
            )
        return cache, logits

    def rows(self, tokens: torch.Tensor, starts: torch.Tensor, ahead: torch.Tensor, cache: RowCache) -> torch.Tensor:
        """Compute the next token of each row of ``cache``; returns logits [rows, vocab].

        Args:
            tokens: int64 [rows].
            starts: int64 [rows], the first slot of each.
            ahead: int64 [rows], how much further on rotary positions are than places, after images.
            cache: of the rows.
        """
        low, cursor = cache.window.low, cache.window.cursor
        mask = self._mask(lambda window: attention.row_mask(starts, low, cursor, window=window, dtype=self.dtype))
        return self._forward(tokens[:, None], (cursor - starts + ahead)[:, None], mask, cache, {})

    def _mask(self, build: Any) -> Any:
        if self._mask_per_type:
            return {"full_attention": build(None), "sliding_attention": build(self.sliding_window)}
        return build(self.sliding_window)

    def _forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        mask: Any,
        cache: Cache,
        inputs: dict[str, torch.Tensor],
    ) -> torch.Tensor:
        routes: AbstractContextManager[dict[int, torch.Tensor]] = (
            nullcontext({}) if self._routers is None else self._routers.recording()
        )
        with routes as found:
            output = self.module(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
                **self._extra,
                **inputs,
            )
        if found:
            chosen = torch.stack([found[place] for place in range(len(found))], 1)
            self.experts = chosen.view(*tokens.shape, *chosen.shape[1:]).cpu()
        return output.logits[:, -1]
