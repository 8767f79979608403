"""The account of ``tenure demo``.

The records' story against the workers' counters and the handles, and the table of both.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import urllib.request
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from tenure.cli.demo_crash import PROMISED_SECONDS, CrashStory
from tenure.cli.demo_ledger import Ledger
from tenure.cli.demo_story import Document, DocumentStory, MonitorStory, Role
from tenure.client import Client
from tenure.core.errors import RunSuperseded
from tenure.core.records import Last, Phase, Record

_FETCH_SECONDS = 5.0
_HANDLE_SECONDS = 10.0


class Counts(msgspec.Struct, frozen=True):
    """The same numbers from two sources: the records' story, and the sum of the workers' counters."""

    succeeded: int
    failed: int
    cancelled: int
    superseded: int
    bodies: int


class Metrics:
    """Counters of all workers, added up."""

    def __init__(self) -> None:
        self._sums: Counter[tuple[str, str]] = Counter()

    @classmethod
    async def scrape(cls, addresses: list[str]) -> Metrics:
        """Read ``/metrics`` of every worker."""
        self = cls()
        for text in await asyncio.gather(*(asyncio.to_thread(_fetch, f"{address}/metrics") for address in addresses)):
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    label = next(
                        (sample.labels[name] for name in ("where", "outcome", "kind") if name in sample.labels), ""
                    )
                    self._sums[sample.name, label] += int(sample.value)
        return self

    def by(self, name: str) -> dict[str, int]:
        """A counter's sums by where or outcome."""
        return {label: value for (sample, label), value in sorted(self._sums.items()) if sample == name}

    def total(self, name: str, *labels: str) -> int:
        """A counter's sum over some labels, over all where none is given."""
        return sum(value for label, value in self.by(name).items() if not labels or label in labels)

    def counts(self, cut_down: int = 0) -> Counts:
        """What the workers counted; the ``cut_down`` bodies of the one that was killed are told by nobody else."""
        return Counts(
            succeeded=self.total("tenure_outcomes_total", "succeeded", "rescheduled"),
            failed=self.total("tenure_outcomes_total", "failed"),
            cancelled=self.total("tenure_cancelled_total"),
            superseded=self.total("tenure_superseded_total"),
            bodies=self.total("tenure_run_seconds_count") + cut_down,
        )


def _fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=_FETCH_SECONDS) as answer:  # noqa: S310  (our own worker's http address)
        return str(answer.read().decode())


def counts_of(ledgers: list[Ledger]) -> Counts:
    """What the records told."""
    return Counts(
        succeeded=sum(ledger.count(Phase.SUCCEEDED) for ledger in ledgers),
        failed=sum(ledger.count(Phase.FAILED) for ledger in ledgers),
        cancelled=sum(ledger.count(Phase.CANCELLED) for ledger in ledgers),
        superseded=sum(ledger.superseded for ledger in ledgers),
        bodies=sum(ledger.bodies for ledger in ledgers),
    )


# -- stale writes ----------------------------------------------------------------------------------------------------


async def stale_writes(client: Client, story: DocumentStory, ledger: Ledger) -> list[str]:
    """Every sign that a superseded or cancelled run got something stored: one sentence each, none if all is well."""
    found = list(ledger.stale)
    for batch in (story.documents[start : start + 50] for start in range(0, len(story.documents), 50)):
        for signs in await asyncio.gather(*(_signs(client, document, ledger) for document in batch)):
            found += signs
    return found


async def _signs(client: Client, document: Document, ledger: Ledger) -> list[str]:
    record = (await client.stores.runs.read(document.key)).record
    refined = (await client.stores.runs.read(refined_key(document.key))).record
    if record is None or document.run is None or record.last is None:
        return [f"{document.key!r} has no outcome"]
    signs = []
    last = record.last
    if not record.run_id == last.run_id == document.run.run_id:
        signs.append(f"{document.key!r} does not hold its newest run's outcome")
    if document.cancelled and last.phase is not Phase.CANCELLED:
        signs.append(f"{document.key!r} was cancelled and is {last.phase.value}")
    if last.phase is Phase.SUCCEEDED and await _path_of(client, last) != document.expected_path:
        signs.append(f"{document.key!r} holds the result of a call that was replaced")
    signs += await _handle_signs(document, record)
    return signs + await _refined_signs(client, document, refined, ledger)


