"""What section ``model`` changes of a model before it is made: modules that register architectures, and its ``config.json``.

Training, reference and rollout engines read the same, so that all of them compute the same model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pickle import UnpicklingError
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedConfig

from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.model import Model, RopeScaling
from rlctl.runtime.pickles import reason_of
from rlctl.runtime.user_code import import_module

MISMATCH = "ignore_mismatched_sizes"
"""What Transformers speaks of where weights have other shapes than their model."""


@contextmanager
def files_are_told(what: str, hint: str = "") -> Iterator[None]:
    """Raise what is wrong with a model's files, rather than with its code.

    Args:
        what: begins the message: which model cannot be loaded.
        hint: of the error.

    Raises:
        RunError: it cannot be.
    """
    try:
        yield
    except (OSError, ValueError, ZeroDivisionError, SafetensorError, StrictDataclassError) as error:
        raise RunError(
            said("{what}: {value}", what=what, value=str(error).strip() or type(error).__name__), hint=hint
        ) from error
    except UnpicklingError as error:
        raise RunError(
            said("{what}: {reason_of}", what=what, reason_of=reason_of(error)), hint="use weights in safetensors format"
        ) from error
    except RuntimeError as error:
        if MISMATCH not in str(error):
            raise
        told = "the shapes of its weights differ from its config.json; the log lists them"
        raise RunError(said("{what}: {told}", what=what, told=told), hint=hint) from error


def import_modules(model: Model) -> None:
    """Import what registers architectures.

    Raises:
        RunError: a module cannot be imported.
    """
    for name in model.import_modules:
        try:
            import_module(name)
        except Exception as error:
            raise RunError(
                said(
                    "model.import_modules: {name} cannot be imported: {kind}: {error}",
                    name=name,
                    kind=type(error).__name__,
                    error=error,
                ),
                hint="install it, or add its folder to PYTHONPATH with runtime.env_vars",
            ) from error


def changed_config(model: Model, path: str) -> PreTrainedConfig | None:
    """The config of the model at ``path`` with what the section puts over it; None where it changes nothing.

    Raises:
        RunError: there is no such config, or the model's kind does not take the change.
    """
    if not model.overrides and model.rope == RopeScaling():
        return None
    try:
        own = AutoConfig.from_pretrained(path, trust_remote_code=model.trust_remote_code)
        values, _ = type(own).get_config_dict(path)
    except (OSError, ValueError) as error:
        raise RunError(
            said("the config of {path} cannot be read: {error}", path=path, error=error),
            hint="set model.path to a complete model folder, or to a name on the Hugging Face Hub",
        ) from error
    _check_names(model.overrides, own, values)
    values = _merged(values, model.overrides)
    _put_rope(values, model.rope, type(own).__name__)
    try:
        changed = type(own).from_dict(values)
    except (TypeError, KeyError, ValueError, StrictDataclassError) as error:
        raise RunError(
            said("{kind} does not take model.overrides or model.rope: {error}", kind=type(own).__name__, error=error),
            hint="use the keys of the model's config.json",
        ) from error
    changed._name_or_path = path
    return changed


def changes_of(model: Model, path: str) -> dict[str, Any]:
    """What the section changes in the ``config.json`` of the model at ``path``: whole values by their names there.

    Raises as ``changed_config``.
    """
    changed = changed_config(model, path)
    if changed is None:
        return {}
    own, values = type(changed).from_pretrained(path).to_dict(), changed.to_dict()
    differing = {name: value for name, value in values.items() if name not in own or own[name] != value}
    return {name: value for name, value in differing.items() if not name.startswith("_")}  # where it was read from


def _check_names(overrides: Mapping[str, Any], own: PreTrainedConfig, values: Mapping[str, Any]) -> None:
    """Refuse a name that the config does not have, unless it turns something off."""
    for name, value in overrides.items():
        if value and name not in values and not hasattr(own, name):
            raise RunError(
                said("model.overrides sets {name}, which {kind} does not have", name=name, kind=type(own).__name__),
                hint=nearest(name, own.to_dict()) or "omit it: the model does not read it",
            )


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with ``changes`` over them, mapping by mapping."""
    merged = dict(values)
    for name, change in changes.items():
        below = merged.get(name)
        merged[name] = _merged(below, change) if isinstance(below, Mapping) and isinstance(change, Mapping) else change
    return merged


def _put_rope(values: dict[str, Any], rope: RopeScaling, kind: str) -> None:
    """Both spellings of config files: ``rope_parameters``, or ``rope_theta`` and ``rope_scaling`` of older ones."""
    parameters = values.get("rope_parameters")
    if parameters is None:
        changes = {"rope_theta": rope.theta, "rope_scaling": rope.scaling}
        values.update({name: value for name, value in changes.items() if value is not None})
        return
    if any(isinstance(value, Mapping) for value in parameters.values()) and rope != RopeScaling():
        raise RunError(
            said("{kind} has different rotary embeddings per layer type, but model.rope sets one for all", kind=kind),
            hint="set model.overrides.rope_parameters, with a mapping for each type",
        )
    theta = parameters.get("rope_theta") if rope.theta is None else rope.theta
    kept = parameters if rope.scaling is None else rope.scaling
    values["rope_parameters"] = {**kept, **({} if theta is None else {"rope_theta": theta})}
