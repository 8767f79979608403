"""``show KEY --history``: what happened to a key, as a table that fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tenure.app import App
from tenure.cli import options as o
from tenure.cli.output import print_json, print_table
from tenure.cli.problems import Exit, complain, no_key
from tenure.core.history import Step

_ID_END = 6
"""Of a session's id the end: ids made at one time begin alike. `--json` has all of it."""
_COLUMNS = ("TIME", "GEN", "TRY", "WHAT", "WHO", "WHY")


async def tell_history(app: App, url: str | None, key: str, *, as_json: bool) -> int:
    """Print the history of a key; NotFound if there is none."""
    async with o.looking(app, url) as client:
        steps = await client.history(key)
        if not steps and await client.status(key) is None:
            raise no_key(key, app.namespace)
    if not steps:
        complain("the history is a moment behind, and tells nothing of this key yet: ask again")
    if as_json:
        print_json(steps)
    else:
        print_table(_COLUMNS, rows(steps))
    return Exit.OK


def rows(steps: Sequence[Step]) -> list[Sequence[object]]:
    """The table: the day only where it changes and is not today, sessions by the end of their ids."""
    out: list[Sequence[object]] = []
    day = f"{datetime.now(UTC).astimezone():%Y-%m-%d}"
    for step in steps:
        local = step.at.astimezone()
        shown, day = _time(local, day), f"{local:%Y-%m-%d}"
        what = step.what.replace("_", " ")
        out.append((shown, step.generation or "", step.attempt or "", what, step.who[-_ID_END:], _brief(step)))
    return out


def _time(local: datetime, day: str) -> str:
    clock = f"{local:%H:%M:%S}.{local.microsecond // 1000:03}"
    return clock if f"{local:%Y-%m-%d}" == day else f"{local:%m-%d} {clock}"


def _brief(step: Step) -> str:
    if step.what == "taken_over":
        return f"from {step.why.removeprefix('from ')[-_ID_END:]}"
    return step.why
