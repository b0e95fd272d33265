"""Images of rows: read from all that frameworks write, put in their places, and made into what a processor makes of them."""

from __future__ import annotations

import base64
import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, Features, List, Value
from datasets import Image as ImageFeature
from PIL import Image
from transformers import PROCESSOR_MAPPING, AutoConfig

from rlctl.common.errors import RunError
from rlctl.config.sections.data import Data, DataSource
from rlctl.config.sections.model import Model
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.images import ImageReader, read_images, reader_of, with_places
from rlctl.runtime.data.prompts import Limits, PromptSet
from rlctl.runtime.data.sft import SampleSet
from rlctl.runtime.data.sources import load_source
from tests.runtime.images import KINDS, make_tokenizer, make_vision_model, picture

HERE = "row 3 of train.parquet, images"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vision_model(tmp_path_factory.mktemp("vision"), "qwen2_vl")


@pytest.fixture(scope="module")
def reader(folder: Path) -> ImageReader:
    found = reader_of(Model(path=str(folder), modality="vision"))
    assert found is not None
    return found


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def same(one: Image.Image, other: Image.Image) -> bool:
    return one.mode == other.mode == "RGB" and one.size == other.size and one.tobytes() == other.tobytes()


def test_images_come_in_every_form(tmp_path: Path) -> None:
    shown = picture(9, 7)
    (tmp_path / "a.png").write_bytes(png(shown))
    for value in (
        shown,
        png(shown),
        "a.png",
        str(tmp_path / "a.png"),
        f"file://{tmp_path}/a.png",
        {"bytes": png(shown), "path": None},
        {"bytes": None, "path": "a.png"},
        {"image": "a.png"},
        "data:image/png;base64," + base64.b64encode(png(shown)).decode(),
    ):
        for given in (value, [value]):
            (found,) = read_images(given, folder=tmp_path, where=HERE)
            assert same(found, shown), value
    assert [each.size for each in read_images([shown, picture(3, 4)], folder=tmp_path, where=HERE)] == [(9, 7), (3, 4)]
    assert read_images(None, folder=tmp_path, where=HERE) == read_images([], folder=tmp_path, where=HERE) == []
    assert read_images(shown.convert("L"), folder=tmp_path, where=HERE)[0].mode == "RGB"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (png(picture(20, 20))[:200], "row 3 of train.parquet, images: the image cannot be read: "),
        (["x.png", "y.png"], r"images: image 1 of 2 cannot be read \(.*x.png\)"),
        (b"no image", "cannot identify image file"),
        ("https://a.b/c.png", "images: the image is https://a.b/c.png; rlctl reads images from disk"),
        ({"bytes": b"1", "max_pixels": 9}, "has unknown fields max_pixels"),
        (5, "is a int; expected a path, bytes"),
        ("data:image/png;base64,?", "data: URL that is not base64"),
    ],
)
def test_a_bad_image_is_named_by_row(value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=message):
        read_images(value, folder=tmp_path, where=HERE)


def contents(messages: list[dict[str, Any]], images: int) -> list[Any]:
    return [message["content"] for message in with_places(messages, images, where=HERE)]


