"""Trinity: what the workflows and reward functions that a config names mean: rows of facts, read in Trinity's own source.

A workflow of one turn implies a reward and a system prompt that no key of the file holds. A workflow that is not in the table
(agents, environments, judges, and classes of the user's) is kept by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rlctl.adapters.engine.rules import BadValueError, Reading, Version
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.config.sections.rewards import JudgeReward
from rlctl.documents.paths import KeyPath

E = "buffer.explorer_input"
R1_PROMPT = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The assistant first "
    "thinks about the reasoning process in the mind and then provides the user with the answer. The reasoning process and "
    "answer are enclosed within <think> </think> and <answer> </answer> tags, respectively, i.e.,\n"
    "<think> reasoning process here </think>\n<answer> answer here </answer>.\n"
)
"""DeepSeek-R1's (arXiv:2501.12948, table 1), as Trinity spells it."""
BOXED_PROMPT = r"Please reason step by step, and put your final answer within \boxed{}."
THINKING_PROMPT = (
    "You are a helpful assistant that solves MATH problems. You should first thinks about the reasoning process in mind and then "
    "provides the user with the answer. You should present your reasoning process using the format: <think>\n ...your reasoning "
    "process here... </think>\n first. You should always include your final answer in \\boxed{} as closed-form results."
)


@record
class RewardFunction:
    """A reward function of Trinity's, as a built-in rule."""

    source: str
    rule: str
    args: Mapping[str, Any] = field(default_factory=dict)
    scores: tuple[float, float] = (1.0, 0.0)
    """Of right and wrong."""
    takes: frozenset[str] | None = frozenset()
    """The names in ``reward_fn_args`` that reach the rule; None is any name, and none of them is used."""
    differs: str = ""
    """How the rule's scores differ from Trinity's."""
    called: frozenset[str] = frozenset({"answer"})
    """The calls that its signature accepts (``Workflow.calls``); with any other call each task raises an error."""


DAPO = "math_dapo_reward"
"""The only reward function with an overlong penalty."""


def _functions() -> dict[str, RewardFunction]:
    pattern = frozenset({"pattern"})
    pattern_of_format = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    boxed = "Trinity also strips units and reads number words before it compares, so a few scores may differ"
    dapo = "Trinity grades the last \\boxed{} as PRIME does; the source grades the text after 'Answer:': scores differ"
    format_args = {"pattern": pattern_of_format, "whole": False}
    where = "trinity/common/rewards"
    any_call, boxed_only = frozenset({"answer", "boxed"}), frozenset({"boxed"})
    return {
        "math_reward": RewardFunction(f"{where}/math_reward.py", "math", {"method": "trinity"}, takes=pattern),
        "math_boxed_reward": RewardFunction(
            f"{where}/math_reward.py", "boxed", takes=None, differs=boxed, called=any_call
        ),
        DAPO: RewardFunction(
            f"{where}/dapo_reward.py", "dapo_math", scores=(1.0, -1.0), differs=dapo, called=boxed_only
        ),
        "countdown_reward": RewardFunction(f"{where}/countdown_reward.py", "countdown"),
        "format_reward": RewardFunction(
            f"{where}/format_reward.py", "format", format_args, (0.1, -0.1), pattern, called=frozenset()
        ),
        "accuracy_reward": RewardFunction(f"{where}/accuracy_reward.py", "math", {"method": "open_r1"}),
    }


REWARDS = _functions()
OVERLONG = ("enable_overlong_penalty", "penalty_factor", "max_response_length", "cache_length")
"""Arguments of math_dapo_reward: ``algorithm.reward_shaping.overlong_penalty`` in rlctl."""


def takes_overlong(name: str) -> bool:
    """Whether a reward function takes the overlong penalty; a function of the user's may."""
    return name == DAPO or bool(name and name not in REWARDS)


def scores_of(name: str, version: Version) -> tuple[float, float]:
    """The scores of right and wrong; until 0.6 math_dapo_reward gave 0 for a wrong answer."""
    return (1.0, 0.0) if name == DAPO and version < (0, 6) else REWARDS[name].scores


