"""How responses are generated: section ``rollout``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import (
    Choice,
    Count,
    Devices,
    Fraction,
    GiB,
    Local,
    ParallelSize,
    Positive,
    Range,
    Seconds,
    Secret,
    Tokens,
    Unit,
    section,
)
from rlctl.config.sections.agents import TrajectoryAgent
from rlctl.config.sections.batch import DynamicTimeout, Oversampling

Precision = Literal["auto", "float32", "bfloat16", "float16"]


@section
class RolloutEngine(Choice):
    """The engine that generates responses."""

    args: dict[str, Any] = {}
    """Arguments passed to the engine unchanged, checked against those it has."""


@section
class AutoEngine(RolloutEngine, type="auto"):
    """vLLM if there is a GPU, otherwise the built-in engine."""


@section
class VllmEngine(RolloutEngine, type="vllm"):
    """vLLM."""


@section
class SglangEngine(RolloutEngine, type="sglang"):
    """SGLang, over its HTTP server."""


@section
class TransformersEngine(RolloutEngine, type="transformers"):
    """The built-in engine on Transformers models. Needs no GPU; for small models."""


@section
class ExternalEngine(RolloutEngine, type="external"):
    """Any OpenAI-compatible endpoint, for rollout without weight sync."""

    base_url: str | None = None
    """Address of the endpoint."""
    model: str | None = None
    """Model name to request. null = ``model.path``."""
    api_key: Annotated[str | None, Secret()] = None
    """API key of the endpoint. Write ``${oc.env:NAME}``."""


@section
class OtherEngine(RolloutEngine, type="other", further=("trtllm", "tinker")):
    """An engine that rlctl converts but cannot run.

    One that it does not know is written with its framework's name: ``verl.mine``.
    """

    kind: str
    """The type."""


@section
class SamplingSettings:
    """How training responses are sampled."""

    temperature: Annotated[float, Range(at_least=0)] = 1.0
    """0 = greedy. Higher values make responses more diverse. Training logits are divided by it too
    (``algorithm.train_temperature``)."""
    top_p: Annotated[float, Range(above=0, at_most=1)] = 1.0
    """Sample from the smallest set of tokens with this total probability. Lower values exclude unlikely tokens. 1 =
    off."""
    top_k: Count | None = None
    """Sample from this many most likely tokens. null = off."""
    min_p: Fraction = 0.0
    """Exclude tokens less likely than this fraction of the most likely token."""
    repetition_penalty: Positive = 1.0
    """Values above 1 make repeated tokens less likely."""
    min_response_tokens: Annotated[int, Unit("tokens"), Range(at_least=0)] = 0
    """Shortest response: the end token is blocked until then."""
    stop: tuple[str, ...] = ()
    """Strings that end a response."""
    include_stop: bool = False
    """Keep the stop string in the response."""
    ignore_eos: bool = False
    """Generate up to the limit, ignoring the end token."""
    num_beams: Count = 1
    """Beams. Engines for RL support only 1."""
    seed: int | None = 42
    """Sampling seed. Every response gets its own stream derived from it. null = ``run.seed``."""
    log_probs: int | None = 0
    """Number of most likely alternatives reported per token in addition to the sampled one. null = no log-probs."""


@section
class RolloutParallel:
    """Parallelism of one engine, and the number of engines."""

    tensor_parallel_size: Devices = 1
    """Devices that share each layer. Higher values fit larger models and slow down short generations."""
    pipeline_parallel_size: ParallelSize = 1
    """Pipeline stages of one engine. Higher values fit larger models and raise latency."""
    data_parallel_size: ParallelSize = 1
    """Data-parallel ranks inside one engine (mixture of experts)."""
    expert_parallel_size: ParallelSize = 1
    """Devices that share the experts of one engine."""
    replicas: ParallelSize | Literal["auto"] = "auto"
    """Number of engines. auto fills the rollout devices."""


@section
class EngineMemory:
    """Memory and batching of the engine."""

    gpu_memory_utilization: Fraction | None = None
    """Fraction of GPU memory for weights and KV cache. null = 0.5 colocated, 0.9 on dedicated devices. Higher values
    run more responses at the same time and leave less for training."""
    max_num_seqs: Count | None = None
    """Most responses decoded at the same time. Higher values raise throughput until memory runs out. null = the
    engine's default."""
    max_batched_tokens: Tokens | None = 8192
    """Most tokens per engine iteration."""
    block_size: Tokens | None = None
    """Tokens per KV-cache block. null = the engine's default."""
    swap_gib: GiB | None = None
    """CPU memory for swapped KV blocks. null = the engine's default."""
    kv_cache_dtype: str = "auto"
    """Data type of the KV cache."""
    prefix_caching: bool = True
    """Reuse the KV cache of common prefixes, such as the prompt of a group."""
    chunked_prefill: bool = True
    """Mix prefill and decoding in one iteration."""
    enforce_eager: bool = False
    """Disable CUDA graphs: slower decoding, faster start, less memory."""
    sleep: bool = True
    """Free the KV cache (and weights, if they can be restored) while training on shared devices."""
    sleep_level: Annotated[int, Range(at_least=1, at_most=2)] | None = None
    """1 keeps weights in CPU memory during sleep, 2 drops them. null = 2 if every step syncs new weights, else 1."""
    load_format: Literal["auto", "dummy", "safetensors"] = "auto"
    """Initial weight loading: real weights, or dummy weights if a sync follows immediately. Adapters need real ones."""
    quantization: str | None = None
    """Quantization of the engine's weights."""
    log_statistics: bool = False
    """Log the engine's statistics."""


