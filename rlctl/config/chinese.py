"""The help of keys and options in Chinese, beside the English under each field.

The table is ``chinese.tsv``: what is explained (``Grpo.epsilon``, or ``Grpo`` for the option), a mark of the English that
the Chinese was made from, and the Chinese. A test fails if the English has changed since. The first command prints the lines to
check; the second marks lines whose Chinese is still right:

    python -m rlctl.config.chinese
    python -m rlctl.config.chinese --accept Grpo.epsilon Gae.gamma
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Container, Iterator
from functools import cache
from inspect import get_annotations
from pathlib import Path

from rlctl.common.language import chosen
from rlctl.config.fields import Choice
from rlctl.config.inspect import KeyInfo, sections_in, summary_of, walk
from rlctl.config.root import Config

LANGUAGE = chosen()
"""Read once."""
TABLE = Path(__file__).with_name("chinese.tsv")

FRAME = {"list of": "列表，每项为", "mapping of": "映射，值为", "or null": "或 null"}
"""Around the names that a choice can take."""
WORDS = {
    "steps, or {optimizer_steps: n}, or {epochs: n}": "步数，或 {optimizer_steps: n}，或 {epochs: n}",
    "text": "文本",
    "integer": "整数",
    "number": "数",
    "anything": "任意值",
    "mapping": "映射",
    "section": "一组键",
    "or": "或",
    "and at most": "且不大于",
    "and less than": "且小于",
    "at least": "不小于",
    "at most": "不大于",
    "more than": "大于",
    "less than": "小于",
    "optimizer steps": "优化器步",
    "scheduler steps": "调度步",
    "mini-batches": "mini-batch",
    "micro-batches": "micro-batch",
    "passes": "遍",
    "tokens on a replica": "token（每个副本）",
    "responses on a replica": "回答（每个副本）",
    "weight syncs": "次权重同步",
    "steps": "步",
    "turns": "轮",
    "tokens/s": "token/秒",
    "replicas": "副本",
    "responses/s": "回答/秒",
    "epochs": "轮",
    "characters": "字符",
    "share": "占比",
    "tokens": "token",
    "prompts": "prompt",
    "responses": "回答",
    "devices": "设备",
    "seconds": "秒",
    "processes": "进程",
    "threads": "线程",
    "calls": "调用",
    "retries": "次重试",
    "restarts": "次重启",
    "parameters": "参数",
    "mapped": "对应",
    "derived": "换算得出",
    "approximated": "近似",
    "carried": "保留",
    "unsupported": "不支持",
    "dead": "无效",
    "unknown": "未知",
    "changed here": "在此处修改",
    "as in the run": "同整个运行",
    "The stage's name.": "阶段的名称。",
    "several keys": "多个键",
    "the framework's default": "该框架的默认值",
    "default": "默认值",
    "from the environment": "取自环境变量",
}
"""What types, units, ranges, origins and accounts of keys are made of; the longer before what it begins with."""


def key_help(key: KeyInfo) -> str:
    """The help text of a key, in the reader's language."""
    return (LANGUAGE == "zh" and chinese(name_of(key))) or key.help


def option_help(cls: type) -> str:
    """The help text of an option, in the reader's language."""
    return (LANGUAGE == "zh" and chinese(cls.__name__)) or summary_of(cls)


def in_words(text: str) -> str:
    """A type, unit, range, origin or bucket in the reader's language; what can be written in a file stays as it is."""
    if LANGUAGE != "zh":
        return text
    words = FRAME if " | " in text else {**FRAME, **WORDS}
    return re.sub("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words), lambda found: words[found[0]], text)


def chinese(name: str) -> str:
    """The Chinese of one line; empty where there is none."""
    return lines().get(name, ("", ""))[1]


@cache
def lines() -> dict[str, tuple[str, str]]:
    """The table: the mark of the English, and the Chinese, by what they explain."""
    rows = (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines() if line)
    return {name: (mark, text) for name, mark, text in rows}


def mark_of(english: str) -> str:
    """A few letters that change with the text."""
    return hashlib.sha256(english.encode()).hexdigest()[:6]


def name_of(key: KeyInfo) -> str:
    """A key's name in the table: the section that explains it, which a section derived from it shares, and the field."""
    owner = next(cls for cls in key.owner.__mro__ if key.info.attribute in get_annotations(cls))
    return f"{owner.__name__}.{key.info.name}"


def english() -> Iterator[tuple[str, str]]:
    """Everything that the table explains, with its English, in the schema's order."""
    seen = set()
    for key in walk(Config):
        options = [
            cls for held, _ in sections_in(key.info.type) if issubclass(held, Choice) for cls in held.registry.values()
        ]
        for name, text in ((name_of(key), key.help), *((cls.__name__, summary_of(cls)) for cls in options)):
            if name not in seen:
                seen.add(name)
                yield name, text


def accept(names: Container[str]) -> None:
    """Mark lines of the table as right for the English of now."""
    marks = {name: mark_of(text) for name, text in english() if name in names}
    rows = [(name, marks.get(name, mark), text) for name, (mark, text) in lines().items()]
    TABLE.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--accept"]:
        accept(sys.argv[2:])
    else:
        for name, text in english():
            if lines().get(name, ("", ""))[0] != mark_of(text):
                print(name, mark_of(text), text, sep="\t")
