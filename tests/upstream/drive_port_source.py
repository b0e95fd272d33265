"""Runs in a source's environment: rewards of a ported folder's rows by the source's own classes, and by the folder's adapter.

    python drive_port_source.py trinity FOLDER CONFIG PLUGINS
    python drive_port_source.py roll FOLDER TAG=MODULE.CLASS=SETTINGS...

The last line that it prints is JSON: a list of [the source's reward, the adapter's, the response].
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

PORTED = """
import json, sys
sys.path.insert(0, sys.argv[1])
import ported_reward
asked = json.load(sys.stdin)
print(json.dumps([ported_reward.reward(row, text, len(text.encode()))[0] for row, text in asked]), file=sys.stderr)
"""


def _proof(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("prove", folder / "prove.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_trinity(rows: list[Any], texts: list[list[str]], config: str, plugins: str) -> list[list[float]]:
    """Rewards by Trinity-RFT's reader, task and workflow; the messages that it sends are those of the rows."""
    from trinity.buffer.reader.file_reader import TaskFileReader
    from trinity.common.config import load_config
    from trinity.utils.plugin_loader import load_from_file

    for path in Path(plugins).glob("*.py"):
        load_from_file(str(path))
    given = load_config(config).buffer.explorer_input
    tasks = given.taskset or given.tasksets[0]
    tasks.default_workflow_type = tasks.default_workflow_type or given.default_workflow_type
    tasks.default_reward_fn_type = tasks.default_reward_fn_type or given.default_reward_fn_type
    storage = tasks.to_storage_config()
    storage.batch_size, storage.total_epochs, storage.total_steps = 1, 1, None
    storage.data_selector, storage.enable_progress_bar = None, False
    reader, found = TaskFileReader(storage), {}
    places = {row["place"]: number for number, row in enumerate(rows)}

    async def read() -> Any:
        return await reader.read(1)

    for place in range(max(places) + 1):
        (task,) = asyncio.run(read())
        if place not in places:
            continue
        number, seen = places[place], []

        def chat(messages: Any, seen: list[Any] = seen, number: int = number, **kwargs: Any) -> list[Any]:
            seen.append([dict(message) for message in messages])
            return [
                SimpleNamespace(response_text=text, metrics=None, reward=None, eid=SimpleNamespace(run=0))
                for text in texts[number]
            ]

        workflow = task.to_workflow(SimpleNamespace(chat=chat))
        workflow.set_repeat_times(len(texts[number]), 0)
        found[number] = [float(each.reward) for each in workflow.run()]
        assert seen == [rows[number]["messages"]], seen
    return [found[number] for number in range(len(rows))]


def of_roll(rows: list[Any], texts: list[list[str]], tokenizer: Any, *workers: str) -> list[list[float]]:
    """Rewards by the workers of the rows' tags, with padded responses, in the main thread."""
    import numpy as np
    import torch
    from roll.distributed.executor.worker import RankInfo, Worker
    from roll.distributed.scheduler.protocol import DataProto

    def start(self: Any, worker_config: Any) -> None:  # without Ray
        self.worker_config, self.rank_info = worker_config, RankInfo()

    made = {}
    for each in workers:
        tag, name, settings = each.split("=", 2)
        module = importlib.import_module(name.rpartition(".")[0])
        config = SimpleNamespace(model_args=None, **json.loads(settings))
        with (
            mock.patch.object(Worker, "__init__", start),
            mock.patch.object(module, "default_tokenizer_provider", return_value=tokenizer),
        ):
            made[tag] = getattr(module, name.rpartition(".")[2])(config)
    found = []
    for row, responses in zip(rows, texts, strict=True):
        tokens = [tokenizer.encode(text) for text in responses]
        longest = max(map(len, tokens))
        padded = torch.tensor([each + [tokenizer.pad_token_id] * (longest - len(each)) for each in tokens])
        columns = {name: np.array([value] * len(tokens), dtype=object) for name, value in row["row"].items()}
        prompts = torch.full((len(tokens), 3), 97)
        batch = DataProto.from_dict(tensors={"prompts": prompts, "responses": padded}, non_tensors=columns)
        rewards = made[row["row"]["tag"]].compute_rewards(batch).batch["response_level_rewards"]
        found.append([float(value) for value in rewards])
    return found


def main() -> None:
    """Print the rewards of both."""
    source, folder, *given = sys.argv[1], Path(sys.argv[2]).resolve(), *sys.argv[3:]
    proof = _proof(folder)
    rows = [json.loads(line) for line in (folder / "proof" / "rows.jsonl").read_text().splitlines()]
    texts = [proof.responses_to(row["answer"]) for row in rows]
    if source == "trinity":
        wanted = of_trinity(rows, texts, *given)
    else:
        wanted = of_roll(rows, texts, proof.Bytes(), *given)
    asked = [(row["row"], text) for row, each in zip(rows, texts, strict=True) for text in each]
    words = [sys.executable, "-c", PORTED, str(folder)]
    done = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True, check=True)
    found = json.loads(done.stderr.strip().splitlines()[-1])
    flat = [value for each in wanted for value in each]
    print("\n" + json.dumps([(one, other, text) for one, other, (_, text) in zip(flat, found, asked, strict=True)]))


if __name__ == "__main__":
    main()
