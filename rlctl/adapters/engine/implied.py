"""What a name in a config stands for and no key says: rows of facts, read in the frameworks' own source.

Each row is of a workflow, an environment, a reward worker, a reward manager or a scorer that an example or a document of its
framework names. A dialect whose framework lacks it reports the row, so that users know what to rebuild.
Workflows of one question and one answer, whose meaning has canonical keys, are in ``trinity/workflows.py``; reward workers that a
rule stands for are in ``roll/rewards.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlctl.common.messages.reasons import said, together
from rlctl.common.records import record


@record
class Implied:
    """What a name implies; empty where it implies nothing of the kind."""

    source: str
    """The file that was read, in the framework's repository."""
    reward: str = ""
    prompt: str = ""
    sampling: str = ""
    format: str = ""
    """What a row or a response must look like."""
    one_answer: bool = False
    """Of a workflow: whether it generates one answer and scores it, so that a reward can stand for it."""
    plays: str = ""
    """The type of the environment that it plays, under ROLL's name where ROLL has it."""

    def __str__(self) -> str:
        parts = {
            "its reward: {text}": self.reward,
            "its prompt: {text}": self.prompt,
            "its sampling: {text}": self.sampling,
            "its data: {text}": self.format,
        }
        return together(said(template, text=text) for template, text in parts.items() if text)