@record
class Workflow:
    """A workflow of one question and one answer, and what it implies."""

    names: tuple[str, ...]
    """Its name and that of its asynchronous twin, which computes the same."""
    source: str
    reward: str = ""
    """The reward function where ``default_reward_fn_type`` names none; empty where one has to be named."""
    prompt: str | None = None
    """The system prompt where ``format.system_prompt`` is null."""
    prompt_for: str = ""
    """The only reward function with which it has this prompt; empty is any."""
    prompt_always: bool = False
    """Whether it has this prompt although ``format.system_prompt`` says another."""
    thinks: str | None = None
    """The system prompt with ``with_think``, which also takes ``format_score_coef`` off a response that does not think."""
    masks_since: Version | None = None
    """The first release in which responses that were cut at the limit are not trained on."""
    takes: frozenset[str] = frozenset()
    """The names in ``workflow_args`` that it reads."""
    calls: str = "answer"
    """How it calls the reward function: ``answer`` with response and truth, ``boxed`` also with tokens and settings."""

    judges: bool = False
    """Whether the first auxiliary model rates responses by the rubrics of their rows, whatever reward function is named."""
    teaches: bool = False
    """Whether it learns from the teacher alone, so that it needs no reward function."""

    def masks(self, version: Version) -> bool:
        """Whether responses that were cut at the limit are not trained on."""
        return self.masks_since is not None and version >= self.masks_since


TEACHING_PLAIN = "on_policy_distill_workflow"
RUBRIC = "rubric_judge_workflow"
RUBRIC_PROMPT = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The assistant first "
    "thinks about the reasoning process in the mind and then provides the user with the answer.\n    "
)
"""With the spaces at its end."""
_SIMPLE = "trinity/common/workflows/workflow.py"
ONE_TURN = (
    Workflow(("simple_workflow", "async_simple_workflow"), _SIMPLE),
    Workflow(
        ("math_workflow", "async_math_workflow"),
        _SIMPLE,
        reward="math_reward",
        prompt=R1_PROMPT,
        prompt_for="math_reward",
    ),
    Workflow(
        ("math_boxed_workflow", "async_math_boxed_workflow"),
        "trinity/common/workflows/customized_math_workflows.py",
        reward="math_boxed_reward",
        prompt=BOXED_PROMPT,
        thinks=THINKING_PROMPT,
        masks_since=(0, 6),
        takes=frozenset({"with_think", "format_score_coef", "use_base"}),
        calls="boxed",
    ),
    Workflow(
        ("simple_mm_workflow", "async_simple_mm_workflow"),
        "trinity/common/workflows/simple_mm_workflow.py",
        prompt=THINKING_PROMPT,
        prompt_always=True,
    ),
    Workflow((TEACHING_PLAIN,), "trinity/common/workflows/on_policy_distill_workflow.py", teaches=True),
    Workflow(
        (RUBRIC,),
        "trinity/common/workflows/rubric_judge_workflow.py",
        reward=RUBRIC,
        prompt=RUBRIC_PROMPT,
        judges=True,
    ),
)
"""``use_base`` of math_boxed_workflow writes the prompt without a chat template: such a task set keeps the workflow's name."""


TEACHES = {"on_policy_distill": "reverse_kl", "jsd": "js_divergence"}
"""The advantages that are a teacher's log-probs, which are also ``algorithm_type``s, and their divergence."""
TEACHING = (TEACHING_PLAIN, "on_policy_distill_math_workflow")
"""Workflows whose first auxiliary model is the teacher. The second has a prompt of its own, so it keeps its name."""


def teaches(view: Reading) -> str | None:
    """The advantage of a file that learns from a teacher alone; None for any other file."""
    name = view.get("algorithm.advantage_fn") or view.get("algorithm.algorithm_type")
    models = view.get("explorer.auxiliary_models")
    first = models[0] if isinstance(models, list) and models else None
    sets = [view.inside(place, ()) for place in tasksets(view)]
    named = [one.get("default_workflow_type", None) or view.get(f"{E}.default_workflow_type") for one in sets]
    served = isinstance(first, Mapping) and first.get("model_path")
    return name if name in TEACHES and served and named and set(named) <= set(TEACHING) else None


def judge_of(view: Reading) -> str | None:
    """The name of the first auxiliary model; None if there is none."""
    models = view.get("explorer.auxiliary_models")
    first = models[0] if isinstance(models, list) and models else None
    named = (first.get("name") or first.get("model_path")) if isinstance(first, Mapping) else None
    return str(named) if named else None


