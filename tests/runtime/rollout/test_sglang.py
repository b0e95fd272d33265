"""SGLang's engine, as far as its protocol goes: the server is the test's own (``sglang_server.py``), a real tiny model behind the
shapes that SGLang 0.5.23 documents. SGLang itself needs a GPU and is not run in a test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3MoeConfig

from rlctl.common.errors import MissingDependency, RunError
from rlctl.config import config_from
from rlctl.runtime.models.config import changed_config
from rlctl.runtime.rollout.sglang import SglangEngine, SglangServer, _serialized, _shared_by_name
from rlctl.runtime.rollout.sglang_arguments import check_sglang, command_line, server_arguments
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.types import Request, Sampling

from .conftest import MakeModel
from .sglang_server import Speaker, serving

GREEDY = Sampling(max_tokens=6, temperature=0.0, stop_token_ids=(3, 9))
PROMPTS = [(1, 2, 3 + i) for i in range(4)]


class Setting:
    def __init__(self, folder: str) -> None:
        self.folder, self.speaker = folder, Speaker(folder)
        self.http = serving(self.speaker)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def engine(self, **settings: Any) -> SglangEngine:
        return SglangEngine(self.url, self.folder, **{"timeout": 30.0, **settings})


@pytest.fixture
def setting(make_model: MakeModel) -> Iterator[Setting]:
    made = Setting(str(make_model()))
    yield made
    made.http.shutdown()


def test_tokens_log_probs_and_versions_are_the_servers(setting: Setting) -> None:
    engine, own = setting.engine(), TransformersEngine(setting.folder)
    requests = [Request(ids, GREEDY, 2, seed=i) for i, ids in enumerate(PROMPTS)]
    found, expected = engine.generate(requests), own.generate(requests)
    for group, right in zip(found, expected, strict=True):
        assert [each.token_ids for each in group] == [each.token_ids for each in right]
        assert [each.finish_reason for each in group] == [each.finish_reason for each in right]
        assert group[0].log_probs == pytest.approx(right[0].log_probs, abs=1e-5)
    assert {each.weight_version for group in found for each in group} == {0}
    assert engine.tokens_computed.prompt == 24
    engine.close()


def test_experts_come_with_the_responses(tmp_path: Path) -> None:
    """Of the layers that have some; the second has none."""
    torch.manual_seed(2)
    config = Qwen3MoeConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=3, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, num_experts=8, num_experts_per_tok=2, mlp_only_layers=[1],
        max_position_embeddings=128, initializer_range=0.3,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "m")
    speaker = Speaker(str(tmp_path / "m"), (0, 2), 3)
    http = serving(speaker)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{http.server_address[1]}"
    engine = SglangEngine(url, str(tmp_path / "m"), timeout=30.0, tokenizes=False, records_experts=True)
    ((found,),) = engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    assert found.routed_experts is not None
    assert speaker.routed is not None
    assert found.routed_experts.shape == (len(PROMPTS[0]) + len(found.token_ids) - 1, 2, 2)
    assert torch.equal(found.routed_experts, speaker.routed)
    speaker.layers = 4
    with pytest.raises(RunError, match="expected 2 in each of 3 layers"):
        engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    engine.close()
    http.shutdown()


def test_a_seed_belongs_to_a_response(setting: Setting) -> None:
    engine = setting.engine()
    hot = Sampling(
        max_tokens=12, temperature=1.0, top_p=0.95, top_k=30, min_p=0.01, min_tokens=2, repetition_penalty=1.1
    )
    (first,) = engine.generate([Request(PROMPTS[0], hot, 3, seed=7)])
    _, (again,) = engine.generate([Request(PROMPTS[1], hot, 1, seed=1), Request(PROMPTS[0], hot, 1, seed=7, first=2)])
    assert len({each.token_ids for each in first}) == 3
    assert again.token_ids == first[2].token_ids
    path, body = setting.speaker.bodies[0]
    assert path == "/generate"
    assert (body["return_logprob"], body["stream"], body["input_ids"]) == (True, False, list(PROMPTS[0]))
    seed = body["sampling_params"].pop("sampling_seed")
    assert 0 <= seed < 1 << 63
    assert body["sampling_params"] == {
        "max_new_tokens": 12,
        "min_new_tokens": 2,
        "temperature": 1.0,
        "top_p": 0.95,
        "top_k": 30,
        "min_p": 0.01,
        "repetition_penalty": 1.1,
        "stop": None,
        "stop_token_ids": None,
        "ignore_eos": False,
        "no_stop_trim": True,
        "skip_special_tokens": False,
    }
    engine.close()


def test_new_weights_go_through_shared_memory_and_count_from_then_on(setting: Setting, make_model: MakeModel) -> None:
    setting.speaker.tensor_parallel = 2
    engine, other = setting.engine(tensor_parallel=2), str(make_model(seed=1))
    weights = dict(AutoModelForCausalLM.from_pretrained(other, dtype=torch.float32).state_dict())
    before = engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    engine.begin_weights(5)
    with pytest.raises(RunError, match="half-way"):
        engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    names = list(weights)
    engine.add_weights((name, weights[name]) for name in names[:3])
    engine.add_weights((name, weights[name]) for name in names[3:])
    engine.commit_weights()
    ((after,),) = engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    ((expected,),) = TransformersEngine(other).generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    assert after.token_ids == expected.token_ids != before[0][0].token_ids
    assert after.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
    assert (after.weight_version, after.first_version, engine.weight_version) == (5, None, 5)
    asked = [path for path, _ in setting.speaker.bodies if path != "/generate"]
    update = "/update_weights_from_tensor"
    steps = ["/pause_generation", "/begin_weight_update", update, update, "/end_weight_update", "/continue_generation"]
    assert asked == steps
    body = dict(setting.speaker.bodies)[update]
    assert (body["weight_version"], body["flush_cache"]) == ("5", True)
    assert len(set(body["serialized_named_tensors"])) <= 2, "one payload a tensor worker"
    assert torch.multiprocessing.get_sharing_strategy() == "file_descriptor", "of this process, as it was"
    with pytest.raises(RunError, match="were not sent"):
        engine.load_weights([(names[0], weights[names[0]])], version=6)
    with pytest.raises(RunError, match="half-way"):
        engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    setting.speaker.replies[update] = (400, {"success": False, "message": "no room"})
    with pytest.raises(RunError, match="no room"):
        engine.load_weights(weights.items(), version=6)
    del setting.speaker.replies[update]
    engine.load_weights(weights.items(), version=7)
    assert engine.weight_version == 7, "the session that was broken off is ended first"
    engine.close()


def test_processes_that_are_no_children_read_the_weights() -> None:
    """Each pickling is read once: as many as there are readers keep the memory until the last has read."""
    tensors = [
        (f"w{index}", torch.randn(50, 3).to(dtype)) for index, dtype in enumerate((torch.float32, torch.bfloat16))
    ]
    with _shared_by_name():
        part = [(name, tensor.clone().share_memory_()) for name, tensor in tensors]
        payloads = [_serialized(part, 2) for _ in range(2)]
    expected = sum(float(tensor.double().sum()) for _, tensor in tensors)
    for _ in range(2):  # two stages of a pipeline read the payload of one tensor rank
        ran = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("sglang_payloads.py"))],
            input="\n".join(payloads),
            capture_output=True,
            text=True,
            check=True,
        )
        assert [float(line) for line in ran.stdout.split()] == pytest.approx([expected] * 2)


def test_what_is_under_way_goes_on_over_new_weights(setting: Setting, make_model: MakeModel) -> None:
    engine = setting.engine()
    weights = AutoModelForCausalLM.from_pretrained(str(make_model(seed=1)), dtype=torch.float32).state_dict()
    setting.speaker.running.clear()
    engine.submit({4: Request(PROMPTS[0], GREEDY, 2, seed=0), 5: Request(PROMPTS[1], GREEDY, 1, seed=1)})
    assert engine.poll(0.05) == []
    engine.load_weights(weights.items(), version=1)
    deadline, found = time.monotonic() + 30.0, []
    while len(found) < 3 and time.monotonic() < deadline:
        found += engine.poll(0.1)
    assert sorted((each.ticket, each.index) for each in found) == [(4, 0), (4, 1), (5, 0)]
    assert {(each.response.first_version, each.response.weight_version) for each in found} == {(0, 1)}
    assert engine.poll(0.0) == []
    engine.close()


def test_requests_are_given_up(setting: Setting) -> None:
    engine = setting.engine()
    setting.speaker.running.clear()
    engine.submit({1: Request(PROMPTS[0], GREEDY, 1, seed=0), 2: Request(PROMPTS[1], GREEDY, 1, seed=0)})
    engine.abort([1, 7])
    setting.speaker.running.set()
    found: list[Any] = []
    while not found:
        found = engine.poll(1.0)
    assert [each.ticket for each in found] == [2]
    assert engine.poll(0.0) == []
    assert len(setting.speaker.aborted) == 1
    engine.close()


def test_what_was_submitted_is_late_only_for_who_submitted_it(setting: Setting) -> None:
    """The scheduler gives a prompt up; an engine that raised would end the run, and the time it rests is none of its own."""
    engine = setting.engine(timeout=0.2)
    setting.speaker.running.clear()
    engine.submit({1: Request(PROMPTS[0], GREEDY, 1, seed=0)})
    assert engine.poll(0.5) == []
    setting.speaker.running.set()
    found: list[Any] = []
    deadline = time.monotonic() + 30.0
    while not found and time.monotonic() < deadline:
        found = engine.poll(1.0)
    assert [each.ticket for each in found] == [1]
    setting.speaker.running.clear()
    with pytest.raises(RunError, match=r"longer than 0\.2 s for /generate"):
        engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    setting.speaker.running.set()
    assert engine._done.empty(), "nobody takes the names of what generate answered out of it"
    engine.close()


def test_sleep_gives_the_memory_back_and_weights_come_before_the_cache(setting: Setting, make_model: MakeModel) -> None:
    engine = setting.engine(sleeps=True)
    weights = AutoModelForCausalLM.from_pretrained(str(make_model(seed=1)), dtype=torch.float32).state_dict()
    engine.sleep()
    with pytest.raises(RunError, match="sleeps"):
        engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    engine.load_weights(weights.items(), version=1)
    engine.wake()
    engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    asked = [(path, (body or {}).get("tags")) for path, body in setting.speaker.bodies]
    assert asked == [
        ("/pause_generation", None),
        ("/flush_cache", None),
        ("/release_memory_occupation", None),
        ("/resume_memory_occupation", ["weights"]),
        ("/begin_weight_update", None),
        ("/update_weights_from_tensor", None),
        ("/end_weight_update", None),
        ("/resume_memory_occupation", ["kv_cache"]),
        ("/continue_generation", None),
        ("/generate", None),
    ]
    engine.close()
    with pytest.raises(RunError, match="closed"):
        engine.generate([])


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((500, {"error": "broken"}), "answered /generate with 500"),
        ((200, {"text": "a"}), "expected output_token_logprobs"),
        (
            (
                200,
                {"meta_info": {"output_token_logprobs": [[float("nan"), 3, None]], "finish_reason": {"type": "stop"}}},
            ),
            "finite",
        ),
        ((200, {"meta_info": {"output_token_logprobs": [], "finish_reason": {"type": "stop"}}}), "no tokens"),
        (
            (
                200,
                {
                    "meta_info": {
                        "output_token_logprobs": [[-1, 3, None]],
                        "finish_reason": {"type": "abort", "message": "x"},
                    }
                },
            ),
            "aborted a response: x",
        ),
    ],
)
def test_answers_that_are_none_end_the_call(setting: Setting, reply: Any, message: str) -> None:
    engine = setting.engine()
    setting.speaker.replies["/generate"] = reply
    with pytest.raises(RunError, match=message):
        engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    with pytest.raises(RunError, match="max_length is 128"):
        engine.generate([Request(PROMPTS[0], Sampling(max_tokens=126), 1, seed=0)])
    engine.close()


HEALTHY = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
assert sys.argv[1:5] == ["--model-path", "m", "--host", "127.0.0.1"], sys.argv
HTTPServer(("127.0.0.1", int(sys.argv[6])), Handler).serve_forever()
"""


