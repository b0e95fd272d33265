"""What is exported is what was trained: Transformers loads it, and the rollout engine takes it up."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from rlctl.common.errors import RunError
from rlctl.runtime.rollout.weights import Checklist
from rlctl.runtime.train import export
from rlctl.runtime.train.losses import SftLoss
from tests.runtime.train import jobs
from tests.runtime.train.jobs import make_samples
from tests.runtime.train.processes import Workers


def make_tokenizer(folder: Path) -> Path:
    """A word-level tokenizer of four words."""
    words = Tokenizer(WordLevel({"<unk>": 0, "one": 1, "and": 2, "two": 3}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
def test_the_exported_folder_is_the_trained_model(
    two: Workers, models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    weights, nothing = two.run(
        jobs.train_and_export, models[kind], make_samples(4), SftLoss(), tmp_path / "hf", str(tokenizer)
    )
    assert nothing == {}
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    engine = AutoModelForCausalLM.from_pretrained(models[kind])
    ids = torch.arange(3, 20)[None]
    before = engine(ids).logits
    checklist = Checklist(engine)
    checklist.copy(weights.items())
    checklist.finish()
    assert not torch.equal(engine(ids).logits, before)
    assert torch.equal(engine(ids).logits, exported(ids).logits)
    assert AutoConfig.from_pretrained(tmp_path / "hf").architectures == [type(exported).__name__]
    for path in tokenizer.iterdir():
        assert (tmp_path / "hf" / path.name).read_bytes() == path.read_bytes()
    words = PreTrainedTokenizerFast.from_pretrained(tmp_path / "hf")
    assert words.tokenize("one and two") == ["one", "and", "two"]


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
def test_the_files_are_those_of_save_pretrained(
    one: Workers, models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    one.run(jobs.train_and_export, models[kind], make_samples(3), SftLoss(), tmp_path / "hf", None)
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == sorted(
        path.name for path in models[kind].iterdir()
    )
    with (
        safe_open(tmp_path / "hf" / "model.safetensors", "pt") as mine,
        safe_open(models[kind] / "model.safetensors", "pt") as theirs,
    ):
        assert sorted(mine.keys()) == sorted(theirs.keys())
    ours, original = (
        AutoConfig.from_pretrained(folder).to_dict() | {"_name_or_path": ""}
        for folder in (tmp_path / "hf", models[kind])
    )
    assert ours == original


def test_training_goes_on_after_an_export_as_without_one(one: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    """With the attention that it has: Transformers changed it for the model that was only made to be saved."""
    job = (jobs.train_around_an_export, models["qwen2"], make_samples(4), SftLoss())
    (weights, told), (expected, told_without) = one.run(*job, tmp_path / "hf")[0], one.run(*job, None)[0]
    assert told == told_without
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_a_failed_export_leaves_nothing_and_is_a_run_error_everywhere(
    two: Workers, models: dict[str, Path], tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(RunError, match="holds no tokenizer"):
        two.run(jobs.train_and_export, models["qwen2"], make_samples(3), SftLoss(), tmp_path / "hf", str(empty))
    assert not (tmp_path / "hf").exists()


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be larger than 10 kB, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_weights_that_find_no_room_are_told_of_and_raise_on_no_worker_alone(
    models: dict[str, Path], tmp_path: Path, small_files: None
) -> None:
    """The others wait for what the first worker says."""
    plain = AutoModelForCausalLM.from_pretrained(models["qwen2"])
    problem = export._write_files(plain, plain.state_dict(), tmp_path / "hf", None)
    assert "File too large" in problem
    assert not (tmp_path / "hf").exists()