async def _handle_signs(document: Document, record: Record) -> list[str]:
    """The handles must say what the record says: the newest its outcome, older ones that they were superseded."""
    signs = []
    if document.run is not None:
        phase = (await document.run.wait(_HANDLE_SECONDS)).phase
        if phase != record.phase.value:
            signs.append(f"the handle of {document.key!r} says {phase}, its record {record.phase.value}")
    for run in document.older:
        try:
            status = await run.wait(_HANDLE_SECONDS)
        except RunSuperseded:
            continue
        signs.append(f"the handle of generation {run.generation} of {document.key!r} says {status.phase}")
    return signs


async def _refined_signs(client: Client, document: Document, refined: Record | None, ledger: Ledger) -> list[str]:
    """The second leg exists if and only if a first leg succeeded, and is about what that one read."""
    key = refined_key(document.key)
    winners = [
        fate
        for fate in ledger.runs.values()
        if fate.key == document.key and fate.outcome is not None and fate.outcome.phase is Phase.SUCCEEDED
    ]
    if (refined is None) != (not winners):
        return [
            f"{key!r} is {'missing' if refined is None else 'there'}, after {len(winners)} successes of {document.key!r}"
        ]
    if refined is None or len(winners) > 1 or refined.last is None or refined.phase is not Phase.SUCCEEDED:
        return []
    if refined.generation != 1 or await _path_of(client, refined.last) != msgspec.json.decode(winners[0].args)["path"]:
        return [f"{key!r} was made by a run that did not win"]
    return []


async def _path_of(client: Client, last: Last) -> str:
    data = bytes(last.result) if last.blob is None else await client.stores.blobs.get(last.blob)
    return str(msgspec.json.decode(data)["path"])


def refined_key(key: str) -> str:
    """Key of the second leg (see ``tenure.examples.documents``)."""
    return f"{key}/refined"


# -- the report ------------------------------------------------------------------------------------------------------


class Report(msgspec.Struct, kw_only=True):
    """Everything that the demonstration found out."""

    documents: int
    workers: int
    seconds: float
    tasks_per_second: float
    accepted: int
    succeeded: int
    failed: int
    cancelled: int
    superseded: int
    bodies: int
    replaced: dict[str, int]
    superseded_where: dict[str, int]
    cancelled_where: dict[str, int]
    monitor: dict[str, int]
    takeovers: dict[str, list[float]]
    repaired: dict[str, int]
    stale_writes_refused: int
    stale_writes_stored: int
    checks: dict[str, bool]
    problems: list[str]

    @property
    def ok(self) -> bool:
        """Whether every number adds up."""
        return all(self.checks.values())


