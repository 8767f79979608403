"""Counters, gauges and histograms of one process, exposed through prometheus-client.

Counting is a dictionary update (0.2 us; prometheus-client's own labelled counters cost about 1.5 us, and a task touches
eight of them); the families are built when somebody scrapes. Label sets are closed and pre-set to zero; never a label
by key. What is counted of an actor that this process does not know (a run of another deployment's, a message that is no
wake-up) is told as actor ``other``: names that only others know must not add series here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tenure.clock import Clock
from tenure.core.commands import Command
from tenure.core.errors import OutcomeUnknown, TenureError, Unavailable
from tenure.core.records import Count

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_Got = TypeVar("_Got")
OTHER = "other"
HEAD_OUTCOMES = (
    "won",
    "takeover",
    "reclaimed",
    "exhausted",
    "superseded",
    "finished",
    "cancelled",
    "absent",
    "not_due",
    "busy",
    "parked",
    "held",
    "paused",
    "unready",
    "dropped",
    "unknown_actor",
    "handed_over",
    "newer_schema",
    "encrypted",
    "unreadable",
    "foreign",
)
TAIL_OUTCOMES = ("succeeded", "rescheduled", "retried", "failed", "snoozed", "handed_back", "cancelled")
SUPERSEDED_WHERE = ("head", "tail", "retry", "reschedule")
CANCELLED_WHERE = ("waiting", "running", "forced")
REPAIRS = (
    "blob",
    "session",
    "takeover",
    "wakeup",
    "signal",
    "stop",
    "forced",
    "evicted",
    "previous",
    "outbox",
    "seen",
    "stray",
    "foreign",
    "schedule",
    "place",
    "reserved",
    "parked",
    "resumed",
)
COMMAND_KINDS = ("submit", "replace", "cancel", "other")
COMMAND_OUTCOMES = ("applied", "kept", "rejected", "put_off")
REJECTED_WHY = (
    "malformed",
    "header",
    "key",
    "time",
    "arguments",
    "too_large",
    "unknown_actor",
    "foreign",
    "live",
    "crowded",
    "unreadable",
)
OPERATIONS = (*(command.__name__.lower() for command in get_args(Command)), "limit", "rate")
ERRORS = ("handler", "keeper", "command", "server", "lease")
CALLS = {
    "submit": ("accepted", "kept", "rejected", "unavailable", "unknown"),
    "replace": ("accepted", "kept", "rejected", "unavailable", "unknown"),
    "cancel": ("cancelled", "stopping", "finished", "not_found", "rejected", "unavailable", "unknown"),
}


class Histogram:
    """Counts by bucket (seconds), with sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Buckets as Prometheus has them."""
        out: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*BUCKETS, math.inf), self.counts, strict=True):
            seen += count
            out.append(("+Inf" if bound == math.inf else repr(bound), seen))
        return out


class Metrics(Collector):
    """Everything one process counts. Written by its loop, read by whoever scrapes."""

    def __init__(self, version: str, actors: Iterable[str], queues: Iterable[str]) -> None:
        self._version = version
        self._queues = tuple(queues)
        actors = tuple(actors)
        self.claims: dict[tuple[str, str], int] = _zero(actors, HEAD_OUTCOMES)
        self.outcomes: dict[tuple[str, str], int] = _zero(actors, TAIL_OUTCOMES)
        self.superseded: dict[tuple[str, str], int] = _zero(actors, SUPERSEDED_WHERE)
        self.cancelled: dict[tuple[str, str], int] = _zero(actors, CANCELLED_WHERE)
        self.fenced: dict[str, int] = _one(actors)
        self.takeovers: dict[str, int] = _one(actors)
        self.in_progress: dict[str, int] = _one(actors)
        self.errors: dict[str, int] = _one(ERRORS)
        self.conflicts: dict[str, int] = _one(OPERATIONS)
        self.repairs: dict[str, int] = _one(REPAIRS)
        self.commands: dict[tuple[str, str], int] = _zero(COMMAND_KINDS, COMMAND_OUTCOMES)
        self.rejections: dict[str, int] = _one(REJECTED_WHY)
        self.run_seconds = _histograms_of(actors)
        self.queue_wait = _histograms_of(self._queues)
        self.lateness = _histograms_of(self._queues)
        self.pending: dict[str, int] = _one(self._queues)
        self.unserved: dict[str, int] = {}
        self.swept_records = 0
        self.swept_seconds = 0.0
        self.swept_at = 0.0
        self._actors = actors
        self.stuck: Callable[[], dict[str, int]] = dict
        self.trusted_until: Callable[[], float] = lambda: 0.0
        self.beside: Metrics | None = None
        """Of a supervisor in the same process: what both count is told as one."""
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def conflict(self, operation: str) -> None:
        """A CAS was refused."""
        self.conflicts[operation] = self.conflicts.get(operation, 0) + 1

    def count(self, counts: Iterable[Count]) -> None:
        """What became of runs by a write of this process."""
        for told in counts:
            family = self.superseded if told.what == "superseded" else self.cancelled
            family[told.actor, told.where] += told.number

    def look_after(self, queues: Iterable[str]) -> None:
        """A supervisor tells of these queues, and of all others as one, how much waits that no worker is there for."""
        self.unserved = dict.fromkeys((*queues, OTHER), 0)

    def found_unserved(self, waiting: Mapping[str, int]) -> None:
        """A supervisor has seen, by queue, what waits where no worker is."""
        found = dict.fromkeys((*self.unserved, OTHER), 0)
        for queue, number in waiting.items():
            found[queue if queue in found else OTHER] += number
        self.unserved = found

    def swept(self, records: int, seconds: float, at: float) -> None:
        """A supervisor has passed over all records; ``at``: when, seconds since the epoch."""
        self.swept_records, self.swept_seconds, self.swept_at = records, seconds, at

    def _sum(self, name: str) -> dict[Any, int]:
        total = dict(getattr(self, name))
        if self.beside is not None:
            for labels, number in list(getattr(self.beside, name).items()):
                total[labels] = total.get(labels, 0) + number
        return total

    def _by_actor(self, name: str) -> dict[str, int]:
        total = _one((*self._actors, OTHER))
        for actor, number in self._sum(name).items():
            total[actor if actor in self._actors else OTHER] += number
        return total

    def _by_actor_and(self, name: str, seconds: tuple[str, ...]) -> dict[tuple[str, str], int]:
        total = _zero((*self._actors, OTHER), seconds)
        for (actor, second), number in self._sum(name).items():
            total[actor if actor in self._actors else OTHER, second] += number
        return total

    def collect(self) -> Iterator[Metric]:
        """Build the families of API.md."""
        for name, text, label, closed in (
            ("claims", "Wake-ups by what the head check said", "outcome", HEAD_OUTCOMES),
            ("outcomes", "Outcomes stored", "outcome", TAIL_OUTCOMES),
            ("superseded", "Stale copies refused", "where", SUPERSEDED_WHERE),
            ("cancelled", "Runs that ended cancelled", "where", CANCELLED_WHERE),
        ):
            yield _pairs(f"tenure_{name}", text, ("actor", label), self._by_actor_and(name, closed))
        fenced = self._by_actor("fenced")
        yield _singles("tenure_fenced", "Writes refused because another attempt holds the run", "actor", fenced)
        taken = self._by_actor("takeovers")
        yield _singles("tenure_takeovers", "Runs taken over from closed sessions", "actor", taken)
        yield _singles("tenure_cas_conflicts", "Compare-and-swaps refused", "operation", self._sum("conflicts"))
        yield _singles("tenure_repairs", "What supervisors found undone and did", "kind", self._sum("repairs"))
        yield _singles("tenure_errors", "Unexpected errors inside the process", "where", self._sum("errors"))
        commands = self._sum("commands")
        yield _pairs("tenure_commands", "Commands of the inbox by what became of them", ("kind", "outcome"), commands)
        yield _singles("tenure_commands_rejected", "Commands that were refused", "reason", self._sum("rejections"))
        yield _histograms("tenure_run_seconds", "Time in bodies", "actor", self.run_seconds)
        yield _histograms("tenure_queue_wait_seconds", "From ready to claimed", "queue", self.queue_wait)
        yield _histograms("tenure_start_lateness_seconds", "Delayed runs: from due to claimed", "queue", self.lateness)
        yield _gauges("tenure_runs_in_progress", "Bodies running", "actor", self.in_progress)
        stuck = dict.fromkeys(self._actors, 0) | self.stuck()
        yield _gauges("tenure_runs_stuck", "Bodies that ignore their stop past their grace", "actor", stuck)
        yield _gauges("tenure_wakeups_pending", "Wake-ups stored and not delivered", "queue", self.pending)
        yield _single(
            "tenure_session_trusted_until_timestamp_seconds",
            "Until when the session may be trusted (epoch seconds)",
            self.trusted_until(),
        )
        last = self if self.beside is None else self.beside
        text = "Wake-ups stored for a queue that no worker works on, as supervisors see it"
        yield _gauges("tenure_wakeups_unserved", text, "queue", last.unserved)
        yield _single("tenure_swept_records", "Records that the last whole sweep passed", last.swept_records)
        yield _single("tenure_sweep_seconds", "How long the last whole sweep took", last.swept_seconds)
        yield _single(
            "tenure_last_sweep_timestamp_seconds",
            "When the last whole sweep ended or was found to be needless (epoch seconds; 0: never, or no supervisor here)",
            last.swept_at,
        )
        yield _build(self._version)


class ClientMetrics(Collector):
    """What a producer counts: its calls, how long they take, and the compare-and-swaps that were refused.

    Runs are counted by workers and supervisors alone, so that each is counted once.
    """

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], int] = {(call, out): 0 for call, outs in CALLS.items() for out in outs}
        self.seconds: dict[str, Histogram] = _histograms_of(tuple(CALLS))
        self.conflicts: dict[str, int] = _one(OPERATIONS)
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def conflict(self, operation: str) -> None:
        """A CAS was refused."""
        self.conflicts[operation] += 1

    async def tell(self, call: str, work: Awaitable[_Got], outcome: Callable[[_Got], str], clock: Clock) -> _Got:
        """Await the work of a call, and count what came of it. A call that is cancelled has come to nothing yet."""
        began = clock.steady()
        try:
            got = await work
        except TenureError as error:
            unsure = "unknown" if isinstance(error, OutcomeUnknown) else "rejected"
            self._called(call, "unavailable" if isinstance(error, Unavailable) else unsure, clock.steady() - began)
            raise
        self._called(call, outcome(got), clock.steady() - began)
        return got

    def _called(self, call: str, outcome: str, seconds: float) -> None:
        self.calls[call, outcome] += 1
        self.seconds[call].observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Build the families."""
        yield _pairs("tenure_client_calls", "Calls by what came of them", ("call", "outcome"), self.calls)
        yield _histograms("tenure_client_call_seconds", "From a call to its answer", "call", self.seconds)
        yield _singles("tenure_cas_conflicts", "Compare-and-swaps refused", "operation", self.conflicts)
        from tenure import __version__

        yield _build(__version__)


