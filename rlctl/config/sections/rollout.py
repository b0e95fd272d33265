"""How responses are generated: section ``rollout``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import (
    Choice,
    Count,
    Devices,
    Fraction,
    GiB,
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
    """The engine that generates."""

    args: dict[str, Any] = {}
    """Arguments handed to the engine as they are, checked against its own."""


@section
class AutoEngine(RolloutEngine, type="auto"):
    """vLLM where there is a GPU, else the built-in engine."""


@section
class VllmEngine(RolloutEngine, type="vllm"):
    """vLLM."""


@section
class SglangEngine(RolloutEngine, type="sglang"):
    """SGLang, over its HTTP server."""


@section
class TransformersEngine(RolloutEngine, type="transformers"):
    """The built-in engine on Transformers models: no GPU needed, meant for small models."""


@section
class ExternalEngine(RolloutEngine, type="external"):
    """Any OpenAI-compatible endpoint, for exploration without weight sync."""

    base_url: str | None = None
    """Address of the endpoint."""
    model: str | None = None
    """Model name to ask for; null takes ``model.path``."""
    api_key: Annotated[str | None, Secret()] = None
    """Key of the endpoint; write ``${oc.env:NAME}``."""


@section
class OtherEngine(RolloutEngine, type="other", further=("trtllm", "tinker")):
    """An engine that rlctl translates and cannot run; one that it does not know follows its framework's name, ``verl.mine``."""

    kind: str
    """The type."""


@section
class SamplingSettings:
    """How training responses are drawn."""

    temperature: Annotated[float, Range(at_least=0)] = 1.0
    """0 is greedy. Raised, responses vary more; training logits are divided by it too (``algorithm.train_temperature``)."""
    top_p: Annotated[float, Range(above=0, at_most=1)] = 1.0
    """Draw from the smallest set of tokens with this probability. Lowered, unlikely tokens are never tried."""
    top_k: Count | None = None
    """Draw from this many likeliest tokens; null is off."""
    min_p: Fraction = 0.0
    """Leave out tokens less likely than this share of the likeliest."""
    repetition_penalty: Positive = 1.0
    """Above 1, tokens that occurred become less likely."""
    min_response_tokens: Annotated[int, Unit("tokens"), Range(at_least=0)] = 0
    """Shortest response: the end token cannot be drawn before. Raised, answers get longer."""
    stop: tuple[str, ...] = ()
    """Texts that end a response."""
    include_stop: bool = False
    """Keep the ending text in the response."""
    ignore_eos: bool = False
    """Go on to the limit whatever is drawn."""
    num_beams: Count = 1
    """Beams; engines for RL support only 1."""
    seed: int | None = 42
    """Seed of the engine; null takes ``run.seed``. Each response has its own stream under it."""
    log_probs: int | None = 0
    """How many likeliest alternatives are reported per token beside the one drawn; null reports no log-probs."""


@section
class RolloutParallel:
    """How one replica of the engine is spread, and how many there are."""

    tensor_parallel_size: Devices = 1
    """Devices that share each layer. Raised, larger models fit and short generations get slower."""
    pipeline_parallel_size: ParallelSize = 1
    """Pipeline stages of one engine. Raised, larger models fit and single responses get slower."""
    data_parallel_size: ParallelSize = 1
    """Data-parallel ranks inside one engine (mixture of experts)."""
    expert_parallel_size: ParallelSize = 1
    """Devices that share the experts of one engine. Raised, each holds fewer of them."""
    replicas: ParallelSize | Literal["auto"] = "auto"
    """Engines; auto fills the rollout devices. Raised, more responses are generated at once."""


@section
class EngineMemory:
    """Memory and batching of the engine."""

    gpu_memory_utilization: Fraction | None = None
    """Share of GPU memory for weights and KV cache; null takes 0.5 colocated and 0.9 alone. Raised, more responses run
    at once and less is left for training."""
    max_num_seqs: Count | None = None
    """Responses decoded at once; null takes the engine's default. Raised, throughput grows until memory runs out."""
    max_batched_tokens: Tokens | None = 8192
    """Tokens of one engine iteration."""
    block_size: Tokens | None = None
    """Tokens of one KV cache block; null takes the engine's."""
    swap_gib: GiB | None = None
    """CPU memory for swapped KV blocks; null takes the engine's."""
    kv_cache_dtype: str = "auto"
    """Type of the KV cache."""
    prefix_caching: bool = True
    """Keep the KV cache of common prefixes. Responses to one prompt share it."""
    chunked_prefill: bool = True
    """Mix prefill and decoding in one iteration."""
    enforce_eager: bool = False
    """No CUDA graphs: slower decoding, faster start, less memory."""
    sleep: bool = True
    """Free the KV cache (and weights, where they can be restored) while training, when devices are shared."""
    sleep_level: Annotated[int, Range(at_least=1, at_most=2)] | None = None
    """1 keeps weights in CPU memory during sleep, 2 drops them. null = 2 if every step syncs new weights, else 1."""
    load_format: Literal["auto", "dummy", "safetensors"] = "auto"
    """How first weights are loaded: from the files, or made up because a sync follows at once."""
    quantization: str | None = None
    """Quantisation of the engine's weights."""
    log_statistics: bool = False
    """Let the engine log its statistics."""


