"""A run of verl and one of Trinity-RFT, each with its own reward, as files."""

from __future__ import annotations

import json
from pathlib import Path

VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
    data.train_files=rows.jsonl data.val_files=rows.jsonl data.train_batch_size=2 \\
    data.max_prompt_length=512 data.max_response_length=1024 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B-Instruct actor_rollout_ref.actor.ppo_mini_batch_size=2 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.n=8 \\
    reward.custom_reward_function.path=rewards/mine.py +reward.custom_reward_function.reward_kwargs.bonus=0.25 \\
    trainer.n_gpus_per_node=2 trainer.total_epochs=3
"""
MINE = """from helpers.text import clean


def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0.0):
    right = clean(solution_str).endswith(ground_truth) and data_source == "my/sums"
    extra = bonus * extra_info["weight"] * (extra_info["num_turns"] == 2 and "boxed" in solution_str)
    return {"score": right + extra, "acc": right, "said": solution_str[-3:]}
"""
ROWS = [
    {
        "data_source": "my/sums",
        "prompt": [{"role": "user", "content": f"20 + {number}?"}],
        "reward_model": {"style": "rule", "ground_truth": str(20 + number)},
        "extra_info": {"weight": 0.5, "when": "2024-01-01"},
    }
    for number in range(5)
]
TRINITY = """
project: p
name: sums
algorithm: {algorithm_type: grpo, repeat_times: 8}
model: {model_path: Qwen/Qwen2.5-0.5B-Instruct, max_prompt_tokens: 512, max_response_tokens: 512}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  total_epochs: 2
  batch_size: 2
  explorer_input:
    taskset:
      name: sums
      storage_type: file
      path: sums
      split: train
      format: {prompt_key: q, response_key: a, system_prompt: Use tags.}
      reward_fn_args: {bonus: 0.2}
    default_workflow_type: math_workflow
    default_reward_fn_type: sums_reward
explorer: {rollout_model: {engine_num: 4}}
"""
PLUGIN = """from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("sums_reward")
class Sums(RewardFn):
    def __init__(self, bonus=0.1, **kwargs):
        self.bonus = bonus

    def __call__(self, response, truth=None, **kwargs):
        return {"right": float(response.strip() == truth), "tags": self.bonus * ("<a>" in response)}
"""


def write(folder: Path) -> None:
    """Write the files of both runs."""
    files = {
        "run.sh": VERL, "rewards/mine.py": MINE, "helpers/text.py": "def clean(text):\n    return text.rstrip('}')\n",
        "rows.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS), "trinity.yaml": TRINITY,
        "plugins/mine.py": PLUGIN, "sums/train.jsonl": '{"q": "20 + 1?", "a": "2024-01-01"}\n' * 2, "sums/test.jsonl": "[]",
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
