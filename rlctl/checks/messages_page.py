"""The reference of all messages, which the site adds to ``docs/reference/messages.md``: what each code means and says.

python -m rlctl.checks.messages_page
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rlctl.checks.problem import ELSEWHERE, LEVELS
from rlctl.common.messages import catalogue, code_of, has, in_language
from rlctl.common.report import option_for_fact, without_requests
from rlctl.common.report_lines import framework

SECTIONS = {"What `rlctl check` finds": True, "Reading and converting": False}
"""The title of each section, and whether it is that of the checks."""
PACKS = {
    "reason": "train.packing on the Megatron engine: the engine always packs sequences without padding",
    "advice": "remove it",
}
EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "stage": {"reason": "unknown key 'batch.prompts_per_stp'"},
    "auxiliary-models": {
        "reason": "two of rollout.auxiliary_models are called 'grader'",
        "advice": "give each its own name",
    },
    "judge-model_devices": {
        "reason": "2 engines of 4 devices for the judge 'grader' need 8; it has 4",
        "advice": "set its replicas to 1, or placement.roles.judge.devices",
    },
    "data-unreadable": {"reason": "it is nested too deep"},
    "data-unreadable_rows": {
        "reason": "rows.parquet has no rows",
        "advice": "set data.train[0].path or data.train[0].format",
    },
    "devices-not-divisible": {
        "reason": "8 training devices do not divide into replicas of 3 devices (8 / 3 = 2.66667)",
        "advice": "use 6 or 9 devices, or change the parallel sizes of train.engine",
    },
    "tensor-over-node": {
        "reason": "layers are shared by 16 devices on nodes of 8: some would span several nodes",
        "advice": "set train.engine.tensor_parallel_size to 8",
    },
    "megatron-layout": {
        "reason": "4 heads are not divisible by the tensor parallel size 16",
        "advice": "set train.engine.tensor_parallel_size to 4",
    },
    "context-parallel": {
        "reason": "28 heads / tensor parallel size 4 = 7, which is not divisible by the context parallel size 2",
        "advice": "set train.engine.context_parallel_size to 1 or 7",
    },
    "memory": {
        "reason": "train needs 58 GiB on a device of 40 GiB, of which 95% can be filled; the largest part is policy "
        "activations with 16.0 GiB",
        "first": "set batch.micro_batch.size to 8192",
    },
    "memory_several": {
        "reason": "train needs 88 GiB on a device of 40 GiB, of which 95% can be filled; the largest part is policy "
        "activations with 46.0 GiB",
        "settings": "batch.micro_batch.size to 8192 and train.engine.offload to both",
    },
    "memory_hardware": {
        "reason": "train needs 310 GiB on a device of 80 GiB, of which 95% can be filled; the largest part is policy "
        "optimizer with 130.0 GiB",
    },
    "not-applied_engine": PACKS,
    "not-used_engine": PACKS,
    "not-applied": {"reason": "rlctl converts weights with its own tables"},
    "not-used": {"reason": "Megatron's weights and optimizer stay on the device"},
    "not-supported": {
        "reason": "only vLLM has replicas within one engine; use rollout.parallel.replicas for more engines"
    },
    "not-supported_engine": {
        "reason": "train.engine.transformer: Megatron-core's TransformerConfig has no num_layer",
        "advice": "did you mean 'num_layers'?",
    },
    "not-supported_agents": {
        "reason": "rollout.default_agent is 'player', but run.skip.rollout is not supported with agents",
        "advice": "remove run.skip.rollout, or set rollout.default_agent to null",
    },
    "runner-refuses": {
        "reason": "actor_rollout_ref.rollout.name is not set, and verl has no default for it",
        "source": "verl 0.9.1 (verl/workers/config/rollout.py, RolloutConfig)",
        "advice": "set actor_rollout_ref.rollout.name to vllm or sglang",
    },
    "runner-ignores": {
        "reason": "mode is train, so no explorer runs, and buffer.explorer_input.eval_tasksets are never evaluated",
        "source": "Trinity-RFT 0.6.0 (trinity/cli/launcher.py, run_stage)",
        "advice": "set mode to both, or run a second process with mode bench",
    },
    "unsupported": {"reason": "verl does not clip advantages"},
    "assumed": {
        "reason": "all roles share 8 devices in the source; in Trinity, 4 explore and 4 train",
        "fact": "explorer_gpus",
    },
    "assumed_script": {"reason": "assumed that the Python module swanlab is not installed where this runs"},
    "silent-difference": {"reason": "verl saves at the end if save_freq is set"},
    "silent-difference_default": {
        "reason": "ROLL always shuffles the responses of a step over its mini-batches",
        "values": "actor_rollout_ref.actor.shuffle is false",
    },
    "not-expressible": {
        "reason": "verl has no stages, but this config has 2: sft, grpo",
        "advice": "write one file for each: state stage=sft",
    },
    "other-environment": {
        "reason": "verl has no environments: the written run answers each row of data.train_files once and scores the "
        "answer, and does not play Sokoban",
        "advice": "write a verl agent loop that plays them, or convert to a framework with environments; set VERL_TRAIN_FILES",
    },
    "other-data-and-reward": {
        "reason": "Trinity's math_workflow reads 'prompt' as plain text and the answer from the column of format.response_key; "
        "it cannot read chat messages or nested answers",
    },
    "bad-value_reason": {"reason": "is 'mean'; expected one of token-mean, seq-mean-token-sum, seq-mean-token-mean"},
    "unreadable": {
        "reason": "is binary: byte 0 is zero",
        "advice": "expected a text file in UTF-8",
    },
    "set": {"reason": "unknown key 'batch.prompts_per_stp'", "advice": "did you mean 'batch.prompts_per_step'?"},
}
"""Values of messages that are made of a reason, as a real config gave them."""
_VARIABLE = re.compile(r"\$(\w+)")


def messages() -> str:
    """Every code of a finding, what it says and what to do about it, as Markdown."""
    codes: dict[str, list[str]] = {}
    for id_ in catalogue("en"):
        codes.setdefault(code_of(id_), []).append(id_)
    parts = []
    for title, checks in SECTIONS.items():
        parts.append(f"## {title}\n")
        for code, ids in codes.items():
            if (code in LEVELS) is checks and has(f"{code}.about"):
                parts.append("\n".join(_entry(code, ids)) + "\n")
    return "\n".join(parts)


def _entry(code: str, ids: Sequence[str]) -> Iterator[str]:
    level = f" ({LEVELS[code]})" if code in LEVELS else ""
    yield f"### `{code}`\n"
    yield f"{_shown(f'{code}.about').rstrip('.')}{level}.{_elsewhere(code)}\n"
    for id_ in ids:
        advice = _shown(f"{id_}.hint") if has(f"{id_}.hint") else ""
        if option := option_for_fact(advice):
            advice = f"{without_requests(advice)}: pass {option}".lstrip(": ")
        yield f"- {_quoted(_shown(id_))}" + (f"<br>{_quoted(advice)}" if advice.strip("<>") else "")


def _elsewhere(code: str) -> str:
    """What a code is worth if another framework runs the config, if that differs."""
    other = ELSEWHERE.get(code)
    if other is None:
        return ""
    levels = ", ".join(f"{framework(runner)}: {level}" for runner, level in other.levels.items())
    return f" With other runners ({levels or 'no finding'}): {other.why}."


def _shown(name: str) -> str:
    """A text with ``<variable>`` for its values, or those of its example."""
    id_ = name.partition(".")[0]
    entry = catalogue("en")[id_]
    given = {variable: f"<{variable}>" for variable in _VARIABLE.findall(entry)} | dict(EXAMPLES.get(id_, {}))
    return in_language("en", name, **given)


def _quoted(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    print(messages(), end="")