def test_a_server_on_several_gpus_sees_those_of_the_engine(tmp_path: Path) -> None:
    write = f"import os; open({str(tmp_path / 'seen')!r}, 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])\n"
    server = SglangServer({"model_path": "m"}, program=[sys.executable, "-c", write + HEALTHY], gpus="4,6")
    server.close()
    assert (tmp_path / "seen").read_text() == "4,6"


def test_the_server_is_a_child_that_ends_with_the_engine(setting: Setting) -> None:
    program = [sys.executable, "-c", HEALTHY]
    server = SglangServer({"model_path": "m"}, program=program)
    engine = SglangEngine(server.url, setting.folder, server=server, timeout=30.0)
    engine.close()
    with pytest.raises(RunError, match="ended with status -9"):
        server.check()
    server = SglangServer({"model_path": "m"}, program=program)
    engine = SglangEngine(server.url, setting.folder, server=server, timeout=30.0)
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()
    with pytest.raises(RunError, match="ended with status -9"):
        engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    engine.close()
    with pytest.raises(RunError, match="ended with status 1"):
        SglangServer({"model_path": "m", "page_size": 3}, program=program)


def config(**more: Any) -> Any:
    base: dict[str, Any] = {
        "model": {"path": "m"},
        "rollout": {"engine": {"type": "sglang"}},
        "schedule": {"total_steps": 1},
        "placement": {"device": "cuda", "devices_per_node": 4},
    }
    for key, value in more.items():
        base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
    return config_from(base)


