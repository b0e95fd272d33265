"""The canonical config: what a user wants, typed, documented and strict. No torch, no Ray, no dialect.

    fields.py     how a section is declared: units, ranges, choices, intervals
    sections/     the declarations, one module for each thing a person sets
    root.py       Config: the sections together
    inspect.py    what the schema says of itself: every key with type, default, unit, range and help
    build.py      plain values -> Config, strictly, all problems at once
    dump.py       Config -> plain values, whole or sparse
    load.py       a canonical document -> Config with the source of every value; --set
    stages.py     stages merged per key
    reveal.py     a config with the secrets of the environment in it, for a run's own processes

To add a key: a field with a string under it in a section, a line in each dialect's table, a line in ``support.py``.
Tests fail and name the table that says nothing of it.
"""

from __future__ import annotations

from rlctl.config.build import build_config, config_from
from rlctl.config.dump import put_at, to_file, to_plain
from rlctl.config.load import EDITED, Loaded, Source, live_expressions, load, put, set_keys, with_value
from rlctl.config.reveal import revealed
from rlctl.config.root import Config
from rlctl.config.stages import Stage, combine, resolve_stages, stages_of

__all__ = [
    "EDITED",
    "Config",
    "Loaded",
    "Source",
    "Stage",
    "build_config",
    "combine",
    "config_from",
    "live_expressions",
    "load",
    "put",
    "put_at",
    "resolve_stages",
    "revealed",
    "set_keys",
    "stages_of",
    "to_file",
    "to_plain",
    "with_value",
]
