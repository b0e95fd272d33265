"""Where prompts come from: section ``data``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Count, Positive, Range, Tokens, Unit, section


@section
class EvaluationSampling:
    """How evaluation responses are sampled. By default greedy, with the limits of training."""

    temperature: Annotated[float, Range(at_least=0)] = 0.0
    """0 = greedy. Higher values make responses more diverse."""
    top_p: Annotated[float, Range(above=0, at_most=1)] = 1.0
    """Sample from the smallest set of tokens with this total probability. 1 = off."""
    top_k: Count | None = None
    """Sample from this many most likely tokens. null = off."""
    max_response_tokens: Tokens | None = None
    """Longest evaluation response. null = ``rollout.max_response_tokens``."""


@section
class DataSource:
    """One dataset: files, columns and its share of a batch."""

    path: str = ""
    """Parquet, JSON or JSONL file, a folder of such files, a hub name, or an fsspec URL. Required, except with
    format episodes."""
    name: str | None = None
    """Name in metrics. null = the file's name."""
    format: Literal["auto", "parquet", "json", "csv", "hub", "sql", "episodes"] = "auto"
    """File format. auto uses the file's extension. episodes: no file but ``max_samples`` empty rows, for agents
    whose environment makes the task."""
    split: str | None = None
    """Split of a hub dataset."""
    subset: str | None = None
    """Configuration of a hub dataset."""
    weight: Positive = 1.0
    """Relative weight of this dataset if ``data.mixing`` is weighted. Higher values sample it more often."""
    max_samples: Count | None = None
    """Use only this many rows. null = all rows."""
    prompt_key: str = "prompt"
    """Column with the prompt: chat messages or text."""
    prompt_type: Literal["auto", "messages", "text", "raw"] = "auto"
    """messages: chat messages. text: put into one user message. raw: no chat template. auto uses the column's type."""
    system_prompt: str | None = None
    """System message put first. null = none."""
    system_prompt_key: str | None = None
    """Column with the system message of each row."""
    answer_key: str | None = None
    """Column with the ground truth. null = ``reward_model.ground_truth``, ``ground_truth`` or ``answer``, whichever
    exists."""
    response_key: str | None = None
    """Column with the response to imitate (sft, mix). null = ``response`` or the last assistant message."""
    messages_key: str | None = None
    """Column with whole conversations (sft). null = use ``prompt_key`` and ``response_key``."""
    tools_key: str | None = "tools"
    """Column with tool schemas for the chat template, if the data has one. null = none."""
    chosen_key: str = "chosen"
    """Column with the better response (dpo)."""
    rejected_key: str = "rejected"
    """Column with the worse response (dpo)."""
    source_key: str | None = "data_source"
    """Column with each row's data source, which routes rewards and splits metrics."""
    tag_key: str | None = None
    """Column with each row's tag, which can route rewards (ROLL's ``tag``)."""
    extra_key: str | None = "extra_info"
    """Column passed to reward functions as ``extra_info``."""
    image_key: str | None = None
    """Column with images. null = none."""
    video_key: str | None = None
    """Column with videos. null = none."""
    audio_key: str | None = None
    """Column with audio. null = none."""
    agent: str | None = None
    """Agent in ``rollout.agents`` for this dataset. ``single_turn`` = none. null = ``rollout.default_agent``."""
    agent_key: str | None = None
    """Column with the agent's name of each row. Rows without a name use ``agent``. null = no such column."""
    reward: str | None = None
    """Name of the reward that scores this dataset. null = route by ``rewards[].applies_to``."""
    reward_args: dict[str, Any] = {}
    """Arguments of that reward for this dataset."""
    sampling: dict[str, Any] = {}
    """Sampling overrides for this dataset, by the key names of ``rollout.sampling``."""


@section
class EvaluationSource(DataSource):
    """One evaluation dataset with its own sampling settings."""

    responses_per_prompt: Annotated[int, Unit("responses"), Range(at_least=1)] = 1
    """Responses sampled per prompt. Metrics report their mean and best."""
    evaluation_sampling: EvaluationSampling = EvaluationSampling()
    """How evaluation responses are sampled."""