@section
class RolloutTimeouts:
    """Time limits of responses."""

    response: Seconds | None = None
    """Seconds before a prompt is abandoned and replaced. Paused time (while the devices train) doesn't count. null =
    no limit."""
    retries: Annotated[int, Unit("retries"), Range(at_least=0)] = 2
    """How often a failed response is retried."""
    dynamic: DynamicTimeout | None = None
    """Abandon stragglers based on how long responses took so far. null = off."""


@section
class AuxiliaryModel:
    """Another model that judges and agents call by name: on engines of the run, or at an endpoint."""

    path: Annotated[str, Local()]
    """Folder or hub name; with ``base_url``, the name under which the endpoint serves it."""
    name: str | None = None
    """Name by which judges and agents call it. null = ``path``."""
    base_url: str | None = None
    """Address of an OpenAI-compatible endpoint that serves it. null = start engines on the devices of the role ``auxiliary``."""
    api_key: Annotated[str | None, Secret()] = None
    """API key of the endpoint. Write ``${oc.env:NAME}``."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """Engine started if ``base_url`` is null. auto = vllm on GPUs, transformers otherwise."""
    replicas: ParallelSize = 1
    """Engines that serve it. Higher values handle more concurrent calls."""
    tensor_parallel_size: ParallelSize = 1
    """Devices of one engine."""
    max_context_tokens: Count | None = None
    """Longest prompt plus answer. null = the model's limit."""
    settings: dict[str, Any] = {}
    """vLLM arguments of its engines, by vLLM's names."""


@section
class OpenAiServer:
    """An OpenAI-compatible endpoint on the policy's engines, for agents."""

    enabled: bool = False
    """Whether the endpoint is started."""
    port: Annotated[int, Range(at_least=0, at_most=65535)] = 0
    """Port of the endpoint. 0 = a free port."""
    tool_choice: bool = False
    """Parse tool calls in the engine."""
    tool_parser: str | None = None
    """Parser of tool calls."""
    reasoning_parser: str | None = None
    """Parser that takes the reasoning out of an answer."""
    history: bool = False
    """Keep every call's tokens for training."""
    log_requests: bool = False
    """Log every request in full."""


@section
class Rollout:
    """Engine, sampling, limits and agents."""

    engine: RolloutEngine = AutoEngine()
    """The engine that generates."""
    max_response_tokens: Tokens = 512
    """Longest response. Higher values let hard problems finish and make steps slower."""
    sampling: SamplingSettings = SamplingSettings()
    """How training responses are sampled."""
    precision: Precision = "auto"
    """Data type of the engine's weights. auto = ``train.precision.compute``."""
    parallel: RolloutParallel = RolloutParallel()
    """Parallelism and number of engines."""
    memory: EngineMemory = EngineMemory()
    """Memory and batching of the engine."""
    timeouts: RolloutTimeouts = RolloutTimeouts()
    """Time limits of responses."""
    oversampling: Oversampling = Oversampling()
    """Start more prompts than a step needs."""
    max_running_prompts: Count | None = None
    """Most prompts in flight per scheduler (ROLL's ``max_running_requests``). null = no limit."""
    split_groups: bool = True
    """Generate the responses of one prompt as separate requests (ROLL's ``is_num_return_sequences_expand``)."""
    default_agent: str | None = None
    """Agent in ``rollout.agents`` that makes trajectories if neither a row nor its dataset names one. null = one
    generation per response."""
    agents: tuple[TrajectoryAgent, ...] = ()
    """Agents of the run."""
    agent_workers: Annotated[int, Unit("processes"), Range(at_least=1)] = 1
    """Processes that run agents. Higher values run more tools at the same time and use more cores."""
    auxiliary_models: tuple[AuxiliaryModel, ...] = ()
    """Other models that judges and agents call by name."""
    openai_server: OpenAiServer = OpenAiServer()
    """OpenAI-compatible endpoint on the policy's engines, for agents."""
    runners_per_engine: Annotated[int, Unit("processes"), Range(at_least=1)] = 8
    """Workflow processes of each engine (Trinity's ``runner_per_model``)."""
    report_every: Annotated[float, Unit("seconds"), Range(at_least=0)] = 0.0
    """Interval at which workflow processes report their state. 0 = never."""
    env_vars: dict[str, str] = {}
    """Environment variables of the processes that generate and score responses."""
    log_responses: bool = True
    """Keep some groups of each step and evaluation in the run folder, and send those of steps to trackers as a table."""
    log_evaluation_responses: Annotated[int, Unit("responses"), Range(at_least=0)] = 0
    """Responses per evaluation sent to trackers as a table, for the same prompts every time. 0 = none."""
    responses_folder: str | None = None
    """Folder for additional copies of training responses. null = only in the run folder."""
    evaluation_folder: str | None = None
    """Folder for additional copies of evaluation responses."""