def rated(config: Config) -> bool:
    """Whether responses are rated by rubrics, as Trinity's rubric workflow does, and by nothing else."""
    (reward, *more), models = config.rewards or (None,), config.rollout.auxiliary_models
    first = (models[0].name or models[0].path) if models else None
    judged = isinstance(reward, JudgeReward) and reward.scoring == "rubric" and reward.auxiliary_model == first
    return judged and first is not None and not more and taught(config) is None


def taught(config: Config) -> str | None:
    """The advantage that is written for a config that learns from a teacher alone; None if Trinity has none."""
    chosen = config.algorithm.distillation
    if chosen is None or config.algorithm.objective.choice != "rl" or chosen.top_k is not None or not chosen.teacher:
        return None
    alone = chosen.args.get("policy_gradient") is True and chosen.args.get("with_rewards") is False
    drawn = chosen.loss != "reverse_kl" or chosen.args.get("estimator", "k1") in ("k1", "kl")
    return next((name for name, loss in TEACHES.items() if alone and drawn and loss == chosen.loss), None)


def can_call(row: Workflow, reward: str) -> bool:
    """Whether a workflow's call fits the signature of a reward function; one that is not in the table may take any."""
    return reward not in REWARDS or row.calls in REWARDS[reward].called


def one_turn(name: Any) -> Workflow | None:
    """The row of a workflow; None for one that is not in the table."""
    return next((row for row in ONE_TURN if name in row.names), None)


@record
class Task:
    """What a task set means together with the defaults of ``explorer_input``."""

    workflow: str | None
    """The name of a workflow that is not of the table."""
    row: Workflow | None
    workflow_keys: tuple[KeyPath, ...]
    reward: str | None
    reward_keys: tuple[KeyPath, ...]
    """The key that names the reward function, or the workflow that implies it."""
    args: Mapping[str, Any]
    """Arguments of the reward function, the overlong penalty aside."""
    prompt: str | None
    prompt_keys: tuple[KeyPath, ...]
    """The keys that imply the prompt; none where the file itself says it, or where there is none."""
    think_penalty: float
    masks: bool
    """Whether responses that were cut at the limit are not trained on."""


def task(view: Reading, place: KeyPath, *, evaluation: bool) -> Task:
    """What a task set means.

    Raises:
        BadValueError: its workflow needs a reward function, and none is named.
    """
    inside = view.inside(place, ())
    named, workflow_keys = _first(
        (inside, "default_workflow_type"),
        *([(view, f"{E}.default_eval_workflow_type")] if evaluation else []),
        (view, f"{E}.default_workflow_type"),
    )
    reward, reward_keys = _first((inside, "default_reward_fn_type"), (view, f"{E}.default_reward_fn_type"))
    given = inside.get("workflow_args", None)
    settings = given if isinstance(given, Mapping) else {}
    row = one_turn(named) if not settings.get("use_base") else None
    row = None if row is not None and row.teaches and teaches(view) is None else row
    row = None if row is not None and row.judges and judge_of(view) is None else row
    if row is not None and row.judges:
        reward, reward_keys = row.reward, workflow_keys
    args = inside.get("reward_fn_args", None)
    own = {key: item for key, item in args.items() if key not in OVERLONG} if isinstance(args, Mapping) else {}
    if row is not None and not reward and not row.teaches:
        if not row.reward and not inside.get("format.reward_fn_key", ""):
            expected = said(
                "is {named}, which needs a reward function; name one in {e}.default_reward_fn_type", named=named, e=E
            )
            raise BadValueError(expected, key=workflow_keys[0])
        reward, reward_keys = row.reward or None, workflow_keys
    stated = inside.get("format.system_prompt", None)
    thinks = bool(row and row.thinks and settings.get("with_think"))
    implied = _implied(row, reward, thinks=thinks)
    implies = row is not None and implied is not None and (stated is None or row.prompt_always)
    return Task(
        named if row is None else None,
        row,
        workflow_keys,
        str(reward) if reward else None,
        reward_keys,
        own,
        implied if implies else stated or None,
        (*workflow_keys, *reward_keys) if implies else (),
        float(settings.get("format_score_coef", 0.1) or 0.1) if thinks and reward == "math_boxed_reward" else 0.0,
        row is not None and row.masks(view.version),
    )


def _implied(row: Workflow | None, reward: str | None, *, thinks: bool) -> str | None:
    if row is None or (row.prompt_for and row.prompt_for != reward):
        return None
    return row.thinks if thinks else row.prompt


