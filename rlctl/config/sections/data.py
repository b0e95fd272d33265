"""Where prompts come from: section ``data``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Count, Positive, Range, Tokens, Unit, section


@section
class EvaluationSampling:
    """How evaluation responses are drawn; null everywhere means greedy with the training limits."""

    temperature: Annotated[float, Range(at_least=0)] = 0.0
    """0 is greedy. Raised, answers vary more."""
    top_p: Annotated[float, Range(above=0, at_most=1)] = 1.0
    """Draw from the smallest set of tokens with this probability. 1 is off."""
    top_k: Count | None = None
    """Draw from this many likeliest tokens; null is off."""
    max_response_tokens: Tokens | None = None
    """Longest evaluation response; null takes the training limit."""


@section
class DataSource:
    """One set of prompts: files, columns and its share of a batch."""

    path: str = ""
    """Parquet, JSON or JSONL file, a folder of them, a hub name, or an fsspec URL. Must be set, except for format episodes."""
    name: str | None = None
    """Name in metrics; null takes the file's."""
    format: Literal["auto", "parquet", "json", "csv", "hub", "sql", "episodes"] = "auto"
    """How the path is read; auto goes by its ending. episodes: there is no file; ``max_samples`` empty rows, for agents whose
    environment makes the task."""
    split: str | None = None
    """Split of a hub data set."""
    subset: str | None = None
    """Configuration of a hub data set."""
    weight: Positive = 1.0
    """Share of this source among all sources when ``data.mixing`` is weighted. Raised, it is drawn more often."""
    max_samples: Count | None = None
    """Use only this many rows; null uses all."""
    prompt_key: str = "prompt"
    """Column with the prompt: chat messages or text."""
    prompt_type: Literal["auto", "messages", "text", "raw"] = "auto"
    """Chat messages, text put in one user message, or raw text without a template; auto goes by the column's type."""
    system_prompt: str | None = None
    """System message put first; null adds none."""
    system_prompt_key: str | None = None
    """Column with the system message of each row."""
    answer_key: str | None = None
    """Column with the ground truth; null takes ``reward_model.ground_truth``, ``ground_truth`` or ``answer``, whichever
    exists."""
    response_key: str | None = None
    """Column with the response to imitate (sft, mix); null takes ``response`` or the last assistant message."""
    messages_key: str | None = None
    """Column with whole conversations (sft); null goes by ``prompt_key`` and ``response_key``."""
    tools_key: str | None = "tools"
    """Column with tool schemas given to the chat template, where the data has it; null gives none."""
    chosen_key: str = "chosen"
    """Column with the better response (dpo)."""
    rejected_key: str = "rejected"
    """Column with the worse response (dpo)."""
    source_key: str | None = "data_source"
    """Column that names each row's source, by which rewards are routed and metrics split."""
    tag_key: str | None = None
    """Column with each row's tag, by which rewards may be routed (ROLL's ``tag``)."""
    extra_key: str | None = "extra_info"
    """Column handed to reward functions as ``extra_info``."""
    image_key: str | None = None
    """Column with images; null reads none."""
    video_key: str | None = None
    """Column with videos; null reads none."""
    audio_key: str | None = None
    """Column with audio; null reads none."""
    agent: str | None = None
    """Agent in ``rollout.agents`` that answers this source; ``single_turn`` is none. null = ``rollout.default_agent``."""
    agent_key: str | None = None
    """Column that names the agent of each row; a row without a name takes ``agent``. null = no such column."""
    reward: str | None = None
    """Name of the reward that scores this source; null routes by ``rewards[].applies_to``."""
    reward_args: dict[str, Any] = {}
    """Arguments of that reward for this source."""
    sampling: dict[str, Any] = {}
    """Sampling settings of this source, over ``rollout.sampling``; of a held-out one over ``evaluation_sampling``, and over
    the repetition penalty, the shortest response and ignore_eos of ``rollout.sampling``."""


@section
class EvaluationSource(DataSource):
    """One held-out set, with its own sampling."""

    responses_per_prompt: Annotated[int, Unit("responses"), Range(at_least=1)] = 1
    """Responses drawn for each prompt; the mean and best of them are reported."""
    evaluation_sampling: EvaluationSampling = EvaluationSampling()
    """How evaluation responses are drawn."""


