"""``rlctl lsp`` with a real client over real standard streams, and what needs no protocol on its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from rlctl.cli.lsp import defaults, features, keys
from rlctl.cli.lsp.analysis import Analysis, analyse
from rlctl.cli.lsp.texts import Span, Text
from rlctl.common.report import Level

ROOT = Path(__file__).parents[2]
SCRIPT = """\
#!/bin/bash
# 中文说明😀
N=${RESPONSES:-5}
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=train.jsonl \\
    data.train_batch_size=60 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct \\
    actor_rollout_ref.actor.ppo_mini_batch_size=25 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=5 \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=5 \\
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1 \\
    'trainer.experiment_name="中文😀名"' actor_rollout_ref.rolout.temperature=1.0 \\
    actor_rollout_ref.rollout.n=$N \\
    trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.total_epochs=1
"""
YAML = """\
# a comment
# of three
# lines
data:
  train_files: &files [train.jsonl]
  val_files: *files
  train_batch_size: 64
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-0.5B-Instruct}
  actor:
    ppo_mini_batch_size: 16
    ppo_micro_batch_size_per_gpu: 4
  rollout:
    n: 8
    name: vllm
    temperature: ${data.train_batch_size}
algorithm:
  adv_estimator: grpo
trainer: {nnodes: 1, n_gpus_per_node: 4}
"""
WAIT = 60


class Editor:
    """A client that keeps the diagnostics that it is sent."""

    def __init__(self) -> None:
        self.client = LanguageClient("editor", "1")
        self.diagnostics: dict[str, list[types.Diagnostic]] = {}
        self._told = asyncio.Event()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.diagnostics[params.uri] = list(params.diagnostics)
            self._told.set()

    async def start(self, root: Path, locale: str = "en") -> types.InitializeResult:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RLCTL_LANGUAGE": locale}
        await self.client.start_io(sys.executable, "-m", "rlctl", "lsp", env=environment, cwd=str(root))
        folders = [types.WorkspaceFolder(root.as_uri(), "work")]
        asked = types.InitializeParams(types.ClientCapabilities(), workspace_folders=folders)
        found = await self.client.initialize_async(asked)
        self.client.initialized(types.InitializedParams())
        return found

    async def stop(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()

    def open(self, uri: str, text: str, language: str = "shellscript") -> None:
        self._told.clear()
        item = types.TextDocumentItem(uri, language, 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, uri: str, version: int, *changes: Any) -> None:
        self._told.clear()
        identifier = types.VersionedTextDocumentIdentifier(version, uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, list(changes)))

    async def told(self) -> None:
        await asyncio.wait_for(self._told.wait(), WAIT)

    async def actions(self, uri: str, diagnostic: types.Diagnostic) -> list[types.CodeAction]:
        context = types.CodeActionContext([diagnostic])
        document = types.TextDocumentIdentifier(uri)
        asked = types.CodeActionParams(document, diagnostic.range, context)
        found = await asyncio.wait_for(self.client.text_document_code_action_async(asked), WAIT)
        return [action for action in found or () if isinstance(action, types.CodeAction)]


def whole(text: str) -> types.TextDocumentContentChangeWholeDocument:
    return types.TextDocumentContentChangeWholeDocument(text)


def insertion(line: int, column: int, text: str) -> types.TextDocumentContentChangePartial:
    at = types.Position(line, column)
    return types.TextDocumentContentChangePartial(types.Range(at, at), text)


def applied(text: str, edits: list[types.TextEdit]) -> str:
    lines = text.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda edit: -edit.range.start.line):
        assert edit.range.start.character == edit.range.end.character == 0
        lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
    return "".join(lines)


def codes(diagnostics: list[types.Diagnostic], *levels: int) -> set[Any]:
    return {item.code for item in diagnostics if not levels or item.severity in levels}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = '{"prompt": "1+1", "reward_model": {"ground_truth": "2"}}\n' * 100
    (tmp_path / "train.jsonl").write_text(rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_script_is_repaired_by_what_the_server_says(folder: Path) -> None:
    async def repaired() -> None:
        editor, uri = Editor(), (folder / "run.sh").as_uri()
        found = await editor.start(folder)
        assert found.capabilities.position_encoding in (None, "utf-16")
        editor.open(uri, SCRIPT)
        await editor.told()
        shown = {item.code: item for item in editor.diagnostics[uri]}
        mistyped = shown["mistyped-key"]
        assert (mistyped.range.start.line, mistyped.severity) == (12, types.DiagnosticSeverity.Error)
        line = SCRIPT.splitlines()[12]
        before = line[: line.index("actor_rollout_ref.rolout")]
        assert mistyped.range.start.character == len(before.encode("utf-16-le")) // 2 == len(before) + 1

        text, version = SCRIPT, 1
        for code in ("mistyped-key", "mini-batch-uneven"):
            item = next(item for item in editor.diagnostics[uri] if item.code == code)
            action = (await editor.actions(uri, item))[0]
            assert action.kind == "quickfix"
            text, version = applied(text, action.edit.changes[uri]), version + 1  # type: ignore[union-attr, index]
            editor.change(uri, version, whole(text))
            await editor.told()
            assert code not in codes(editor.diagnostics[uri])
        assert "    actor_rollout_ref.actor.ppo_mini_batch_size=20 \\\n" in text
        assert not codes(editor.diagnostics[uri], types.DiagnosticSeverity.Error)

        at = types.TextDocumentPositionParams(types.TextDocumentIdentifier(uri), types.Position(8, 30))
        hover = await editor.client.text_document_hover_async(types.HoverParams(at.text_document, at.position))
        assert "batch.mini" in hover.contents.value  # type: ignore[union-attr]
        lines = types.Range(types.Position(0, 0), types.Position(20, 0))
        hints = await editor.client.text_document_inlay_hint_async(types.InlayHintParams(at.text_document, lines))
        assert next(hint.label for hint in hints or ()) == "= 300 responses, 3 optimizer steps"
        place = types.Position(13, SCRIPT.splitlines()[13].index("$N") + 1)
        defined = await editor.client.text_document_definition_async(types.DefinitionParams(at.text_document, place))
        assert (defined.uri, defined.range.start) == (uri, types.Position(2, 0))  # type: ignore[union-attr]
        folds = await editor.client.text_document_folding_range_async(types.FoldingRangeParams(at.text_document))
        assert [(fold.start_line, fold.end_line) for fold in folds or ()] == [(3, 14)]

        # Half-written: what was known stays, and the next key brings findings back.
        editor.change(uri, 9, whole(text.replace('"中文😀名"', '"中文')))
        await editor.told()
        assert codes(editor.diagnostics[uri], types.DiagnosticSeverity.Error)
        editor.change(uri, 10, whole(text), insertion(13, 4, "trainer.nodes=1 "))
        await editor.told()
        assert "mistyped-key" in codes(editor.diagnostics[uri])
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
        await editor.stop()

    asyncio.run(repaired())


def test_a_server_that_dies_is_started_again_and_speaks_chinese(folder: Path) -> None:
    async def restarted() -> None:
        editor, uri = Editor(), (folder / "run.yaml").as_uri()
        await editor.start(folder)
        server = editor.client._server
        assert server is not None
        server.kill()
        await server.wait()
        editor = Editor()
        await editor.start(folder, "zh")
        editor.open(uri, YAML.replace("ppo_mini_batch_size: 16", "ppo_mini_batch_size: 24"), "yaml")
        await editor.told()
        [uneven] = [item for item in editor.diagnostics[uri] if item.code == "mini-batch-uneven"]
        assert uneven.range.start == types.Position(10, 4)
        assert "个 prompt" in uneven.message or "条" in uneven.message
        other = (folder / "compose.yaml").as_uri()
        editor.open(other, "services:\n  web:\n    image: nginx\n", "yaml")
        await editor.told()
        assert editor.diagnostics[other] == []
        await editor.stop()

    asyncio.run(restarted())


# Without the protocol


def made(text: str, name: str) -> Analysis:
    return analyse(text, name)


@pytest.mark.parametrize("name", ["verl/grpo.yaml", "trinity/grpo.yaml", "roll/rlvr_megatron.yaml"])
def test_positions_of_keys_are_those_that_rlctl_reads(name: str) -> None:
    """The tolerant reader of lines finds every key of block mappings where the YAML parser finds it."""
    from rlctl.documents import read_yaml

    file = ROOT / "tests" / "adapters" / "examples" / name
    content = file.read_text(encoding="utf-8")
    document = read_yaml(content, str(file))
    found = {(key.span.line + 1, key.path[-1]): key for key in Text(content, str(file)).keys}
    marks = {path: at for path, at in document.marks.items() if path and isinstance(path[-1], str)}
    inline = [at.line for path, at in marks.items() for line in [content.splitlines()[at.line - 1]] if "{" in line]
    wanted = {(at.line, str(path[-1])): path for path, at in marks.items() if at.line not in inline}
    assert len(wanted) > 10
    for place, path in wanted.items():
        assert place in found, (place, path)
        assert found[place].path == tuple("*" if isinstance(part, int) else str(part) for part in path)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("data:\n  tr", {"train_files", "train_batch_size"}),
        ("actor_rollout_ref:\n  rollout:\n    n", {"n", "name"}),
        ("actor_rollout_ref:\n  rollout:\n    n: 5\n    n", {"name"}),
        ("algorithm:\n  adv_estimator: g", {"grpo", "gae"}),
        ("actor_rollout_ref:\n  actor:\n    use_kl_loss: ", {"true", "false"}),
        ("trainer:\n  nnodes: 1\na", {"algorithm", "actor_rollout_ref"}),
    ],
)
def test_keys_and_values_of_the_release_are_offered(typed: str, offered: set[str]) -> None:
    head = "trainer: {n_gpus_per_node: 4, project_name: x}\ncritic: {ppo_epochs: 1}\ndata: {max_prompt_length: 5}\n"
    analysis = made(head, "verl.yaml")
    assert analysis.dialect.startswith("verl@")
    analysis.text = Text(typed, "verl.yaml")
    lines = typed.split("\n")
    found = {offer.name for offer in features.completions(analysis, len(lines) - 1, len(lines[-1]))}
    assert offered <= found
    assert "n" not in found or lines[-2:] != ["    n: 5", "    n"]


def test_each_release_offers_its_own_keys() -> None:
    new, old = (keys.tree(name, "ppo") for name in ("verl@0.9", "verl@0.3"))
    assert "reward" in new[()]
    assert "reward" not in old[()]
    assert "objective" in keys.tree("rlctl@1", "")[("algorithm",)]
    assert set(keys.values("rlctl@1", "", "algorithm.advantage")) >= {"grpo", "gae"}


def test_names_are_followed_to_what_defines_them(folder: Path) -> None:
    analysis, lines = made(YAML, str(folder / "run.yaml")), YAML.splitlines()
    node, alias = lines[15].index("train_batch"), lines[5].index("*files") + 2
    assert features.definition(analysis, 15, node) == (analysis.name, Span(6, 2, 18))
    assert features.definition(analysis, 5, alias) == (analysis.name, Span(4, 15, 21))
    assert features.definition(analysis, 4, lines[4].index("train.jsonl")) == (
        str(folder / "train.jsonl"),
        Span(0, 0, 0),
    )
    assert features.definition(analysis, 0, 3) is None
    assert (0, 2, True) in list(analysis.text.folds())
    assert (7, 15, False) in list(analysis.text.folds())


def test_a_key_leads_to_its_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "FOLDER", folder / "cache")
    analysis, lines = made(YAML, str(folder / "run.yaml")), YAML.splitlines()
    found = features.definition(analysis, 6, lines[6].index("train_batch_size") + 3)
    assert found is not None
    file, span = Path(found[0]), found[1]
    told = file.read_text().splitlines()[span.line]
    assert told == "  train_batch_size: 1024"
    assert "  max_prompt_length: 512  # rlctl: data.max_prompt_tokens\n" in file.read_text()
    assert told[span.start : span.end] == "train_batch_size"
    assert "forward_prefetch: false" in file.read_text()  # of FSDP, which the file trains with
    assert defaults.is_written_here(str(file))
    assert not file.stat().st_mode & 0o222

    (folder / "base.yaml").write_text(
        "# the team's settings\ndata:\n  train_batch_size: 32\n  max_prompt_length: 100\n"
    )
    own = "defaults: [base, _self_]\n" + YAML
    included = features.definition(made(own, str(folder / "run.yaml")), 7, 5)
    assert included == (str(folder / "base.yaml"), Span(2, 2, 18))
    canonical = made("run: {name: x}\nbatch:\n  prompts_per_step: 8\n", str(folder / "own.yaml"))
    found = features.definition(canonical, 2, 4)
    assert found is not None
    assert "prompts_per_step: " in Path(found[0]).read_text().splitlines()[found[1].line]


def test_every_fix_that_is_offered_is_accepted_by_check(folder: Path) -> None:
    broken = YAML.replace("train_batch_size: 64", "train_batch_size: 60").replace(
        "mini_batch_size: 16", "mini_batch_size: 25"
    )
    broken = broken.replace("    temperature: ${data.train_batch_size}\n", "    temperatur: 0.7\n")
    analysis = analyse(broken, "run.yaml")
    offered = [(item, repair) for item in analysis.findings for repair in analysis.repairs(item)]
    assert {item.code for item, _ in offered} >= {"mistyped-key", "mini-batch-uneven"}
    for item, repair in offered:
        lines = broken.splitlines(keepends=True)
        for edit in reversed(repair.edits):
            lines[edit.start : edit.end] = edit.lines
        left = [found for found in analyse("".join(lines), "run.yaml").findings if found.level is not Level.NOTE]
        assert (item.code, item.key) not in {(found.code, found.key) for found in left}
        assert {(found.code, found.key) for found in left} <= {(found.code, found.key) for found in analysis.findings}


def test_a_key_that_is_typed_keeps_the_release_until_typing_pauses() -> None:
    before = made(YAML, "run.yaml")
    typed = analyse(YAML.replace("temperature:", "temperatur:"), "run.yaml", before=before)
    assert typed.keeps_release
    assert typed.dialect == before.dialect
    assert "mistyped-key" in {item.code for item in typed.findings}
    assert not analyse("data:\n  train_files: a\n", "run.yaml", before=before).keeps_release


def test_a_text_with_several_mistakes_has_a_fix_for_each(folder: Path) -> None:
    """None of them can be read with the others in it, so each is fixed by how it is spelled."""
    broken = SCRIPT.replace("estimator=grpo", "estimator=gropo").replace("train_batch_size=60", "train_batch_sice=60")
    broken = broken.replace(
        "nnodes=1", "nnodes=1 actor_rollout_ref.rollout.gpu_memory_utilization=1.6 data.shuffle=Ture"
    )
    broken = broken.replace("rollout.name=vllm", "rollout.name=vlm")
    analysis = analyse(broken, "run.sh", "verl")
    assert not analysis.is_read
    shown = {
        line.strip(" \\")
        for item in analysis.findings
        for repair in analysis.repairs(item)[:1]
        for edit in repair.edits
        for line in "".join(edit.lines).splitlines()
    }
    text = "\n".join(sorted(shown))
    for right in (
        "estimator=grpo",
        "train_batch_size=60",
        "gpu_memory_utilization=0.5",
        "shuffle=true",
        "rollout.name=vllm",
        ".rollout.temperature",
    ):
        assert right in text, (right, text)


def test_half_written_texts_keep_what_was_known() -> None:
    before = made(YAML, "run.yaml")
    for broken in (YAML + "trainer: [", YAML.replace("data:\n", "data\n", 1), YAML[: YAML.index("rollout:") + 3]):
        now = analyse(broken, "run.yaml", before=before)
        assert now.is_config
        assert now.dialect == before.dialect
        assert now.loaded is not None
    assert not made("on: [push]\njobs: {build: {steps: [", "ci.yaml").is_config
    assert not made("echo hello\nls -l\n", "other.sh").is_config
