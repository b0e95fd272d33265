"""Running the proof of a ported folder, which executes the reward of its run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.common import own_python
from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said, spoken, translated
from rlctl.common.whole_files import write_whole
from rlctl.config import Config
from rlctl.planning.arithmetic import mini_batch_responses, total_steps
from rlctl.porting.writing import Moved

SECONDS = 600
"""How long a proof may take."""
SEED = 0
"""Of the choice of rows that a proof is made with."""


def expected(config: Config, moved: Moved) -> str:
    """What the target has to make of a ported folder, as JSON that ``prove.py`` reads: rows by split, batch, prompts."""
    values = {
        "seed": SEED,
        "model": config.model.path,
        "chat_template": config.model.chat_template,
        "chat_template_args": config.model.chat_template_args,
        "rows": dict(moved.splits),
        "numbers": {
            "prompts_per_step": config.batch.prompts_per_step,
            "responses_per_prompt": config.batch.responses_per_prompt,
            "mini_batch_responses": mini_batch_responses(config),
            "total_steps": total_steps(config, moved.splits["train"]),
        },
    }
    return json.dumps(values, indent=2, ensure_ascii=False)


def prove(
    folder: Path, python: str | None, responses: Path | None = None, tokenizer: str | None = None
) -> dict[str, Any] | str:
    """The result of ``prove.py``, or what it printed if it made none.

    Args:
        folder: of the port.
        python: an interpreter in whose environment the target is installed; None is the one that runs rlctl.
        responses: responses of a real run.
        tokenizer: a folder, or a name in the cache of Hugging Face; None is that of the model, if it is at hand.

    Raises:
        RunError: the interpreter cannot be started, or the proof takes too long.
    """
    given = ["--responses", str(responses.resolve())] if responses else []
    if tokenizer is not None:
        given += ["--tokenizer", str(Path(tokenizer).resolve()) if Path(tokenizer).exists() else tokenizer]
    words = own_python.file("prove.py", *given) if python is None else [python, "prove.py", *given]
    result = folder / "proof" / "result.json"
    result.unlink(missing_ok=True)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except OSError as error:
        raise RunError(
            said("{python} cannot be started: {reason}", python=words[0], reason=error.strerror or str(error)),
            hint="name an interpreter with --python",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise RunError(
            said("the proof took longer than {seconds} s", seconds=SECONDS), hint="run python prove.py in the folder"
        ) from error
    if not result.exists():
        return "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:])
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def results(proven: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """What a proof compared, how many of it, and how many of these differ."""
    for check in proven["checks"]:
        yield _compared(check, proven["target"]), check["compared"], check["different"]


def _compared(check: Mapping[str, Any], target: str) -> str:
    """What a check compared, with its numbers."""
    match check["check"]:
        case "config":
            return said("the config, by {target}'s own loader and checks", target=target)
        case "rows":
            splits = ", ".join(f"{name} {count}" for name, count in check["splits"].items())
            read = said("rows that {target}'s own dataset reads ({splits})", target=target, splits=splits)
            if not check["left_out"]:
                return read
            return said("{read}; it leaves out {count} by their length", read=read, count=check["left_out"])
        case "batch":
            numbers = ", ".join(f"{name} {value}" for name, value in check["numbers"].items())
            return said("batch and steps by {target}'s own code ({numbers})", target=target, numbers=numbers)
        case "messages":
            return "messages of the sampled rows"
        case "tokens" if check["of_model"]:
            return said(
                "prompts after the chat template, {count} tokens by the tokenizer of {name}",
                count=check["tokens"],
                name=check["tokenizer"],
            )
        case "tokens":
            return said(
                "prompts after a ChatML template, {count} bytes: the model's tokenizer is not on this machine, pass --tokenizer",
                count=check["tokens"],
            )
    if check["lowest"] is None:
        return "rewards"
    made = said("rewards from {lowest} to {highest}, on {rows} rows and responses made from their answers",
                lowest=check["lowest"], highest=check["highest"], rows=check["rows"])  # fmt: skip
    if check["given"]:
        made = said("{made}, and on {count} responses of a run", made=made, count=check["given"])
    if check["unsteady"]:
        made = said(
            "{made}; {count} have a random reward, which is another one when scored again, and are not compared",
            made=made,
            count=check["unsteady"],
        )
    return made


def add_to_readme(folder: Path, proven: Mapping[str, Any]) -> None:
    """Put the result of a proof at the end of a folder's README, in the user's language."""
    rows = [
        f"| {spoken('compared')} | {spoken('number')} | {spoken('different')} |",
        "| --- | --- | --- |",
        *(f"| {translated(what)} | {count:,} | {different} |" for what, count, different in results(proven)),
    ]
    how = said("Rows were chosen with seed {seed}; rewards may differ by 1e-6 of their value.", seed=proven["seed"])
    problems = [f"- {problem}" for problem in proven["problems"][:20]]
    readme = folder / "README.md"
    parts = [readme.read_text(encoding="utf-8").rstrip(), "\n".join(rows), translated(how), "\n".join(problems)]
    write_whole(readme, "\n\n".join(part for part in parts if part) + "\n")
