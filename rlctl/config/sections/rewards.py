"""How responses are scored: the list ``rewards``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, NonNegative, ParallelSize, Range, Seconds, Secret, Unit, section


@section
class Reward(Choice):
    """One way to score a response; several are added, each times its weight."""

    name: str = "reward"
    """Name of its scores in metrics."""
    weight: float = 1.0
    """Multiplies the score. Raised, it counts more among the others."""
    applies_to: tuple[str, ...] | None = None
    """Data sources or tags it scores, a ``*`` standing for any text; null scores all."""
    timeout: Seconds = 30.0
    """A call that takes longer counts as failed: of a function or rule, or one request to a judge or sandbox. One of these that
    is away or busy is asked again until it has answered nobody for so long."""
    workers: Annotated[int, Unit("processes"), Range(at_least=1)] = 1
    """Processes of a function or rule that score at the same time. Raised, slow rewards take less time and more cores."""
    on_error: Literal["stop", "zero"] = "zero"
    """A call that raises or hangs scores 0 and is counted and told, or ends the run. Where all fail, the run ends."""


@section
class RuleReward(Reward, type="rule"):
    """A built-in rule on the text of the response."""

    rule: Literal[
        "auto",
        "exact_match",
        "number",
        "math",
        "boxed",
        "gsm8k",
        "format",
        "length",
        "dapo_math",
        "countdown",
        "multiple_choice",
        "search_qa",
        "ifeval",
        "geo3k",
    ] = "auto"
    """What is compared: the text itself, the last number, a formula, a boxed answer, the text after ``####``, the
    format, the length, a chosen letter, a short answer, an instruction that code can check. auto goes by the data source as
    verl's default does."""
    args: dict[str, Any] = {}
    """Arguments of the rule."""
    score_right: float = 1.0
    """Score of a right answer."""
    score_wrong: float = 0.0
    """Score of a wrong answer."""


@section
class FunctionReward(Reward, type="function"):
    """A Python function of the user's, from a file."""

    path: str
    """Python file with the function, or ``pkg://`` and an installed module."""
    function: str = "compute_score"
    """Name of the function in it."""
    signature: Literal["auto", "rlctl", "verl", "trinity", "roll"] = "auto"
    """How it is called: verl's ``(data_source, solution_str, ground_truth, extra_info)``, another framework's, or rlctl's
    own ``(response, answer, ...)``. auto goes by the names of its parameters."""
    args: dict[str, Any] = {}
    """Further keyword arguments of the function; of a class, what its object is made with."""


@section
class ModelReward(Reward, type="model"):
    """A sequence classifier scores prompt and response."""

    path: str
    """Folder or hub name of the reward model."""
    tokenizer: str | None = None
    """Its tokenizer; null takes the model's."""
    chat_template: str | None = None
    """Its chat template; null takes the tokenizer's."""
    max_tokens: Count | None = None
    """Longest input, cut at its end; null is the model's limit."""
    micro_batch_size: Annotated[int, Unit("responses on a replica"), Range(at_least=1)] = 16
    """Responses scored at once on one replica."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    overrides: dict[str, Any] = {}
    """Settings of the engine that ran it elsewhere: recorded, and not used here, where Transformers runs it."""


@section
class JudgeReward(Reward, type="judge"):
    """A language model scores the response: over an OpenAI-compatible endpoint, or by an engine of the run's own."""

    base_url: str | None = None
    """Address of the endpoint; null starts engines for ``model``, on the devices of the role ``judge``."""
    model: str = ""
    """Name or path of the judge."""
    api_key: Annotated[str | None, Secret()] = None
    """Key of the endpoint; write ``${oc.env:NAME}``."""
    prompt: str | None = None
    """Template with ``{prompt}``, ``{response}`` and ``{answer}``, ``{rubric}`` or ``{responses}``; null takes the one of
    ``scoring``."""
    scoring: Literal["number", "yes_no", "rubric", "ruler"] = "number"
    """What the judge says: a number from 0 to 10, yes or no, a rating from 1 to 10 by the row's rubric, or a number from 0 to 1
    for each response of a prompt, compared (RULER). Scores are from 0 to 1."""
    sampling: dict[str, Any] = {}
    """Sampling settings of the judge, as the endpoint names them."""
    max_concurrent: Annotated[int, Unit("calls"), Range(at_least=1)] = 64
    """Calls in flight at once. Raised, scoring is faster until the endpoint or engine is busy."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """Engine that is started where there is no endpoint; auto is vllm on GPUs, transformers elsewhere."""
    engine_args: dict[str, Any] = {}
    """Arguments of vLLM for the judge, by vLLM's names."""
    max_context_tokens: Count | None = None
    """Longest question and answer of a judge that is served here, together; null is the model's limit."""
    replicas: ParallelSize = 1
    """Engines started where there is no endpoint. Raised, scoring takes less time and more devices."""
    tensor_parallel_size: ParallelSize = 1
    """Devices of each of them."""


@section
class SandboxReward(Reward, type="sandbox"):
    """Runs the response's code against test cases: in a Sandbox Fusion service, or on this machine."""

    url: str | None = None
    """Address of the service. null = programs run on the machine of the reward worker, ``workers`` at a time, each at most
    ``timeout`` seconds."""
    isolation: Literal["namespaces", "limits"] = "namespaces"
    """Isolation of programs if ``url`` is null. namespaces: a sandbox without network and your files; the run is refused if the
    machine does not allow it. limits: only time and memory are limited; a program can do what you can."""
    method: Literal["verl", "roll"] = "verl"
    """How programs and cases are read and compared: verl's, from the answer of the row; or ROLL's, from its columns
    ``case_type``, ``test_cases`` and ``test_case_function``."""
    max_concurrent: Annotated[int, Unit("calls"), Range(at_least=1)] = 64
    """Calls in flight at once. Raised, scoring is faster until the service is busy."""
    memory_limit_mib: Annotated[int, Unit("MiB"), Range(at_least=1)] = 1024
    """Memory of a program together with everything it starts."""
    partial_credit: bool = False
    """Score the share of passed cases among the first 10, as verl does, instead of all or nothing."""


@section
class ExternalReward(Reward, type="external"):
    """A reward of one dialect that rlctl can translate and cannot run, such as a worker class."""

    kind: str
    """Its name or class path there."""
    args: dict[str, Any] = {}
    """Its settings there, by name."""


@section
class RewardLoop:
    """How scoring is organised; the scores do not depend on it."""

    manager: str = "naive"
    """Name of the dialect's reward manager (naive, dapo, batch, prime, ...)."""
    overlap_with_rollout: bool = False
    """Score while other responses are still generated."""
    max_queued: NonNegative = 0
    """Responses that may wait to be scored; 0 is no limit."""
