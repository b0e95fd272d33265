"""What a framework lacks that has no key for a canonical one, and what follows for the run. Data, and one sentence made of it."""

from __future__ import annotations

from collections.abc import Mapping

from rlctl.common.messages.reasons import said
from rlctl.common.ranks import Rank, rank_of
from rlctl.documents import KeyPath

SHOWN: Mapping[str, str] = {"verl": "verl", "trinity": "Trinity", "roll": "ROLL", "rlctl": "rlctl"}
"""The frameworks' own spelling of their names."""
ENVIRONMENTS = ("environment managers", "the converted run plays no environment")
WORKFLOWS = ("workflows", "the converted run generates one answer per row and scores it")
ENGINE = "the policy's apply; memory and speed may differ"
SERVER = ("settings for an OpenAI-compatible rollout server", "programs that call that server cannot connect")
LACKS: Mapping[str, tuple[str, str]] = {
    "rollout.environments": ENVIRONMENTS,
    "rollout.evaluation_environments": ENVIRONMENTS,
    "rollout.workflow": WORKFLOWS,
    "rollout.workflow_args": WORKFLOWS,
    "rollout.evaluation_workflow": WORKFLOWS,
    "rollout.auxiliary_models": ("auxiliary models", "workflows and rewards that call it fail"),
    "rollout.openai_server": SERVER,
    "rollout.per_turn_tokens": ("token limit for one turn", "only the whole response is limited"),
    "rollout.sampling.stop": ("stop strings", "a response ends at the end-of-text token or at its length limit"),
    "rollout.sampling.include_stop": ("switch for stop strings in responses", "the rollout engine's default applies"),
    "rollout.sampling.ignore_eos": ("switch to generate past the end-of-text token", "a response ends at that token"),
    "rollout.sampling.min_response_tokens": ("minimum response length", "responses may be shorter"),
    "rollout.sampling.seed": ("sampling seed", "responses differ from run to run"),
    "reference.engine": ("separate engine settings for the reference", ENGINE),
    "reference.model": ("separate model settings for the reference", "the policy's apply to the reference"),
    "critic.engine": ("separate engine settings for the critic", ENGINE),
    "critic.model": ("separate model settings for the critic", "the policy's apply to the critic"),
    "run.time_limit": ("time limit for a run", "only the job scheduler can end the run"),
    "run.seed": ("seed for the whole run", "random choices differ from the source's"),
}
"""By the beginning of a canonical key: what is lacking, and what follows. The longest beginning decides."""
EFFECTS: Mapping[Rank, str] = {
    Rank.BREAKS: "the run may fail",
    Rank.OBJECTIVE: "its own setting applies, and the loss or the update may differ",
    Rank.SCHEDULE: "its own setting applies, and the schedule or the batch may differ",
    Rank.DATA: "its own setting applies, and data, sampling or rewards may differ",
    Rank.RESOURCES: "its own setting applies; memory and speed may differ, results don't",
    Rank.NAMES: "its own setting applies; names, files and logs may differ, results don't",
}
"""What follows of a key that no row is about, by the key's rank."""


def lacking(dialect: str, canonical: KeyPath) -> str:
    """What a framework lacks, and what follows."""
    parts = [str(part) for part in canonical if not isinstance(part, int)]
    name, key = SHOWN.get(dialect, dialect), ".".join(parts)
    beginnings = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    row = next((LACKS[one] for one in beginnings if one in LACKS), None)
    what, follows = row or (said("key for {key}", key=key), EFFECTS[rank_of(key) or Rank.NAMES])
    return said("{name} has no {what}: {follows}", name=name, what=what, follows=follows)
