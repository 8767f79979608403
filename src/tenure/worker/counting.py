"""What a worker counts of the wake-ups it handles: by who won, or was refused."""

from __future__ import annotations

from tenure.clock import Clock
from tenure.core.outcomes import Did
from tenure.core.records import Record
from tenure.metrics import Metrics
from tenure.nats.runs import Committed
from tenure.telemetry import get_logger

_log = get_logger("tenure.run")


class Counting:
    """Of one worker."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    def claim(self, committed: Committed) -> None:
        """A claim was won."""
        record, metrics = committed.record, self._metrics
        actor, queue = record.task.actor, record.task.queue
        did = committed.decision.did
        metrics.claims[actor, did.value] += 1
        if did is Did.TAKEOVER:
            metrics.takeovers[actor] += 1
            _log.info("run.taken_over", key=record.key, run_id=record.run_id, attempt=record.attempt)
        wait = max(0.0, self._clock.now() - record.queued_at)
        if queue in metrics.queue_wait:
            metrics.queue_wait[queue].observe(wait)
            if record.due:
                metrics.lateness[queue].observe(wait)

    def drop(self, outcome: str, record: Record | None, *, decided: bool) -> None:
        """A wake-up led to no claim; ``decided``: its head check ended the run."""
        actor, metrics = record.task.actor if record else "", self._metrics
        metrics.claims[actor, outcome] += 1
        if outcome == Did.DROPPED.value:
            metrics.outcomes[actor, Did.CANCELLED.value] += 1
        elif decided:
            ended = Did.CANCELLED.value if outcome == Did.CANCELLED.value else Did.FAILED.value
            metrics.outcomes[actor, ended] += 1
            if ended == Did.CANCELLED.value:
                metrics.cancelled[actor, "running"] += 1

    def stored(self, actor: str, did: str) -> None:
        """An outcome was stored."""
        if did == Did.CANCELLED.value:
            self._metrics.cancelled[actor, "running"] += 1
        elif did == Did.FORCED.value:
            self._metrics.cancelled[actor, "forced"] += 1
            did = Did.CANCELLED.value
        self._metrics.outcomes[actor, did] += 1
