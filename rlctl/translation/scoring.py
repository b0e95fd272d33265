"""Rules that score otherwise in the target than in the source: what each of them reads in a response."""

from __future__ import annotations

from collections.abc import Mapping

from rlctl.adapters.engine.dialect import File
from rlctl.adapters.engine.implied import RULES
from rlctl.adapters.engine.lacking import SHOWN
from rlctl.common.messages.reasons import said, together
from rlctl.common.report import Finding, Level, finding
from rlctl.config import Config, Loaded, stages_of
from rlctl.config.sections.rewards import RuleReward
from rlctl.translation.guides import GUIDED, GUIDES
from rlctl.translation.read_back import of_part

Scorer = tuple[str, str, float, float]
"""A rule, its method, and its scores of right and wrong answers."""


def other_rewards(loaded: Loaded, file: File, source: str) -> list[Finding]:
    """A warning for each stage whose responses another rule scores in the target.

    Args:
        loaded: what was read.
        file: that was written, and read again.
        source: the dialect that was read.
    """
    again = file.again.loaded if file.again is not None else None
    if again is None or source == file.name:
        return []
    mine, _ = of_part(loaded, file)
    found = []
    for stage, other in zip(stages_of(mine.config), stages_of(again.config), strict=False):
        ours, theirs = _scorers(stage.config), _scorers(other.config)
        lost, new = ({key: one[key] for key in one if key not in two} for one, two in ((ours, theirs), (theirs, ours)))
        if lost and new:
            found.append(_finding(lost, new, source, file.name))
    return found


def _finding(lost: Mapping[Scorer, str], new: Mapping[Scorer, str], source: str, target: str) -> Finding:
    guide = f"{GUIDES}/{source}-to-{target}.md#rewards" if {source, target} <= {*GUIDED} else ""
    return finding(
        "other-reward",
        Level.WARNING,
        "rewards",
        source=SHOWN.get(source, source),
        target=SHOWN.get(target, target),
        ours=together(lost.values()),
        theirs=together(new.values()),
        guide=guide or "none",
    )


def _scorers(config: Config) -> dict[Scorer, str]:
    """The rules that score, each with what it reads; none for a run without rewards."""
    found: dict[Scorer, str] = {}
    for reward in config.rewards if config.algorithm.objective.choice == "rl" else ():
        if not isinstance(reward, RuleReward):
            continue
        rule, method = reward.rule, str(reward.args.get("method", "")) if reward.rule == "math" else ""
        text = RULES.get((rule, method)) or said("the rule {rule}", rule=rule)
        if (reward.score_right, reward.score_wrong) != (1.0, 0.0):
            scores = f"{reward.score_right:g}", f"{reward.score_wrong:g}"
            text = said("{text}, with {right} and {wrong}", text=text, right=scores[0], wrong=scores[1])
        found[rule, method, reward.score_right, reward.score_wrong] = text
    return found
