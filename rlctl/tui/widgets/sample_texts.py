"""Responses as people read them: a line in a list, and the whole with its tokens marked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from rlctl.common.language import later
from rlctl.common.terminal import safe
from rlctl.monitor.courses import Shown
from rlctl.monitor.samples import Group, Message, Response, Row
from rlctl.monitor.words import MOST, Kind, Words, difference, is_cut
from rlctl.tui.language import plural, say
from rlctl.tui.widgets.braille import blocks

STRIP = 48
"""Most steps of the strip of a prompt's rewards."""
REMOVED, ADDED = "$error", "$success"
UNLIKELY, MISMATCHED = "underline $warning", "bold reverse $error"
"""Looks of marked tokens; none is told by its color alone."""
FINISHES = {
    "stop": later("ended with the end token"),
    "done": later("ended with the end token"),
    "length": later("cut off at the longest length"),
    "turns": later("ended by the limit of turns"),
    "time": later("ended by the time limit"),
    "failed": later("failed"),
}

SHORT_FINISHES = {**FINISHES, "stop": "", "done": "", "length": later("cut off")}
"""Of a response among others: nothing of the usual end."""


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


def group_line(group: Group, step: int | None, strip: str = "") -> Content:
    """The head of a group in a list.

    Args:
        group: the group.
        step: its step, if the list is of one prompt over the steps.
        strip: the prompt's rewards over the steps.
    """
    name = say("step {step}").format(step=step) if step is not None else f"#{group.prompt_id}"
    if group.prompt_id is None and step is None:
        name = "#"
    mean = say("mean {reward}, all equal") if group.is_equal else say("mean {reward}")
    mean = mean.format(reward=number(group.mean_reward)) if group.responses else ""
    parts: list[tuple[str, str]] = [(name, "bold"), (f"  {mean}", "$text-muted")]
    parts += [(f"  {strip}", "$series-2")] if strip else []
    return Content.assemble(*parts, f"  {in_a_line(group.prompt, 160)}")


def strip_of(course: Sequence[Shown], scale: tuple[float, float], width: int) -> str:
    """The mean rewards of a prompt over the steps that show it, as blocks; nothing for a prompt that was shown once."""
    return blocks([shown.mean for shown in course], width, scale) if len(course) > 1 else ""


def course_line(course: Sequence[Shown], scale: tuple[float, float]) -> Content | None:
    """How often a prompt was shown, its rewards as a strip, and the first and the last of them."""
    if len(course) < 2:
        return None
    first, last = course[0], course[-1]
    change = last.mean - first.mean
    told = say("shown at {count} steps, step {first} to {last}").format(
        count=len(course), first=first.step, last=last.step
    )
    sign = "▲" if change > 0 else "▼" if change < 0 else "="
    return Content.assemble(
        (say("mean reward") + " ", "$text-muted"),
        (number(first.mean), ""),
        (f" {strip_of(course, scale, STRIP)} ", "$series-2"),
        (number(last.mean), "bold"),
        (f" {sign} {number(abs(change))}" if change else f" {sign}", _style_of(change)),
        (f"   {told}", "$text-muted"),
    )


HEAD = later(" reward  advant.  tokens")


def row_line(row: Row, *, of_group: bool, step: bool = False) -> Content:
    """A response in a list under ``HEAD``; its advantage green where training makes it likelier, red where less likely.

    T: cut off. E: a reward failed. M: rollout and trainer differ. A: an agent's conversation.
    """
    response = row.response
    marks = "".join(
        (
            "T" if response.truncated else " ",
            "E" if response.error else " ",
            "A" if response.messages else "M" if any(token.mismatched for token in response.tokens) else " ",
        )
    )
    where = f"#{row.group.prompt_id} " + (say("step {step}").format(step=row.step) + " " if step else "")
    return Content.assemble(
        f"{number(response.reward):>7} ",
        (f"{number(response.advantage):>8}", _style_of(response.advantage)),
        f" {response.length or '–':>7} {marks} ",
        in_a_line(response.text if of_group else f"{where}{response.text}", 160),
    )


