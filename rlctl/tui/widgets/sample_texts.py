"""Responses as people read them: a line in a list, and the whole with its tokens marked."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from rlctl.common.language import later
from rlctl.common.terminal import safe
from rlctl.monitor.samples import Group, Response, Row
from rlctl.tui.language import say

UNLIKELY, MISMATCHED = "underline $warning", "bold reverse $error"
"""Looks of marked tokens; none is told by its color alone."""
FINISHES = {
    "stop": later("ended by itself"),
    "done": later("ended by itself"),
    "length": later("cut off at the longest length"),
    "turns": later("ended by the limit of turns"),
    "time": later("ended by the time limit"),
    "failed": later("failed"),
}


def plain(text: str) -> str:
    """A text that a terminal can show: control characters become their pictures."""
    return safe(text).expandtabs(4)


def in_a_line(text: str, cells: int) -> str:
    """The beginning of a text in one line of at most so many cells."""
    line = plain(" ".join(text[: 4 * cells].split()))
    return line if cell_len(line) <= cells else set_cell_size(line, cells - 1) + "…"


def number(value: float | None, digits: int = 2) -> str:
    """A number in few characters; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.3g}"


def group_line(group: Group, step: int | None) -> str:
    """The head of a group in a list; ``step`` is named where the list is of one prompt over the steps."""
    name = say("step {step}").format(step=step) if step is not None else f"#{group.prompt_id}"
    if group.prompt_id is None and step is None:
        name = "#"
    mean = f"  x̄ {number(group.mean_reward)}{'=' if group.is_equal else ''}" if group.responses else ""
    return f"{name}{mean}  {in_a_line(group.prompt, 160)}"


HEAD = later(" reward  advant.  tokens")


def row_line(row: Row, *, of_group: bool) -> str:
    """A response in a list under ``HEAD``: T where it is cut off, E where a reward failed, M where rollout and trainer differ."""
    response = row.response
    marks = "".join(
        (
            "T" if response.truncated else " ",
            "E" if response.error else " ",
            "M" if any(token.mismatched for token in response.tokens) else " ",
        )
    )
    told = f"{number(response.reward):>7} {number(response.advantage):>8} {response.length or '–':>7} {marks} "
    return told + in_a_line(response.text if of_group else f"#{row.group.prompt_id} {response.text}", 160)


def head_of_group(group: Group, step: int) -> Iterator[Content]:
    """Which prompt it is, the prompt, and its answer."""
    parts = [say("step {step}").format(step=step)]
    if group.prompt_id is not None:
        parts.append(say("prompt {number} of {source}").format(number=group.prompt_id, source=group.source))
    if group.weight_version is not None:
        parts.append(say("drawn by weights {version}").format(version=group.weight_version))
    yield Content.styled(" · ".join(parts), "$text-muted")
    yield Content(plain(group.prompt))
    if group.answer:
        yield Content.assemble((say("answer") + " ", "$text-muted"), plain(group.answer))


def group_content(group: Group, step: int) -> Content:
    """A group whole: its prompt, its answer, and its responses from best to worst."""
    parts = list(head_of_group(group, step))
    if group.is_equal:
        parts.append(Content.styled(say("all rewards are equal: nothing is learned from this group"), "$warning"))
    for response in sorted(group.responses, key=lambda response: -response.reward):
        parts += [_rule(), *_facts(response, group), _text(response)]
    return Content("\n").join(parts)


def response_content(row: Row) -> Content:
    """A response whole, with its prompt before it and its tokens marked."""
    place = [id(response) for response in row.group.responses].index(id(row.response)) + 1
    of = say("response {place} of {count}").format(place=place, count=len(row.group.responses))
    parts = [*head_of_group(row.group, row.step), _rule(), Content.styled(of, "$text-muted")]
    parts += [*_facts(row.response, row.group), *_legend(row.response), _text(row.response)]
    return Content("\n").join(parts)


def _rule() -> Content:
    return Content.styled("─" * 24, "$text-muted")


def _facts(response: Response, group: Group) -> Iterator[Content]:
    against = response.reward - group.mean_reward
    told = say("reward {reward} ({against} to the group's mean)")
    facts = [told.format(reward=f"{response.reward:g}", against=f"{against:+.3g}")]
    if response.advantage is not None:
        facts.append(say("advantage {advantage}").format(advantage=f"{response.advantage:+.3g}"))
    if response.length is not None:
        facts.append(say("{count} tokens").format(count=response.length))
    if response.finish:
        facts.append(say(FINISHES[response.finish]) if response.finish in FINISHES else response.finish)
    yield Content.styled(" · ".join(facts), "bold")
    components = [f"{name} {value:g}" for name, value in response.components.items()]
    if response.correct is not None:
        components.append(say("right") if response.correct else say("wrong"))
    if components:
        yield Content(plain(" · ".join(components)))
    if response.failure:
        yield Content.styled(plain(say("the agent failed: {error}").format(error=response.failure)), "$error")
    if response.error:
        yield Content.styled(plain(say("a reward failed: {error}").format(error=response.error)), "$error")


def _legend(response: Response) -> Iterator[Content]:
    """What the marks mean, and how many there are."""
    if not response.tokens:
        return
    unlikely, apart = sum(token.unlikely for token in response.tokens), sum(t.mismatched for t in response.tokens)
    parts: list[Content | tuple[str, str] | str] = [
        (say("underlined"), UNLIKELY),
        " " + say("drawn though its probability was below 1%: {count}").format(count=unlikely),
    ]
    yield Content.assemble(*parts)
    if response.mismatch is None:
        told = say("The trainer's log-probs are not computed apart from the update here, so no mismatch is marked.")
        yield Content.styled(told, "$text-muted")
        return
    told = say("rollout and trainer differ by a factor above 1.5: {count}; mean difference {mean} nats")
    yield Content.assemble(
        (say("reversed"), MISMATCHED), " " + told.format(count=apart, mean=f"{response.mismatch:.2g}")
    )


def _text(response: Response) -> Content:
    if response.turns:
        return Content("\n").join(_turns(response))
    if not response.tokens:
        return Content(plain(response.text))
    parts = []
    for token in response.tokens:
        look = MISMATCHED if token.mismatched else UNLIKELY if token.unlikely else ""
        parts.append((plain(token.text), look) if look else plain(token.text))
    return Content.assemble(*parts)


def _turns(response: Response) -> Iterator[Content]:
    """The turns of an agent: what it inserted is dim, what the model generated, and is trained on, is not."""
    for number_, turn in enumerate(response.turns, 1):
        head = say("turn {number}").format(number=number_)
        if turn.reward is not None:
            head += " · " + say("reward {reward}").format(reward=f"{turn.reward:g}")
        yield Content.styled(head, "bold $text-muted")
        yield Content.assemble((plain(turn.inserted), "$text-muted"), plain(turn.generated))