@section
class Curriculum:
    """The order in which prompts are drawn."""

    order: Literal["sequential", "shuffle", "random", "easy_to_hard", "difficulty"] = "shuffle"
    """In file order; shuffled every epoch; each batch drawn from all rows; by columns of ease; by difficulty as measured."""
    keys: tuple[str, ...] = ()
    """Columns of numbers. easy_to_hard: higher is easier, ties go by the next; difficulty: pass rates of two models."""
    args: dict[str, Any] = {}
    """Of difficulty: target_reward 1, tau 1, do_sample false, m 16, lamb 0.2, rho 0.2, adaptive_rho false."""


@section
class CustomDataset:
    """A data-set class of the user's."""

    path: str
    """Python file with the class."""
    class_name: str
    """Name of the class in it."""


@section
class TaskPipeline:
    """Operators that prepare prompts before the run (Trinity's ``task_pipeline``)."""

    operators: tuple[dict[str, Any], ...] = ()
    """Each a ``name`` and its ``args``."""
    inputs: tuple[str, ...] = ()
    """Files that the operators read; they read no training source by themselves."""
    output: str | None = None
    """Folder for the result, a file ``output.jsonl``; null takes the path of the first training source."""
    text_keys: tuple[str, ...] = ()
    """Columns whose text the operators work on."""
    num_processes: Count = 4
    """Processes used. Raised, it takes more cores and less time."""
    priority_weights: dict[str, float] = {}
    """Weight of each statistic in a row's priority."""
    top_k: int | None = None
    """Keep this many rows of highest priority; null keeps all."""


@section
class Data:
    """Training and held-out prompts, and how they are cut and ordered."""

    train: tuple[DataSource, ...] = ()
    """Training sources; several mix."""
    eval: tuple[EvaluationSource, ...] = ()
    """Held-out sources, answered and scored as ``schedule.evaluate_every`` says."""
    mixing: Literal["concatenate", "weighted", "weighted_exact"] = "concatenate"
    """One pool of all rows; drawn by weight; or each batch split by weight exactly (ROLL's interleaving)."""
    max_prompt_tokens: Tokens = 512
    """Longest prompt after the chat template. Raised, more prompts fit and memory grows."""
    overlong_prompts: Literal["keep", "drop"] = "keep"
    """Prompts above the limit are kept and cut (see truncation), or dropped when the data is read."""
    truncation: Literal["error", "left", "right", "middle"] = "error"
    """What is cut from an overlong prompt; error stops at the first one."""
    train_on_truncated_prompts: bool = True
    """Whether responses to cut prompts are trained on."""
    curriculum: Curriculum = Curriculum()
    """The order of training prompts."""
    shuffle_evaluation: bool = False
    """Shuffle held-out prompts, which matters only where a part of them is shown."""
    seed: int | None = None
    """Seed of the data order; null takes ``run.seed``."""
    last_batch: Literal["drop", "carry"] = "drop"
    """A last batch that is not full is dropped at each epoch's end, or carried into the next epoch."""
    loader_workers: Annotated[int, Unit("threads"), Range(at_least=0)] = 0
    """Threads of the controller that read and tokenize the next batch while this one is worked on; 0 does it when asked."""
    filter_workers: Annotated[int, Unit("processes"), Range(at_least=1)] = 1
    """Processes that measure the lengths of prompts before the run, at most one a core. Raised, large data is ready sooner."""
    evaluation_batch_prompts: Annotated[int, Unit("prompts"), Range(at_least=1)] | None = None
    """Prompts evaluated at once; null is a whole source."""
    max_sequence_tokens: Tokens | None = None
    """Longest training sequence of sft and dpo; null is prompt plus response limits."""
    sequence_truncation: Literal["error", "left", "right"] = "error"
    """What is cut from an overlong sft or dpo sequence."""
    multi_turn_loss: Literal["all_assistant", "last_assistant"] = "all_assistant"
    """Which assistant turns of a conversation sft trains on."""
    custom: CustomDataset | None = None
    """A data-set class of your own, used instead of the built-in reader; its file is run in the controller."""
    task_pipeline: TaskPipeline | None = None
    """Operators that prepare prompts before the run."""
    stage_in_shared_memory: bool = False
    """Copy data files to /dev/shm once per node before reading."""
    trust_remote_code: bool = False
    """Run Python code that comes with a hub data set or tokenizer."""
