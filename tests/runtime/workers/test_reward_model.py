"""Reward models: a response through the model's own template and tokenizer; the number is Transformers' for the same text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    Qwen2ForTokenClassification,
)

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.config.sections.rewards import ModelReward, RuleReward
from rlctl.planning.plan import make_plan
from rlctl.runtime.processes.group import LocalGroup
from rlctl.runtime.rewards.interface import Call, Failure
from rlctl.runtime.roles import RewardModel, Rewards
from rlctl.runtime.types import Prompt, Response
from rlctl.runtime.workers.reward import RewardWorker
from rlctl.runtime.workers.reward_model import RewardModels

OWN = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{{ eos_token }}{% endfor %}"
SHAPE = {
    "vocab_size": 260,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
}


def bytes_tokenizer(order: int = 1, template: str | None = OWN) -> Any:
    """A token a byte; ``order`` -1 numbers them backwards, so that two tokenizers disagree about every token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[::order]
    made = Tokenizer(models.BPE(vocab={character: i for i, character in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>", chat_template=template)


def save(folder: Path, *, pad: str | None = "<pad>", labels: int = 1, kind: Any = None, **more: Any) -> str:
    torch.manual_seed(3)
    tokenizer = bytes_tokenizer(**more)
    pad_id = None if pad is None else tokenizer.convert_tokens_to_ids(pad)
    config = Qwen2Config(**SHAPE, num_labels=labels, pad_token_id=pad_id, initializer_range=0.5)
    (kind or Qwen2ForSequenceClassification)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@cache
def by_transformers(path: str) -> tuple[Any, Any]:
    model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(path)


def transformers_number(path: str, text: str) -> float:
    """What Transformers gives for one text alone, without padding."""
    model, tokenizer = by_transformers(path)
    found = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    with torch.no_grad():
        return float(model(input_ids=found["input_ids"], attention_mask=found["attention_mask"]).logits[0, -1])


def chat(question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "be kind"}, {"role": "user", "content": question}]


def numbers(path: str, calls: list[Call], **settings: Any) -> list[Any]:
    worker = RewardModels({2: ModelReward(path=path, **settings)}, "float32", "cpu")
    return worker.score({2: calls})[2]


CALLS = [
    Call("s", text, messages=chat("hi" * n)) for n, text in enumerate(["", "yes", "a much longer answer", "no"], 1)
]


@pytest.mark.parametrize("pad", ["<pad>", "<end>", None])
@pytest.mark.parametrize("micro", [1, 3, 16])
def test_the_number_is_that_of_transformers_for_the_text(tmp_path: Path, pad: str | None, micro: int) -> None:
    path = save(tmp_path, pad=pad)
    found = numbers(path, CALLS, micro_batch_size=micro)
    texts = [f"[system]be kind<end>[user]{'hi' * n}<end>[assistant]{c.response}<end>" for n, c in enumerate(CALLS, 1)]
    expected = [transformers_number(path, text) for text in texts]
    assert [one.score for one in found] == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) == len(expected)


def test_of_several_labels_the_last_counts(tmp_path: Path) -> None:
    path = save(tmp_path, labels=3)
    text = "[system]be kind<end>[user]hi<end>[assistant]<end>"
    assert numbers(path, CALLS[:1])[0].score == pytest.approx(transformers_number(path, text), abs=1e-5)


def test_verls_token_classifier_gives_the_same_number_at_the_last_token(tmp_path: Path) -> None:
    """verl to 0.7 loads ``AutoModelForTokenClassification`` with one label and takes the last token."""
    path = save(tmp_path)
    model = Qwen2ForTokenClassification.from_pretrained(path, num_labels=1, dtype=torch.float32).eval()
    ids = AutoTokenizer.from_pretrained(path)("[user]hi<end>[assistant]ok<end>", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        expected = float(model(input_ids=ids).logits[0, -1, 0])
    (found,) = numbers(path, [Call("s", "ok", messages=[{"role": "user", "content": "hi"}])])
    assert found.score == pytest.approx(expected, abs=1e-5)


def test_templates_and_tokenizers_of_ones_own(tmp_path: Path) -> None:
    path = save(tmp_path / "model")
    bytes_tokenizer(-1, None).save_pretrained(tmp_path / "other")
    plain = numbers(path, CALLS[1:2])[0].score
    template = "{% for m in messages %}<{{ m['content'] }}>{% endfor %}"
    found = numbers(path, CALLS[1:2], chat_template=template)[0].score
    assert found == pytest.approx(transformers_number(path, "<be kind><hihi><yes>"), abs=1e-5)
    other = numbers(path, CALLS[1:2], tokenizer=str(tmp_path / "other"), chat_template=template)[0].score
    assert len({round(number, 4) for number in (plain, found, other)}) == 3


def test_long_input_is_cut_at_its_end(tmp_path: Path) -> None:
    path = save(tmp_path)
    text = "[system]be kind<end>[user]hi<end>[assistant]" + "x" * 500
    ids = AutoTokenizer.from_pretrained(path)(text)["input_ids"]
    call = Call("s", "x" * 500, messages=chat("hi"))
    for longest, tokens in ((20, 20), (None, 128)):
        model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
        with torch.no_grad():
            expected = float(model(input_ids=torch.tensor([ids[:tokens]])).logits[0, -1])
        assert numbers(path, [call], max_tokens=longest)[0].score == pytest.approx(expected, abs=1e-5)


def test_a_raw_prompt_has_no_turns(tmp_path: Path) -> None:
    path = save(tmp_path, template=None)
    (found,) = numbers(path, [Call("s", "= 4", prompt="2+2 ")])
    assert found.score == pytest.approx(transformers_number(path, "2+2 = 4"), abs=1e-5)
    (failed,) = numbers(path, CALLS[:1])
    assert isinstance(failed, Failure)
    assert failed.broken
    assert "has no chat template" in failed.message


def test_what_is_no_reward_model(tmp_path: Path) -> None:
    path = save(tmp_path, kind=Qwen2ForCausalLM)
    with pytest.raises(RunError, match=r"is not a sequence classifier: it has no weights for score\.weight"):
        numbers(path, [])
    with pytest.raises(RunError, match=r"could not be loaded|no tokenizer|no such folder"):
        numbers(str(tmp_path / "nowhere"), [])


def test_a_model_beside_a_rule_over_several_workers(tmp_path: Path) -> None:
    """Responses in the policy's tokens are decoded with its tokenizer, and read again with the model's."""
    path = save(tmp_path)
    policy = bytes_tokenizer(-1, None)
    rewards = (
        RuleReward(name="right", rule="exact_match"),
        ModelReward(name="kind", path=path, weight=0.5, applies_to=("talk",)),
    )

    class Two:
        """A group of two workers in this process."""

        workers = [RewardModels({1: rewards[1]}, "float32", "cpu") for _ in range(2)]
        calls: list[int] = []

        def __len__(self) -> int:
            return 2

        def each(self, method: Any, arguments: Any, again: Any = None) -> list[Any]:
            self.calls += [len(one[0][1]) for one in arguments]
            return [method(worker, *one) for worker, one in zip(self.workers, arguments, strict=True)]

    def response(text: str) -> Response:
        ids = policy(text)["input_ids"]
        return Response((*ids, policy.eos_token_id), (0.0,) * (len(ids) + 1), "stop", 0)

    prompts = [
        Prompt(i, source, (1,), "", "yes", messages=tuple(chat("hi"))) for i, source in enumerate(["talk", "sum"])
    ]
    answers = [[response("yes"), response("no"), response("it is")], [response("yes")]]
    group = Two()
    with RewardWorker(rewards) as worker:
        role = Rewards(LocalGroup("reward-0", worker), policy, RewardModel(group, rewards))  # type: ignore[arg-type]
        found = role.score(prompts, answers)
    own = [
        transformers_number(path, f"[system]be kind<end>[user]hi<end>[assistant]{t}<end>")
        for t in ("yes", "no", "it is")
    ]
    assert [one.total for one in found[0]] == pytest.approx([1 + 0.5 * own[0], 0.5 * own[1], 0.5 * own[2]], abs=1e-5)
    assert [one.components["kind"] for one in found[0]] == pytest.approx(own, abs=1e-5)
    assert found[1][0].components == {"right": 1.0}
    assert group.calls == [2, 1]


def test_the_plan_has_a_role_for_reward_models() -> None:
    base = {
        "model": {"path": "m"},
        "schedule": {"total_steps": 1},
        "placement": {"device": "cpu", "devices_per_node": 2},
    }
    model = {"type": "model", "path": "org/model"}
    with_model = make_plan(config_from({**base, "rewards": [model]})).stages[0].role("reward_model")
    assert with_model is not None
    assert (with_model.processes, with_model.devices, with_model.engine) == (2, (0, 1), "transformers")
    assert make_plan(config_from({**base, "rewards": [{"type": "rule"}]})).stages[0].role("reward_model") is None
