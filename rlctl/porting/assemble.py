"""A run's config, rows and reward as a folder that another framework runs."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError, UsageError
from rlctl.common.language import chosen
from rlctl.common.messages.reasons import said, translated
from rlctl.common.records import record
from rlctl.common.report import Report
from rlctl.common.report_lines import framework, release
from rlctl.config import Config, Loaded
from rlctl.config.sections.data import DataSource
from rlctl.porting.adapters import filled, write, write_adapters, write_proof
from rlctl.porting.columns import raw_text
from rlctl.porting.configs import told, with_new_rows, written
from rlctl.porting.folder import whole_folder
from rlctl.porting.licences import licences
from rlctl.porting.mapping import Mapped, check_reward, link_rows
from rlctl.porting.proof import SEED, expected
from rlctl.porting.reading import DataFile, data_files
from rlctl.porting.rewards import Ported, Stub, own_prompts, reward_of
from rlctl.porting.rows import Names, Row, names_of, text_of
from rlctl.porting.writing import SKIPPED, Moved, write_rows
from rlctl.translation.translate import Translation

KNOWN = ("verl", "trinity", "roll", "rlctl")
"""Frameworks between which runs are ported, each to each other."""
PINS = {"trinity": "trinity-rft==0.6.0", "verl": "verl==0.9.1", "roll": "", "rlctl": "rlctl[runtime]"}
"""The release that the adapters are written for."""
ROLL_COMMIT = "8eb27cc2dc34c4d1310b169d9b86d339004d811a"
RELEASES = {"trinity": "0.6", "verl": "0.9", "roll": "2026.8", "rlctl": "1"}
CONFIGS = {"trinity": "config.yaml", "roll": "config.yaml", "verl": "train.sh", "rlctl": "config.yaml"}
STARTS = {
    "trinity": 'python -c "import trinity" || { echo "install Trinity-RFT: pip install -r requirements.txt" >&2; exit 1; }\n'
    'export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"\n'
    "ray status >/dev/null 2>&1 || ray start --head\n"
    'exec trinity run --config config.yaml --plugin-dir "$PWD/plugins"',
    "roll": '[ -d "${ROLL:-}/roll" ] || { echo "set ROLL to a checkout of ROLL at ' + ROLL_COMMIT + '" >&2; exit 1; }\n'
    'export PYTHONPATH="$PWD:$ROLL${PYTHONPATH:+:$PYTHONPATH}"\n'
    "exec python start.py",
    "verl": 'python -c "import verl" || { echo "install verl: pip install -r requirements.txt" >&2; exit 1; }\n'
    'export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"\n'
    'exec bash train.sh @@FILES@@ "$@"',
    "rlctl": 'command -v rlctl >/dev/null || { echo "install rlctl: pip install -r requirements.txt" >&2; exit 1; }\n'
    'exec rlctl launch config.yaml "$@"',
}
NO_EVALUATION = 'data.val_files="$PORTED_RUN/data/train.parquet" trainer.val_before_train=False trainer.test_freq=-1'
STUB = "STUB.py"
"""The file that stands for a reward that is not ported; ``run.sh`` refuses to start beside it."""
SAMPLED = 16
"""Rows of the proof."""


@record
class Result:
    """What a port wrote."""

    folder: Path
    target: str
    moved: Moved
    reward: Ported | Stub
    translation: Translation
    files: tuple[str, ...] = field(default_factory=tuple)
    """In the folder, relative to it."""
    mapped: bool = False
    """Whether ``data/`` has links to the files of the run instead of new ones."""

    @property
    def whole(self) -> bool:
        """Whether nothing is left for the user: no stub, no row skipped, no key lost."""
        return not isinstance(self.reward, Stub) and not self.moved.skipped and not self.translation.report.loses

    def as_data(self) -> dict[str, Any]:
        """The result as plain data."""
        stub = self.reward.reason if isinstance(self.reward, Stub) else None
        return {
            "folder": str(self.folder), "target": self.target, "stub": stub, "rows": self.moved.as_data(),
            "files": list(self.files), **self.translation.report.as_data(),
        }  # fmt: skip


def port(
    loaded: Loaded,
    report: Report,
    target: str,
    out: Path,
    *,
    file: str,
    here: Path,
    plugins: Path | None = None,
    options: Mapping[str, str] | None = None,
    force: bool = False,
    map_data: bool = False,
    seen: Callable[[int], None] = lambda rows: None,
) -> Result:
    """Write a run as a folder that another framework runs. Nothing of the run's code is executed.

    Args:
        loaded: the config of the run.
        report: of its reading.
        target: the framework, as ``trinity`` or ``trinity@0.6``.
        out: the folder to write.
        file: what the config was read from, for the README.
        here: the folder in which the run is started.
        plugins: the folder of a Trinity-RFT run's plug-ins.
        options: facts that the config lacks, as ``rlctl convert --assume`` states them.
        force: write into a folder that has files.
        map_data: write no rows: the target reads the files of the run, whose columns the config names.
        seen: called with the number of rows that were read since the last call.

    Raises:
        UsageError: the pair of frameworks or the kind of run is not ported, or the target cannot read the files as they are.
        RunError: the data is not on this machine, or the target cannot express the config.
    """
    name, source = target.partition("@")[0], report.dialect.partition("@")[0]
    _refuse(loaded.config, source, target)
    files = [*_files(loaded.config.data.train, "train", here), *_files(loaded.config.data.eval, "test", here)]
    with whole_folder(out, force=force, last=("run.sh",)) as folder:
        (folder / "data").mkdir()
        sample = _Sample()
        mapped = None
        if map_data:
            moved, mapped = link_rows(files, name, folder / "data", seen=seen, taken=sample.take)
        else:
            called = loaded.config.data.train[0].name or ""
            moved = write_rows(files, name, folder / "data", name=called, seen=seen, taken=sample.take)
        if moved.with_images:
            raise RunError(
                "rows have images, which a port does not move yet", hint="use rlctl data convert for the rows alone"
            )
        reward = _reward(loaded.config, report, name, sample, plugins, here)
        ported = not isinstance(reward, Stub)
        if mapped is not None and not isinstance(reward, Stub):
            check_reward(reward, mapped, name)
        options = {**(options or {}), "dataset_rows": str(moved.splits["train"])}
        made = written(
            with_new_rows(loaded, name, ported=ported, mapped=map_data), report, target, options, ported=ported
        )
        write(folder / CONFIGS[name], made.text or "", executable=name == "verl")
        _write_code(folder, (source, name), reward, sample, mapped)
        if ported:
            write(folder / "proof" / "expected.json", expected(loaded.config, moved))
        result = Result(out, made.report.target, moved, reward, made, mapped=map_data)
        write(folder / "README.md", readme(result, file, report, loaded.config.run.name))
        write(folder / "port.json", _recorded(folder, file, report, made, reward))
        names = tuple(sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()))
    for earlier in {STUB, f"data/{SKIPPED}"} - set(names):  # of a port that this one replaces
        (out / earlier).unlink(missing_ok=True)
    return Result(out, made.report.target, moved, reward, made, names, map_data)


def _reward(
    config: Config, report: Report, target: str, sample: _Sample, plugins: Path | None, here: Path
) -> Ported | Stub:
    """The reward, or why none is ported: the rows and the source's own keys can forbid it too."""
    agents = sorted(sample.agents - {"single_turn_agent"})
    if agents:
        return Stub(said("rows name agents ({names}): a port moves single-turn runs", names=", ".join(agents)))
    source = report.dialect.partition("@")[0]
    if source == "trinity" and (stub := own_prompts({entry.key: entry.value for entry in report.accounting})):
        return stub
    return reward_of(config, source, plugins, here, target=target, sources=frozenset(sample.sources))