_W, _E = "trinity/common/workflows", "trinity/common/workflows/envs"
BOXED = "1 if the last \\boxed{} equals the answer, else 0"
QWEN_MATH = "the question, then 'Please reason step by step, and put your final answer within \\boxed{}.'"
JUDGED = "yes or no of an auxiliary model as judge, 1 or 0"
WORKFLOWS: Mapping[str, Implied] = {
    **dict.fromkeys(
        ("math_eval_workflow", "async_math_eval_workflow"),
        Implied(
            f"{_W}/eval_workflow.py",
            "accuracy as a metric, no reward",
            QWEN_MATH,
            "temperature 0.6, top_p 0.8, one response",
            "rows with a column question",
            one_answer=True,
        ),
    ),
    **dict.fromkeys(
        ("math_rm_workflow", "async_math_rm_workflow"),
        Implied(
            f"{_W}/math_rm_workflow.py",
            "a registered reward function over chat messages, such as RM-Gallery's",
            one_answer=True,
        ),
    ),
    **dict.fromkeys(
        ("math_ruler_workflow", "async_math_ruler_workflow"),
        Implied(
            f"{_W}/math_ruler_workflow.py",
            "the responses of a prompt ranked from 0 to 1 by an auxiliary model; math_reward is a metric only",
            "the system prompt of DeepSeek-R1, with <think> and <answer> tags",
            one_answer=True,
        ),
    ),
    "math_trainable_ruler_workflow": Implied(
        f"{_W}/math_trainable_ruler_workflow.py",
        "math_reward if the answer is known; otherwise the policy's own ranking, which is also trained",
        "the system prompt of DeepSeek-R1, with <think> and <answer> tags",
        one_answer=True,
    ),
    **dict.fromkeys(
        ("rubric_judge_workflow", "rubric_judge_openai_workflow"),
        Implied(
            f"{_W}/rubric_judge_workflow.py",
            "a judge's rating of the response by the rubrics of its row",
            "a prompt that asks to think before the answer",
            format="rows with a column rubric",
            one_answer=True,
        ),
    ),
    **dict.fromkeys(
        ("tool_call_workflow", "toolcall_workflow"),
        Implied(
            f"{_W}/customized_toolcall_workflows.py",
            "1 if the format is right and all tool calls equal the answer's, else 0",
            "raw_system of the row, then the tools and the required <think> and <tool_call> format",
            format="rows with the columns tools, raw_system, conversations and answer",
            one_answer=True,
        ),
    ),
    "on_policy_distill_math_workflow": Implied(
        f"{_W}/on_policy_distill_workflow.py",
        "accuracy as a metric; the advantage is the teacher's log-probs alone",
        said("'You are a helpful assistant.', and {qwen_math}", qwen_math=QWEN_MATH),
        one_answer=True,
    ),
    **dict.fromkeys(
        ("agentscope_react_workflow", "as_react_workflow"),
        Implied(
            f"{_W}/agentscope/react/react_workflow.py",
            BOXED,
            "the system prompt of the template that workflow_args.type names",
        ),
    ),
    **dict.fromkeys(
        ("agentscope_react_math_workflow", "agentscopev0_react_math_workflow"),
        Implied(f"{_E}/agentscope", BOXED, "the system prompt of a ReAct agent that runs Python"),
    ),
    "agentscope_v1_react_search_workflow": Implied(
        f"{_E}/agentscope/agentscopev1_search_workflow.py",
        JUDGED,
        "the system prompt of a ReAct agent that searches the web",
    ),
    "email_search_workflow": Implied(
        f"{_E}/email_searcher/workflow.py",
        "from -1 to 2: a judge's verdict, plus bonuses for the right mail, its sources and few turns",
        "the system prompt of an agent that searches mail",
    ),
    **dict.fromkeys(
        ("alfworld_workflow", "step_wise_alfworld_workflow"),
        Implied(
            f"{_E}/alfworld/alfworld_workflow.py",
            "the environment's final reward, -0.1 if the task is not done",
            "the system prompt of ALFWorld, with <think> and <action> tags",
            plays="alfworld",
        ),
    ),
    **dict.fromkeys(
        ("RAFT_alfworld_workflow", "RAFT_reflect_alfworld_workflow"),
        Implied(
            f"{_E}/alfworld",
            "only episodes with reward 1 and the right format are trained on",
            "the system prompt of ALFWorld",
            plays="alfworld",
        ),
    ),
    "frozen_lake_workflow": Implied(
        f"{_E}/frozen_lake/workflow.py",
        "the sum of the step rewards: 1 at the goal, else 0",
        "the system prompt of a FrozenLake player",
        plays="frozen_lake",
    ),
    "sciworld_workflow": Implied(
        f"{_E}/sciworld/sciworld_workflow.py",
        "the best sum of an episode / 100",
        "the system prompt of ScienceWorld",
        plays="sciworld",
    ),
    "webshop_workflow": Implied(
        f"{_E}/webshop/webshop_workflow.py",
        "1 for the right purchase, 0 for a wrong one, -0.1 for none",
        "the system prompt of WebShop",
        plays="webshop",
    ),
    "intercode_sql_workflow": Implied(
        f"{_E}/intercode_sql/intercode_sql_workflow.py", "the environment's reward for the submitted query"
    ),
    **dict.fromkeys(
        ("bots_math_boxed_workflow", "BOTSMathBoxedWorkflow", "bots_ref_eval_collect_math_boxed_workflow"),
        Implied(
            "examples/bots/workflow/bots_math_boxed_workflow.py",
            "accuracy of the boxed answer by the example's own rules, -0.1 without the format if with_think is set",
            "the messages of the row as they are",
            format="rows with chat messages and nested keys",
            one_answer=True,
        ),
    ),
    "Learn2AskWorkflow": Implied(
        "examples/learn_to_ask/workflow/workflow_learn2ask.py",
        "(1 for the right decision to ask or stop) x (1 + 2 x the judge's score of the content) + the judge's score "
        "of the format",
        "the example's own system prompt",
        format="rows with the columns decision_truth and info_truth",
        one_answer=True,
    ),
    "FrozenLakeWorkflow": Implied(
        "examples/agentscope_frozenlake/workflow.py",
        "the sum of the step rewards: 1 at the goal, else 0",
        "the system prompt of an AgentScope agent that plays FrozenLake",
    ),
    "sudoku_workflow": Implied(
        f"{_E}/sudoku/sudoku_workflow.py", "1 if solved, -1 for an invalid move, 0 otherwise", plays="sudoku"
    ),
}
"""Trinity-RFT's workflows of several turns, with judges or with tools."""