def test_places_in_messages() -> None:
    system, image = {"role": "system", "content": "see <image>"}, {"type": "image"}

    def text(value: str) -> dict[str, str]:
        return {"type": "text", "text": value}

    user = {"role": "user", "content": "<image>a<image> b"}
    assert contents([user], 2) == [[image, text("a"), image, text(" b")]]
    assert contents([system, {"role": "user", "content": "b"}], 1) == [[text("see "), image], "b"]
    asked = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert contents(asked, 2) == ["a", "b", [image, image, text("c")]]
    assert contents([user], 0) == ["<image>a<image> b"]
    parts = [{"type": "image", "text": None}, {"type": "text", "text": "a"}]
    assert contents([{"role": "user", "content": parts}], 1) == [[image, text("a")]]
    with pytest.raises(RunError, match=f"{HERE} has 2 image placeholders, but its row has 1 image"):
        contents([user], 1)
    with pytest.raises(RunError, match="has content of type video; rlctl reads text and images"):
        contents([{"role": "user", "content": [{"type": "video"}]}], 0)
    with pytest.raises(RunError, match="has images but no user message"):
        contents([{"role": "system", "content": "a"}], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_what_a_processor_makes(kind: str, tmp_path: Path) -> None:
    model = make_vision_model(tmp_path / "model", kind)
    images = [picture(17, 9, seed=1), picture(40, 60, seed=2)]
    rows = [
        {"prompt": [{"role": "user", "content": "is <image> as <image>?"}], "images": images},
        {"prompt": [{"role": "user", "content": "and now?"}], "images": []},
    ]
    features = Features(
        {"prompt": List({"role": Value("string"), "content": Value("string")}), "images": List(ImageFeature())}
    )
    Dataset.from_list(rows, features=features).to_parquet(tmp_path / "train.parquet")
    source = DataSource(path=str(tmp_path / "train.parquet"), image_key="images")
    tokenizer = make_tokenizer()
    chat = Chat(tokenizer, images=reader_of(Model(path=str(model), modality="vision")))
    prompts = PromptSet(load_source(source, key="k"), source, chat, Limits(64), key="k", workers=1)

    processor = processor_of(model)
    made = processor(text=[prompts[0].text], images=images, return_tensors="pt", add_special_tokens=False)
    assert prompts[0].text.count("<|image_pad|>") == 2
    assert prompts[0].token_ids == tuple(made["input_ids"][0].tolist())
    assert prompts[0].inputs.keys() == {"pixel_values", "image_grid_thw"}
    assert all(torch.equal(tensor, made[name]) for name, tensor in prompts[0].inputs.items())
    assert prompts[0].messages == ({"role": "user", "content": "is <image> as <image>?"},)
    assert not prompts[1].inputs
    assert prompts[1].text == "<user>and now?<assistant>"


def processor_of(folder: Path) -> Any:
    """The processor of a model, without what reads videos: that part wants torchvision."""
    whole: Any = PROCESSOR_MAPPING[type(AutoConfig.from_pretrained(folder))]

    class Processor(whole):  # type: ignore[misc]
        def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
            whole.__init__(self, image_processor, tokenizer, None, chat_template=chat_template)

    return Processor.from_pretrained(folder)


def opened(
    tmp_path: Path, rows: list[dict[str, Any]], reader: ImageReader | None, limits: Limits, **fields: Any
) -> PromptSet:
    Dataset.from_list(rows).to_parquet(tmp_path / "train.parquet")
    source = dataclasses.replace(DataSource(path=str(tmp_path / "train.parquet"), image_key="images"), **fields)
    return PromptSet(load_source(source, key="k"), source, Chat(make_tokenizer(), images=reader), limits, key="k")


def row_of(width: int, height: int, **more: Any) -> dict[str, Any]:
    return {"prompt": "what?", "images": [{"bytes": png(picture(width, height)), "path": None}], **more}


def test_lengths_count_what_images_fill(tmp_path: Path, reader: ImageReader) -> None:
    rows = [row_of(8, 8), row_of(32, 32), {"prompt": "what?", "images": []}]
    lengths = [len(prompt.token_ids) for prompt in opened(tmp_path, rows, reader, Limits(99))]
    assert [lengths[0] - 1, lengths[1] - 16, lengths[2] + 2] == [
        lengths[2] + 2
    ] * 3  # 1 and 16 tokens, between two marks
    short = Limits(lengths[1] - 1, overlong="drop")
    dropped = opened(tmp_path, rows, reader, short)
    assert [len(prompt.token_ids) for prompt in dropped] == [lengths[0], lengths[2]]
    assert dropped.report.dropped == 1
    with pytest.raises(RunError, match=r"1 prompt of .* with images is longer .* is row 1 with 25 .* cannot truncate"):
        opened(tmp_path, rows, reader, dataclasses.replace(short, overlong="keep", truncation="left"))


def test_training_sequences_are_prompt_and_response(tmp_path: Path, reader: ImageReader) -> None:
    rows = [row_of(16, 8, response="a dog"), {"prompt": "what?", "images": [], "response": "a cat"}]
    prompts = opened(tmp_path, rows, reader, Limits(99))
    source, chat = DataSource(path="train.parquet", image_key="images"), Chat(make_tokenizer(), images=reader)
    samples = SampleSet(Dataset.from_list(rows), source, chat, Data(), max_tokens=20, key="k")
    for prompt, sample, answer in zip(prompts, samples, ("a dog", "a cat"), strict=True):
        assert sample.token_ids.tolist() == [*prompt.token_ids, *chat.encode([f"{answer}<end>"])[0]]
        assert sample.mask.sum() == len(answer) + 1
        assert sample.inputs.keys() == prompt.inputs.keys()
        assert all(torch.equal(tensor, prompt.inputs[name]) for name, tensor in sample.inputs.items())
    short = Data(sequence_truncation="left")
    cut = SampleSet(Dataset.from_list(rows), source, chat, short, max_tokens=14, key="k")
    with pytest.raises(RunError, match=r"row 0 of train.parquet has images and more than 14 tokens"):
        cut.check_cuts()


def test_what_cannot_be_read_is_refused_before_the_run(tmp_path: Path, reader: ImageReader, folder: Path) -> None:
    bad = [row_of(8, 8), {"prompt": "what?", "images": [{"bytes": png(picture(30, 30))[:300], "path": None}]}]
    with pytest.raises(RunError, match=r"row 1 of .*train.parquet, images: the image cannot be read"):
        opened(tmp_path, bad, reader, Limits(99))
    for column in ("videos", "audio"):
        field = f"{column.removesuffix('s')}_key"
        with pytest.raises(
            RunError, match=rf"train.parquet has the column '{column}' \(k.{field}\), but rlctl cannot read {column}"
        ):
            opened(tmp_path, [row_of(8, 8, **{column: "a"})], reader, Limits(99), **{field: column})
    with pytest.raises(
        RunError, match=r"train.parquet has the column 'images' \(k.image_key\), but model.modality is text"
    ):
        opened(tmp_path, [row_of(8, 8)], None, Limits(99))
    with pytest.raises(RunError, match=r"prompt has 1 image token after rendering, but 0 images"):
        opened(tmp_path, [{"prompt": "<|image_pad|>", "images": []}], reader, Limits(99))


def test_a_model_that_reads_text_is_refused(tmp_path: Path, make_text_model: Path) -> None:
    with pytest.raises(
        RunError, match=r"model.modality is vision, but .* is a qwen2 model; images are read for qwen2_vl"
    ):
        reader_of(Model(path=str(make_text_model), modality="vision"))
    assert reader_of(Model(path=str(make_text_model))) is None


@pytest.fixture
def make_text_model(tmp_path: Path) -> Path:
    from transformers import Qwen2Config

    Qwen2Config(hidden_size=32, num_hidden_layers=1).save_pretrained(tmp_path / "text")
    return tmp_path / "text"