def _refuse(config: Config, source: str, target: str) -> None:
    """Refuse a pair or a kind of run that is not ported.

    Raises:
        UsageError: it is none.
    """
    name, _, asked = target.partition("@")
    if source == name or source not in KNOWN or name not in KNOWN:
        known = ", ".join(map(framework, KNOWN))
        raise UsageError(
            said("a run is not ported from {source} to {target}", source=framework(source), target=framework(name)),
            hint=said("runs are ported from each of {known} to each other", known=known),
        )
    if asked and asked != RELEASES[name]:
        raise UsageError(
            said("a run is ported to {name} {release} only", name=framework(name), release=RELEASES[name]),
            hint=said("write --to {name}", name=name),
        )
    if config.stages:
        raise UsageError("a config with stages is not ported", hint="port each stage as its own file")
    if config.algorithm.objective.choice in ("sft", "dpo"):
        raise UsageError(
            said("a run with the objective {name} is not ported", name=config.algorithm.objective.choice),
            hint="use rlctl convert",
        )
    if not config.data.train:
        raise UsageError("the config names no training data", hint="name it, as an override after the file")
    if len(config.data.train) > 1 and config.data.mixing != "concatenate":
        raise UsageError(
            said("training datasets that are mixed as {mixing} are not ported", mixing=config.data.mixing),
            hint="port a config with one dataset",
        )


