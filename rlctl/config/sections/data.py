"""Where prompts come from: section ``data``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, Fraction, Positive, Range, Seconds, Tokens, Unit, section


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
class DataOperator(Choice):
    """Drops or changes rows before training."""

    column: str | None = None
    """Column with the text. Of chat messages, the contents are joined, one per line. null = ``prompt_key`` of the
    dataset."""


@section
class LengthFilter(DataOperator, type="length"):
    """Keep rows whose text has a length within bounds."""

    min: Annotated[int, Range(at_least=0)] = 10
    """Shortest text that is kept."""
    max: Annotated[int, Range(at_least=0)] | None = None
    """Longest text that is kept. null = no limit."""
    unit: Literal["characters", "tokens"] = "characters"
    """What is counted: characters, or tokens of the model's tokenizer without the chat template."""


@section
class LanguageFilter(DataOperator, type="language"):
    """Keep rows whose letters are mostly of some writing systems."""

    scripts: tuple[str, ...]
    """Writing systems as Unicode names them, such as latin, cjk, hiragana, hangul, cyrillic or arabic."""
    min_share: Fraction = 0.5
    """Smallest share of the letters that must be of these writing systems."""


@section
class DuplicateFilter(DataOperator, type="duplicates"):
    """Keep the first of several rows with the same text."""

    lowercase: bool = False
    """Treat upper and lower case as equal."""
    ignore_non_character: bool = False
    """Ignore white space, digits and punctuation."""


@section
class AlphanumericFilter(DataOperator, type="alphanumeric"):
    """Keep rows whose share of letters and digits is within bounds."""

    min_ratio: float = 0.25
    """Smallest share that is kept."""
    max_ratio: float | None = None
    """Largest share that is kept. null = no limit."""


@section
class SpecialCharacterFilter(DataOperator, type="special_characters"):
    """Keep rows whose share of characters other than letters is within bounds."""

    min_ratio: float = 0.0
    """Smallest share that is kept."""
    max_ratio: float = 0.25
    """Largest share that is kept. Digits, punctuation, white space and symbols count."""


@section
class RepetitionFilter(DataOperator, type="repetition"):
    """Keep rows whose text repeats itself little (BLOOM's measure)."""

    rep_len: Count = 10
    """Characters of the sequences that are compared."""
    min_ratio: float = 0.0
    """Smallest share of repeated sequences that is kept."""
    max_ratio: float = 0.5
    """Largest share of repeated sequences that is kept."""


@section
class PassRateFilter(DataOperator, type="pass_rate"):
    """Keep rows whose recorded pass rate is within bounds; 1 minus the pass rate is the difficulty of a row."""

    min: Fraction = 0.0
    """Smallest pass rate that is kept."""
    max: Fraction = 1.0
    """Largest pass rate that is kept."""


@section
class QualityFilter(DataOperator, type="quality"):
    """Keep rows whose text a judge rates within bounds, from 0 to 1; ``data.priority`` weighs the rating as quality."""

    auxiliary_model: str
    """Name of one of ``rollout.auxiliary_models``. It needs a ``base_url``, because operators run before the run
    starts its engines."""
    prompt: str | None = None
    """Prompt for the judge, with ``{text}`` for the row's text. The judge must answer ``Score: N``, 0 to 10. null = ask how
    useful the row is for training."""
    min: Fraction = 0.0
    """Smallest rating that is kept."""
    max: Fraction = 1.0
    """Largest rating that is kept."""
    sampling: dict[str, Any] = {}
    """Sampling settings of the judge, as the endpoint names them. Temperature is 0 unless set."""
    max_concurrent: Annotated[int, Unit("calls"), Range(at_least=1)] = 64
    """Concurrent requests. Higher values rate faster until the endpoint is saturated."""
    timeout: Seconds = 60.0
    """Seconds after which a request fails. rlctl retries an endpoint that is unreachable or busy for this long."""


@section
class FunctionDataOperator(DataOperator, type="function"):
    """Your own operator: a function that receives all rows and returns the new ones."""

    path: str
    """Python file with the function, or ``pkg://package.module``. It runs in the controller."""
    function: str = "operate"
    """Name of the function."""
    args: dict[str, Any] = {}
    """Further arguments of the function, by name."""


@section
class ExternalDataOperator(DataOperator, type="external"):
    """An operator of Data-Juicer, which ``service.data_juicer`` runs."""

    kind: str
    """Name of the operator in Data-Juicer, or ``data_juicer`` for several operators together."""
    args: dict[str, Any] = {}
    """Arguments of the operator, by name. For ``data_juicer``: ``operators`` (a list of ``{NAME: ARGS}``), or
    ``config_path``, a Data-Juicer config file whose operators read the columns unchanged."""


@section
class PriorityWeights:
    """Weight of each score of a row."""

    difficulty: float = -0.7
    """Weight of the difficulty: 1 minus the pass rate of the operator pass_rate, or 0.5 without it."""
    diversity: float = 0.8
    """Weight of diversity, from 0 to 1: how rare the 5-character sequences of a text are in the dataset."""
    usage_frequency: float = -0.5
    """Weight of the column ``consumed_cnt``, which counts how often a row was used. A row without it counts as 0."""
    quality: float = 1.0
    """Weight of the quality: the mean of the shares that operators measured, each as 0 (bad) to 1 (good), or 0.5 without any."""


@section
class Priority:
    """Sorts the rows that operators leave by a weighted sum of scores, highest first."""

    weights: PriorityWeights = PriorityWeights()
    """Weight of each score of a row."""
    keep: Count | None = None
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
    domain_weights: dict[str, Positive] = {}
    """Relative weights of rewards' rows, by the reward's name. Each batch is split exactly; other rows are not used."""
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
    operators: tuple[DataOperator, ...] = ()
    """Operators on the training datasets before the run, applied to each dataset in this order. Results are cached."""
    operators_input: tuple[str, ...] = ()
    """Files that the operators read instead of the first training dataset, which then names only the columns."""
    operators_output: str | None = None
    """Folder for a copy of the first dataset's result, a file ``output.jsonl``. If it exists with other rows, the run stops.
    null = none."""
    priority: Priority | None = None
    """Sorting and cutting after the operators. null = off."""
    stage_in_shared_memory: bool = False
    """Copy data files to /dev/shm once per node before reading."""
    trust_remote_code: bool = False
    """Run Python code that comes with a hub dataset or tokenizer."""
