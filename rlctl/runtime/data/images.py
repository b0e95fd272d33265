"""Images of a row: read, put in their places in the messages, and made into what the model reads.

    images column ──▶ pictures ──image processor──▶ pixel_values, image_grid_thw
    <image> in text ─▶ content parts ──chat template──▶ one image token each ──▶ as many as the picture fills

What a processor of Transformers makes of the same text and pictures is the same, token for token; it is not used itself as
it cannot be loaded without the packages that videos need.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.common.errors import MissingDependency, RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import DataSource
from rlctl.config.sections.model import Model
from rlctl.runtime.data.hub import hub_access
from rlctl.runtime.data.messages import Messages
from rlctl.runtime.data.sources import Rows

if TYPE_CHECKING:
    from PIL.Image import Image

    from rlctl.runtime.types import Inputs

PLACE = "<image>"
"""What stands in a message's text where an image goes, as in verl and ROLL."""
OTHERS = {"video_key": "videos", "audio_key": "audio"}
"""Fields of a source that name columns which nothing reads, and what is in them."""


class ImageReader:
    """What one model makes of pictures."""

    def __init__(self, model: Model) -> None:
        """Load the image processor of ``model.path``.

        Raises:
            RunError: there is none, or the model reads no images.
            MissingDependency: it wants a package that is not there.
        """
        from transformers import AutoConfig, AutoImageProcessor

        from rlctl.runtime.models.config import import_modules
        from rlctl.runtime.models.vision import FAMILIES, reads_images

        import_modules(model)
        options = {"trust_remote_code": model.trust_remote_code}
        with hub_access(needed=model.trust_remote_code or not Path(model.path).is_dir()):
            try:
                config = AutoConfig.from_pretrained(model.path, **options)
                if not reads_images(config):
                    raise RunError(
                        said(
                            "model.modality is vision, but {path} is a {model_type} model; images are read for {names}",
                            path=model.path,
                            model_type=config.model_type,
                            names=", ".join(FAMILIES),
                        ),
                        hint="set model.modality to text, or model.path to one of these",
                    )
                self._processor: Any = AutoImageProcessor.from_pretrained(model.path, **options)
            except ImportError as error:
                raise MissingDependency(
                    said("the image processor of {path} needs a package: {error}", path=model.path, error=error)
                ) from error
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise RunError(
                    said("{path} contains no loadable image processor: {error}", path=model.path, error=error),
                    hint="model.path must contain the model's preprocessor_config.json",
                ) from error
        self.image_token: int = config.image_token_id
        self._merged: int = self._processor.merge_size**2

    def counts(self, images: Iterable[Image]) -> list[int]:
        """How many tokens each picture fills."""
        patches = (self._processor.get_number_of_image_patches(each.height, each.width, {}) for each in images)
        return [count // self._merged for count in patches]

    def fill(self, parts: Sequence[Sequence[int]], counts: Sequence[int], *, where: str) -> list[list[int]]:
        """The tokens of a text, in parts, with each image token as often as its picture fills.

        Raises:
            RunError: there are not as many image tokens as pictures.
        """
        places = sum(part.count(self.image_token) for part in parts)
        if places != len(counts):
            raise RunError(
                said(
                    "{where} has {places} image tokens after rendering, but {count} images",
                    where=where,
                    places=places,
                    count=len(counts),
                ),
                hint="model.chat_template must write one image token for each content part of type image",
            )
        rest = iter(counts)
        return [
            [token for each in part for token in ([each] * next(rest) if each == self.image_token else [each])]
            for part in parts
        ]

    def read(self, images: Sequence[Image]) -> Inputs:
        """What the model reads of pictures (``types.Inputs``)."""
        if not images:
            return {}
        from rlctl.runtime.models.vision import INPUTS

        made = self._processor(images=list(images), return_tensors="pt")
        return {name: made[name] for name in INPUTS}


def reader_of(model: Model) -> ImageReader | None:
    """What reads the images of a config; None where its model reads text."""
    return ImageReader(model) if model.modality == "vision" else None


def check_columns(dataset: Rows, source: DataSource, reader: ImageReader | None, *, key: str) -> None:
    """Refuse a data set with a column that the model is not shown.

    Raises:
        RunError: names file, column and key.
    """
    for field, what in OTHERS.items():
        if getattr(source, field) in dataset.column_names:
            raise RunError(
                said(
                    "{path} has the column {column!r} ({key}.{field}), but rlctl cannot read {what}",
                    path=source.path,
                    column=getattr(source, field),
                    key=key,
                    field=field,
                    what=what,
                ),
                hint=said("set {key}.{field} to null to ignore it", key=key, field=field),
            )
    if source.image_key in dataset.column_names and reader is None:
        raise RunError(
            said(
                "{path} has the column {image_key!r} ({key}.image_key), but model.modality is text",
                path=source.path,
                image_key=source.image_key,
                key=key,
            ),
            hint=said(
                "set model.modality to vision for a model that reads images, or {key}.image_key to null to ignore it",
                key=key,
            ),
        )


def undecoded(dataset: Any, column: str | None) -> Any:
    """The rows with the images of a column as bytes or paths: they are decoded here, so that a bad one can be named."""
    if column not in dataset.column_names or not hasattr(dataset, "cast_column"):
        return dataset
    from datasets import Image, List

    feature = dataset.features[column]
    if isinstance(feature, Image):
        return dataset.cast_column(column, Image(decode=False))
    inner = getattr(feature, "feature", None)
    return dataset.cast_column(column, List(Image(decode=False))) if isinstance(inner, Image) else dataset


def row_images(row: Mapping[str, Any], source: DataSource, reader: ImageReader | None, *, number: int) -> list[Image]:
    """The pictures of a row of a source; none where nothing reads them."""
    column = source.image_key
    if reader is None or column is None or row.get(column) is None:
        return []
    folder = Path(source.path.removeprefix("file://")).expanduser().parent
    return read_images(
        row[column],
        folder=folder,
        where=said("row {number} of {path}, {column}", number=number, path=source.path, column=column),
    )


def read_images(value: Any, *, folder: Path, where: str) -> list[Image]:
    """The pictures of a row, in RGB, decoded.

    Args:
        value: of its images column: one or a list of paths, bytes, ``{bytes, path}``, ``data:`` URLs or PIL images, or nothing.
        folder: of the data file; a relative path that is not here is looked for there.
        where: row and column, for messages.

    Raises:
        RunError: one of them cannot be read.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    several = value if isinstance(value, list | tuple) else [value]
    pictures = []
    for number, each in enumerate(image for image in several if image is not None):
        template = "{where}: image {number} of {count}" if len(several) > 1 else "{where}: the image"
        place = said(template, where=where, number=number + 1, count=len(several))
        pictures.append(_read(each, folder, place))
    return pictures


def _read(value: Any, folder: Path, where: str) -> Image:
    from PIL import Image, UnidentifiedImageError

    if isinstance(value, Image.Image):
        return value.convert("RGB")
    source, shown = _source(value, folder, where)
    try:
        with Image.open(source) as opened:
            return opened.convert("RGB")
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise RunError(
            said("{where} cannot be read{shown}: {error}", where=where, shown=shown, error=error),
            hint="fix the image, or remove the row",
        ) from error


def _source(value: Any, folder: Path, where: str) -> tuple[Path | io.BytesIO, str]:
    """A file or its contents, and how a message names it."""
    if isinstance(value, Mapping):
        unknown = sorted(
            name for name, each in value.items() if each is not None and name not in ("bytes", "path", "image")
        )
        if unknown:
            raise RunError(
                said(
                    "{where} has unknown fields {names}; an image is {{bytes, path}}",
                    where=where,
                    names=", ".join(unknown),
                ),
                hint="image sizes come from the model's preprocessor_config.json",
            )
        value = next((value[name] for name in ("bytes", "path", "image") if value.get(name)), None)
    if isinstance(value, bytes | bytearray):
        return io.BytesIO(value), ""
    if isinstance(value, str) and value.startswith("data:"):
        try:
            return io.BytesIO(base64.b64decode(value.partition(",")[2], validate=True)), ""
        except binascii.Error as error:
            raise RunError(
                said("{where} is a data: URL that is not base64: {error}", where=where, error=error)
            ) from error
    if not isinstance(value, str | Path) or not str(value):
        raise RunError(
            said(
                "{where} is a {kind}; expected a path, bytes, {{bytes, path}} or a PIL image",
                where=where,
                kind=type(value).__name__,
            )
        )
    if re.match(r"(?!file:)[a-z][a-z0-9+.-]*://", str(value)):
        raise RunError(
            said("{where} is {value}; rlctl reads images from disk", where=where, value=value),
            hint="download the images before the run",
        )
    path = Path(str(value).removeprefix("file://")).expanduser()
    return path if path.exists() else folder / path, f" ({path})"


def with_places(messages: Messages, images: int, *, where: str) -> Messages:
    """Messages whose images are content parts: ``<image>`` in a text is one; without any they stand before the last user's.

    Raises:
        RunError: there are not as many places as images, or a part is something that cannot be read.
    """
    made: Messages = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) and images and PLACE in content:
            made.append({**message, "content": list(_parts(content))})
        elif isinstance(content, Sequence) and not isinstance(content, str):
            parts = [{name: each for name, each in part.items() if each is not None} for part in content]
            made.append({**message, "content": parts})
        else:
            made.append(message)
    kinds = [part["type"] for message in made for part in _content(message) if "type" in part]
    if others := sorted(set(kinds) - {"text", "image"}):
        raise RunError(
            said("{where} has content of type {others}; rlctl reads text and images", where=where, others=others[0])
        )
    places = kinds.count("image")
    if images and not places:
        return _in_front(made, images, where)
    if places != images:
        raise RunError(
            said(
                "{where} has {places} image placeholders, but its row has {images} images",
                where=where,
                places=places,
                images=images,
            ),
            hint=said("write {place} once per image, or not at all to put all images first", place=PLACE),
        )
    return made


def _content(message: Mapping[str, Any]) -> Sequence[Any]:
    content = message.get("content")
    return () if content is None or isinstance(content, str) else content


def _parts(text: str) -> Iterator[dict[str, Any]]:
    for piece in re.split(f"({re.escape(PLACE)})", text):
        if piece:
            yield {"type": "image"} if piece == PLACE else {"type": "text", "text": piece}


def _in_front(messages: Messages, images: int, where: str) -> Messages:
    """All images before the text of the last user message, as Trinity has them."""
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        raise RunError(said("{where} has images but no user message to put them in", where=where))
    last = messages[users[-1]]
    text = last.get("content") or ""
    rest = [{"type": "text", "text": text}] if isinstance(text, str) else list(text)
    changed = {**last, "content": [*({"type": "image"} for _ in range(images)), *rest]}
    return [*messages[: users[-1]], changed, *messages[users[-1] + 1 :]]
