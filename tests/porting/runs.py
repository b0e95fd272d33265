"""A run of each framework with its own reward, as files."""

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

ROLL = """
exp_name: domains
pretrain: Qwen/Qwen2.5-0.5B-Instruct
num_gpus_per_node: 2
max_steps: 4
rollout_batch_size: 2
prompt_length: 512
response_length: 256
num_return_sequences_in_group: 4
adv_estimator: grpo
actor_train:
  training_args: {learning_rate: 1.0e-6, per_device_train_batch_size: 1, gradient_accumulation_steps: 4}
  data_args:
    template: qwen2_5
    file_name: [domains.jsonl]
    messages: messages
    domain_interleave_probs: {words: 0.5, math_rule: 0.5}
  strategy_args: {strategy_name: deepspeed_train, strategy_config: {}}
  device_mapping: list(range(0,2))
actor_infer:
  generating_args: {max_new_tokens: 256, num_return_sequences: 4}
  data_args: {template: qwen2_5}
  strategy_args: {strategy_name: vllm, strategy_config: {gpu_memory_utilization: 0.6}}
  device_mapping: list(range(0,2))
reference:
  data_args: {template: qwen2_5}
  strategy_args: {strategy_name: hf_infer, strategy_config: {}}
  device_mapping: list(range(0,2))
rewards:
  words:
    worker_cls: my_workers.words.WordsWorker
    model_args: {model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct}
    tag_included: [words]
    format_pattern: "so"
    world_size: 2
  math_rule:
    worker_cls: roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker
    model_args: {model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct}
    tag_included: [sums]
    world_size: 1
"""
WORKER = """import json
import torch
from roll.configs.worker_config import WorkerConfig
from roll.distributed.executor.worker import Worker
from roll.distributed.scheduler.decorator import Dispatch, register
from roll.distributed.scheduler.protocol import DataProto
from roll.models.model_providers import default_tokenizer_provider


class WordsWorker(Worker):
    def __init__(self, worker_config: WorkerConfig):
        super().__init__(worker_config=worker_config)
        self.rank_info.dp_rank = self.rank_info.rank
        self.tokenizer = default_tokenizer_provider(model_args=self.worker_config.model_args)
        self.pattern = getattr(self.worker_config, "format_pattern", None)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config):
        pass

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)
    def compute_rewards(self, data: DataProto):
        texts = self.tokenizer.batch_decode(data.batch["responses"], skip_special_tokens=True)
        rewards, scores = [], []
        for text, answer in zip(texts, data.non_tensor_batch["ground_truth"]):
            wanted = json.loads(answer)
            found = sum(word in text for word in wanted) / len(wanted)
            scores.append(float(found == 1))
            rewards.append(found - 0.25 * (self.pattern in text))
        return DataProto.from_dict(tensors={
            "token_level_rewards": torch.zeros_like(data.batch["responses"], dtype=torch.float16),
            "response_level_rewards": torch.tensor(rewards, dtype=torch.float16),
            "scores": torch.tensor(scores, dtype=torch.float16),
        })
"""
DOMAINS = [
    {
        "id": str(number),
        "tag": "words" if number % 2 else "sums",
        "messages": json.dumps([{"role": "user", "content": f"20 + {number}?"}]),
        "ground_truth": json.dumps(["and", "or"]) if number % 2 else str(20 + number),
    }
    for number in range(6)
]
OWN = """
rlctl: 1
run: {name: own}
model: {path: Qwen/Qwen2.5-0.5B-Instruct}
data: {train: [{path: own.jsonl, prompt_key: question, answer_key: result, source_key: kind, extra_key: more}], max_prompt_tokens: 64}
batch: {prompts_per_step: 2, responses_per_prompt: 4}
schedule: {total_epochs: 2}
algorithm: {advantage: grpo}
rollout: {max_response_tokens: 64}
rewards:
  - {name: answer, type: function, path: own_reward.py, args: {bonus: 0.5}, applies_to: ["sum*"]}
  - {name: boxed, type: rule, rule: boxed, weight: 0.25}
placement: {nodes: 1, devices_per_node: 2}
"""
OWN_REWARD = """def compute_score(response, answer, extra, source, bonus=0.0):
    if response == "":
        raise ValueError("no response")
    return {"score": float(response.endswith(str(answer))) + bonus * extra["weight"], "length": len(response)}
"""
OWN_ROWS = [
    {
        "question": f"20 + {number}?",
        "result": 20 + number,
        "kind": "sums" if number else "other",
        "more": {"weight": number},
    }
    for number in range(4)
]


def write(folder: Path) -> None:
    """Write the files of all runs."""
    files = {
        "run.sh": VERL, "rewards/mine.py": MINE, "helpers/text.py": "def clean(text):\n    return text.rstrip('}')\n",
        "rows.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS), "trinity.yaml": TRINITY,
        "plugins/mine.py": PLUGIN, "sums/train.jsonl": '{"q": "20 + 1?", "a": "2024-01-01"}\n' * 2, "sums/test.jsonl": "[]",
        "roll.yaml": ROLL, "my_workers/words.py": WORKER, "domains.jsonl": "".join(json.dumps(row) + "\n" for row in DOMAINS),
        "own.yaml": OWN, "own_reward.py": OWN_REWARD, "own.jsonl": "".join(json.dumps(row) + "\n" for row in OWN_ROWS),
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
