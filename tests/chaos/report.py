"""What a run amounts to, for people: a table of figures, and the violations."""

from __future__ import annotations

import math
import statistics
from collections import Counter

from rich.console import Console
from rich.table import Table

from tests.chaos.promptness import Takeover
from tests.history.check_counts import fenced, sums
from tests.history.evidence import CHIME, Evidence, Fault, Violation, answered
from tests.history.known import Known


def spread(values: list[float], unit: str = " s") -> str:
    """Number, median, 99th percentile and maximum."""
    if not values:
        return "none"
    p99 = values[min(len(values) - 1, int(len(values) * 0.99))]
    return (
        f"{len(values)}: median {statistics.median(values):.2f}{unit}, p99 {p99:.2f}{unit}, max {values[-1]:.2f}{unit}"
    )


def table_of(
    title: str, evidence: Evidence, faults: list[Fault], taken: list[Takeover], violations: list[Violation]
) -> Table:
    """The figures of a run."""
    table = Table(title=title, show_header=False, title_justify="left")
    kinds = Counter(
        f"{fault.target.rstrip('0123456789')} {fault.kind}".replace("server server", "server") for fault in faults
    )
    outcomes = Counter(
        r.last.phase for r in {r.last.run_id: r for r in evidence.revisions if r.last}.values() if r.last
    )
    asks = Counter(f"{ask.ask} {ask.told.split(':')[0]}" for ask in answered(evidence.asks))
    known = Known(evidence)
    judged = [one for one in taken if one.bound < math.inf]
    unread = {what: of.unread for what, of in sums(known).items() if of.unread}
    alone = [one for one in judged if not one.hurt]
    rows = {
        "faults": f"{sum(fault.kind == 'kill' for fault in faults)} kills; {_counted(kinds)}",
        "keys": str(len({r.key for r in evidence.revisions})),
        "runs": str(len({r.run_id for r in evidence.revisions if r.run_id})),
        "revisions": f"{len(evidence.revisions)} seen, {evidence.missing} seen by nobody",
        "bodies": str(sum(1 for line in evidence.bodies if line.what == "start")),
        "asks": _counted(asks),
        "outcomes": _counted(outcomes),
        "limits": f"{sum(1 for line in evidence.bodies if line.allowed)} bodies under one, {len(evidence.limits)} writes",
        "ticks": str(len(known.run_ids.get(CHIME, ()))),
        "inbox": f"{len({line.id for line in evidence.commands if line.acked})} commands acknowledged",
        "superseded": _counted(Counter(evidence.counts.superseded)),
        "counted": ", ".join(f"{what} {of.counted} of {of.stored - of.excused}" for what, of in sums(known).items()),
        "  unread of": f"{len(evidence.unread)} processes killed with -9, at most: {_counted(Counter(unread))}",
        "fenced": "counted {}, told to the history {}, {} of them by those".format(*fenced(evidence)),
        "ended in order": _counted(
            Counter(f"{d.role} with {d.code}" for d in evidence.deaths if d.asked_at and d.how == "term")
        ),
        "at rest after": f"{evidence.rest_seconds:.1f} s" if evidence.quiet else "never",
        "takeovers": spread([one.seconds for one in taken]),
        "  servers left alone": spread([one.seconds for one in judged]),
        "  and nobody else hurt": spread([one.seconds for one in alone]),
        "  of what was allowed": spread(sorted(one.seconds / one.bound for one in judged), ""),
        "violations": f"{len(violations)}  {_counted(Counter(v.invariant for v in violations))}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def too_few(evidence: Evidence, *, keys: int, exact: str = "") -> str:
    """Why the run has shown too little, empty if it has not; with no least number of ``keys`` nothing is too little.

    ``exact``: of "ends" the counters must have been held to the records, and some process must have ended before the
    others; of "fenced" to what the history was told.
    """
    if not keys:
        return ""
    seen = {
        "keys": (len({r.key for r in evidence.revisions}), keys),
        "bodies under a limit": (sum(1 for line in evidence.bodies if line.allowed), 1),
        "ticks": (len({r.run_id for r in evidence.revisions if r.key == CHIME and r.run_id}), 2),
        "commands acknowledged": (sum(line.acked and not line.refusal for line in evidence.commands), 1),
        "commands rejected": (len(evidence.rejected), 1),
    }
    if exact == "fenced":
        seen["runs fenced"] = (sum(evidence.counts.fenced.values()) if evidence.told_exactly else 0, 1)
    if exact == "ends":
        names = [death.name for death in evidence.deaths if death.ready and death.role in {"worker", "supervisor"}]
        seen |= {
            "looks at what was to be counted exactly": (int(evidence.counted_exactly and not evidence.missing), 1),
            "runs superseded": (sum(evidence.counts.superseded.values()), 1),
            "runs cancelled": (sum(evidence.counts.cancelled.values()), 1),
            "ends of workers and supervisors that are followed by a new start": (len(names) - len(set(names)), 1),
        }
    return ", ".join(f"only {number} {what}" for what, (number, least) in seen.items() if number < least)


def show(table: Table, violations: list[Violation], most: int = 40) -> None:
    """Print the table, and the violations if there are any."""
    console = Console(width=140)
    console.print(table)
    for violation in violations[:most]:
        console.print(f"{violation.invariant}: {violation.key}: {violation.what}", markup=False, highlight=False)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.most_common()) or "none"
