"""How responses are scored: the list ``rewards``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, Local, NonNegative, ParallelSize, Range, Seconds, Secret, Unit, section


@section
class Reward(Choice):
    """One way to score a response. Several rewards are added, each multiplied by its weight."""

    name: str = "reward"
    """Name of its scores in metrics."""
    weight: float = 1.0
    """Multiplies the score. Higher values give this reward more influence."""
    applies_to: tuple[str, ...] | None = None
    """Data sources or tags that it scores; ``*`` matches any text. null = all."""
    timeout: Seconds = 30.0
    """Seconds after which a function or rule call, or a request to a judge or sandbox, fails. rlctl retries a judge
    or sandbox that is unreachable or busy until it has been unresponsive for this long."""
    workers: Annotated[int, Unit("processes"), Range(at_least=1)] = 1
    """Processes that score in parallel (functions and rules). Higher values speed up slow rewards and use more
    cores."""
    on_error: Literal["stop", "zero"] = "zero"
    """On an exception or timeout: score 0 and log it, or stop the run. The run always stops if every call fails."""


@section
class RuleReward(Reward, type="rule"):
    """A built-in rule that scores the text of the response."""

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
    format, the length, a multiple-choice letter, a short answer, or an instruction that code can verify. auto
    chooses by data source, as verl does, or nothing if an agent gives the reward."""
    args: dict[str, Any] = {}
    """Arguments of the rule."""
    score_right: float = 1.0
    """Score of a correct answer."""
    score_wrong: float = 0.0
    """Score of a wrong answer."""


@section
class FunctionReward(Reward, type="function"):
    """Your own Python function, from a file."""

    path: str
    """Python file with the function, or ``pkg://`` and an installed module."""
    function: str = "compute_score"
    """Name of the function in that file."""
    signature: Literal["auto", "rlctl", "verl", "trinity", "roll"] = "auto"
    """How it is called: verl's ``(data_source, solution_str, ground_truth, extra_info)``, another framework's, or
    rlctl's own ``(response, answer, ...)``. auto chooses by its parameter names."""
    args: dict[str, Any] = {}
    """Further keyword arguments of the function, or constructor arguments of a class."""


@section
class ModelReward(Reward, type="model"):
    """A sequence classifier scores prompt and response."""

    path: Annotated[str, Local()]
    """Folder or hub name of the reward model."""
    tokenizer: Annotated[str | None, Local()] = None
    """Tokenizer of the reward model. null = the model's."""
    chat_template: str | None = None
    """Chat template of the reward model. null = the tokenizer's."""
    max_tokens: Count | None = None
    """Longest input; longer ones are cut at the end. null = the model's limit."""
    micro_batch_size: Annotated[int, Unit("responses on a replica"), Range(at_least=1)] = 16
    """Responses scored in one pass on one replica."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    overrides: dict[str, Any] = {}
    """Engine settings from the source config. Ignored: rlctl runs reward models with Transformers."""


@section
class JudgeReward(Reward, type="judge"):
    """A language model scores the response, over an OpenAI-compatible endpoint or on an engine of this run."""

    auxiliary_model: str | None = None
    """Model in ``rollout.auxiliary_models`` that judges, by name. null = the judge has its own ``base_url`` or
    ``model``."""
    base_url: str | None = None
    """Address of the endpoint. null = start engines for ``model`` on the devices of the role ``judge``."""
    model: Annotated[str, Local()] = ""
    """Name or path of the judge."""
    api_key: Annotated[str | None, Secret()] = None
    """API key of the endpoint. Write ``${oc.env:NAME}``."""
    prompt: str | None = None
    """Template with ``{prompt}``, ``{response}`` and ``{answer}``, ``{rubric}`` or ``{responses}``. null = the
    template of ``scoring``."""
    scoring: Literal["number", "yes_no", "rubric", "ruler"] = "number"
    """Form of the judge's answer: a number from 0 to 10, yes or no, a rating from 1 to 10 by the row's rubric, or a
    number from 0 to 1 for each response of a prompt, compared with each other (RULER). Scores are scaled to 0 to 1."""
    sampling: dict[str, Any] = {}
    """Sampling settings of the judge, as the endpoint names them."""
    max_concurrent: Annotated[int, Unit("calls"), Range(at_least=1)] = 64
    """Concurrent requests. Higher values score faster until the endpoint or engine is saturated."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """Engine started if ``base_url`` is null. auto = vllm on GPUs, transformers otherwise."""
    engine_args: dict[str, Any] = {}
    """vLLM arguments of the judge, by vLLM's names."""
    max_context_tokens: Count | None = None
    """Longest question plus answer of a judge on an engine of this run. null = the model's limit."""
    replicas: ParallelSize = 1
    """Engines started if ``base_url`` is null. Higher values score faster and use more devices."""
    tensor_parallel_size: ParallelSize = 1
    """Devices per judge engine."""


@section
class SandboxReward(Reward, type="sandbox"):
    """Runs the response's code against test cases, in a Sandbox Fusion service or in a local sandbox."""

    url: str | None = None
    """Address of the service. null = programs run on the machine of the reward worker, ``workers`` at a time, each at most
    ``timeout`` seconds."""
    isolation: Literal["namespaces", "limits"] = "namespaces"
    """Isolation of programs if ``url`` is null. namespaces: no network and no access to your files; rlctl refuses to
    run if the machine does not allow it. limits: only time and memory are limited. Unsafe: a program can do
    everything that you can."""
    method: Literal["verl", "roll"] = "verl"
    """How programs and test cases are read and compared: verl's way, from the row's answer, or ROLL's, from the
    columns ``case_type``, ``test_cases`` and ``test_case_function``."""
    max_concurrent: Annotated[int, Unit("calls"), Range(at_least=1)] = 64
    """Concurrent calls. Higher values score faster until the service is saturated."""
    memory_limit_mib: Annotated[int, Unit("MiB"), Range(at_least=1)] = 1024
    """Memory limit of a program together with all its child processes."""
    partial_credit: bool = False
    """Score the share of passed cases among the first 10, as verl does, instead of all or nothing."""
    tests_together: Literal["run", "refuse"] = "run"
    """What happens with tests that need the program's own process, where a program can forge their verdict: assertions
    in a service, and tests that need more than plain data. run: the metric ``tests_together`` reports their share.
    refuse: such a response fails to be scored, see ``on_error``."""


@section
class ExternalReward(Reward, type="external"):
    """A reward that only one framework has, such as a worker class. rlctl converts it but cannot run it."""

    kind: str
    """Name or class path of the reward in its framework."""
    args: dict[str, Any] = {}
    """Settings in that framework, by name."""


@section
class RewardLoop:
    """How scoring is organized. Does not affect scores."""

    manager: str = "naive"
    """Name of the framework's reward manager (naive, dapo, batch, prime, ...)."""
    overlap_with_rollout: bool = False
    """Score responses while others are still generated."""
    max_queued: NonNegative = 0
    """Most responses that wait for scoring. 0 = no limit."""
