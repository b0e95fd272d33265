"""Low-rank adapters, with peft: put into a model, switched off for the reference, merged for export, saved in peft's format.

The adapters are put into the model itself, which stays the Transformers model that it was. In it a layer ``X`` becomes

    X.base_layer.weight    as it was, not trained
    X.lora_A.default.weight [rank, in], X.lora_B.default.weight [out, rank]

and computes x W^T + (alpha / rank) dropout(x) A^T B^T. Source: Hu et al. 2021, arXiv:2106.09685; peft's tuners/lora.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import Embedding
from peft.utils import load_peft_weights
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from rlctl.common.errors import PlanError, RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.model import Lora
from rlctl.runtime.pickles import reason_of
from rlctl.runtime.seeds import derive_seed

NAME = "default"
PREFIX = "base_model.model."
"""What peft's files put before every name: the two wrappers of its own model."""


@dataclass(frozen=True)
class Adapters:
    """The adapters of a model."""

    model: PreTrainedModel
    config: LoraConfig

    @classmethod
    def put_into(cls, model: PreTrainedModel, lora: Lora, *, base: str, seed: int) -> Adapters:
        """Put adapters into a model that is whole on this worker, or on no device; from now on only they are trained.

        Adapters themselves always have memory. An adapter to start from brings its own rank, alpha and modules. New ones are the
        same on every worker.

        Args:
            model: of Transformers.
            lora: section ``model.lora``.
            base: the path of the model, for the adapter's config.
            seed: of the run.

        Raises:
            PlanError: no module has one of the names, or adapters on it cannot be merged.
            RunError: the adapter to start from cannot be read, or is of another model.
        """
        config = _read_config(lora.adapter_path) if lora.adapter_path else _config(lora)
        config.base_model_name_or_path = lora.base_model or base
        config.inference_mode = False
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "adapters"))
            try:
                inject_adapter_in_model(config, model, NAME)
            except ValueError as error:
                raise PlanError(
                    said("model.lora: {error}", error=error), hint="check the names in model.lora.target_modules"
                ) from error
            if any(parameter.is_meta for parameter in model.parameters() if parameter.requires_grad):
                _give_memory(model, derive_seed(seed, "adapters"))
        if any(isinstance(layer, Embedding) for layer in layers_of(model).values()):
            raise PlanError(
                "model.lora puts an adapter on an embedding, which is not supported", hint="name linear layers"
            )
        if lora.adapter_path:
            _take_up(model, lora.adapter_path)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(_dtype(lora, parameter.dtype))
        return cls(model, config)

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        """Compute the model without its adapters.

        peft's own switch would also stop their training, which FSDP2 takes up once, in the first forward pass.
        """
        layers = layers_of(self.model).values()
        for layer in layers:
            layer._disable_adapters = True
        try:
            yield
        finally:
            for layer in layers:
                layer._disable_adapters = False

    def tensors(self) -> dict[str, Tensor]:
        """The adapters' own weights, under the names that they have in the model."""
        return {name: tensor.detach() for name, tensor in self.model.named_parameters() if tensor.requires_grad}

    def unmerged(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield whole adapters under the names of peft's files, with alpha / rank in B: what a layer then adds is B A x."""
        layers = layers_of(self.model)
        for name, tensor in tensors:
            owner, part = _part(name, layers)
            assert owner is not None, "these are adapters"
            scaled = tensor * layers[owner].scaling[NAME] if part.startswith("lora_B") else tensor
            yield PREFIX + name.replace(f".{NAME}.", "."), scaled

    def merged(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield whole tensors under the names of the model without adapters, each adapter added to its layer.

        W + (alpha / rank) B A, in at least float32 and then in W's type, as peft's ``merge`` does.
        """
        layers = layers_of(self.model)
        held: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors:
            owner, part = _part(name, layers)
            if owner is None:
                yield name, tensor
            elif part == "base_layer.bias":
                yield f"{owner}.bias", tensor
            else:
                parts = held.setdefault(owner, {})
                parts[part] = tensor
                if len(parts) == 3:
                    yield f"{owner}.weight", _sum(layers[owner], held.pop(owner))

    def write(self, tensors: Mapping[str, Tensor], folder: Path) -> None:
        """Write whole adapters as peft does: ``PeftModel.from_pretrained`` reads the folder.

        Raises:
            OSError, SafetensorError: the folder cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {PREFIX + name.replace(f".{NAME}.", "."): tensor.contiguous() for name, tensor in tensors.items()},
            folder / "adapter_model.safetensors",
            metadata={"format": "pt"},
        )
        saved: Any = self.config.to_dict() | {"inference_mode": True}
        LoraConfig(**saved).save_pretrained(folder)


def _give_memory(model: PreTrainedModel, seed: int) -> None:
    """Draw adapters that were put into a model without memory, as peft draws them into one with."""
    torch.manual_seed(seed)
    for layer in layers_of(model).values():
        for matrices in (layer.lora_A, layer.lora_B):
            old = matrices[NAME]
            matrices[NAME] = torch.nn.Linear(old.in_features, old.out_features, bias=False, dtype=torch.float32)
        layer.reset_lora_parameters(NAME, init_lora_weights=True)


def _config(lora: Lora) -> LoraConfig:
    targets = lora.target_modules
    return LoraConfig(
        r=lora.rank,
        lora_alpha=int(lora.alpha) if int(lora.alpha) == lora.alpha else lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear" if targets == ("all-linear",) else list(targets),
        exclude_modules=list(lora.exclude_modules) or None,
        task_type="CAUSAL_LM",
    )


def _read_config(path: str) -> LoraConfig:
    try:
        config = PeftConfig.from_pretrained(path)
    except (OSError, ValueError, TypeError) as error:
        raise RunError(
            said("the adapter {path} cannot be read: {error}", path=path, error=error),
            hint="set model.lora.adapter_path to a folder that PEFT wrote (save_pretrained)",
        ) from error
    wanted = {"peft_type": "LORA", "bias": "none", "modules_to_save": None, "use_dora": False}
    for name, value in wanted.items():
        found = getattr(config, name, value)
        if found != value:
            raise RunError(
                said(
                    "the adapter {path} has {name} {found}; expected plain LoRA, {name} {value}",
                    path=path,
                    name=name,
                    found=found,
                    value=value,
                )
            )
    return config


def _take_up(model: PreTrainedModel, path: str) -> None:
    """Copy an adapter's weights into the layers that were just made for it."""
    try:
        stored = {_inside(name): tensor for name, tensor in load_peft_weights(path, device="cpu").items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(
            said("the adapter {path} cannot be read: {error}", path=path, error=error),
            hint="set model.lora.adapter_path to a folder that PEFT wrote (save_pretrained)",
        ) from error
    except UnpicklingError as error:
        raise RunError(
            said("the adapter {path} cannot be read: {reason_of}", path=path, reason_of=reason_of(error)),
            hint="use an adapter in safetensors format",
        ) from error
    places = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name in sorted(stored.keys() ^ places.keys()):
        where = "has no place for" if name in stored else said("needs, and {path} lacks,", path=path)
        raise RunError(
            said("the adapter {path} belongs to another model, which {where} {name}", path=path, where=where, name=name)
        )
    for name, place in places.items():
        if stored[name].shape != place.shape:
            raise RunError(
                said(
                    "{name} of the adapter {path} is {tuple}; expected {shape_tuple}",
                    name=name,
                    path=path,
                    tuple=tuple(stored[name].shape),
                    shape_tuple=tuple(place.shape),
                )
            )
        place.data.copy_(stored[name])


def _inside(name: str) -> str:
    """The name in the model of a name in peft's files."""
    head, _, last = name.removeprefix(PREFIX).rpartition(".")
    return f"{head}.{NAME}.{last}"


def _dtype(lora: Lora, base: torch.dtype) -> torch.dtype:
    """As set; by itself at least float32, as peft has it: adapters are small and their updates are too."""
    return torch.promote_types(base, torch.float32) if lora.dtype == "auto" else getattr(torch, lora.dtype)


def layers_of(model: torch.nn.Module) -> dict[str, LoraLayer]:
    """The layers with an adapter, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}


def _part(name: str, layers: Mapping[str, LoraLayer]) -> tuple[str | None, str]:
    """The layer with an adapter that a parameter is in, and its name there; None where it is in none."""
    for tail in ("base_layer.weight", "base_layer.bias", f"lora_A.{NAME}.weight", f"lora_B.{NAME}.weight"):
        owner = name.removesuffix(f".{tail}")
        if owner != name and owner in layers:
            return owner, tail
    return None, name


def _sum(layer: LoraLayer, parts: Mapping[str, Tensor]) -> Tensor:
    base, down, up = (parts[part] for part in ("base_layer.weight", f"lora_A.{NAME}.weight", f"lora_B.{NAME}.weight"))
    wide = torch.promote_types(torch.promote_types(base.dtype, down.dtype), torch.float32)
    change = (up.to(wide) @ down.to(wide)) * layer.scaling[NAME]
    return (base.to(wide) + (change.T if layer.fan_in_fan_out else change)).to(base.dtype)
