"""``limits``: limits and rates that are in use. It changes nothing."""

from __future__ import annotations

from tenure.bounds import BoundRow, Place, bound_rows
from tenure.cli import options as o
from tenure.cli.output import print_json, print_table
from tenure.cli.problems import Exit

_NAMED = 3


def limits(
    *,
    actor: o.OnlyActor = None,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """List the limits and rates in use: how many they allow, who has their places, how many runs wait, and since when.

    One line for each value of the argument that a limit goes by, the most waited for first. IN USE are places that are taken, of a
    rate the starts that count yet; HELD BY the keys that are named as holders, with + where the place is kept for a run that a
    worker has yet to take up. A worker passes its places on among its own runs without writing each pass down, so a name may be
    of the run before. What a crash left of a place, supervisors give back; what one key waits for, `tenure show KEY` tells.
    """
    the_app = o.app_for(namespace, app)
    rows = o.ask(the_app, url, lambda client: bound_rows(client.stores, actor))
    if as_json:
        print_json(rows)
    else:
        print_table(
            ("KIND", "OF", "ALLOWS", "IN USE", "WAITING", "SINCE", "HELD BY"),
            ((row.kind, row, _allows(row), row.in_use, row.waiting, row.since, _held_by(row)) for row in rows),
        )
    return Exit.OK


def _allows(row: BoundRow) -> str:
    number = "?" if row.n is None else row.n
    return f"{number} at once" if row.seconds is None else f"{number} in {row.seconds:.15g} s"


def _held_by(row: BoundRow) -> str:
    def name(place: Place) -> str:
        return place.key if place.session is not None else f"{place.key}+"

    more = f" and {len(row.held_by) - _NAMED} more" if len(row.held_by) > _NAMED else ""
    return ", ".join(map(name, row.held_by[:_NAMED])) + more
