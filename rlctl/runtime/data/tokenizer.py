"""Loading the tokenizer of the policy, and the chat template that goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlctl.common import quoting
from rlctl.common.errors import MissingDependency, RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.model import Model
from rlctl.runtime.data.hub import hub_access


def load_tokenizer(model: Model, *, trust_remote_code: bool = False) -> Any:
    """Load ``model.tokenizer``, else the one of ``model.path``, with ``model.chat_template`` set on it.

    Args:
        model: the section of the config.
        trust_remote_code: also run code that comes with it (``data.trust_remote_code``).

    Raises:
        RunError: there is no tokenizer, no file with the chat template, or no module of ``model.import_modules``.
        MissingDependency: the tokenizer's code wants a package that is not there.
    """
    from transformers import AutoTokenizer

    from rlctl.runtime.models.config import import_modules

    name = model.tokenizer or model.path
    key = "model.tokenizer" if model.tokenizer else "model.path"
    if not name:
        raise RunError("model.path is empty, so rlctl has no tokenizer", hint="set model.path or model.tokenizer")
    if Path(name).is_absolute() and not Path(name).exists():
        raise RunError(said("{key} is {name}, and there is no such folder", key=key, name=name))
    import_modules(model)
    runs_code = model.trust_remote_code or trust_remote_code
    with hub_access(needed=runs_code or not Path(name).is_dir()) as online:
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=runs_code)
        except ImportError as error:
            raise MissingDependency(
                said("the tokenizer of {name} needs a package that is not installed: {error}", name=name, error=error)
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _no_tokenizer(key, name, error, online=online) from error
    if len(tokenizer) == len(tokenizer.all_special_ids):
        raise _no_tokenizer(key, name, ValueError("it has no vocabulary"), online=online)
    if model.chat_template is not None:
        tokenizer.chat_template = read_template(model.chat_template, key="model.chat_template")
    return tokenizer


def _no_tokenizer(key: str, name: str, error: Exception, *, online: bool) -> RunError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if Path(name).is_dir():
        return RunError(
            said("cannot load a tokenizer from the folder {name} ({key}): {lines}", name=name, key=key, lines=lines[0]),
            hint="it must contain tokenizer.json or tokenizer_config.json; model.tokenizer may name another folder",
        )
    reached = "" if online else ", and the hub is offline or cannot be reached"
    return RunError(
        said(
            "no tokenizer {name} ({key}): there is no such folder, it is not in the hub cache{reached}: {lines}",
            name=name,
            key=key,
            reached=reached,
            lines=lines[0],
        ),
        hint=said(
            "set {key} to a local folder, or download it once on a machine with network access (hf download {name})",
            key=key,
            name=quoting.word(name),
        ),
    )


def read_template(template: str, *, key: str) -> str:
    """Return a chat template given as Jinja text or as the path of a file with it.

    Raises:
        RunError: it is neither.
    """
    if "{" in template:
        return template
    try:
        return Path(template).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RunError(
            said(
                "{key} is {template2!r}, which is neither Jinja text nor a readable file", key=key, template2=template
            ),
            hint="write the template itself, or the path of a .jinja file",
        ) from error


def decode_all(tokenizer: Any, sequences: Sequence[Sequence[int]], *, special: bool = False) -> list[str]:
    """Texts of sequences of tokens, without ``special`` those left out: those of ``batch_decode``.

    Where nothing changes a text once it is decoded, they are decoded by all cores at a time.
    """
    from transformers import PreTrainedTokenizerFast

    plain = isinstance(tokenizer, PreTrainedTokenizerFast) and not tokenizer.clean_up_tokenization_spaces
    if plain and type(tokenizer)._decode is PreTrainedTokenizerFast._decode:
        texts: list[str] = tokenizer.backend_tokenizer.decode_batch(
            [list(each) for each in sequences], skip_special_tokens=not special
        )
        return texts
    decoded: list[str] = tokenizer.batch_decode([list(each) for each in sequences], skip_special_tokens=not special)
    return decoded
