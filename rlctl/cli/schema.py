"""``rlctl schema``: the canonical config as a JSON Schema."""

from __future__ import annotations

from rlctl.cli import output


def schema() -> None:
    """Print the JSON Schema of rlctl's config, for editors and other tools.

    With the schema an editor completes keys, shows their help and marks errors while you type. Name it in a comment of the
    config: the published schema, as the presets do, or a file that this command wrote.

    [bold]Examples[/bold]

    [cyan]rlctl schema > rlctl.schema.json[/cyan]

    [cyan]# yaml-language-server: $schema=rlctl.schema.json[/cyan]
    """
    from rlctl.config.schema import json_schema

    output.data(json_schema())
