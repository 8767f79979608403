"""``demo``: what it can do, on real documents, in less than a minute. See ``demo_run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenure.cli import options as o
from tenure.cli.output import print_json
from tenure.cli.problems import Exit, complain


def demo(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="Whose documents. Default: /usr/share/doc.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=7, help="At most so many documents.")] = 300,
    as_json: o.AsJson = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the store and the workers' logs.", show_default=False)
    ] = False,
) -> int:
    """Extract real documents, kill and freeze workers, replace and cancel in mid-run; prove that no stale copy wrote anything."""
    from tenure.cli.demo_report import print_report
    from tenure.cli.demo_run import play

    report = play(folder, limit, keep=keep)
    print_json(report) if as_json else print_report(report)
    if not report.ok:
        complain(
            "the demonstration's numbers do not add up: " + "; ".join(c for c, ok in report.checks.items() if not ok)
        )
    return Exit.OK if report.ok else Exit.FAILED
