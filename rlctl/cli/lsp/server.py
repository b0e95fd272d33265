"""The server: requests of an editor, answered from the analysis of each open text.

A change is analysed once no further one waits. Hints and fixes that need values to be tried come when typing pauses, or when the
editor asks for them. The server keeps nothing that the editor does not send again, so one that was ended can be started again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument
from pygls.workspace.position_codec import ServerTextPosition, ServerTextRange

from rlctl import __version__
from rlctl.cli.lsp import defaults, features
from rlctl.cli.lsp.analysis import Analysis, Edit, Repair, analyse
from rlctl.cli.lsp.texts import Span
from rlctl.common.language import VARIABLE
from rlctl.common.report import Finding, Level

PAUSE = 0.6
"""Seconds without a change after which values are tried for hints."""
GATHERED = 0.01
"""Seconds in which further changes are waited for."""
SEVERITIES = {
    Level.ERROR: types.DiagnosticSeverity.Error,
    Level.WARNING: types.DiagnosticSeverity.Warning,
    Level.NOTE: types.DiagnosticSeverity.Information,
}
LOG = logging.getLogger(__name__)


class ConfigServer(LanguageServer):
    """A language server with the analyses of open texts."""

    def __init__(self, runner: str = "") -> None:
        super().__init__("rlctl", __version__)
        self.runner = runner
        self.analyses: dict[str, Analysis] = {}
        self._pending: dict[str, asyncio.Task[None]] = {}
        self._is_warm = False
        self._published: dict[str, dict[str, list[types.Diagnostic]]] = {}
        """By text that is checked, the diagnostics of each file."""

    def schedule(self, uri: str) -> None:
        """Analyse a text once no change waits any more."""
        if (waiting := self._pending.pop(uri, None)) is not None:
            waiting.cancel()
        self._pending[uri] = asyncio.get_running_loop().create_task(self._later(uri))

    async def _later(self, uri: str) -> None:
        await asyncio.sleep(GATHERED)
        made = self.refresh(uri)
        if not self._is_warm:  # schemas and tables stay: no later search for garbage goes through them again
            self._is_warm = True
            gc.collect()
            gc.freeze()
        if made is None or not (made.keeps_release or any(item.candidates or item.own_fixes for item in made.findings)):
            return
        await asyncio.sleep(PAUSE)
        loop = asyncio.get_running_loop()
        whole = await loop.run_in_executor(None, self._whole, made)
        if whole is not None and self.analyses.get(uri) is made:
            self.analyses[uri] = whole
            self.publish(uri, whole)

    def _whole(self, made: Analysis) -> Analysis | None:
        try:
            return analyse(made.text.content, made.name, self.runner, before=made, tries_values=True)
        except Exception:
            LOG.exception("cannot try values")
            return None

    def refresh(self, uri: str) -> Analysis | None:
        """Analyse a text as it is now, and publish what is found; a defect of rlctl leaves what was known."""
        if defaults.is_written_here(name_of(uri)):
            return None
        document = self.workspace.get_text_document(uri)
        try:
            made = analyse(document.source, name_of(uri), self.runner, before=self.analyses.get(uri))
        except Exception:
            LOG.exception("cannot analyse %s", uri)
            return None
        self.analyses[uri] = made
        self.publish(uri, made)
        return made

    def publish(self, uri: str, made: Analysis) -> None:
        """Publish findings, each in the file that it is about."""
        document = self.workspace.get_text_document(uri)
        found: dict[str, list[types.Diagnostic]] = {uri: []}
        for item in made.findings:
            elsewhere = item.at is not None and item.at.file != made.name and Path(item.at.file).is_file()
            if item.at is not None and elsewhere:
                other = from_fs_path(str(Path(item.at.file).resolve())) or uri
                found.setdefault(other, []).append(_in_other_file(item))
            else:
                found[uri].append(_diagnostic(item, range_of(document, made.place_of(item))))
        for other in self._published.get(uri, {}).keys() - found.keys():
            found[other] = []
        self._published[uri] = found
        for other in found:
            everything = [item for by_file in self._published.values() for item in by_file.get(other, ())]
            version = document.version if other == uri else None
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(other, everything, version))
        self._published[uri] = {other: items for other, items in found.items() if items or other == uri}

    def close(self, uri: str) -> None:
        """Forget a text that the editor closed, and what was found in it."""
        if (waiting := self._pending.pop(uri, None)) is not None:
            waiting.cancel()
        self.analyses.pop(uri, None)
        for other in self._published.pop(uri, {}):
            left = [item for by_file in self._published.values() for item in by_file.get(other, ())]
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(other, left))

    def known(self, uri: str) -> tuple[TextDocument, Analysis] | None:
        """A text with its analysis, made now if a change waits; None for a text that is no config."""
        document = self.workspace.get_text_document(uri)
        made = self.analyses.get(uri)
        if made is None or made.text.content != document.source:
            made = self.refresh(uri)
        return (document, made) if made is not None and made.is_config else None


def name_of(uri: str) -> str:
    """The path of a text; of one that was never saved its name."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return path or uri.rpartition("/")[2] or uri


