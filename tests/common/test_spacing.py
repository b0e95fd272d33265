"""The space between Chinese and Latin text."""

from __future__ import annotations

import pytest

from rlctl.common.messages.reasons import said, sequence, translated
from rlctl.common.messages.spacing import filled, joined


@pytest.mark.parametrize(
    ("template", "values", "shown"),
    [
        ("应为{x}", {"x": "true"}, "应为 true"),
        ("应为{x}", {"x": "整数"}, "应为整数"),
        ("应为{x}之一", {"x": "'a'"}, "应为 'a' 之一"),
        ("共{x:g}步", {"x": 2.0}, "共 2 步"),
        ("占{x}的内存", {"x": "50%"}, "占 50% 的内存"),
        ("应为 {x}", {"x": "true"}, "应为 true"),
        ("{x}：{y}", {"x": "/数据data", "y": "不存在"}, "/数据data：不存在"),
        ("{{x}}是{x!r}", {"x": "a"}, "{x} 是 'a'"),
    ],
)
def test_a_space_is_between_a_chinese_and_a_latin_part(template: str, values: dict[str, object], shown: str) -> None:
    assert filled(template, values, "zh") == shown
    assert filled(template, values, "en") == template.format(**values)


def test_parts_are_joined_with_it() -> None:
    assert joined(["权重", "a", "", "和", "b"], "zh") == "权重 a 和 b"
    assert translated(sequence("the default", "x"), "zh") == "默认值 x"
    assert translated(said("'{path}' cannot be read", path="x"), "zh") == "'x' cannot be read"