def make_report(
    story: DocumentStory,
    monitor: MonitorStory,
    crash: CrashStory,
    ledgers: tuple[Ledger, Ledger],
    metrics: Metrics,
    *,
    stale: list[str],
    seconds: float,
    codes: list[int],
) -> Report:
    """Compare the sources and put everything into one struct."""
    told, counted = counts_of(list(ledgers)), metrics.counts(crash.cut_down)
    documents, watch = ledgers
    accepted = sum(len(ledger.runs) for ledger in ledgers)
    refined = sum(fate.key.endswith("/refined") for fate in documents.runs.values())
    asked = len(story.documents) + sum(story.replaced.values()) + refined
    came_back = monitor.old_schedules_seen()
    where = metrics.by("tenure_superseded_total")
    ended = told.succeeded + told.failed + told.cancelled
    return Report(
        documents=len(story.documents),
        workers=len(codes) - 1,
        seconds=round(seconds, 2),
        tasks_per_second=round((ended + told.superseded) / seconds, 1),
        accepted=accepted,
        succeeded=told.succeeded,
        failed=told.failed,
        cancelled=told.cancelled,
        superseded=told.superseded,
        bodies=told.bodies,
        replaced=story.replaced,
        superseded_where=where,
        cancelled_where=metrics.by("tenure_cancelled_total"),
        monitor={
            "checks": watch.count(Phase.SUCCEEDED),
            "reconfigured": len(monitor.schedule) - 1,
            "in_mid_check": monitor.hits,
            "old_schedule_came_back": came_back,
        },
        takeovers={name: [round(seconds, 2) for seconds in sorted(took)] for name, took in crash.took.items()},
        repaired={kind: number for kind, number in metrics.by("tenure_repairs_total").items() if number},
        stale_writes_refused=sum(number for label, number in where.items() if label != "head")
        + metrics.total("tenure_fenced_total"),
        stale_writes_stored=len(stale),
        checks={
            "every call and spawn is one accepted run": len(documents.runs) == asked,
            "accepted = succeeded + failed + cancelled + superseded": accepted == ended + told.superseded,
            "the workers' metrics say the same": counted == told,
            "no stale write was stored": not stale,
            "the old schedule never came back": not came_back,
            **_crash_checks(story, crash, metrics, codes),
        },
        problems=stale if counted == told else [*stale, f"records say {told}, workers say {counted}"],
    )


def _crash_checks(story: DocumentStory, crash: CrashStory, metrics: Metrics, codes: list[int]) -> dict[str, bool]:
    cut_down = sum(document.role is Role.CUT_DOWN for document in story.documents)
    took = sum(len(times) for times in crash.took.values())
    errors = metrics.total("tenure_errors_total") - metrics.total("tenure_errors_total", "lease")  # the frozen one's
    taken_over = metrics.total("tenure_takeovers_total")
    return {
        "every run of the killed and of the frozen worker was taken over once": took == taken_over == cut_down,
        f"each of them started elsewhere within {PROMISED_SECONDS:g} s": crash.in_time,
        "no process met an unexpected error": not errors,
        "all drained and left with 0, but the killed one": sorted(codes) == [-signal.SIGKILL, *[0] * (len(codes) - 1)],
    }


def print_report(report: Report) -> None:
    """The table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    for row in _rows(report):
        table.add_row(*row)
    for check, holds in report.checks.items():
        table.add_row("[green]holds[/]" if holds else "[red]FAILS[/]", "", check)
    for problem in report.problems[:20]:
        table.add_row("[red]problem[/]", "", problem)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _rows(report: Report) -> list[tuple[str, str, str]]:
    monitor = report.monitor
    split = _split
    return [
        (
            "documents",
            str(report.documents),
            f"on {report.workers} worker processes; one for the monitor, one killed, one frozen",
        ),
        ("runs accepted", str(report.accepted), f"{report.tasks_per_second:g} a second, in {report.seconds:g} s"),
        ("  succeeded", str(report.succeeded), f"of which the monitor's checks: {monitor['checks']}"),
        ("  failed", str(report.failed), "files that no retry can help: binary, broken, encrypted"),
        ("  cancelled", str(report.cancelled), split(report.cancelled_where)),
        ("  superseded", str(report.superseded), split(report.superseded_where)),
        ("bodies run", str(report.bodies), ""),
        ("replaced", str(sum(report.replaced.values())), split(report.replaced)),
        *(
            (f"taken over ({name})", str(len(times)), f"started again after {_from_to(times)} s")
            for name, times in report.takeovers.items()
            if times
        ),
        ("repaired", str(sum(report.repaired.values())), split(report.repaired)),
        ("reconfigured", str(monitor["reconfigured"]), f"of which in the middle of a check: {monitor['in_mid_check']}"),
        ("stale writes refused", str(report.stale_writes_refused), ""),
        ("stale writes stored", str(report.stale_writes_stored), ""),
        ("", "", ""),
    ]


def _from_to(times: Sequence[float]) -> str:
    return f"{times[0]:g}" + (f" to {times[-1]:g}" if times[-1] > times[0] else "")


def _split(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items() if number)