def _first(*places: tuple[Reading, str]) -> tuple[Any, tuple[KeyPath, ...]]:
    """The first value that is set, with its place."""
    for view, key in places:
        if view.get(key, None):
            return view.get(key), (view.path(key),)
    return None, ()


@record
class Spelling:
    """How a task set is written: a workflow, and what it leaves to say."""

    workflow: str
    args: Mapping[str, Any] = field(default_factory=dict)
    prompt: str | None = None
    """``format.system_prompt``; None where the workflow implies it, or where there is none."""
    masks: bool = False


def spelled(reward: str, prompt: str | None, think_penalty: float, masks: bool, version: Version) -> Spelling:
    """The workflow that implies a system prompt with a reward function, else one that adds nothing to what is said.

    Args:
        reward: the reward function's name; empty for the workflow's own.
        prompt: the system prompt of the canonical config.
        think_penalty: what a response loses that does not think.
        masks: whether responses that were cut at the limit are not trained on.
        version: the release that is written.
    """
    if not reward:
        return Spelling("math_workflow", prompt=prompt)
    args = {"with_think": True, "format_score_coef": think_penalty} if think_penalty else {}
    own = [
        row for row in ONE_TURN if row.reward and not row.judges and (row.thinks or not args) and can_call(row, reward)
    ]
    for row in own:
        implied = _implied(row, reward, thinks=bool(args))
        if row.reward == reward and implied == prompt and row.masks(version) == masks:
            return Spelling(row.names[0], args, None, masks)
    only_boxed = bool(own) and all(row.calls == "boxed" for row in own)
    for row in own:
        if args or only_boxed or (masks and row.masks(version)):
            return Spelling(row.names[0], args, prompt or "", row.masks(version))
    if prompt is None and reward == "math_reward":
        return Spelling("simple_workflow")
    return Spelling("math_workflow", prompt=prompt)


def tasksets(view: Reading) -> list[KeyPath]:
    """Where the training task sets stand: one ``taskset``, or a list of them."""
    one = [view.path(f"{E}.taskset")] if isinstance(view.get(f"{E}.taskset"), Mapping) else []
    return [*one, *_listed(view, f"{E}.tasksets")]


def limit_of_answers(view: Reading) -> int | None:
    """``max_tokens`` of the first task set, if its workflow gives answers of one turn."""
    places = tasksets(view)
    value = view.inside(places[0], ()).get("rollout_args.max_tokens", None) if places else None
    whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if whole and task(view, places[0], evaluation=False).row is not None else None


def eval_tasksets(view: Reading) -> list[KeyPath]:
    """Where the task sets of evaluation stand."""
    return _listed(view, f"{E}.eval_tasksets")


def _listed(view: Reading, key: str) -> list[KeyPath]:
    items = view.get(key)
    items = items if isinstance(items, list) else []
    return [(*view.path(key), index) for index, item in enumerate(items) if isinstance(item, Mapping)]


@record
class Scoring:
    """A reward function with its arguments, and the task sets that it scores."""

    name: str
    """Its name among the rewards of the config."""
    first: Task
    keys: tuple[KeyPath, ...]
    """The keys that name it, for every task set."""
    places: tuple[KeyPath, ...]
    """The task sets."""


def scorings(view: Reading) -> list[Scoring]:
    """The different rewards of a file, in the order of its task sets."""
    places = [(place, False) for place in tasksets(view)] + [(place, True) for place in eval_tasksets(view)]
    found: list[tuple[Task, list[tuple[Task, KeyPath]]]] = []
    for place, evaluation in places:
        this = task(view, place, evaluation=evaluation)
        if this.reward is None:  # the workflow scores its responses itself
            continue
        same = next((users for first, users in found if _same(first, this)), None)
        if same is None:
            found.append((this, [(this, place)]))
        else:
            same.append((this, place))
    names: list[str] = []
    for first, _ in found:
        name = str(first.reward)
        names.append(name if name not in names else f"{name}_{len(names) + 1}")
    return [
        Scoring(
            name,
            first,
            tuple(dict.fromkeys(key for one, _ in users for key in one.reward_keys)),
            tuple(at for _, at in users),
        )
        for name, (first, users) in zip(names, found, strict=True)
    ]


def _same(one: Task, other: Task) -> bool:
    return (one.reward, one.args, one.think_penalty) == (other.reward, other.args, other.think_penalty)