def _build(version: str) -> Metric:
    info = GaugeMetricFamily("tenure_build_info", "The running version", labels=["version"])
    info.add_metric([version], 1.0)
    return info


def _zero(firsts: tuple[str, ...], seconds: tuple[str, ...]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    counts.update({(first, second): 0 for first in firsts for second in seconds})
    return counts


def _one(names: tuple[str, ...]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    counts.update(dict.fromkeys(names, 0))
    return counts


def _histograms_of(names: tuple[str, ...]) -> dict[str, Histogram]:
    histograms: dict[str, Histogram] = defaultdict(Histogram)
    histograms.update({name: Histogram() for name in names})
    return histograms


def _pairs(name: str, text: str, labels: tuple[str, str], counts: dict[tuple[str, str], int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for pair, value in list(counts.items()):
        family.add_metric(pair, value)
    return family


def _singles(name: str, text: str, label: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in list(counts.items()):
        family.add_metric([key], value)
    return family


def _gauges(name: str, text: str, label: str, counts: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in list(counts.items()):
        family.add_metric([key], value)
    return family


def _single(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family


def _histograms(name: str, text: str, label: str, histograms: dict[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label])
    for key, histogram in list(histograms.items()):
        family.add_metric([key], histogram.cumulative(), histogram.total)
    return family
