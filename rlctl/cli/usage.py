"""A wrong command line in Chinese: click's own messages, which are English, in the form of rlctl's other errors."""

from __future__ import annotations

import re
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
    (r"No such command '(.+?)'\.(?: Did you mean (.+)\?)?", "没有命令 {0}"),
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


def run(command: Any) -> None:
    """Run the command line; its usage errors are in Chinese.

    Raises:
        SystemExit: with the exit code of the command, if it is not 0.
    """
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