_R = "roll/pipeline/agentic/env"
ONCE = "1 if the answer is right, else 0, at the end"
ENVIRONMENTS: Mapping[str, Implied] = {
    "frozen_lake": Implied(f"{_R}/frozen_lake/env.py", "1 at the goal, else 0; format_penalty if no action is valid"),
    **dict.fromkeys(
        ("sokoban", "sokoban_native_env", "sokoban_sandbox", "sokoban_tool_call", "sokoban_mcp"),
        Implied(
            f"{_R}/sokoban/env.py",
            "gym_sokoban's reward (-0.1 per step, 1 per box on its target, 10 for all boxes); format_penalty if "
            "no action is valid",
        ),
    ),
    "webshop": Implied(
        f"{_R}/webshop/env.py", "WebShop's match of the purchase, from 0 to 1; format_penalty otherwise"
    ),
    "deepeyes": Implied(f"{_R}/deepeyes/env.py", "a reward model's judgement of the last answer"),
    "roll_math": Implied(f"{_R}/gem/math_env.py", ONCE),
    "roll_code": Implied(f"{_R}/gem/code_env.py", "1 if all tests pass, else 0"),
    "roll_qa": Implied(f"{_R}/gem/qa_env.py", ONCE),
    "rock_tb_native_env": Implied(f"{_R}/sandbox/rock_tb_native_env.py", "the sandbox's tests of the finished task"),
    "openreward_env": Implied(f"{_R}/openreward/openreward_env.py", "the OpenReward server's score"),
    "atropos_env": Implied(f"{_R}/atropos/atropos_env.py", "the Atropos server's score"),
    "game:": Implied(
        "gem/envs/game_env",
        "1 if solved, 0.1 for a milestone of some games, -0.05 for an invalid move, -0.1 for a move without \\boxed{}",
    ),
    "rg:": Implied("gem/envs/reasoning_gym.py", "the score that reasoning-gym gives the last \\boxed{}"),
    **dict.fromkeys(("math:", "qa:", "logic:"), Implied("gem/envs", ONCE)),
    "code:": Implied("gem/envs/code_env.py", "1 if all tests pass, else 0"),
}
"""ROLL's environments, by ``env_type`` or its beginning; each has its own ``agent_system_template`` in ``custom_envs``."""

_P = "roll/pipeline/rlvr/rewards"
WORKERS: Mapping[str, Implied] = {
    "DetectionRewardWorker": Implied(
        f"{_P}/detection_reward_worker.py",
        "overlap (IoU) and mAP of the boxes, weighted by det_reward_ratio, times 0.6 for each box too many or too few",
        format="boxes as JSON in one <answer>; rows with COCO-like boxes",
    ),
    "VideoR1RewardWorker": Implied(
        f"{_P}/video_r1_reward_worker.py",
        "accuracy by the row's question type (choice, number, OCR, free text by ROUGE, regression), plus 1 for the format",
        format="<think> and <answer> tags",
    ),
    "GeneralValRuleRewardWorker": Implied(
        f"{_P}/general_val_rule_reward_worker.py",
        "1 if the chosen letter is right, else 0",
        format="a letter in \\boxed{}",
    ),
}
"""ROLL's reward workers that no canonical rule stands for, by class."""

_V, _L = "verl/workers/reward_manager", "verl/experimental/reward_loop/reward_manager"


@record
class Manager:
    """A reward manager of verl's, and how it calls the reward function."""

    source: str
    one_response: bool
    """Whether it calls the function for one response with verl's usual arguments, so that it replaces another such manager."""
    penalty: bool = False
    """Whether it takes the overlong penalty off the score."""
    does: str = ""


