"""Reasons: English texts of the code that are shown in the reader's language."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter

import pytest

from rlctl.adapters.engine.meanings import NOTED
from rlctl.common.errors import UsageError
from rlctl.common.language import VARIABLE
from rlctl.common.messages import in_language
from rlctl.common.messages import reasons as reasons_module
from rlctl.common.messages.reasons import reasons, said, together, translated, with_values
from rlctl.common.report import Bucket, Entry, Level, finding
from rlctl.config import presets
from rlctl.translation.translate import translate

FORMATTED = 22
"""Formatted strings that are no reasons, at most: names, options, places in files. The number may only fall."""
WORDS = {
    "ROLL has no {name}. Wrote {value:g}": "ROLL 没有 {name}，已写出 {value:g}",
    "the policy's engine": "策略的引擎",
    "verl has none": "verl 没有",
}


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three reasons with Chinese texts, for a reader of Chinese."""
    monkeypatch.setenv(VARIABLE, "zh")
    monkeypatch.setattr(reasons_module, "reasons", lambda spoken: WORDS)


def test_a_reason_with_other_values_is_still_translated(chinese: None) -> None:
    reason = said("ROLL has no {name}. Wrote {value:g}", name="/home/me", value=2.0)
    shown = with_values(together([reason, "a plain /home/me"]), lambda text: text.replace("/home/me", "~"))
    assert shown == "ROLL has no ~. Wrote 2; a plain ~"
    assert translated(shown) == "ROLL 没有 ~，已写出 2；a plain ~"


def test_a_reason_is_its_english_text() -> None:
    reason = said("ROLL has no {name}. Wrote {value:g}", name="rloo", value=0.5)
    assert reason == "ROLL has no rloo. Wrote 0.5"
    assert Entry("a", Bucket.DERIVED, note=reason).as_data()["note"] == "ROLL has no rloo. Wrote 0.5"


@pytest.mark.usefixtures("chinese")
def test_a_reason_is_shown_with_its_values_in_the_language_of_the_reader() -> None:
    reason = said("ROLL has no {name}. Wrote {value:g}", name="the policy's engine", value=0.5)
    assert translated(reason) == "ROLL 没有 策略的引擎，已写出 0.5"
    assert translated(reason, "en") is reason
    assert Entry("a", Bucket.DERIVED, note="verl has none").why == "verl 没有"


@pytest.mark.usefixtures("chinese")
def test_several_reasons_keep_their_translations() -> None:
    both = together(
        ["verl has none", "", "verl has none", said("ROLL has no {name}. Wrote {value:g}", name="x", value=1)]
    )
    assert both == "verl has none; ROLL has no x. Wrote 1"
    assert translated(both) == "verl 没有；ROLL 没有 x，已写出 1"
    assert translated(together([both, "unknown text"])) == "verl 没有；ROLL 没有 x，已写出 1；unknown text"
    assert together([]) == ""


@pytest.mark.usefixtures("chinese")
def test_a_reason_survives_copies_and_other_processes() -> None:
    reason = said("ROLL has no {name}. Wrote {value:g}", name="x", value=2)
    for other in (copy.deepcopy(reason), pickle.loads(pickle.dumps(reason))):
        assert other == reason
        assert translated(other) == "ROLL 没有 x，已写出 2"


@pytest.mark.usefixtures("chinese")
def test_a_reason_without_a_translation_is_shown_in_english() -> None:
    assert translated("no such text") == "no such text"
    assert translated(said("nor {this}", this="one")) == "nor one"


@pytest.mark.usefixtures("chinese")
def test_messages_translate_the_reasons_that_they_show() -> None:
    assert in_language("zh", "silent-difference", reason="verl has none") == "verl 没有"
    assert in_language("en", "silent-difference", reason="verl has none") == "verl has none"
    found = finding("silent-difference", Level.NOTE, "a.b", reason="verl has none")
    assert found.message == "verl 没有"
    assert found.as_data()["params"] == {"reason": "verl has none"}


@pytest.mark.usefixtures("chinese")
def test_an_error_keeps_its_reason() -> None:
    error = UsageError(said("ROLL has no {name}. Wrote {value:g}", name="x", value=2), hint="verl has none")
    assert translated(error.message) == "ROLL 没有 x，已写出 2"
    assert str(error) == "ROLL has no x. Wrote 2\n  verl has none"


# Every reason has a Chinese text

