"""The files that call a run's reward in another framework: what the target calls, the table of rewards, what calls each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rlctl.common.report_lines import framework
from rlctl.porting.mapping import Mapped
from rlctl.porting.rewards import BY_DOMAIN, Ported

TEMPLATES = Path(__file__).parent / "templates"
ADAPTERS = {
    "trinity": {"plugins/ported_run.py": "trinity_plugin"},
    "roll": {"ported_worker.py": "roll_worker", "start.py": "start_roll"},
    "verl": {"ported_function.py": "ported_function"},
    "rlctl": {"ported_function.py": "ported_function"},
}
"""By target, the files that it calls, and their templates."""
FUNCTIONS = {
    "verl": """def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    value, told = reward(json.loads(extra_info["source_row"]), solution_str, None)
    return {**told, "score": value}""",
    "rlctl": """def compute_score(response, extra, tokens):
    value, told = reward(json.loads(extra["source_row"]), response, tokens)
    return {**told, "score": value}""",
}
"""The function of ``ported_function.py``."""
MAPPED_FUNCTIONS = {
    "verl": """def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    added = ("num_turns", "rollout_reward_scores")  # by verl
    extra_info = {name: value for name, value in (extra_info or {}).items() if name not in added}
    value, told = reward(plain(@@ROW@@), solution_str, None)
    return {**told, "score": value}""",
    "rlctl": """def compute_score(response, answer, source, tag, extra, tokens):
    value, told = reward(plain(@@ROW@@), response, tokens)
    return {**told, "score": value}""",
}
"""The same for ``--data map``: it puts together what the reward reads of a row."""
COPIED = {
    "MESSAGES": 'task.raw_task["messages"]',
    "ROW": 'json.loads(task.raw_task["source_row"])',
    "IMPORT": "",
    "PLAIN": "",
    "JSON": "import json\n",
}
MAPPED = {
    "MESSAGES": "mapped_rows.messages_of(task.raw_task)",
    "ROW": "mapped_rows.plain(task.raw_task)",
    "IMPORT": "import mapped_rows  # noqa: E402\n",
    "PLAIN": "from mapped_rows import plain  # noqa: E402\n",
    "JSON": "",
}
"""How adapters get messages and row, from a copy or from the source's file."""
ALWAYS = ("row_values", "main_thread")
ALSO = {"rlctl_reward": ("verl_reward",)}
"""Files of adapters that one imports."""
RULES = ("boxed", "choices", "dapo", "instructions", "interface", "maths", "rules")
"""Modules of rlctl's rules that a folder gets a copy of."""


def write(path: Path, text: str, *, executable: bool = False) -> None:
    """Write a file with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    if executable:
        path.chmod(path.stat().st_mode | 0o111)


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template with its places filled in."""
    text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@@{name}@@", value)
    return text


def write_proof(folder: Path, pair: tuple[str, str], reward: Ported, mapped: Mapped | None = None) -> None:
    """``prove.py``: how each side calls the reward, how the target reads the folder, how the source tokenizes prompts."""
    source, target = pair
    values = {"SOURCE": framework(source), "PROMPT": repr(mapped.names.prompt if mapped else "prompt")}
    asked = "source_any"
    if source == "verl" and [part.module for part in reward.parts] == ["verl_reward"]:
        values, asked = {**values, **_of_function(reward)}, "source_verl"
    parts = (asked, f"tokens_{source}", f"load_{target}", f"target_{target}")
    sides = "\n\n".join(filled(f"{part}.py", values) for part in parts)
    names = {"TARGET": framework(target), "SOURCE": framework(source), "SIDES": sides}
    write(folder / "prove.py", filled("prove.py", names))


def _of_function(reward: Ported) -> dict[str, str]:
    """What the proof needs to call a function as verl does."""
    [part] = reward.parts
    names = {
        "FILE": "file", "MODULE": "module", "ARGUMENTS": "arguments", "SOURCE_COLUMN": "source_column",
        "MANAGER": "manager",
    }  # fmt: skip
    values = {place: repr(part.settings.get(name)) for place, name in names.items()}
    return {**values, "FUNCTION": repr(part.name), "OVERLONG": repr(reward.overlong)}


def write_adapters(folder: Path, pair: tuple[str, str], reward: Ported, mapped: Mapped | None = None) -> None:
    """What the target calls, the table of rewards, and what calls each; ``mapped`` if rows are read where they are."""
    source, target = pair
    function = FUNCTIONS.get(target, "")
    if mapped is not None:
        function = MAPPED_FUNCTIONS.get(target, "").replace("@@ROW@@", mapped.row)
        names = {
            "PROMPT": mapped.names.prompt,
            "SYSTEM": mapped.names.system_prompt,
            "SYSTEM_COLUMN": mapped.names.system_key,
        }
        write(folder / "mapped_rows.py", filled("mapped_rows.py", {name: repr(value) for name, value in names.items()}))
    values = {
        "SOURCE": framework(source), "TARGET": framework(target), "FUNCTION": function,
        **(COPIED if mapped is None else MAPPED),
    }  # fmt: skip
    for name, template in ADAPTERS[target].items():
        write(folder / name, filled(f"{template}.py", values))
    modules = dict.fromkeys(part.module for part in reward.parts)
    copied = dict.fromkeys(each for module in modules for each in (module, *ALSO.get(module, ()), *ALWAYS))
    for name in copied:
        write(folder / f"{name}.py", filled(f"{name}.py", {}))
    if "rule_reward" in modules:
        _write_rules(folder / "rlctl_rules")
    rows = [
        f"    ({part.reward.name!r}, {part.reward.weight!r}, {part.reward.applies_to!r}, {part.text}),"
        for part in reward.parts
    ]
    imports = sorted({f"from {part.module} import {part.class_name}" for part in reward.parts})
    zero = source == "rlctl" and all(part.reward.on_error == "zero" for part in reward.parts)
    table = {
        "SOURCE": framework(source), "IMPORTS": "\n".join(imports), "REWARDS": "\n".join(rows),
        "LABELS": repr(reward.labels), "BY_DOMAIN": repr(source == BY_DOMAIN), "OVERLONG": repr(reward.overlong),
        "ZERO_ON_ERROR": repr(zero), "MAIN_THREAD": repr(reward.main_thread),
    }  # fmt: skip
    write(folder / "ported_reward.py", filled("ported_reward.py", table))


def _write_rules(folder: Path) -> None:
    """A copy of rlctl's rules that needs nothing else of rlctl."""
    here = Path(__file__).parents[1] / "runtime" / "rewards"
    for name in RULES:
        text = (here / f"{name}.py").read_text(encoding="utf-8")
        text = re.sub(r"from rlctl\.common\.\S+ import", "from rlctl_rules.errors import", text)
        write(folder / f"{name}.py", text.replace("rlctl.runtime.rewards", "rlctl_rules"))
    write(folder / "errors.py", filled("rule_errors.py", {}))
    write(folder / "__init__.py", '"""Rules of rlctl, as they were when this folder was made."""')
