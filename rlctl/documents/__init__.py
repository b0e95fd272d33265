"""Text to and from values, with positions and comments: YAML and Hydra overrides.

The only package that knows a YAML library. What it reads is data: nothing is evaluated, imported or executed.
"""

from __future__ import annotations

from rlctl.documents.document import Comment, Document
from rlctl.documents.files import read_text, write_atomic
from rlctl.documents.interpolation import Resolved, escaped, resolve
from rlctl.documents.overrides import Override, apply_overrides, read_overrides
from rlctl.documents.paths import KeyPath, dotted, parse_dotted
from rlctl.documents.yaml_edit import edit_yaml
from rlctl.documents.yaml_read import read_yaml
from rlctl.documents.yaml_write import write_yaml

__all__ = [
    "Comment",
    "Document",
    "KeyPath",
    "Override",
    "Resolved",
    "apply_overrides",
    "dotted",
    "edit_yaml",
    "escaped",
    "parse_dotted",
    "read_overrides",
    "read_text",
    "read_yaml",
    "resolve",
    "write_atomic",
    "write_yaml",
]
