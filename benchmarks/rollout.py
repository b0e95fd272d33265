"""Responses per second of the built-in rollout engine, of vLLM under rlctl, and of Transformers' ``model.generate``, in turn.

    python benchmarks/rollout.py                       # 32 prompts x 8 responses of exactly 10 tokens, one thread
    python benchmarks/rollout.py --response 32 --ragged
    python benchmarks/rollout.py --vllm --processor-time   # three contestants, on a machine that others use too

The model is a random Qwen2 of 0.6 million parameters. ``generate`` gets each prompt once per response, as it must. The rounds
alternate, so that whatever else the machine does falls on all; a ratio is the median of the rounds' ratios. TRL generates with
``model.generate`` or with vLLM.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from statistics import median

import torch
from transformers import AutoModelForCausalLM, Qwen2Config
from transformers.utils import logging

from rlctl.config import config_from
from rlctl.runtime.rollout.interface import RolloutEngine
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.types import Request, Sampling
from rlctl.runtime.workers.rollout import make_engine

CONFIG = Qwen2Config(
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=64,
    bos_token_id=None,
    eos_token_id=None,
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--n", type=int, default=8, help="responses per prompt")
    parser.add_argument("--prompt", type=int, default=20, help="tokens of a prompt")
    parser.add_argument("--response", type=int, default=10, help="tokens of a response, at most")
    parser.add_argument("--ragged", action="store_true", help="end responses at any of 8 of the 64 tokens")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--vllm", action="store_true", help="vLLM too, which has to be installed")
    parser.add_argument("--processor-time", action="store_true", help="count what the process used, not what passed")
    parser.add_argument("--attention", choices=["auto", "sdpa", "eager"], default="auto", help="of the engine")
    return parser.parse_args()


def seconds(work: Callable[[], object], options: argparse.Namespace) -> float:
    clock = time.process_time if options.processor_time else time.perf_counter
    start = clock()
    work()
    if options.device != "cpu":
        torch.cuda.synchronize()
    return clock() - start


def contestants(options: argparse.Namespace, folder: str) -> dict[str, Callable[[], object]]:
    """Return the contestants, each answering all prompts once when called."""
    dtype = getattr(torch, options.dtype)
    prompts = torch.randint(0, CONFIG.vocab_size, (options.prompts, options.prompt))
    stops = tuple(range(8)) if options.ragged else ()
    sampling = Sampling(max_tokens=options.response, stop_token_ids=stops)
    requests = [Request(tuple(p), sampling, options.n, seed=i) for i, p in enumerate(prompts.tolist())]
    engine = TransformersEngine(
        folder,
        dtype=dtype,
        device=options.device,
        attention=options.attention,
        max_batch_rows=options.prompts * options.n,
        threads=options.threads,
    )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(options.device).eval()
    repeated = prompts.repeat_interleave(options.n, 0).to(options.device)
    settings = {"eos_token_id": list(stops)} if stops else {}

    def generate() -> object:
        return model.generate(
            repeated,
            attention_mask=torch.ones_like(repeated),
            do_sample=True,
            top_k=0,
            max_new_tokens=options.response,
            pad_token_id=0,
            **settings,
        )

    found = {"built-in engine": lambda: engine.generate(requests)}
    if options.vllm:
        served = vllm_engine(options, folder)
        found["vLLM"] = lambda: served.generate(requests)
    return {**found, "model.generate": generate}


def vllm_engine(options: argparse.Namespace, folder: str) -> RolloutEngine:
    memory = {"max_num_seqs": options.prompts * options.n, "max_batched_tokens": 8192}
    config = config_from(
        {
            "model": {"path": folder},
            "rollout": {"engine": "vllm", "precision": options.dtype, "memory": memory},
            "placement": {"device": options.device, "devices_per_node": 1, "cpus_per_worker": options.threads},
        }
    )
    return make_engine(rollout_spec(config, "vllm", folder, options.device))


def main() -> None:
    options = arguments()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(CONFIG).save_pretrained(folder)
        found = contestants(options, folder)
    for warm_up in found.values():
        warm_up()
    rounds = [{name: seconds(work, options) for name, work in found.items()} for _ in range(options.rounds)]
    responses = options.prompts * options.n
    for name in found:
        speed, ratio = (
            responses / median(r[name] for r in rounds),
            median(r["model.generate"] / r[name] for r in rounds),
        )
        print(f"{name:16}{speed:8.0f} responses/s{ratio:8.2f} x model.generate")


if __name__ == "__main__":
    main()