def test_arguments_of_the_server() -> None:
    found = server_arguments(
        config(
            rollout={
                "engine": {
                    "type": "sglang",
                    "args": {"attention_backend": "fa3", "log_level": "error", "page_size": None},
                },
                "memory": {
                    "gpu_memory_utilization": 0.4,
                    "prefix_caching": False,
                    "enforce_eager": True,
                    "chunked_prefill": False,
                },
                "sampling": {"stop": ["x"]},
                "parallel": {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "expert_parallel_size": 2},
            }
        ),
        "folder",
        "cuda",
    )
    wanted = {
        "model_path": "folder",
        "mem_fraction_static": 0.4,
        "dtype": "bfloat16",
    }
    wanted |= {
        "disable_radix_cache": True,
        "disable_cuda_graph": True,
        "chunked_prefill_size": -1,
        "log_level": "error",
    }
    wanted |= {"attention_backend": "fa3", "enable_memory_saver": True, "enable_weights_cpu_backup": False}
    wanted |= {"skip_tokenizer_init": False, "enable_deterministic_inference": True}
    wanted |= {"tp_size": 4, "pp_size": 2, "ep_size": 2}
    assert wanted.items() <= found.items()
    assert "page_size" not in found
    line = command_line(
        {"tp_size": 2, "disable_radix_cache": True, "trust_remote_code": False, "cuda_graph_bs": [1, 2]}
    )
    assert line == ["--tp-size", "2", "--disable-radix-cache", "--cuda-graph-bs", "1", "2"]


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, False),
        ({"weight_sync": {"every": 2}}, True),
        ({"weight_sync": {"every_optimizer_steps": 1}}, True),
        ({"rollout": {"memory": {"sleep_level": 1}}}, True),
        ({"rollout": {"memory": {"sleep_level": 2}}, "weight_sync": {"every": 2}}, False),
        ({"rollout": {"memory": {"quantization": "fp8"}}}, True),
    ],
)
def test_sleep_keeps_weights_that_the_next_responses_are_drawn_with(changed: dict[str, Any], kept: bool) -> None:
    found = server_arguments(config(**changed), "folder", "cuda")
    assert (found["enable_memory_saver"], found["enable_weights_cpu_backup"]) == (True, kept)