ROOT = Path(__file__).parents[2]
PLACES = ("rlctl/adapters", "rlctl/planning/batch_table.py", "rlctl/planning/megatron", "rlctl/translation")
ENGLISH_PAGES = ("rlctl/translation/annotation.py",)
"""Modules that write into files, which are English."""
PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [a-zA-Z(]")
SOURCE = re.compile(r"\S+, \S+(: \S+)?$")
"""A file and a function of a framework."""
NOT_SHOWN = re.compile(
    r"rlctl: |kept keys$|A conversation between|Please reason step|You are a helpful assistant that|\{% if|#!/usr|set -x"
    r"|optimizer steps?$|command line$| ?--(env|sidecar) |(critic|Megatron|log-prob|rollout|reference)[\w -]* (critic"
    r"|micro-batch|engine)$|Megatron (critic|Lite)$"
)
"""Texts of files, prompts that a framework sends, names of rules, names of engines, options."""


ERROR_PLACES = (
    *("rlctl/checks", "rlctl/cli", "rlctl/cluster", "rlctl/common", "rlctl/config", "rlctl/documents", "rlctl/editing"),
    *(
        "rlctl/monitor",
        "rlctl/planning",
        "rlctl/porting",
        "rlctl/runs",
        "rlctl/runtime",
        "rlctl/sandbox",
        "rlctl/shell",
        "rlctl/translation",
        "rlctl/tui",
    ),
)
"""Packages whose errors and notes have Chinese texts: what a user meets before a run, in it and around it."""
ERRORS = re.compile(
    r"(Usage|Run|Document|Config|Plan|Translation|Rlctl|Unreadable|_Unresolved|NoEditor|FileChanged|Missing)Error"
    r"|MissingDependency|SandboxUnavailable|Worker(Failed|Lost)|RayLost|Service(Error|Away)|_Busy|ApiError|ProgramFailed|NoCall|TooLong|Rewritten|EnvironmentFailed|said|spoken|advise|tell"
    r"|_fail|unknown|unknown_items|_malformed"
)
UNTRANSLATED = re.compile(r"export |environment_|close$|pip install |是否想用|用法见|--format ")
"""Commands to type, and texts that are Chinese already."""


def parsed_errors() -> Iterator[tuple[str, ast.Module]]:
    for place in ERROR_PLACES:
        for path in sorted((ROOT / place).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def texts_of_errors() -> Iterator[tuple[str, ast.expr]]:
    """What errors are given as their message and their hint, with the module."""
    for module, tree in parsed_errors():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ERRORS.fullmatch(name := called(node)):
                hints = [known.value for known in node.keywords if known.arg == "hint"]
                for given in [*node.args[: 2 if name in ("advise", "ApiError", "EnvironmentFailed") else 1], *hints]:
                    yield from ((module, part) for part in alternatives(given, assigned(tree)))


def called(node: ast.Call) -> str:
    """The function that a call names; of methods only those that tell the user something during a run."""
    method = getattr(node.func, "attr", "")
    return method if method in ("advise", "tell") else getattr(node.func, "id", "")


def assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """What variables of a module are set to."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


def alternatives(given: ast.expr, variables: dict[str, list[ast.expr]]) -> Iterator[ast.expr]:
    """The texts that an argument may be, or is put together of."""
    match given:
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
            yield from alternatives(one, variables)
            yield from alternatives(other, variables)
        case ast.BoolOp(values=values):
            for value in values:
                yield from alternatives(value, variables)
        case ast.Name(id=name):
            for value in variables.get(name, ()):
                yield from alternatives(value, {})
        case _:
            yield given


def parsed_modules() -> Iterator[tuple[str, ast.Module, dict[ast.AST, ast.AST]]]:
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*.py")) or [ROOT / place]:
            tree = ast.parse(path.read_text())
            parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
            yield str(path.relative_to(ROOT)), tree, parents


def is_called(node: ast.AST | None, name: str, first: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == name
        and bool(node.args)
        and node.args[0] is first
    )


def is_for_developers(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether a text is the ``why`` of a custom rule, which only the source shows."""
    named = parents[node]
    made = parents[named] if isinstance(named, ast.keyword) and named.arg == "why" else None
    return isinstance(made, ast.Call) and getattr(made.func, "id", "") == "CustomRule"


def said_in_code() -> dict[str, str]:
    """The reasons in the code, with the module that says each: what ``said`` is given, and constants with several words."""
    found: dict[str, str] = {}
    for module, tree, parents in parsed_modules():
        for node in ast.walk(tree) if module not in ENGLISH_PAGES else ():
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            parent, text = parents[node], node.value
            if isinstance(parent, (ast.Expr, ast.JoinedStr)) or is_called(parent, "CustomRule", node):
                continue
            if is_for_developers(node, parents):
                continue
            prose = PROSE.search(text) and not SOURCE.match(text) and not NOT_SHOWN.match(text)
            if prose or is_called(parent, "said", node):
                found.setdefault(text, module)
    return found


def variables(text: str) -> list[tuple[str, str, str]]:
    return sorted((name, form or "", how or "") for _, name, form, how in Formatter().parse(text) if name is not None)


def test_every_reason_has_a_chinese_text() -> None:
    known = reasons("zh")
    assert not [f"{module}: {text}" for text, module in said_in_code().items() if text not in known]


def test_errors_have_chinese_texts() -> None:
    known, lacking = reasons("zh"), []
    for module, given in texts_of_errors():
        if isinstance(given, ast.JoinedStr):
            text = "".join(str(part.value) for part in given.values if isinstance(part, ast.Constant))
            if re.search("[A-Za-z]{2}", text) and not UNTRANSLATED.match(text):
                lacking.append(f"{module}: {ast.unparse(given)} has to be made by said()")
            continue
        text = given.args[0] if isinstance(given, ast.Call) and getattr(given.func, "id", "") == "said" else given
        is_prose = (
            isinstance(text, ast.Constant) and isinstance(text.value, str) and re.search("[A-Za-z]{2}", text.value)
        )
        if is_prose and re.fullmatch(r"(\{[^{}]*\}|[^A-Za-z])*", text.value):  # values alone
            continue
        if is_prose and text.value not in known and not UNTRANSLATED.match(text.value):  # type: ignore[attr-defined]
            lacking.append(f"{module}: {text.value}")
    assert lacking == []


PRESETS = (*presets.names(), *presets.published())


def said_of(preset: presets.Preset) -> tuple[str, ...]:
    """The texts of a preset's head that are shown in the reader's language."""
    return (preset.title, preset.needs, *preset.notes)


def test_every_preset_has_a_chinese_title() -> None:
    assert not [preset.name for preset in PRESETS if not set(said_of(preset)) <= reasons("zh").keys()]


def test_every_chinese_text_is_of_a_reason() -> None:
    constants = {
        node.value
        for _, tree, _ in parsed_modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    constants |= {
        node.value
        for _, tree in parsed_errors()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    constants |= {str(text) for text in NOTED.values()}
    constants |= {text for preset in PRESETS for text in said_of(preset)}
    assert not [text for text in reasons("zh") if text not in constants]


def test_a_chinese_text_has_the_values_of_the_english_one() -> None:
    with_values = {
        text.value
        for _, tree, parents in parsed_modules()
        for text in ast.walk(tree)
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and is_called(parents[text], "said", text)
    }
    assert len(with_values) > 400
    assert not [text for text in with_values if variables(text) != variables(reasons("zh")[text])]
    named = re.compile(r"\{[\w.]+\}")
    others = reasons("zh").keys() - with_values
    assert not [text for text in others if sorted(named.findall(text)) != sorted(named.findall(reasons("zh")[text]))]


def test_each_reason_is_given_its_values() -> None:
    wrong = []
    for path in sorted((ROOT / "rlctl").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("said", "spoken") and node.args:
                given = {each.arg for each in node.keywords}
                texts = [part.value for part in alternatives(node.args[0], {}) if isinstance(part, ast.Constant)]
                wanted = {name for text in texts for name, _, _ in variables(str(text))}
                if texts and None not in given and wanted != given:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {wanted ^ given}")
    assert not wrong


def test_no_reason_is_a_formatted_string() -> None:
    """Such a reason is shown in English: it has to be made by ``said``."""
    found = []
    for module, tree, parents in parsed_modules():
        for node in ast.walk(tree) if module not in ENGLISH_PAGES else ():
            if not isinstance(node, ast.JoinedStr) or is_called(parents[node], "CustomRule", node):
                continue
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "xx" for part in node.values)
            is_name = isinstance(parents[node], ast.keyword) and getattr(parents[node], "arg", "") == "name"
            if PROSE.search(text) and not SOURCE.match(text) and not is_name:
                found.append(f"{module}:{node.lineno}: {text}")
    assert len(found) <= FORMATTED, "\n".join(found)


def test_lines_are_sorted_by_module_and_none_is_double() -> None:
    lines = (ROOT / "rlctl/common/messages/reasons.zh.tsv").read_text().splitlines()
    modules = [line for line in lines if line.startswith("# ")]
    assert modules == sorted(modules)
    assert len(lines) - len(modules) - lines.count("") == len(reasons("zh"))


def test_a_conversion_and_a_refusal_are_told_in_chinese(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "zh")
    file = tmp_path / "verl.yaml"
    file.write_text(
        "algorithm: {adv_estimator: rloo}\ndata: {train_files: a.parquet, train_batch_size: 64}\n"
        "actor_rollout_ref: {model: {path: m}, actor: {ppo_mini_batch_size: 32, use_kl_loss: true, kl_loss_type: k2}}\n"
    )
    report = translate(file, "roll").report
    shown = [entry.why for entry in report.accounting if entry.why] + [item.message for item in report.findings]
    assert not [text for text in shown if not re.search(r"[\u4e00-\u9fff]", text)]
    assert "ROLL 的损失总用 k3 估计，而不是 k2" in shown
    assert not [entry.note for entry in report.accounting if re.search(r"[\u4e00-\u9fff]", entry.note)]

    file.write_text("actor_rollout_ref: {model: {path: m}, actor: {loss_agg_mode: token}}\n")
    [refused] = [item for item in translate(file, "roll").report.findings if item.key.endswith("actor.loss_agg_mode")]
    assert "是 'token'；应为以下之一：token-mean" in refused.message
