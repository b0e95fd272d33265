"""What frameworks hold: each term changes the estimate as its bytes say, and each release has its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlctl.adapters import dialect, names
from rlctl.adapters.verl.memory import DEFERS, TEMPERATURE, memory_terms
from rlctl.config import Config, config_from
from rlctl.planning.memory import GIB, fitted, memory_of, phases_of
from rlctl.planning.memory.phases import overflow
from rlctl.planning.memory.roles import context_tokens, policy_forward
from rlctl.planning.memory_terms import OWN, MemoryTerms, WholeLogits, terms_of
from rlctl.planning.models import read_shape

MODEL = "Qwen/Qwen3-8B"
TOKENS = 8192
WHOLE = WholeLogits(train=4, train_entropy=8, forward=2, forward_entropy=3, eager_entropy=5)
SHAPE = read_shape(MODEL)
assert SHAPE is not None
LOGITS = TOKENS * SHAPE.vocabulary


def grpo(**sections: Any) -> Config:
    base: dict[str, Any] = {
        "model": {"path": MODEL},
        "data": {"max_prompt_tokens": 1024},
        "rollout": {"max_response_tokens": 7168},
        "batch": {"micro_batch": {"unit": "tokens", "size": TOKENS}},
    }
    return config_from({**base, **sections})


def policy(config: Config, **terms: Any) -> dict[str, float]:
    found = memory_of(config, terms=replace(OWN, **terms))[0]
    return {part.name: part.gib * GIB for part in found.parts}


@pytest.mark.parametrize(
    ("sections", "terms", "each"),
    [
        ({}, {}, 4),
        ({"algorithm": {"entropy_coefficient": 0.01}}, {}, 8),
        ({}, {"entropy_always": True}, 8),
        ({"train": {"compile": False}}, {"entropy_always": True}, 13),
        ({"train": {"compile": False, "memory": {"entropy_chunked": True}}}, {"entropy_always": True}, 8),
        ({"train": {"compile": False}}, {}, 4),
    ],
)
def test_whole_logits_take_the_bytes_of_the_loss(sections: dict[str, Any], terms: dict[str, Any], each: float) -> None:
    assert policy(grpo(**sections), logits=WHOLE, **terms)["logits"] == pytest.approx(each * LOGITS)


def test_log_prob_passes_hold_whole_logits_too() -> None:
    forward = policy_forward(grpo(), replace(OWN, logits=WHOLE))
    assert forward is not None
    assert forward.part("logits") * GIB == pytest.approx(3 * LOGITS)


def test_fused_kernels_never_have_whole_logits() -> None:
    fused = grpo(train={"fused_kernels": {"enabled": True}})
    assert policy(fused, logits=WHOLE)["logits"] == policy(fused)["logits"]


def test_gradients_that_wait_are_whole() -> None:
    assert SHAPE is not None
    config = grpo(batch={"responses_per_prompt": 8, "micro_batch": {"unit": "tokens", "size": TOKENS}})
    waiting = policy(config, logits=WHOLE, kept_gradients={"fsdp2": 4})["gathered"]
    expected = 4 * SHAPE.parameters * (1 - 1 / 8)
    assert waiting - policy(config, logits=WHOLE)["gathered"] == pytest.approx(expected)
    assert policy(config, logits=WHOLE, kept_gradients={"fsdp": 4}) == policy(config, logits=WHOLE)
    once = grpo(
        batch={"prompts_per_step": 8, "responses_per_prompt": 2, "micro_batch": {"unit": "responses", "size": 2}}
    )
    assert policy(once, logits=WHOLE, kept_gradients={"fsdp2": 4}) == policy(once, logits=WHOLE)


def test_a_step_of_the_optimizer_is_a_moment_of_its_own() -> None:
    assert SHAPE is not None
    small = grpo(
        batch={"micro_batch": {"unit": "tokens", "size": 1}},
        rollout={"max_response_tokens": 1},
        data={"max_prompt_tokens": 1},
    )
    found = policy(small, optimizer_step=3)
    assert found["optimizer step"] == pytest.approx(3 * 4 * SHAPE.parameters / 8)
    assert not found["logits"]


def test_memory_fragments_unless_segments_expand() -> None:
    config = grpo()
    found = policy(config, expandable_segments=False)
    passing = sum(found[name] for name in ("gathered", "activations", "logits", "optimizer step"))
    assert found["fragments"] == pytest.approx(fitted.FRAGMENTS * passing)
    asked = grpo(runtime={"env_vars": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}})
    assert not policy(asked, expandable_segments=False)["fragments"]
    refused = grpo(runtime={"env_vars": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}})
    assert policy(refused)["fragments"]


def test_engines_may_sleep_wherever_they_share_devices() -> None:
    apart = {"rollout": {"devices": list(range(8))}, "policy": {"devices": list(range(4))}}
    config = grpo(placement={"layout": "explicit", "devices_per_node": 8, "roles": apart})

    def awake(**terms: Any) -> float:
        found = phases_of(config, gib=80, terms=replace(OWN, **terms))
        (train,) = (phase for phase in found if phase.phase == "train")
        return sum(part.gib for part in train.parts if part.name.startswith("rollout"))

    assert awake() > 30
    assert awake(engines_sleep=True) == 0


@pytest.mark.parametrize(("tensor", "kept"), [(1, 0.76), (2, 2.4)])
def test_the_process_of_a_sleeping_engine_keeps_some_memory(tensor: int, kept: float) -> None:
    config = grpo(rollout={"max_response_tokens": 7168, "parallel": {"tensor_parallel_size": tensor}})
    phases = phases_of(config, gib=80, terms=replace(OWN, engine_processes=True))
    assert {phase.phase: phase.asleep for phase in phases if phase.asleep or phase.phase == "rollout"} == {
        "rollout": 0.0, "train": kept, "log_probs": kept, "weight_sync": kept
    }  # fmt: skip
    assert not any(phase.asleep for phase in phases_of(config, gib=80))
    (train,) = (phase for phase in phases if phase.phase == "train")
    full = train.gib / fitted.USABLE
    assert overflow((train,), full) == pytest.approx(kept)


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("vllm", {"speculative_config": {"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 4}}),
        ("sglang", {"speculative_draft_model_path": "Qwen/Qwen3-0.6B", "speculative_algorithm": "STANDALONE"}),
    ],
)
def test_a_draft_model_takes_memory_of_the_engine(engine: str, args: dict[str, Any]) -> None:
    def weights(**more: Any) -> float:
        rollout = {"engine": {"type": engine, "args": more}, "parallel": {"tensor_parallel_size": 2}}
        return memory_of(grpo(rollout=rollout))[1].part("weights") * GIB

    draft = read_shape("Qwen/Qwen3-0.6B")
    assert draft is not None
    assert weights(**args) - weights() == pytest.approx(2 * draft.parameters / 2)


def test_sglang_takes_its_share_of_what_others_leave_free() -> None:
    def engine(name: str) -> float:
        config = grpo(rollout={"engine": {"type": name}, "memory": {"gpu_memory_utilization": 0.6}})
        (rollout,) = (phase for phase in phases_of(config, gib=80) if phase.phase == "rollout")
        return sum(part.gib for part in rollout.parts if part.name.startswith("rollout"))

    assert SHAPE is not None
    resting = 12 * SHAPE.parameters / 8 / GIB  # parameters and optimizer of the policy
    assert engine("vllm") == pytest.approx(48)
    assert engine("sglang") == pytest.approx(0.6 * (80 - resting))


def test_experts_of_an_engine_are_spread_over_more_devices_than_its_layers() -> None:
    def weights(**parallel: int) -> float:
        config = grpo(model={"path": "Qwen/Qwen3-235B-A22B"}, rollout={"parallel": parallel})
        (found,) = (each for each in memory_of(config) if each.role == "rollout")
        return found.part("weights") * GIB

    shape = read_shape("Qwen/Qwen3-235B-A22B")
    assert shape is not None
    dense = shape.parameters - shape.expert_parameters
    together = {"tensor_parallel_size": 4, "data_parallel_size": 32, "expert_parallel_size": 128}
    assert weights(**together) == pytest.approx(2 * (dense / 4 + shape.expert_parameters / 128))
    assert weights(tensor_parallel_size=4) == pytest.approx(2 * shape.parameters / 4)


def test_engines_hold_quantized_weights_and_adapters() -> None:
    def rollout(**model: Any) -> dict[str, float]:
        memory = {"quantization": "fp8", "kv_cache_dtype": "fp8_e4m3"} if model.pop("fp8", False) else {}
        config = grpo(model={"path": MODEL, **model}, rollout={"max_response_tokens": 7168, "memory": memory})
        (found,) = (each for each in memory_of(config) if each.role == "rollout")
        return {part.name: part.gib * GIB for part in found.parts}

    assert SHAPE is not None
    assert rollout()["weights"] == pytest.approx(2 * SHAPE.parameters)
    assert rollout(fp8=True)["weights"] == pytest.approx(SHAPE.parameters + SHAPE.embedding_parameters)
    assert rollout(fp8=True)["cache"] == pytest.approx(rollout()["cache"] / 2)
    lora = {"rank": 16, "alpha": 16, "target_modules": ["q_proj"]}
    added = 2 * 16 * SHAPE.layers * (SHAPE.hidden + SHAPE.attention_width)
    assert rollout(lora=lora)["weights"] - rollout()["weights"] == pytest.approx(added)
    assert rollout(lora={**lora, "merge_for_rollout": True})["weights"] == pytest.approx(rollout()["weights"])


@pytest.mark.parametrize("engine", [{"type": "fsdp2"}, {"type": "megatron", "tensor_parallel_size": 2}])
def test_a_frozen_tower_has_neither_gradients_nor_an_optimizer(engine: dict[str, Any]) -> None:
    name = "Qwen/Qwen3-VL-8B-Instruct"
    shape = read_shape(name)
    assert shape is not None
    whole = policy(grpo(model={"path": name}, train={"engine": engine}))
    frozen = policy(grpo(model={"path": name, "freeze": ["model.visual"]}, train={"engine": engine}))
    assert frozen["parameters"] == whole["parameters"]
    saved = {"fsdp2": 4 * shape.vision_parameters / 8, "megatron": 4 * shape.vision_parameters / 2}[engine["type"]]
    assert whole["gradients"] - frozen["gradients"] == pytest.approx(saved)
    assert frozen["optimizer"] < whole["optimizer"]


def test_fsdp1_copies_frozen_weights_only_where_it_shards_them() -> None:
    def parameters(devices: int, **terms: Any) -> float:
        config = grpo(
            model={"path": MODEL, "lora": {"rank": 8, "alpha": 8, "target_modules": ["all-linear"]}},
            train={"engine": {"type": "fsdp2", "source": "fsdp"}},
            placement={"devices_per_node": devices},
        )
        return policy(config, **terms)["parameters"]

    assert SHAPE is not None
    copied = parameters(2, frozen_copy="fsdp") - parameters(2)
    assert copied == pytest.approx(fitted.FROZEN_COPY * SHAPE.parameters / 2)
    assert parameters(1, frozen_copy="fsdp") == parameters(1)


def test_a_context_longer_than_prompt_and_response_is_for_agents() -> None:
    wide = {"path": MODEL, "max_context_tokens": 16384}
    assert context_tokens(grpo(model=wide)) == 8192
    agent = {"type": "tools", "name": "solver"}
    talking = grpo(model=wide, rollout={"max_response_tokens": 7168, "agents": [agent], "default_agent": "solver"})
    assert context_tokens(talking) == 16384


def test_a_run_that_only_samples_trains_nothing() -> None:
    config = grpo(run={"mode": "rollout_only"})
    assert {phase.phase for phase in phases_of(config, gib=80)} == {"rollout"}


def test_a_frozen_reference_may_wait_in_cpu_memory() -> None:
    config = grpo(algorithm={"kl_in_loss": {"coefficient": 0.01}})
    for terms, held in ((OWN, True), (replace(OWN, frozen_on_cpu=True), False)):
        (reference,) = (each for each in memory_of(config, terms=terms) if each.role == "reference")
        assert bool(reference.part("parameters")) is held


def test_layers_of_transformer_engine_keep_fewer_activations() -> None:
    """About 34 bytes a token and number of the hidden size, where an MLP is 3.5 times as wide and heads share keys in fours."""
    llama = grpo(
        model={"path": "meta-llama/Llama-3.1-8B"},
        train={"engine": {"type": "megatron", "recompute_granularity": "none"}},
    )
    shape = read_shape("meta-llama/Llama-3.1-8B")
    assert shape is not None
    own, fused = (policy(llama, fused_layers=it)["activations"] for it in (False, True))
    assert fused / (TOKENS * shape.hidden * shape.layers) == pytest.approx(34, rel=0.03)
    assert own > 1.6 * fused


def test_an_optimizer_in_cpu_memory_takes_none_of_the_device() -> None:
    def optimizer(**overrides: Any) -> float:
        return policy(grpo(train={"engine": {"type": "megatron", "optimizer_overrides": overrides}}))["optimizer"]

    whole = optimizer()
    assert optimizer(optimizer_cpu_offload=True, optimizer_offload_fraction=1.0) == 0
    assert optimizer(optimizer_cpu_offload=True, optimizer_offload_fraction=0.25) == pytest.approx(0.75 * whole)
    assert optimizer(optimizer_cpu_offload=True) == whole  # Megatron's own fraction is 0
    assert optimizer(optimizer_offload_fraction=1.0) == whole


def test_of_packed_sequences_one_is_as_long_as_allowed() -> None:
    several = grpo(batch={"micro_batch": {"unit": "responses", "size": 8}})
    assert policy(several, logits=WHOLE)["logits"] == pytest.approx(4 * LOGITS * (1 + 7 * fitted.MEAN_LENGTH))
    assert policy(several, logits=WHOLE, full_lengths=True)["logits"] == pytest.approx(4 * LOGITS * 8)
    padded = grpo(batch={"micro_batch": {"unit": "responses", "size": 8}}, train={"packing": False})
    assert policy(padded, logits=WHOLE)["logits"] == pytest.approx(4 * LOGITS * 8)


def test_packed_sequences_of_megatron_have_the_same_lengths() -> None:
    several = grpo(batch={"micro_batch": {"unit": "responses", "size": 8}}, train={"engine": {"type": "megatron"}})
    one = grpo(batch={"micro_batch": {"unit": "responses", "size": 1}}, train={"engine": {"type": "megatron"}})
    longer = policy(several)["activations"] / policy(one)["activations"]
    assert longer == pytest.approx(1 + 7 * fitted.MEAN_LENGTH)


def test_a_pass_without_gradient_packs_the_step_not_a_mini_batch() -> None:
    def logits(mini: int) -> float:
        batch = {"prompts_per_step": 128, "responses_per_prompt": 1, "mini_batch_responses": mini}  # on 8 devices
        forward = policy_forward(
            grpo(batch={**batch, "micro_batch": {"unit": "tokens", "size": 10**6}}), replace(OWN, logits=WHOLE)
        )
        assert forward is not None
        return forward.part("logits") * GIB

    assert logits(32) == logits(128) == pytest.approx(3 * LOGITS * (1 + 15 * fitted.MEAN_LENGTH))


def test_a_release_has_the_terms_of_the_newest_entry_that_is_not_newer() -> None:
    table = {"0.3": MemoryTerms("x", "0.3"), "0.10": MemoryTerms("x", "0.10"), "0.9": MemoryTerms("x", "0.9")}
    assert [terms_of(table, release).release for release in ("0.3", "0.8", "0.9", "0.11", "0.1")] == [
        "0.3",
        "0.3",
        "0.9",
        "0.10",
        "0.3",
    ]


def test_verl_differs_by_release() -> None:
    oldest, middle, newest = (memory_terms(release, {}) for release in ("0.3", "0.5", "0.9"))
    assert (oldest.entropy_always, middle.entropy_always) == (True, False)
    assert (middle.expandable_segments, newest.expandable_segments) == (False, True)
    assert not newest.kept_gradients
    assert memory_terms("0.9", {f"actor_rollout_ref.actor.{DEFERS}": True}).kept_gradients == {"fsdp": 2, "fsdp2": 4}


@pytest.mark.parametrize(
    ("asked", "train", "forward"), [({}, 2, 2), ({TEMPERATURE: 1}, 2, 2), ({TEMPERATURE: 0.7}, 4, 4)]
)
def test_verl_copies_logits_that_it_divides_by_a_temperature(asked: dict[str, Any], train: int, forward: int) -> None:
    logits = memory_terms("0.9", asked).logits
    assert logits is not None
    assert (logits.train, logits.forward, logits.forward_entropy) == (train, forward, forward)
    assert memory_terms("0.8", asked).logits == WholeLogits(4, 8, 2, 2, 8)


@pytest.mark.parametrize("name", names())
def test_every_term_of_a_framework_has_its_place(name: str) -> None:
    """Terms that differ from rlctl's say where the framework's source decides them."""
    known = dialect(name)
    for version in known.versions:
        terms = known.memory(version, {})
        apart = {"framework", "release", "sources", "frozen_copy"}
        differ = {
            field for field in MemoryTerms.__annotations__ if getattr(terms, field) != getattr(OWN, field)
        } - apart
        assert terms.framework == name
        assert differ <= terms.sources.keys(), (version, differ - terms.sources.keys())