def test_after_sleep_without_a_copy_nothing_is_generated_until_weights_came(
    setting: Setting, make_model: MakeModel
) -> None:
    engine = setting.engine(sleeps=True, sleep_level=2)
    weights = AutoModelForCausalLM.from_pretrained(str(make_model(seed=1)), dtype=torch.float32).state_dict()
    engine.sleep()
    engine.wake()
    with pytest.raises(RunError, match="dropped by sleep of level 2"):
        engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    engine.load_weights(weights.items(), version=1)
    assert engine.generate([Request(PROMPTS[0], GREEDY, 1, seed=0)])
    engine.close()


def test_the_server_is_told_of_rotary_embeddings_too(tmp_path: Path) -> None:
    """It generated with the model's own, and the policy was trained with those of the config."""
    LlamaConfig(hidden_size=32, num_attention_heads=2, rms_norm_eps=1e-6).save_pretrained(tmp_path)
    model = {"path": str(tmp_path), "rope": {"theta": 5e5}, "overrides": {"rms_norm_eps": 1e-5}}
    told = json.loads(server_arguments(config(model=model), str(tmp_path), "cuda")["json_model_override_args"])
    made = LlamaConfig.from_pretrained(tmp_path)
    made.update(told)
    trained = changed_config(config(model=model).model, str(tmp_path))
    assert trained is not None
    assert told.keys() == {"rms_norm_eps", "rope_parameters"}
    assert made.to_dict() | {"_name_or_path": ""} == trained.to_dict() | {"_name_or_path": ""}
    assert made.rope_parameters["rope_theta"] == 5e5
    assert "json_model_override_args" not in server_arguments(config(), "folder", "cuda")


