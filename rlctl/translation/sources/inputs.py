"""What a reader is given: a document with the changes that belong to it, and how a launch script is to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from rlctl.common.records import record
from rlctl.common.report import Finding
from rlctl.documents import Document, Override


@record
class Input:
    """A document and the changes that belong to it."""

    document: Document
    overrides: Sequence[Override] = ()
    """In order, before those of the command line."""
    dialect: str = ""
    """The dialect, where something other than the keys says it."""
    kind: str = ""
    """The dialect's kind of file, where something other than the keys says it."""
    reason: str = ""
    """What says so."""
    findings: Sequence[Finding] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set for this source only."""
    taken: frozenset[str] = frozenset()
    """Overrides of the command line that are in the document already, because its script passed them on."""
    program: str = ""
    """The program that a launch script starts, as its module or path."""
    since: str = ""
    """The first release that has the program of a launch script."""


@record
class Script:
    """How a launch script is read."""

    arguments: Sequence[str] = ()
    """What follows it on the command line."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set for it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What is set around it."""
    traced: bool = False
    """Whether it is run in isolation instead of read."""
