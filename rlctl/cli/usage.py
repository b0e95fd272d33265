"""The command line in Chinese: its help, and click's messages about a wrong one, in the form of rlctl's other errors.

``help.zh.tsv`` has the Chinese help next to the English one, paragraph by paragraph; ``tests/cli/test_help.py`` finds what
lacks it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import typer

from rlctl.cli import diagnostics
from rlctl.common.errors import UsageError

_UsageError: Any = typer.BadParameter.__bases__[0]
"""What click raises for a wrong command line; typer shows only some of its kinds."""
MESSAGES = (
    (r"Missing argument '(.+)'\.", "缺少参数 {0}"),
    (r"Missing option '(.+)'\.", "缺少选项 {0}"),
    (r"Missing command\.", "缺少子命令"),
    (r"No such command '(.+?)'\. Did you mean '?(.+?)'?\?", "没有命令 {0}，是否想写 {1}？"),
    (r"No such command '(.+?)'\..*", "没有命令 {0}"),
    (r"No such option: (\S+)(?: .*)?", "没有选项 {0}"),
    (r"Option '?(\S+?)'? requires an argument\.", "选项 {0} 需要一个值"),
    (r"Option '?(\S+?)'? does not take a value\.", "选项 {0} 不带值"),
    (r"Got unexpected extra arguments? \((.+)\)", "多余的参数：{0}"),
    (r"Invalid value for '(.+?)': '?(.*?)'? is not a valid (?:integer|int)( range)?\.", "{0} 的值 {1} 不是整数"),
    (r"Invalid value for '(.+?)': '?(.*?)'? is not a valid float( range)?\.", "{0} 的值 {1} 不是数字"),
    (r"Invalid value for '(.+?)': '(.*?)' is not one of (.+)\.", "{0} 的值是 {1}，应为 {2} 之一"),
    (r"Invalid value for '(.+?)': (\S+) is not in the range (.+)\.", "{0} 的值 {1} 超出范围 {2}"),
    (r"Invalid value for '(.+?)': (.*)", "{0} 的值无效：{1}"),
)
"""What click says, and how it reads in Chinese."""


def in_chinese(message: str) -> str:
    """A message of click's in Chinese; one that is not known as it is."""
    for pattern, chinese in MESSAGES:
        if found := re.fullmatch(pattern, message, re.DOTALL):
            return chinese.format(*found.groups())
    return message


HELP_OPTIONS = ["-h", "--help"]
LABELS = (
    "ARGUMENTS_PANEL_TITLE",
    "OPTIONS_PANEL_TITLE",
    "COMMANDS_PANEL_TITLE",
    "DEFAULT_STRING",
    "REQUIRED_LONG_STRING",
)
"""What typer itself writes into help."""
_WORD = r"\s*（*(?:[\u2e80-\uffef]|[^\s\u2e80-\uffef]+)[，。；：、！？）]*\s*"
"""What a line of Chinese help is broken between: words, and single characters, with the punctuation that belongs to them."""
COMMAND_LINE = re.compile(r"\[cyan\]")
"""How a paragraph begins that is an example."""


@cache
def chinese_help() -> Mapping[str, str]:
    """The Chinese paragraphs by the English ones."""
    lines = Path(__file__).with_name("help.zh.tsv").read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


def paragraphs_of(command: Any) -> Iterator[str]:
    """The paragraphs of the help of a command, of its options, and of the commands in it, without examples."""
    for owner in (command, *command.params):
        for paragraph in (getattr(owner, "help", None) or "").split("\n\n"):
            if paragraph and not COMMAND_LINE.match(paragraph):
                yield paragraph
    for inner in getattr(command, "commands", {}).values():
        yield from paragraphs_of(inner)


def localized(command: Any) -> Any:
    """A command whose help, and that of the commands in it, is Chinese."""
    known = chinese_help()
    asked = command.get_help_option(typer.Context(command, help_option_names=HELP_OPTIONS))
    for owner in (command, asked, *command.params):
        if owner is not None and getattr(owner, "help", None):
            owner.help = "\n\n".join(known.get(part, part) for part in owner.help.split("\n\n"))
    command.rich_help_panel = known.get(command.rich_help_panel or "", command.rich_help_panel)
    for inner in getattr(command, "commands", {}).values():
        localized(inner)
    return command


def shows_help(command: Any, words: list[str]) -> bool:
    """Whether a command line prints help: it asks for it, or names a group of commands alone."""
    last = command.commands.get(words[-1]) if words else None
    return any(word in HELP_OPTIONS for word in words) or bool(getattr(last, "no_args_is_help", False))


def show_whole_texts() -> None:
    """Have tables of help fold what does not fit into a column, not cut it off with an ellipsis."""
    from rich import columns
    from rich.table import Table
    from typer import rich_utils

    class Folding(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*cells, **options)
            for column in self.columns:
                column.overflow = "fold"

    rich_utils.Table = columns.Table = Folding  # type: ignore[attr-defined]


def _fill_lines() -> None:
    """Have Rich break Chinese anywhere: it breaks only at blanks, and has no setting for this. Without it lines are shorter."""
    try:
        from rich import _wrap
    except ImportError:  # a private module
        return
    _wrap.words = lambda text: ((found.start(), found.end(), found[0]) for found in re.finditer(_WORD, text))


def run(command: Any) -> None:
    """Run the command line; its help and its usage errors are in Chinese.

    Raises:
        SystemExit: with the exit code of the command, if it is not 0.
    """
    if shows_help(command, sys.argv[1:]):
        from typer import rich_utils

        for label in LABELS:
            setattr(rich_utils, label, chinese_help()[getattr(rich_utils, label)])
        _fill_lines()
        localized(command)
    try:
        code = command(prog_name="rlctl", standalone_mode=False)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: its help
            error.show()
            raise SystemExit(error.exit_code) from None
        near = getattr(error, "possibilities", None)
        path = error.ctx.command_path if error.ctx is not None else "rlctl"
        hint = f"是否想用 {'、'.join(near)}？" if near else f"用法见 {path} --help"
        diagnostics.error(UsageError(in_chinese(error.format_message()), hint=hint))
        raise SystemExit(error.exit_code) from None
    except typer.Abort:
        raise SystemExit(1) from None
    if isinstance(code, int) and code:
        raise SystemExit(code)