MANAGERS: Mapping[str, Manager] = {
    "naive": Manager(f"{_L}/naive.py", True, does="calls the function for each response"),
    "dapo": Manager(
        f"{_L}/dapo.py", True, penalty=True, does="subtracts the overlong penalty from the function's score"
    ),
    "prime": Manager(f"{_V}/prime.py", True, does="calls the function in processes, with a time limit of 300 s"),
    "batch": Manager(f"{_V}/batch.py", False, does="calls the function once with lists of all responses"),
    "gdpo": Manager(f"{_L}/gdpo.py", False, does="keeps the parts of a reward separate; gdpo normalizes each"),
    "rate_limited": Manager(f"{_L}/limited.py", False, does="limits an API's calls, requests and tokens per minute"),
    "remote": Manager(f"{_L}/remote.py", False, does="calls the function in Ray workers"),
}
"""verl's reward managers, in any release."""

_S = "verl/utils/reward_score"


@record
class Scorer:
    """A scorer of verl's default reward: the data sources that choose it, and the canonical rule that computes the same."""

    module: str
    sources: tuple[str, ...]
    rule: str
    runs_programs: bool = False


SCORERS: tuple[Scorer, ...] = (
    Scorer(f"{_S}/gsm8k.py", ("openai/gsm8k",), "gsm8k"),
    Scorer(
        f"{_S}/math_reward.py",
        ("lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"),
        "boxed",
    ),
    Scorer(f"{_S}/math_dapo.py", ("math_dapo", "math", "math_dapo_reasoning", "aime*"), "dapo_math"),
    Scorer(f"{_S}/prime_math", ("numina_*",), ""),
    Scorer(f"{_S}/geo3k.py", ("hiyouga/geometry3k",), "geo3k"),
    Scorer(f"{_S}/search_r1_like_qa_em.py", ("searchR1_*",), "search_qa"),
    Scorer(f"{_S}/sandbox_fusion", ("codecontests", "apps", "codeforces", "taco"), "", runs_programs=True),
)
"""What verl's default reward computes by a row's ``data_source``; any other source raises an error."""


def told(table: Mapping[str, Implied], name: object) -> str:
    """What a name implies, in brackets after a message; nothing for a name that is not in the table."""
    row = row_of(table, str(name))
    return said(" ({row})", row=str(row)) if row is not None and str(row) else ""


def row_of(table: Mapping[str, Implied], name: str) -> Implied | None:
    """The row of a name, of a class by its path, or of a family such as ``game:``; None if there is none."""
    return table.get(name.rpartition(".")[2]) or table.get(name) or table.get(name.partition(":")[0] + ":")


def scored_as(rule: str) -> str:
    """A data source whose rows verl scores by a canonical rule; empty if there is none."""
    return next((row.sources[0] for row in SCORERS if row.rule == rule), "")


RULES: Mapping[tuple[str, str], str] = {
    ("auto", ""): (
        "the answer by the row's data_source: the number after the last '####' (openai/gsm8k), the last \\boxed{} (MATH), the "
        "text after 'Answer:' with scores 1 and -1 (math_dapo, math, aime); it stops at a data_source that it does not know"
    ),
    ("exact_match", ""): "the whole response as text",
    ("number", ""): "the last number",
    ("gsm8k", ""): "the number after the last '####', as text",
    ("boxed", ""): "the last \\boxed{}, in MATH's spellings",
    ("dapo_math", ""): "the text after 'Answer:', as DAPO normalizes it",
    ("geo3k", ""): "the last \\boxed{} by mathruler, with 0.1 of the score for <think>",
    ("search_qa", ""): "the text in <answer>",
    ("countdown", ""): "the equation in the last <answer>",
    ("math", ""): "any expression in the response, by math-verify",
    ("math", "verl"): "any expression in the response, by math-verify",
    ("math", "roll"): (
        "the last \\boxed{} or else the first formula behind </think> or, without it, behind the last empty line, by "
        "math-verify; a response without either scores 0"
    ),
    (
        "math",
        "trinity",
    ): "the text in <answer> or else any, by math-verify, with 0.1 more or less for <think> and <answer>",
    ("math", "open_r1"): "the first formula, boxed ones first, by math-verify",
}
"""Where a canonical rule, and its ``method``, finds the answer: as each framework's own scorer does, see ``runtime/rewards``."""
