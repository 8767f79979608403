"""What the processes of a run have counted: left behind by those that ended in order, else as scraped just before the kill."""

from __future__ import annotations

import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.chaos.processes import Child
from tests.chaos.service import counts_of
from tests.history.evidence import CHIME, Counts, Death, Unread

_COUNTED = {
    "tenure_superseded": "where",
    "tenure_cancelled": "where",
    "tenure_outcomes": "outcome",
    "tenure_fenced": "actor",
}
_Read = Counter[tuple[str, str]]


class Counters:
    """Of all workers and supervisors of a run, each of its lives by its process id."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._urls: dict[str, str] = {}
        self._scraped: dict[int, tuple[float, _Read]] = {}
        self.whole: set[int] = set()
        """Of whom all is known, once they have ended."""

    def expect(self, name: str, address: str) -> None:
        """A process of this name will tell them at ``<host>:<port>``."""
        self._urls[name] = f"http://{address}/metrics"

    def scrape(self, child: Child) -> None:
        """Of a process that is about to be killed. A frozen or cut off one tells nothing: then less is known of it."""
        url = self._urls.get(child.name)
        if url is None or child.suspended or not child.running:
            return
        since = time.time()
        try:
            with urllib.request.urlopen(url, timeout=1.0) as answer:  # noqa: S310  (our own child's address)
                self._scraped[child.pid] = since, _parsed(answer.read().decode())
        except OSError:
            return

    def sums(self, deaths: Iterable[Death]) -> tuple[Counts, list[Unread]]:
        """Over all that have ended; and what nobody has read."""
        read: dict[int, _Read] = {}
        unread = []
        for death in deaths:
            if death.name not in self._urls:
                continue
            path = counts_of(self._logs, death.pid)
            if path.exists() or death.code == -signal.SIGTERM:  # which ends one that had not begun: it hears that first
                self.whole.add(death.pid)
                read[death.pid] = _parsed(path.read_text() if path.exists() else "")
                continue
            since, read[death.pid] = self._scraped.get(death.pid, (death.began, Counter()))
            unread.append(Unread(pid=death.pid, since=since, until=death.wall))
        return _summed(read), unread


def _parsed(text: str) -> _Read:
    """Without those of the schedule that goes on while the records are looked at."""
    counts: _Read = Counter()
    for family in text_string_to_metric_families(text):
        label = _COUNTED.get(family.name)
        for sample in family.samples:
            if label is not None and sample.name.endswith("_total") and sample.labels["actor"] != CHIME:
                counts[family.name, sample.labels[label]] += int(sample.value)
    return counts


def _summed(read: dict[int, _Read]) -> Counts:
    total: _Read = Counter()
    for counts in read.values():
        total.update(counts)

    def of(family: str) -> dict[str, int]:
        return {label: number for (name, label), number in total.items() if name == family}

    return Counts(
        superseded=of("tenure_superseded"),
        cancelled=of("tenure_cancelled"),
        outcomes=of("tenure_outcomes"),
        fenced={
            pid: sum(n for (name, _), n in counts.items() if name == "tenure_fenced") for pid, counts in read.items()
        },
    )