def range_of(document: TextDocument, span: Span) -> types.Range:
    """A span in the units of the editor, which are UTF-16 unless it asked for others."""
    start, end = (ServerTextPosition(span.line, column) for column in (span.start, span.end))
    return document.range_to_client_units(ServerTextRange(start, end))


def place_in(document: TextDocument, position: types.Position) -> tuple[int, int]:
    """Line and column of an editor's position, in characters."""
    found = document.position_from_client_units(position)
    return found.line, found.character


def _diagnostic(item: Finding, place: types.Range) -> types.Diagnostic:
    told = f"{item.message}\n→ {item.advice}" if item.advice else item.message
    return types.Diagnostic(place, told, severity=SEVERITIES[item.level], code=item.code, source="rlctl")


def _in_other_file(item: Finding) -> types.Diagnostic:
    line = max(0, (item.at.line if item.at is not None else 0) - 1)
    return _diagnostic(item, types.Range(types.Position(line, 0), types.Position(line, 1000)))


def _text_edits(edits: Sequence[Edit]) -> list[types.TextEdit]:
    return [
        types.TextEdit(types.Range(types.Position(edit.start, 0), types.Position(edit.end, 0)), "".join(edit.lines))
        for edit in edits
    ]


def _action(uri: str, repair: Repair, diagnostic: types.Diagnostic, *, preferred: bool) -> types.CodeAction:
    return types.CodeAction(
        title=repair.title,
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[diagnostic],
        is_preferred=preferred,
        edit=types.WorkspaceEdit(changes={uri: _text_edits(repair.edits)}),
    )