def _files(sources: Sequence[DataSource], split: str, here: Path) -> list[tuple[DataFile, Names]]:
    """The files of data sources, all with one split."""
    found = []
    for source in sources:
        path = Path(source.path.removeprefix("file://")).expanduser()
        path = path if here == Path.cwd() else here / path
        if "://" in source.path.removeprefix("file://") or not path.exists():
            raise RunError(
                said("the data {path} is not on this machine", path=source.path),
                hint="download it, and name the local path as an override after the file",
            )
        of = [each for each in data_files(path) if path.is_file() or each.split == (source.split or each.split)]
        found += [(DataFile(each.path, split), names_of(source)) for each in of]
    return found


class _Sample:
    """Rows of the training data for the proof: as many of each data source and tag, chosen with equal chance among these."""

    def __init__(self) -> None:
        self._chance = random.Random(SEED)
        self._rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self.agents: set[str] = set()
        self.sources: set[str] = set()
        """Data sources of all rows."""

    def take(self, split: str, place: int, row: Row) -> None:
        agent = row.raw.get("agent_name")
        if agent:
            self.agents.add(str(agent))
        self.sources.add(row.source)
        if split != "train":
            return
        label = (row.source, row.tag)
        if label not in self._rows and len(self._rows) >= SAMPLED:
            label = ("", "")  # more labels than rows: the rest is one
        kept = self._rows.setdefault(label, [])
        slot = len(kept) if len(kept) < SAMPLED else self._chance.randint(0, self._counts[label])
        self._counts[label] += 1
        if slot < SAMPLED:
            raw = json.loads(raw_text(row.raw, ())[0])
            messages = [dict(each) for each in row.messages]
            made = {"place": place, "messages": messages, "answer": text_of(row.answer), "row": raw}
            kept[slot : slot + 1] = [made]

    def lines(self) -> str:
        turns = zip_longest(*self._rows.values())
        found = [row for turn in turns for row in turn if row is not None][:SAMPLED]
        rows = sorted(found, key=lambda row: row["place"])
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write_code(
    folder: Path, pair: tuple[str, str], reward: Ported | Stub, sample: _Sample, mapped: Mapped | None
) -> None:
    """The adapter with the user's files, or the stub; the proof; the launch script and its requirements."""
    _, target = pair
    pin = PINS[target] or f"# ROLL at {ROLL_COMMIT}: git clone https://github.com/alibaba/ROLL"
    if isinstance(reward, Stub):
        where = f" ({reward.at})" if reward.at else ""
        reason = f"{translated(reward.reason)}{where}"
        write(folder / STUB, filled("stub.py", {"REASON": reason, "REASON_TEXT": repr(reason)}))
        write(folder / "requirements.txt", pin)
    else:
        for path, place in reward.code.files:
            (folder / "source" / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / "source" / place)
        write_adapters(folder, pair, reward, mapped)
        write_proof(folder, pair, reward, mapped)
        write(folder / "proof" / "rows.jsonl", sample.lines())
        more = [f"# the reward imports {name}" for name in reward.code.packages if name not in ("trinity",)]
        write(folder / "requirements.txt", "\n".join([pin, *more]))
    _write_start(folder, target, stub=isinstance(reward, Stub))


def _write_start(folder: Path, target: str, *, stub: bool) -> None:
    """``run.sh``; verl's script gets the files as overrides, because Ray's processes run elsewhere."""
    splits = (("train", "data.train_files"), ("test", "data.val_files"))
    files = [
        f'{key}="$PORTED_RUN/data/{split}.parquet"'
        for split, key in splits
        if (folder / "data" / f"{split}.parquet").exists()
    ]
    if (
        target == "verl" and not (folder / "data" / "test.parquet").exists()
    ):  # verl opens a file even if it evaluates never
        files += [NO_EVALUATION]
    if not stub:
        files.append('reward.custom_reward_function.path="$PORTED_RUN/ported_function.py"')
    values = {
        "TITLE": f"Starts the run in {framework(target)} {RELEASES[target]}.",
        "START": STARTS[target],
        "FILES": " ".join(files),
    }
    write(folder / "run.sh", filled("run.sh", values), executable=True)