@section
class Curriculum:
    """Order of the training prompts."""

    order: Literal["sequential", "shuffle", "random", "easy_to_hard", "difficulty"] = "shuffle"
    """sequential: file order. shuffle: shuffled each epoch. random: each batch sampled from all rows. easy_to_hard:
    sorted by ``keys``. difficulty: by measured pass rate."""
    keys: tuple[str, ...] = ()
    """Numeric columns. easy_to_hard: higher is easier, later columns break ties. difficulty: pass rates of two
    models."""
    args: dict[str, Any] = {}
    """Arguments of difficulty: target_reward 1, tau 1, do_sample false, m 16, lamb 0.2, rho 0.2, adaptive_rho false."""


@section
class CustomDataset:
    """Your own dataset class."""

    path: str
    """Python file with the class."""
    class_name: str
    """Name of the class in that file."""


@section
class TaskPipeline:
    """Operators that prepare prompts before the run (Trinity's ``task_pipeline``)."""

    operators: tuple[dict[str, Any], ...] = ()
    """Operators, each with ``name`` and ``args``."""
    inputs: tuple[str, ...] = ()
    """Files that the operators read. Training datasets are not read automatically."""
    output: str | None = None
    """Folder for the result, a file ``output.jsonl``. null = the path of the first training dataset."""
    text_keys: tuple[str, ...] = ()
    """Text columns that the operators process."""
    num_processes: Count = 4
    """Worker processes. Higher values are faster and use more cores."""
    priority_weights: dict[str, float] = {}
    """Weight of each statistic in a row's priority."""
    top_k: int | None = None
    """Keep this many rows with the highest priority. null = all rows."""


@section
class Data:
    """Training and evaluation prompts, and how they are truncated and ordered."""

    train: tuple[DataSource, ...] = ()
    """Training datasets. Several are mixed."""
    eval: tuple[EvaluationSource, ...] = ()
    """Evaluation datasets, generated and scored every ``schedule.evaluate_every``."""
    mixing: Literal["concatenate", "weighted", "weighted_exact"] = "concatenate"
    """concatenate: one pool of all rows. weighted: rows are sampled by weight. weighted_exact: each batch is split
    exactly by weight (ROLL's interleaving)."""
    max_prompt_tokens: Tokens = 512
    """Longest prompt after the chat template. Higher values keep more prompts and need more memory."""
    overlong_prompts: Literal["keep", "drop"] = "keep"
    """keep: truncate prompts above the limit (see ``truncation``). drop: remove them when the data is read."""
    truncation: Literal["error", "left", "right", "middle"] = "error"
    """Which part of an overlong prompt is cut. error = stop at the first overlong prompt."""
    train_on_truncated_prompts: bool = True
    """Whether to train on responses to truncated prompts."""
    curriculum: Curriculum = Curriculum()
    """Order of the training prompts."""
    shuffle_evaluation: bool = False
    """Shuffle evaluation prompts. Affects only which samples are displayed."""
    seed: int | None = None
    """Seed of the data order. null = ``run.seed``."""
    last_batch: Literal["drop", "carry"] = "drop"
    """Incomplete last batch of an epoch. drop: skip it. carry: fill it up from the next epoch."""
    loader_workers: Annotated[int, Unit("threads"), Range(at_least=0)] = 0
    """Controller threads that read and tokenize the next batch in the background. 0 = load when needed."""
    filter_workers: Annotated[int, Unit("processes"), Range(at_least=1)] = 1
    """Processes that measure prompt lengths before the run, at most one per core. Higher values prepare large
    datasets faster."""
    evaluation_batch_prompts: Annotated[int, Unit("prompts"), Range(at_least=1)] | None = None
    """Prompts evaluated together. null = the whole dataset."""
    max_sequence_tokens: Tokens | None = None
    """Longest training sequence of sft and dpo. null = the sum of the prompt and response limits."""
    sequence_truncation: Literal["error", "left", "right"] = "error"
    """Which part of an overlong sft or dpo sequence is cut."""
    multi_turn_loss: Literal["all_assistant", "last_assistant"] = "all_assistant"
    """Which assistant turns of a conversation sft trains on."""
    custom: CustomDataset | None = None
    """Your own dataset class instead of the built-in reader. Its file runs in the controller."""
    task_pipeline: TaskPipeline | None = None
    """Operators that prepare prompts before the run."""
    stage_in_shared_memory: bool = False
    """Copy data files to /dev/shm once per node before reading."""
    trust_remote_code: bool = False
    """Run Python code that comes with a hub dataset or tokenizer."""