def _style_of(change: float | None) -> str:
    """Green above 0, red below; the sign beside it says the same."""
    return "$success" if (change or 0) > 0 else "$error" if (change or 0) < 0 else "$text-muted"


def head_of_group(group: Group, step: int, course: Content | None = None) -> Iterator[Content]:
    """Which prompt it is, its rewards over the steps, the prompt, and its answer."""
    parts = [say("step {step}").format(step=step)]
    if group.prompt_id is not None:
        parts.append(say("prompt {number} of {source}").format(number=group.prompt_id, source=group.source))
    if group.weight_version is not None:
        parts.append(say("weights {version}").format(version=group.weight_version))
    yield Content.styled(" · ".join(parts), "$text-muted")
    if course is not None:
        yield course
    yield Content(plain(group.prompt))
    if group.answer:
        yield Content.assemble((say("answer") + " ", "$text-muted"), plain(group.answer))


def group_content(group: Group, step: int, course: Content | None = None) -> Content:
    """A group whole: its prompt, its answer, and its responses from best to worst."""
    parts = list(head_of_group(group, step, course))
    if group.is_equal:
        parts.append(Content.styled(say("all rewards are equal: nothing is learned from this group"), "$warning"))
    for response in sorted(group.responses, key=lambda response: -response.reward):
        parts += [_rule(), *_facts(response, group, in_a_group=True), text_of(response)]
    return Content("\n").join(parts)


def response_content(row: Row, course: Content | None = None) -> Content:
    """A response whole, with its prompt before it and its tokens marked."""
    place = [id(response) for response in row.group.responses].index(id(row.response)) + 1
    of = say("response {place} of {count}").format(place=place, count=len(row.group.responses))
    if row.group.shown_of is not None:
        of = plural(row.group.shown_of, later("the only response"), later("one of {count} responses"))
    parts = [*head_of_group(row.group, row.step, course), _rule(), Content.styled(of, "$text-muted")]
    parts += [*_facts(row.response, row.group), text_of(row.response)]
    if legend := list(_legend(row.response)):
        parts += [_rule(), *legend]  # last: what is looked for is the response
    return Content("\n").join(parts)


def _rule() -> Content:
    return Content.styled("─" * 24, "$text-muted")


def _facts(response: Response, group: Group, *, in_a_group: bool = False) -> Iterator[Content]:
    """What is known of a response; among others of its group without what is usual."""
    against = response.reward - group.mean_reward
    told = say("reward {reward} ({against} to the group's mean)")
    if in_a_group:
        told = say("reward {reward} ({against} to mean)")
    if group.shown_of is not None or (in_a_group and group.is_equal):
        told = say("reward {reward}")
    facts = [told.format(reward=f"{response.reward:g}", against=f"{against:+.3g}")]
    if response.advantage is not None:
        facts.append(say("advantage {advantage}").format(advantage=f"{response.advantage:+.3g}"))
    if response.length is not None:
        facts.append(plural(response.length, later("1 token"), later("{count} tokens")))
    finishes = SHORT_FINISHES if in_a_group else FINISHES
    if told := say(finishes[response.finish]) if response.finish in finishes else response.finish:
        facts.append(told)
    yield Content.styled(" · ".join(facts), "bold")
    alone = len(response.components) == 1 and in_a_group  # the only part of a reward is the reward
    components = [] if alone else [f"{name} {value:g}" for name, value in response.components.items()]
    if response.correct is not None:
        components.append(say("right") if response.correct else say("wrong"))
    components += [f"{name} {count:g}" for name, count in response.counts.items()]
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
        " " + say("sampled although its probability was below 1%: {count}").format(count=unlikely),
    ]
    yield Content.assemble(*parts)
    if response.mismatch is None:
        told = say("This run computes the trainer's log-probs only during the update, so no mismatch is marked.")
        yield Content.styled(told, "$text-muted")
        return
    told = say("rollout and trainer differ by a factor above 1.5: {count}; mean difference {mean} nats")
    yield Content.assemble(
        (say("reversed"), MISMATCHED), " " + told.format(count=apart, mean=f"{response.mismatch:.2g}")
    )


