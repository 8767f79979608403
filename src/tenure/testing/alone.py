"""A body alone: an actor's function called as written, with a context that the test holds in its hands.

    ctx = context(app, key="doc-1")
    assert await extract(ctx, "a.pdf") == {"pages": 3}
    assert ctx.progressed[-1].done == 3
    assert [spawned.call for spawned in ctx.spawned] == [refine.call("a.pdf")]

Nothing is stored and nobody runs what the body asks for: what becomes of that is for ``memory``.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, get_args

from tenure.checks import check_choice, check_progress
from tenure.clock import SYSTEM
from tenure.context import Context, StopReason
from tenure.core.records import SCHEMA, Phase, Record, Task
from tenure.core.subjects import check_key
from tenure.testing.given import check_app, check_count, check_moment

if TYPE_CHECKING:
    from tenure.app import App


class Progressed(NamedTuple):
    """What a body said with ``ctx.progress``."""

    done: float
    total: float | None
    note: str


class BodyContext(Context):
    """A context as a body gets it, made by ``context``; a test reads from it what the body did.

    ``progressed``: every progress, the oldest first. ``spawned``: what ``spawn`` asked for, each with ``call``, ``key`` and
    ``due`` (seconds since the epoch, 0.0 for at once). ``rescheduled``: the same of ``reschedule``, without a key, or None.
    """

    __slots__ = ("progressed",)

    def __init__(self, app: App, record: Record, fence: int) -> None:
        self.progressed: list[Progressed] = []
        super().__init__(
            app=app, record=record, fence=fence, session=SYSTEM.new_id(), now=SYSTEM.now, progress=self._keep
        )

    def report(self, done: float, total: float | None = None, note: str = "") -> None:
        """Kept at once: there need not be a loop."""
        self.progressed.append(Progressed(*check_progress(done, total, note)))

    async def _keep(self, _context: Context, done: float, total: float | None, note: str) -> None:
        self.progressed.append(Progressed(done, total, note))

    def tell(self, reason: StopReason) -> bool:
        """As a context's. Raises InvalidCall for a reason that no worker has."""
        check_choice("reason", reason, get_args(StopReason))
        return super().tell(reason)

    def stop(self, reason: StopReason = "cancel") -> None:
        """Have the body stop, as when its time to finish is over: ``stop_reason``, ``stopping``, and ``check`` raises Stopped.

        ``tell("drain")`` instead: a worker begins to drain, the body may still finish. An async body is not cancelled: cancel
        the task that runs it. Safe from any thread. Raises InvalidCall for a reason that no worker has.
        """
        self.tell(reason)
        self.interrupt()


def context(
    app: App,
    *,
    key: str = "test",
    generation: int = 1,
    attempt: int = 1,
    failures: int = 0,
    fence: int = 1,
    deadline: datetime | None = None,
) -> BodyContext:
    """A context for calling an actor's function: ``await extract(context(app), "a.pdf")``; ``enter`` it for ``tenure.current()``.

    ``app``: the actor's. The rest is what the body sees; ``deadline`` is aware, and nothing happens at it. Raises InvalidCall.
    """
    app = check_app(app)
    record = Record(
        schema=SCHEMA,
        key=check_key(key),
        run_id=SYSTEM.new_id(),
        generation=check_count("generation", generation, least=1),
        phase=Phase.RUNNING,
        task=Task(actor="test"),
        queued_at=SYSTEM.now(),
        attempt=check_count("attempt", attempt, least=1),
        failures=check_count("failures", failures, least=0),
        deadline=None if deadline is None else check_moment("deadline", deadline),
    )
    return BodyContext(app, record, check_count("fence", fence, least=1))