def server(runner: str = "") -> ConfigServer:
    """A server that is not started yet.

    Args:
        runner: the framework that runs the configs; empty if that is the framework of each file.
    """
    made = ConfigServer(runner)

    @made.feature(types.INITIALIZE)
    def initialize(ls: ConfigServer, params: types.InitializeParams) -> None:
        if VARIABLE not in os.environ and (params.locale or "").lower().startswith("zh"):
            os.environ[VARIABLE] = "zh"
        roots = [folder.uri for folder in params.workspace_folders or ()] or [params.root_uri or ""]
        folder = to_fs_path(roots[0]) if roots[0].startswith("file:") else None
        if folder:  # from where relative paths of configs start
            with suppress(OSError):
                os.chdir(folder)

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(ls: ConfigServer, params: types.DidOpenTextDocumentParams) -> None:
        ls.schedule(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(ls: ConfigServer, params: types.DidChangeTextDocumentParams) -> None:
        ls.schedule(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(ls: ConfigServer, params: types.DidSaveTextDocumentParams) -> None:
        for uri in list(ls.analyses):  # which may include what was saved
            ls.schedule(uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: ConfigServer, params: types.DidCloseTextDocumentParams) -> None:
        ls.close(params.text_document.uri)

    _add_reading(made)
    _add_acting(made)
    return made


def _add_reading(made: ConfigServer) -> None:
    """What an editor shows of a text."""

    @made.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(ls: ConfigServer, params: types.HoverParams) -> types.Hover | None:
        if (known := ls.known(params.text_document.uri)) is None:
            return None
        document, analysis = known
        found = features.hover(analysis, *place_in(document, params.position))
        if found is None:
            return None
        content = types.MarkupContent(types.MarkupKind.Markdown, found[1])
        return types.Hover(content, range_of(document, found[0]))

    @made.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    def hints(ls: ConfigServer, params: types.InlayHintParams) -> list[types.InlayHint]:
        if (known := ls.known(params.text_document.uri)) is None:
            return []
        document, analysis = known
        first, last = params.range.start.line, params.range.end.line
        return [
            types.InlayHint(_end_of(document, analysis, hint.line), hint.text, padding_left=True)
            for hint in features.hints(analysis)
            if first <= hint.line <= last
        ]

    @made.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
    def folding(ls: ConfigServer, params: types.FoldingRangeParams) -> list[types.FoldingRange]:
        if (known := ls.known(params.text_document.uri)) is None:
            return []
        kinds = {True: types.FoldingRangeKind.Comment, False: types.FoldingRangeKind.Region}
        return [types.FoldingRange(start, end, kind=kinds[comment]) for start, end, comment in known[1].text.folds()]

    @made.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(ls: ConfigServer, params: types.DefinitionParams) -> types.Location | None:
        if (known := ls.known(params.text_document.uri)) is None:
            return None
        document, analysis = known
        found = features.definition(analysis, *place_in(document, params.position))
        if found is None:
            return None
        name, span = found
        if name == analysis.name:
            return types.Location(params.text_document.uri, range_of(document, span))
        start, end = types.Position(span.line, span.start), types.Position(span.line, span.end)  # keys are ASCII
        return types.Location(from_fs_path(name) or "", types.Range(start, end))


def _end_of(document: TextDocument, analysis: Analysis, line: int) -> types.Position:
    content = analysis.text.lines[line] if line < len(analysis.text.lines) else ""
    end = len(content.rstrip().removesuffix("\\").rstrip())
    return range_of(document, Span(line, end, end)).start


def _add_acting(made: ConfigServer) -> None:
    """What changes a text."""
    triggers = types.CompletionOptions(trigger_characters=[".", "=", ":", " "])

    @made.feature(types.TEXT_DOCUMENT_COMPLETION, triggers)
    def completion(ls: ConfigServer, params: types.CompletionParams) -> types.CompletionList:
        if (known := ls.known(params.text_document.uri)) is None:
            return types.CompletionList(False, [])
        document, analysis = known
        after = "=" if analysis.text.is_script else ": "
        inside = "." if analysis.text.is_script else ":"
        offers = features.completions(analysis, *place_in(document, params.position))
        return types.CompletionList(False, [_item(offer, after, inside) for offer in offers])

    options = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])

    @made.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    @made.thread()
    def actions(ls: ConfigServer, params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        analysis = ls.analyses.get(uri)
        document = ls.workspace.get_text_document(uri)
        if analysis is None or not analysis.is_config or analysis.text.content != document.source:
            return []
        found: list[types.CodeAction] = []
        for item in analysis.findings:
            place = range_of(document, analysis.place_of(item))
            if place.start.line <= params.range.end.line and place.end.line >= params.range.start.line:
                diagnostic = _diagnostic(item, place)
                repairs = analysis.repairs(item)
                found += [_action(uri, repair, diagnostic, preferred=len(repairs) == 1) for repair in repairs]
        return found


def _item(offer: features.Offer, after: str, inside: str) -> types.CompletionItem:
    if offer.is_value:
        return types.CompletionItem(offer.name, kind=types.CompletionItemKind.Value)
    kind = types.CompletionItemKind.Module if offer.is_section else types.CompletionItemKind.Property
    return types.CompletionItem(
        offer.name, kind=kind, insert_text=f"{offer.name}{inside if offer.is_section else after}"
    )
