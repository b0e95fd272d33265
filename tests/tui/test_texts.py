"""What charts, ribbons, boxes and events are as text: every number is seen, nothing is said by color alone."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len
from textual.style import Style
from textual.visual import RenderOptions

from rlctl import runs
from rlctl.common.report import Bucket, Entry
from rlctl.monitor.metrics import EMPTY, Series, StepTable
from rlctl.monitor.watching import RunView
from rlctl.tui.panes.events import event_line
from rlctl.tui.widgets.batch_flow import Box, in_boxes
from rlctl.tui.widgets.braille import BLANK
from rlctl.tui.widgets.hanging import Hanging
from rlctl.tui.widgets.port_table import PortLine
from rlctl.tui.widgets.run_texts import duration, head_text, ribbon
from rlctl.tui.widgets.spark import MANY, drawn, number
from rlctl.tui.zh import ZH
from tests.tui import recorded

FLOW = [
    Box("1,024", "prompts"), Box("5,120", "responses", "×5"), Box("4", "mini-batches", "÷1,280"),
    Box("160", "on a replica", "1,280÷8"), Box("≤ 24,576", "tokens", "micro"),
]  # fmt: skip


@pytest.mark.parametrize("width", [60, 100, 190])
def test_each_phase_is_named_below_its_part_of_the_ribbon(width: int) -> None:
    table = StepTable()
    seconds = {"train": 6.0, "rollout": 2.0, "sync": 1.0, "reward": 0.5, "idle": 0.5}
    table.add(1, {f"time/{name}": each for name, each in seconds.items()} | {"time/step": 10.0})
    told, took = ribbon(table, width)
    bar, names = str(told).replace("\u00a0", " ").split("\n")
    assert took == "10 s"
    assert len(bar) == width
    assert bar.count("▌") == len(seconds)
    assert names.split("  ")[0] == "train 60%"
    assert [part.split()[0] for part in names.split("  ") if part.strip()] == list(seconds)
    assert len(names) <= width
    starts = [0, *(place + 1 for place, cell in enumerate(bar) if cell == "▌")]
    for name, start in zip(seconds, starts, strict=False):
        assert names.index(name) <= start, "moved to the left if at all"
    assert width < 190 or names.index("rollout") == starts[1]


def test_a_flow_without_room_is_a_column_of_boxes() -> None:
    narrow, wide = (str(in_boxes(FLOW, width)).splitlines() for width in (36, 200))
    assert len(wide) == 4
    assert len(narrow) == 2 * len(FLOW) + 1
    assert all(cell_len(line) <= 36 for line in narrow)
    for box, line in zip(FLOW, narrow[1::2], strict=True):
        assert box.value in line
        assert box.label in line
        assert line.startswith(f"{box.edge} " if box.edge else " ")
    assert "✗ 3" in str(in_boxes([*FLOW[:3], Box("3", "on a replica", "÷8", bad=True)], 30))


def test_a_target_of_several_keys_is_cut_between_keys() -> None:
    line = PortLine(
        Entry("a", Bucket.DERIVED), "a = 1", (), ("buffer.batch_size = 256", "buffer.train_batch_size = 4096")
    )
    assert line.target(100) == "buffer.batch_size = 256, buffer.train_batch_size = 4096"
    assert line.target(30) == "buffer.batch_size = 256  +1"
    assert cell_len(line.target(18)) <= 18


@pytest.mark.parametrize(
    ("value", "shown"), [(0.71484, "0.7148"), (2085.4, "2,085"), (-1180.0, "-1,180"), (3e9, "3e+09")]
)
def test_numbers_of_charts_have_no_powers_of_ten_where_digits_fit(value: float, shown: str) -> None:
    assert number(value, 4) == shown


@pytest.mark.parametrize(("points", "smooths"), [(6, False), (MANY, True)])
def test_a_few_points_are_drawn_as_they_are(points: int, smooths: bool) -> None:
    """A mean of six evaluations would lag behind them: it would say less than was measured."""
    series = Series(range(points), [float(value % 3) for value in range(points)])
    shown = drawn(series, EMPTY, 40, 12)
    dim = "".join(shown.plain[span.start : span.end] for span in shown.spans if span.style == "$border-blurred")
    assert any(ord(cell) > BLANK for cell in dim) == smooths


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([4.2831, 4.2849], ["4.285", "4.284", "4.283"]),
        ([0.0, 1.0], ["1", "0.5", "0"]),
        ([2.0, 2.0], ["2"]),
    ],
)
def test_the_values_of_a_scale_differ(values: list[float], scale: list[str]) -> None:
    lines = drawn(Series(range(len(values)), values), EMPTY, 40, 12).plain.splitlines()
    assert [line.split("┤")[0].strip() for line in lines if "┤" in line and line.split("┤")[0].strip()] == scale


def test_an_event_says_its_values_without_quotes_and_long_numbers() -> None:
    event: dict[str, Any] = {
        "time": 0,
        "kind": "stage_ended",
        "steps": 100,
        "seconds": {"train": 70.03569031},
        "notes": [],
    }
    assert event_line(event)[10:] == "stage_ended    steps=100  seconds=(train 70.04)  notes=–"


def test_durations_are_in_the_language_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [duration(seconds) for seconds in (3.24, 42, 185, 7400)] == ["3.2 s", "42 s", "3 min 05 s", "2 h 03 min"]
    assert [duration(hours * 3600) for hours in (47.5, 48, 2500.25)] == ["47 h 30 min", "2 d 00 h", "104 d 04 h"]
    monkeypatch.setattr("rlctl.tui.widgets.run_texts.say", ZH.__getitem__)
    assert [duration(seconds) for seconds in (42, 185, 7400)] == ["42 秒", "3 分 05 秒", "2 小时 03 分"]
    assert duration(200_000) == "2 天 07 小时"


def test_a_long_mapping_of_an_event_is_cut_and_a_message_is_not() -> None:
    stages = {"sft": {f"metric_{number}": number for number in range(50)}}
    line = event_line({"time": 0, "kind": "run_ended", "stages": stages, "cause": "x" * 500})
    assert "metric_3 3" in line
    assert "metric_40" not in line
    assert "…" in line
    assert "x" * 500 in line


def test_the_head_of_a_finished_run_is_one_line_in_a_narrow_terminal() -> None:
    run = recorded.FOLDER
    head = head_text(RunView(run).read_whole(), runs.inspect(run), recorded.ended(), name="addition", width=78)
    assert head.splitlines() == ["addition  ✓ finished  stage grpo  step 100/100  ━━━━━━ 100%  took 10 min 17 s"]


def test_a_long_line_goes_on_under_its_own_text() -> None:
    told = Hanging("[b]Head[/b] that is long\n☐ ! one two three four\n  five six seven\nshort")
    lines = [
        strip.text.rstrip() for strip in told.render_strips(14, None, Style(), RenderOptions(lambda _: Style(), {}))
    ]
    assert lines == ["Head that is", "long", "☐ ! one two", "    three four", "  five six", "  seven", "short"]
    assert told.get_height({}, 14) == len(lines)
    assert str(told).splitlines()[1] == "☐ ! one two three four"