def _recorded(folder: Path, file: str, report: Report, made: Translation, reward: Ported | Stub) -> str:
    """What the folder was made of, with the digests of copied files."""
    from importlib.metadata import version

    digests = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "source").rglob("*"))
        if path.is_file()
    }
    values = {
        "rlctl": version("rlctl"), "from": report.dialect, "to": made.report.target, "file": file, "sha256": digests,
        "stub": reward.reason if isinstance(reward, Stub) else None,
        "licences": {} if isinstance(reward, Stub) else licences(reward.code.files),
    }  # fmt: skip
    return json.dumps(values, indent=2, ensure_ascii=False)


def readme(result: Result, file: str, report: Report, name: str) -> str:
    """The README of a folder, in the user's language."""
    from importlib.metadata import version

    language = chosen()
    target = result.target.partition("@")[0]
    install = {"roll": f"export ROLL=/path/to/ROLL   # at {ROLL_COMMIT[:12]}"}.get(
        target, "pip install -r requirements.txt"
    )
    proof = [] if isinstance(result.reward, Stub) else ["python prove.py"]
    values = {
        "NAME": name,
        "SOURCE": release(report.dialect),
        "TARGET": release(result.target),
        "VERSION": version("rlctl"),
        "FILE": file,
        "COMMANDS": "\n".join([install, *proof, "./run.sh"]),
        "DONE": _listed(_done(result)),
        "CHANGES": _listed(_changes(result.translation)),
        "CHECK": _listed(_to_check(result)),
    }
    return filled(f"README.{'zh' if language == 'zh' else 'en'}.md", values)


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"- {translated(item)}" for item in items)


def _done(result: Result) -> list[str]:
    moved, reward = result.moved, result.reward
    rows = said(
        "rows: {rows} read, {written} written to data/, {skipped} skipped",
        rows=moved.rows,
        written=moved.written,
        skipped=moved.skipped,
    )
    if result.mapped:
        rows = said(
            "rows: {rows} read; data/ has links to the files of the run, whose columns the config names",
            rows=moved.rows,
        )
    if isinstance(reward, Stub):
        return [rows, said("the reward is not ported: {reason}", reason=reward.reason)]
    copied = ", ".join(f"source/{place}" for _, place in reward.code.files)
    called = said("the reward {name} is unchanged in {files}; an adapter calls it", name=reward.name, files=copied)
    if not copied:
        modules = [part.settings["module"] for part in reward.parts if "module" in part.settings]
        called = said("an adapter scores by the rule {name}; rlctl_rules has its code", name=reward.name)
        if modules:
            called = said(
                "an adapter calls the reward {name} of the module {module}", name=reward.name, module=modules[0]
            )
    found = said("the config {file} names the new rows and the adapter", file=CONFIGS[_name(result)])
    return [rows, called, *_licences(reward), found]


def _licences(reward: Ported) -> list[str]:
    """Whose terms the copied files have."""
    found = licences(reward.code.files)
    named = ", ".join(f"source/{place}: {name}" for place, name in found.items() if name)
    without = ", ".join(f"source/{place}" for place, name in found.items() if not name)
    told = [said("licences of copied files: {names}", names=named)] if named else []
    return [*told, said("no licence was found for {names}", names=without)] if without else told


def _name(result: Result) -> str:
    return result.target.partition("@")[0]


def _changes(made: Translation) -> list[str]:
    found = []
    for _, what, note, advice in told(made):
        parts = [f"`{what}`:" if what else "", translated(note), f"({translated(advice)})" if advice else ""]
        found.append(" ".join(part for part in parts if part))
    return found or ["nothing that the conversion knows of"]


def _to_check(result: Result) -> list[str]:
    moved, reward, found = result.moved, result.reward, []
    if isinstance(reward, Stub):
        found.append("write the reward, set it in the config, and delete STUB.py: run.sh refuses to start before")
    if moved.skipped:
        found.append("data/skipped.jsonl lists the rows that were skipped, with the reasons")
    if moved.as_text:
        names = ", ".join(sorted(moved.as_text))
        found.append(said("the reward gets text for values that JSON lacks, such as dates, in {names}", names=names))
    if moved.binary:
        found.append(
            said("the reward gets no value of {names}, which are bytes", names=", ".join(sorted(moved.binary)))
        )
    if isinstance(reward, Ported):
        packages = [name for name in reward.code.packages if name != "trinity"]
        if packages:
            found.append(said("the reward imports {names}: install what provides them", names=", ".join(packages)))
        if "verl" in packages:
            found.append(
                "rewards of verl can differ between its releases: install the release of the run, without dependencies"
            )
        if _name(result) == "roll":
            found.append("ROLL drops prompts of 5 tokens or fewer, and those longer than prompt_length")
        found.append("run the proof, then a few steps in both frameworks, and compare reward and response length")
    return found
