"""``rlctl review``: what a pull request changes in the meaning, the findings, the memory and the time of configs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rlctl.cli import arguments, diagnostics, output
from rlctl.common.errors import ExitCode, RunError
from rlctl.common.messages import text


def review(
    base: Annotated[
        str,
        typer.Argument(metavar="BASE", help="The branch or commit that the change is for.", show_default=False),
    ] = "",
    head: Annotated[str, typer.Argument(metavar="HEAD", help="The changed branch or commit.")] = "HEAD",
    *,
    paths: Annotated[
        list[str],
        typer.Option("--path", metavar="PATH", help="Review only this file or folder of the repository. Repeatable."),
    ] = [],  # noqa: B006 - typer reads it, nothing changes it
    runner: Annotated[
        arguments.Runner | None,
        typer.Option(help="Framework that runs the configs (default: that of each file)."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="MACHINES", help="Compare memory and step time on these: [b]2x8:H100[/b]."),
    ] = None,
    ignored: Annotated[
        list[str], typer.Option("--ignore", metavar="CODE", help="Do not report findings of this code. Repeatable.")
    ] = [],  # noqa: B006
    link: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Where the files of HEAD are shown, as [b]https://github.com/OWNER/NAME/blob/COMMIT[/b]: lines become links.",
        ),
    ] = "",
    fail_on_error: Annotated[
        bool, typer.Option("--fail-on-error", help="Exit with 1 if a config has new errors or no longer fits.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the Markdown to this file.")
    ] = None,
    code_quality: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the new findings as a code quality report of GitLab."),
    ] = None,
    post: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Post a review that [b]-o[/b] wrote as the comment of the pull request of this CI job, and exit.",
        ),
    ] = None,
    force: arguments.Force = False,
    json: arguments.Json = False,
) -> None:
    """Review a pull request: what it changes in the meaning of configs, new findings, memory and step time before and after.

    Reads two commits of the git repository around the current folder, from where the branches parted, and prints Markdown for
    one comment. Includes configs that did not change themselves, but are built from a file that did. Nothing of the commits is
    executed, and no file outside them is read. Exits 0 whatever it finds, unless [bold]--fail-on-error[/bold] is given.

    [bold]--post FILE[/bold] creates or updates the comment from GitHub Actions (GITHUB_TOKEN) or GitLab CI (GITLAB_TOKEN).

    [bold]Examples[/bold]

    [cyan]rlctl review main[/cyan]

    [cyan]rlctl review origin/main HEAD --path configs --cluster 2x8:H100 -o review.md[/cyan]
    """
    if post is not None:
        _post(post)
        return
    from rlctl.checks.silence import refuse_unknown
    from rlctl.cli.review import comparing, markdown
    from rlctl.cli.review.git import Repository
    from rlctl.common.errors import UsageError
    from rlctl.common.report import Level

    if not base:
        raise UsageError("the branch that the change is for is missing", hint="name it: rlctl review main")
    refuse_unknown(ignored)
    asked = comparing.Asked(
        runner or "", arguments.cluster_of(cluster) if cluster else None, [path.strip("/") for path in paths], ignored
    )
    made = comparing.review(Repository(Path.cwd()), base, head, asked, cluster or "")
    if code_quality is not None:
        output.file(code_quality, output.as_json(comparing.code_quality(made)) + "\n", force=force)
    if json:
        output.data(made.as_data())
    content = markdown.comment(made, markdown.Links(link))
    if out is not None:
        output.file(out, content, force=force)
    elif not json:
        output.text(content)
    failed = fail_on_error and any(item.level is Level.ERROR for item in made.configs)
    arguments.finish(ExitCode.FAILED if failed else ExitCode.OK)


def _post(file: Path) -> None:
    from rlctl.cli.review import posting

    try:
        diagnostics.note(text("review-posted", what=posting.post(file, os.environ)))
    except posting.NotPosted as error:
        raise RunError(str(error)) from None