def test_what_sglang_cannot_do_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="SGLang is not installed") as refused:
        check_sglang(config())
    assert "pip install sglang" in (refused.value.hint or "")
    monkeypatch.undo()
    (tmp_path / "sglang" / "srt" / "arg_groups" / "fields").mkdir(parents=True)
    (tmp_path / "sglang" / "__init__.py").write_text("raise RuntimeError('never imported')")
    (tmp_path / "sglang" / "srt" / "server_args.py").write_text("class ServerArgs:\n    x = 1\n")
    fields = "class Parallel:\n    tp_size: int = 1\n    attention_backend: str = ''\n    weight_version: str = ''\n"
    (tmp_path / "sglang" / "srt" / "arg_groups" / "fields" / "parallel.py").write_text(fields)
    monkeypatch.syspath_prepend(str(tmp_path))
    check_sglang(config(rollout={"engine": {"type": "sglang", "args": {"attention_backend": "fa3"}}}))
    for args, message in (
        ({"tp_size": 2}, "which rlctl sets itself"),
        ({"attention_backends": "x"}, "no argument attention_backends"),
    ):
        with pytest.raises(RunError, match=message):
            check_sglang(config(rollout={"engine": {"type": "sglang", "args": args}}))
    with pytest.raises(RunError, match="only token ids"):
        check_sglang(config(model={"path": "m", "modality": "vision"}))
    for parallel, message in (
        ({"tensor_parallel_size": 16}, "16 GPUs .* does not fit on a machine of 4"),
        ({"data_parallel_size": 2}, "replicas take no weights from tensors"),
        ({"tensor_parallel_size": 2, "expert_parallel_size": 4}, "over the 2 tensor-parallel workers"),
    ):
        with pytest.raises(RunError, match=message):
            check_sglang(config(rollout={"engine": {"type": "sglang"}, "parallel": parallel}))
    check_sglang(config(rollout={"engine": {"type": "sglang"}, "parallel": {"tensor_parallel_size": 4}}))
    shaped = {"engine": {"type": "sglang"}, "sampling": {"repetition_penalty": 1.1}}
    check_sglang(config(rollout=shaped, algorithm={"old_log_probs": "recompute"}))
    with pytest.raises(RunError, match="after the repetition penalty"):
        check_sglang(config(rollout=shaped, algorithm={"old_log_probs": "rollout"}))
