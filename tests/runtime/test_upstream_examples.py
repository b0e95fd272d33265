"""Unmodified examples of verl, Trinity-RFT and ROLL, read, checked, planned and run to their end, with the rewards that the frameworks give.

What a user has to supply is supplied: model and data, by the config's own variables and paths, and sizes that a CPU worker finishes
in seconds. The model is made so that it says one of a few known responses; what each is worth was worked out from the framework's own
reward code, which ``tests/upstream/test_rewards.py`` calls where it is installed. Rewards do not depend on Ray, so the runs do without.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from ruamel.yaml import YAML
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rlctl import checks
from rlctl.common.report import Level
from rlctl.config import Loaded, set_keys
from rlctl.translation.translate import read

from .conftest import Ran

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
CHARACTERS = [chr(code) for code in range(32, 127)] + ["\n"]
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SMALL = (
    "placement={layout: colocated, device: cpu, nodes: 1, devices_per_node: 1}",
    "batch.prompts_per_step=2",
    "batch.responses_per_prompt=4",
    "batch.mini_batch_responses=8",
    "rollout.max_response_tokens=4",
    "rollout.parallel={replicas: auto, tensor_parallel_size: 1}",
    "~rollout.engine.args",
    "rollout.engine=transformers",
    "train.engine={type: fsdp2, ulysses_sequence_parallel_size: 1, fsdp_size: all}",
    "train.lr_scheduler.warmup_steps=null",
    "rollout.log_responses=true",
    "schedule.total_steps=1",
    "schedule.evaluate_at_start=false",
    "schedule.evaluate_at_end=false",
    "schedule.evaluate_every=null",
    "checkpoint={every: null, at_end: false, export: never}",
    "tracking=[]",
    "runtime.ray.address=null",
)
"""Sizes that finish in seconds, on CPU."""


def save_speaker(folder: Path, responses: Sequence[str]) -> str:
    """A model of random weights whose head makes it say one of ``responses``, each as likely as the others, and end."""
    own = ["<pad>", "<end>", *(f"<{role}>" for role in ("system", "user", "assistant")), *responses]
    vocabulary = {token: index for index, token in enumerate([*own, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")
    wrapped.add_special_tokens({"additional_special_tokens": own[2:5]})
    wrapped.add_tokens(list(responses))
    wrapped.chat_template = TEMPLATE
    size = len(wrapped)
    config = Qwen2Config(
        vocab_size=size, hidden_size=size, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=4, max_position_embeddings=8192, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=wrapped.eos_token_id, pad_token_id=wrapped.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(1)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.lm_head.weight.zero_()
        for response in responses:
            for before, after in pairwise(("<assistant>", response, "<end>")):
                model.lm_head.weight[vocabulary[after], vocabulary[before]] = 4.0
    model.save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return str(folder)


@dataclass(frozen=True)
class Example:
    """An example of a framework, and what a user supplies."""

    name: str
    worth: Mapping[str, float]
    """What each response of the model is worth."""
    write_data: Callable[[Path], Mapping[str, str]]
    """Writes the data where the example has it, and returns the variables that name model and data."""
    arguments: tuple[str, ...] = ()
    """Further settings: the paths that the example writes out."""
    prompt: str = ""
    """What every prompt begins with."""
    settings: tuple[str, ...] = ()
    """Canonical settings that depend on the model."""


def trinity_data(folder: Path) -> Mapping[str, str]:
    """GSM8K in its form on the hub: configurations in the card, ``question`` and ``answer``."""
    rows = [
        {"question": f"What is {a}+{4 - a}?", "answer": f"{a}+{4 - a} = <<{a}+{4 - a}=4>>4\n#### 4"} for a in range(4)
    ]
    for split in ("train", "test"):
        (folder / "gsm8k" / "main").mkdir(parents=True, exist_ok=True)
        Dataset.from_list(rows).to_parquet(folder / "gsm8k" / "main" / f"{split}-00000-of-00001.parquet")
    card = {"config_name": "main", "data_files": [{"split": s, "path": f"main/{s}-*"} for s in ("train", "test")]}
    (folder / "gsm8k" / "README.md").write_text(f"---\nconfigs: {json.dumps([card])}\n---\n")
    return {
        "TRINITY_MODEL_PATH": str(folder / "model"),
        "TRINITY_TASKSET_PATH": str(folder / "gsm8k"),
        "TRINITY_CHECKPOINT_ROOT_DIR": str(folder / "runs"),
    }


def verl_data(folder: Path) -> Mapping[str, str]:
    """Rows as verl's own script for GSM8K writes them."""
    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"What is {a}+{4 - a}?"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "4"},
            "extra_info": {"split": "train", "index": a},
        }
        for a in range(4)
    ]
    for split in ("train", "test"):
        Dataset.from_list(rows).to_parquet(folder / f"{split}.parquet")
    return {}