@section
class RolloutTimeouts:
    """How long responses are waited for."""

    response: Seconds | None = None
    """Longest wait for the responses to a prompt, which is then given up for another one; null waits as long as it takes. Time in
    which rollout rests, as it does while devices are trained on, does not count."""
    retries: Annotated[int, Unit("retries"), Range(at_least=0)] = 2
    """How often a failed response is asked for again."""
    dynamic: DynamicTimeout | None = None
    """Give up on stragglers by how long responses have taken so far; null is off."""


@section
class AuxiliaryModel:
    """A further model served beside the policy, for judges and agents."""

    path: str
    """Folder or hub name."""
    name: str | None = None
    """Name that workflows ask for."""
    replicas: ParallelSize = 1
    """Engines that serve it. Raised, more calls are answered at once."""
    tensor_parallel_size: ParallelSize = 1
    """Devices of each of its engines."""
    settings: dict[str, Any] = {}
    """Further settings of its engines, by name."""


@section
class OpenAiServer:
    """An OpenAI-compatible endpoint on the policy's engines, for agents."""

    enabled: bool = False
    """Whether there is one."""
    port: Annotated[int, Range(at_least=0, at_most=65535)] = 0
    """Its port; 0 picks a free one."""
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
    """Longest response. Raised, hard problems fit and steps take longer."""
    sampling: SamplingSettings = SamplingSettings()
    """How training responses are drawn."""
    precision: Precision = "auto"
    """Number type of the engine's weights; auto takes the training compute type."""
    parallel: RolloutParallel = RolloutParallel()
    """How engines are spread."""
    memory: EngineMemory = EngineMemory()
    """Memory and batching of the engine."""
    timeouts: RolloutTimeouts = RolloutTimeouts()
    """How long responses are waited for."""
    oversampling: Oversampling = Oversampling()
    """Start more than is needed."""
    max_running_prompts: Count | None = None
    """Prompts in flight in one scheduler (ROLL's ``max_running_requests``); null is no limit."""
    split_groups: bool = True
    """Generate the responses of one prompt as separate requests (ROLL's ``is_num_return_sequences_expand``)."""
    default_agent: str | None = None
    """Name of the agent in ``rollout.agents`` that makes trajectories if neither a row nor its source names one. null = one
    generation per response."""
    agents: tuple[TrajectoryAgent, ...] = ()
    """Agents of the run."""
    agent_workers: Annotated[int, Unit("processes"), Range(at_least=1)] = 1
    """Processes that run agents. Higher values run more tools at the same time and use more cores."""
    auxiliary_models: tuple[AuxiliaryModel, ...] = ()
    """Further models served beside the policy."""
    openai_server: OpenAiServer = OpenAiServer()
    """OpenAI-compatible endpoint on the policy's engines, for agents."""
    runners_per_engine: Annotated[int, Unit("processes"), Range(at_least=1)] = 8
    """Workflow processes of each engine (Trinity's ``runner_per_model``)."""
    report_every: Annotated[float, Unit("seconds"), Range(at_least=0)] = 0.0
    """How often workflow processes report their state; 0 never."""
    env_vars: dict[str, str] = {}
    """Environment variables of the processes that generate and score responses."""
    log_responses: bool = True
    """Keep some groups of each step and evaluation in the run folder, and send those of steps to trackers as a table."""
    log_evaluation_responses: Annotated[int, Unit("responses"), Range(at_least=0)] = 0
    """Responses of each evaluation sent to trackers as a table, to the same prompts every time; 0 sends none."""
    responses_folder: str | None = None
    """Folder for further copies of training responses; null keeps them in the run folder only."""
    evaluation_folder: str | None = None
    """Folder for further copies of evaluation responses."""
