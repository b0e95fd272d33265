"""How long findings take in an editor: from a key to the diagnostics of ``rlctl lsp``, over its real standard streams.

Types and deletes a digit of a number, and a letter of its key, in the largest example of each format, warm. Prints the time that
passes and the processor time that the server takes, which counts on a machine that others use, and the ratio to reading the text
as YAML. With a pause between the keys, the server tries values for hints meanwhile.

    python benchmarks/lsp.py [--rounds 40] [--pause 0.8] [FILE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import sys
import time
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from rlctl.documents import read_yaml

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "tests" / "adapters" / "examples"


def largest() -> list[Path]:
    """The largest example of each format, launch scripts included."""
    folders = [*EXAMPLES.iterdir()]
    return [max(folder.glob("*.*"), key=lambda file: file.stat().st_size) for folder in folders if folder.is_dir()]


def processor_ms(process: int) -> float:
    """Processor time of a process so far, in milliseconds; Linux counts it in nanoseconds."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e6


async def measured(file: Path, rounds: int, pause: float) -> list[tuple[float, float]]:
    """Milliseconds from a change to its diagnostics, and of the server's processor time meanwhile, one pair for each change."""
    client, told = LanguageClient("benchmark", "1"), asyncio.Event()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def published(params: types.PublishDiagnosticsParams) -> None:
        told.set()

    await client.start_io(sys.executable, "-m", "rlctl", "lsp", env={**os.environ})
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities(), root_uri=file.parent.as_uri()))
    client.initialized(types.InitializedParams())
    text, uri = file.read_text(encoding="utf-8"), file.resolve().as_uri()
    match = re.search(r"(?:n|num_return_sequences_in_group|repeat_times|batch_size)(?=[:=] ?\d+)[:=] ?\d+", text)
    end = match.end() if match is not None else 0
    line, column = text.count("\n", 0, end), end - (text.rfind("\n", 0, end) + 1)
    before_value = len(re.split(r"[:=]", match[0])[1]) + 1 if match is not None else 0
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "yaml", 0, text)))
    await told.wait()
    assert client._server is not None
    times = []
    for number in range(rounds):
        place = column if number % 4 < 2 else column - before_value
        at, after = types.Position(line, place), types.Position(line, place + number % 2)
        change = types.TextDocumentContentChangePartial(types.Range(at, after), "" if number % 2 else "0")
        identifier = types.VersionedTextDocumentIdentifier(number + 1, uri)
        await asyncio.sleep(pause)
        told.clear()
        began, busy = time.monotonic(), processor_ms(client._server.pid)
        client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change]))
        await told.wait()
        times.append(((time.monotonic() - began) * 1000, processor_ms(client._server.pid) - busy))
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return times[4:]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("files", nargs="*", type=Path)
    arguments.add_argument("--rounds", type=int, default=40)
    arguments.add_argument("--pause", type=float, default=0.0, help="seconds between two keys")
    given = arguments.parse_args()
    for file in given.files or largest():
        passed, busy = (
            sorted(column) for column in zip(*asyncio.run(measured(file, given.rounds, given.pause)), strict=True)
        )
        text = file.read_text(encoding="utf-8")
        told = [f"p95 {p95(passed):.0f} ms, processor median {statistics.median(busy):.0f} ms, p95 {p95(busy):.0f} ms"]
        if file.suffix != ".sh":
            read_yaml(text, str(file))  # what it imports is no part of reading
            began = time.process_time()
            read_yaml(text, str(file))
            told.append(f"{statistics.median(busy) / (time.process_time() - began) / 1000:.0f} x reading it as YAML")
        print(f"{file.name}: {len(text):,} characters, {', '.join(told)}")


def p95(times: list[float]) -> float:
    """The 95th percentile of sorted times."""
    return times[int(0.95 * (len(times) - 1))]


if __name__ == "__main__":
    main()
