"""What rlctl adds inside vLLM's own worker processes: its sampler's draws and log-probs, and new weights or adapters, part by
part.

vLLM mixes ``RolloutExtension`` into its worker class (``worker_extension_cls``); its methods are called through
``collective_rpc``, by name. This module is imported in processes that hold nothing of rlctl but it.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from vllm.config import set_current_vllm_config
from vllm.lora.request import LoRARequest
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform
from vllm.v1.outputs import LogprobsTensors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p
from vllm.v1.sample.sampler import Sampler

from rlctl.runtime.rollout.randomness import STREAM, uniforms
from rlctl.runtime.rollout.sampling import inverse_cdf

# It warns of layers that nothing is loaded into, such as tied heads; that every weight comes is checked before it gets here.
logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)

if TYPE_CHECKING:
    from vllm.v1.outputs import SamplerOutput


class KeyedDraws(torch.nn.Module):
    """Samples each row by one uniform of (its response's stream, its position), as the built-in engine does.

    A seed for each request would make vLLM fill its noise row by row, one kernel a row. This takes a few kernels a batch.
    """

    def __init__(self, otherwise: torch.nn.Module) -> None:
        """``otherwise`` samples rows without a stream: those of vLLM's own warm-up."""
        super().__init__()
        self._otherwise = otherwise
        self.uniforms: torch.Tensor | None = None
        """float64 [batch], of the step that is being sampled."""

    def forward(
        self,
        logits: torch.Tensor,
        generators: dict[int, torch.Generator],
        top_k: torch.Tensor | None,
        top_p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Tokens [batch], and no processed log-probs; as vLLM's ``TopKTopPSampler``."""
        if self.uniforms is None:
            found: tuple[torch.Tensor, torch.Tensor | None] = self._otherwise(logits, generators, top_k, top_p)
            return found
        probs = apply_top_k_top_p(logits, top_k, top_p).softmax(dim=-1, dtype=torch.float32)
        return inverse_cdf(probs, self.uniforms), None


class RolloutSampler(Sampler):
    """vLLM's sampler with rlctl's draws (``KeyedDraws``), whose log-probs are those under the sampling temperature, before
    penalties, min-p, top-k and top-p.

    vLLM's own are either before the temperature too (``raw_logprobs``) or after all of them (``processed_logprobs``).
    """

    def __init__(self, own: Sampler, runner: Any) -> None:
        """``own`` is what ``runner``, vLLM's model runner, sampled with before."""
        super().__init__(own.logprobs_mode, own.use_fp64_gumbel)
        self._runner = runner
        self.topk_topp_sampler = KeyedDraws(own.topk_topp_sampler)

    _temperature: torch.Tensor | None = None
    """[batch], 1 where greedy; None outside of ``forward`` and where the whole batch is greedy."""

    def forward(
        self, logits: torch.Tensor, sampling_metadata: SamplingMetadata, *args: Any, **kwargs: Any
    ) -> SamplerOutput:
        """Draw the next tokens."""
        temperature = None if sampling_metadata.all_greedy else sampling_metadata.temperature
        if temperature is not None:
            self._temperature = temperature.masked_fill(temperature < 1e-5, 1.0)
            self.topk_topp_sampler.uniforms = self._uniforms(logits)
        try:
            return super().forward(logits, sampling_metadata, *args, **kwargs)
        finally:
            self._temperature = self.topk_topp_sampler.uniforms = None

    def _uniforms(self, logits: torch.Tensor) -> torch.Tensor | None:
        """One number a row, by its request's stream and how many tokens it has; None in vLLM's warm-up, without requests."""
        names = self._runner.input_batch.req_ids
        if len(names) != len(logits):
            return None
        requests = [self._runner.requests[name] for name in names]
        given = [(request.sampling_params.extra_args or {}).get(STREAM) for request in requests]
        if None in given:
            return None
        positions = [len(request.output_token_ids) for request in requests]
        keys, places = torch.tensor([given, positions]).to(logits.device, non_blocking=True)
        return uniforms(keys, places)

    def compute_logprobs(self, logits: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Log-probs of all tokens; in ``forward`` under the temperature of each row."""
        logits = logits.float()
        if self._temperature is not None:
            logits = logits / self._temperature[:, None]
        return logits.log_softmax(dim=-1)

    def gather_logprobs(  # type: ignore[override]
        self, logprobs: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor
    ) -> LogprobsTensors:
        """Those of the tokens drawn, and of the likeliest; ranks stay 0: none reads them, and vLLM compiles for them."""
        best, indices = logprobs.topk(num_logprobs, dim=-1)
        drawn = token_ids[:, None]
        return LogprobsTensors(
            torch.cat((drawn, indices), dim=1).int(),
            torch.cat((logprobs.gather(-1, drawn), best), dim=1),
            torch.zeros_like(token_ids),
        )


ADAPTER = LoRARequest("policy", 1, "sent by training")
"""The one adapter of an engine, of which each request is a user: vLLM looks it up by its number, never by its path."""


class RolloutExtension:
    """Further methods of vLLM's worker."""

    model_runner: Any
    vllm_config: Any
    add_lora: Any
    finish_weight_update: Any
    _weight_update_active: bool
    """vLLM's own: a weight transfer has begun and did not fail."""

    def rlctl_start(self) -> None:
        """Take rlctl's sampler in place of vLLM's."""
        self.model_runner.sampler = RolloutSampler(self.model_runner.sampler, self.model_runner)
        if self.vllm_config.lora_config is not None:  # until the first sync the adapter adds nothing
            self.model_runner.lora_manager.add_dummy_lora(ADAPTER, rank=1)
        self._rlctl_adapter: dict[str, torch.Tensor] = {}

    def rlctl_begin_adapter(self) -> None:
        """Be ready for a whole adapter, under the names of peft's files."""
        self._rlctl_adapter = {}

    def rlctl_take_adapter(self, tensors: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Take a part of it; the memory of a part is used again."""
        self._rlctl_adapter |= {name: tensor.cpu().clone() for name, tensor in tensors}

    def rlctl_load_adapter(self) -> None:
        """All has come: replace the adapter.

        Raises:
            ValueError: vLLM adds no adapter to a layer that has one.
        """
        tensors, self._rlctl_adapter = self._rlctl_adapter, {}
        rank = max(len(tensor) for name, tensor in tensors.items() if ".lora_A." in name)
        settings = {"r": rank, "lora_alpha": rank, "target_modules": []}  # its scale is in B
        with tempfile.TemporaryDirectory(prefix="adapter-") as folder:
            save_file(tensors, Path(folder, "adapter_model.safetensors"))
            Path(folder, "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
            self.add_lora(LoRARequest(ADAPTER.lora_name, ADAPTER.lora_int_id, folder, load_inplace=True))
        self._rlctl_check_adapter()

    def _rlctl_check_adapter(self) -> None:
        """vLLM passes over layers that it does not know, except in a pipeline, whose workers have a part of them each."""
        manager = self.model_runner.lora_manager._adapter_manager
        unknown = manager.get_adapter(ADAPTER.lora_int_id).loras.keys() - manager.modules.keys()
        if unknown and self.vllm_config.parallel_config.pipeline_parallel_size == 1:
            raise ValueError(f"no layer of the model is called {min(unknown)}")

    def rlctl_begin_weights(self) -> None:
        """Be ready for all weights of the model, under their Hugging Face names."""
        with set_current_vllm_config(self.vllm_config):
            initialize_layerwise_reload(self.model_runner.get_model())

    def rlctl_take_weights(self, weights: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Take a part of them; vLLM's loader of the model shards and fuses them."""
        with set_current_vllm_config(self.vllm_config), torch.no_grad():
            self.model_runner.get_model().load_weights(iter(weights))

    def rlctl_end_weights(self) -> None:
        """All have come: bring them into the layout of the kernels."""
        model = self.model_runner.get_model()
        transferred = self._weight_update_active
        if transferred:
            self.finish_weight_update()
        with set_current_vllm_config(self.vllm_config):
            if not transferred:
                finalize_layerwise_reload(model, self.model_runner.model_config)
            for layer in model.modules() if current_platform.is_cpu() else ():
                # On CPUs a head tied to the embedding keeps a packed copy of its own, which nothing was loaded into.
                if isinstance(layer, ParallelLMHead):
                    layer.quant_method.process_weights_after_loading(layer)