def text_of(response: Response) -> Content:
    """A response whole: an agent's as its conversation, or its turns, others with their tokens marked."""
    if response.messages:
        return Content("\n").join(line for message in response.messages for line in _message(message))
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
    """The turns of an agent: what it inserted is behind a bar, what the model generated, and is trained on, is not."""
    has_rewards = any(turn.reward for turn in response.turns)
    for number_, turn in enumerate(response.turns, 1):
        head = say("turn {number}").format(number=number_)
        if turn.reward is not None and has_rewards:
            head += " · " + say("reward {reward}").format(reward=f"{turn.reward:g}")
        yield Content.styled(head, "bold $text-muted")
        yield from _not_trained(turn.inserted)
        yield Content(plain(turn.generated))


def _not_trained(text: str) -> Iterator[Content]:
    """A text that training masks: each of its lines behind a bar."""
    for line in plain(text).splitlines():
        yield Content.assemble(("│ ", "$text-muted"), (line, "$text-muted"))


def _message(message: Message) -> Iterator[Content]:
    """A message of an agent: who wrote it, what of it is trained on, its text, and the tools that it calls.

    What the model did not write is behind a bar, as training masks it.
    """
    trained = message.tokens is not None
    told = [plural(message.tokens or 0, later("1 token, trained"), later("{count} tokens, trained"))]
    told = told if trained else [say("not trained")]
    if message.reward is not None:
        told.append(say("reward {reward}").format(reward=f"{message.reward:g}"))
    if message.inserted:
        masked = later("1 token before it, masked"), later("{count} tokens before it, masked")
        told.append(plural(message.inserted, *masked))
    if message.starts_row:
        told.append(say("a new training sequence"))
    look = "$series-1 bold" if trained else "$series-3 bold"
    yield Content.assemble("\n", ("▶ " if trained else "◀ ", look), (plain(message.role), look),
                           (f"  {' · '.join(told)}", "$text-muted"))  # fmt: skip
    yield from map(Content, plain(message.text).splitlines()) if trained else _not_trained(message.text)
    for call in message.calls:
        yield Content.assemble(
            ("→ ", "$series-4 bold"), (plain(call.tool), "$series-4 bold"), f"({plain(call.arguments)})"
        )


def difference_content(before: Row, after: Row) -> Content:
    """Two responses compared word by word, with what each was worth."""
    told = say("- step {step}, reward {reward}"), say("+ step {step}, reward {reward}")
    heads = [
        Content.styled(text.format(step=row.step, reward=f"{row.response.reward:g}"), style)
        for text, style, row in zip(told, (REMOVED, ADDED), (before, after), strict=True)
    ]
    texts = [plain(row.response.text) for row in (before, after)]
    found = list(difference(*texts))
    same = sum(len(words.text) for words in found if words.kind is Kind.SAME)
    share = say("{share:.0%} of the text is the same").format(share=2 * same / max(1, sum(map(len, texts))))
    parts = [*heads, Content.styled(share, "$text-muted")]
    if any(map(is_cut, texts)):
        parts.append(Content.styled(say("only the first {count} words are compared").format(count=MOST), "$warning"))
    return Content("\n").join([*parts, _rule(), Content.assemble(*map(_words, found))])


def _words(words: Words) -> tuple[str, str]:
    """Words as git marks them, so that no color is needed."""
    if words.kind is Kind.SAME:
        return words.text, ""
    return (f"[-{words.text}-]", REMOVED) if words.kind is Kind.REMOVED else (f"{{+{words.text}+}}", ADDED)