def roll_data(folder: Path) -> Mapping[str, str]:
    """Rows of one domain, in every file that the example names."""
    row = {"id": "0", "messages": json.dumps([{"role": "user", "content": "What is 2+2?"}]), "ground_truth": "4"}
    (folder / "data").mkdir()
    for name in ROLL_FILES:
        rows = [{**row, "id": str(index), "tag": "deepmath_103k"} for index in range(4)]
        (folder / "data" / name).write_text("".join(json.dumps(one) + "\n" for one in rows))
    return {}


ROLL_FILES = (
    *("code_KodCode_data.jsonl", "llm_judge_Multi-subject-RLVR_deal_new.jsonl", "math_deepmath_deal.jsonl"),
    *("general_ifeval_train_deal.jsonl", "general_CrossThink-QA_deal.jsonl", "math_benchmarks.jsonl"),
)
EXAMPLES = [
    Example(
        "verl/overrides/rloo_trainer_run_qwen3_8b_fsdp.yaml",
        {"#### 4": 1.0, "\\boxed{4}": 0.0, "#### 5": 0.0},
        verl_data,
        (
            "actor_rollout_ref.model.path={folder}/model",
            "data.train_files={folder}/train.parquet",
            "data.val_files={folder}/test.parquet",
        ),
        prompt="<user>What is",
    ),
    Example(
        "trinity/examples/grpo_gsm8k/gsm8k.yaml",
        {
            "<think>so</think><answer>4</answer>": 1.1,
            "4": 0.9,
            "<think>so</think><answer>5</answer>": 0.1,
            "five": -0.1,
        },
        trinity_data,
        prompt="<system>A conversation between User and Assistant.",
    ),
    Example(
        "roll/examples/qwen3-30BA3B-rlvr_fsdp2/rlvr_config.yaml",
        {"<think>so</think>\\boxed{4}": 1.0, "\\boxed{4}": 0.0, "<think>so</think>\\boxed{5}": 0.0},
        roll_data,
        ("pretrain={folder}/model",),
        prompt="<user>What is",
        settings=("train.engine.wrap_layers=[]", "reference.engine=null"),
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name.split("/")[0])
def test_an_example_runs_to_its_end_with_the_rewards_of_its_framework(
    example: Example, tmp_path: Path, run_without_ray: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = CORPUS / example.name
    if not path.exists():
        pytest.skip("the shared examples are not here")
    if "overrides" in path.parts:
        path = script_of(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in example.write_data(tmp_path).items():
        monkeypatch.setenv(name, value)
    save_speaker(tmp_path / "model", list(example.worth))
    loaded, report = read(path, overrides=[text.format(folder=tmp_path) for text in example.arguments])
    assert loaded is not None, [finding.message for finding in report.errors]
    loaded = set_keys(loaded, [*SMALL, *example.settings, f"run.folder={tmp_path}/runs"])
    assert [
        finding.message for finding in checks.check(loaded.config, locate=loaded.locate) if finding.level is Level.ERROR
    ] == []
    done = finished(loaded, run_without_ray)
    groups = [group for event in done.kinds("samples") for group in event["samples"]]
    said = [
        (group["prompt"], *one) for group in groups for one in zip(group["responses"], group["rewards"], strict=True)
    ]
    assert len(said) == 8
    for prompt, response, reward in said:
        assert prompt.startswith(example.prompt)
        assert reward == pytest.approx(example.worth[response.removesuffix("<end>")])


def script_of(listing: Path, folder: Path) -> Path:
    """A launch script of verl, from the command that its example ends in."""
    command = YAML(typ="safe").load(listing)
    path = folder / "run.sh"
    path.write_text(shlex.join(["python3", "-m", command["module"], *command["overrides"]]) + "\n")
    return path


def finished(loaded: Loaded, run: Callable[..., Ran]) -> Ran:
    done = run(loaded.config)
    assert done.result.status == "finished", done.result.cause
    return done
