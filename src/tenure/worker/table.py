"""The table of runs of this process: the answer to "is that run mine, and does its body exist?" [3].

One entry per run id, from before the claim until after the last effect; so one process never works on two deliveries of
a run at once. An evicted body (it overstayed and its attempt was ended for it) leaves the table for ``stuck``: its run
may be claimed again, also here.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tenure.context import Context, StopReason
from tenure.core.records import Holder
from tenure.core.sessions import Progress

if TYPE_CHECKING:
    from tenure.lease import Lease
    from tenure.nats.work import Delivery
    from tenure.worker.places import Ticket
    from tenure.worker.spans import RunSpans


class Remote(Protocol):
    """A body that runs elsewhere, in a child process."""

    @property
    def running(self) -> bool:
        """Whether it has begun and not ended."""
        ...

    def told(self, reason: StopReason) -> None:
        """Pass on why the body must stop; from any thread."""

    def interrupt(self, reason: StopReason, grace: float) -> None:
        """Have the body end within its grace."""

    def kill(self) -> None:
        """End the body now."""


class Live:
    """A run in this process's hands."""

    __slots__ = (
        "abandoned",
        "actor",
        "answered",
        "context",
        "early",
        "evicted",
        "follower",
        "grace",
        "in_body",
        "in_thread",
        "interrupted",
        "is_async",
        "key",
        "last_note",
        "lease",
        "note",
        "note_waits",
        "owner",
        "remote",
        "reply",
        "run_id",
        "spans",
        "task",
        "ticket",
        "timers",
        "told",
    )

    def __init__(self, key: str, run_id: str, reply: str) -> None:
        self.key = key
        self.run_id = run_id
        self.reply = reply
        self.actor = ""
        self.context: Context | None = None
        self.task: asyncio.Task[Any] | None = None
        self.owner: asyncio.Task[None] | None = None
        self.lease: Lease | None = None
        self.ticket: Ticket | None = None
        """Its places under limits, while it has any."""
        self.spans: RunSpans | None = None
        self.answered = False
        """Its outcome is stored or refused: the record does not name its attempt any more."""
        self.follower: Delivery | None = None
        """The next wake-up of the same run: it comes while what this one owes is still carried out."""
        self.is_async = False
        self.in_body = False
        self.in_thread = False
        self.remote: Remote | None = None
        self.interrupted = False
        self.evicted = False
        self.abandoned = False
        self.grace = 0.0
        self.told: StopReason | None = None
        self.early: dict[int, StopReason] = {}
        self.timers: list[asyncio.TimerHandle] = []
        self.last_note = -math.inf
        """When progress was sent, by the steady clock, which may have begun just now: its first is sent at once."""
        self.note: Progress | None = None
        self.note_waits = False

    @property
    def torn_down(self) -> bool:
        """Whether the service itself is being cancelled: the whole loop ends, and with it every task, this run's too."""
        return self.owner is not None and (self.owner.done() or self.owner.cancelling() > 0)

    @property
    def has_body(self) -> bool:
        """Whether its body has begun and not ended."""
        return self.in_body or self.in_thread or (self.remote is not None and self.remote.running)

    def tell_attempt(self, attempt: int, reason: StopReason) -> bool:
        """As ``tell``, for a stop signal.

        It is about one attempt, and may overtake the answer to that attempt's claim.
        """
        context = self.context
        if context is None:
            self.early[attempt] = reason
            context = self.context  # set meanwhile? then whoever set it may have looked too soon
            if context is None:
                return False
        return context.attempt == attempt and self.tell(reason)

    def tell(self, reason: StopReason) -> bool:
        """Note why the run must stop, and set it on the body's context.

        Safe from any thread; False if it was told before.
        """
        context = self.context
        if context is not None:
            fresh = context.tell(reason)
            self.told = context.stop_reason
        else:
            fresh = self.told is None or (self.told == "drain" and reason != "drain")
            self.told = reason if fresh else self.told
        if fresh and self.remote is not None:
            self.remote.told(reason)
        return fresh

    def interrupt(self) -> None:
        """Have the body end: cancel its await, if it is in one, and let ``check`` raise.

        On the worker's loop, never from inside the body's own step.
        """
        self.interrupted = True
        if self.context is not None:
            self.context.interrupt()
        if self.remote is not None and self.told is not None:
            self.remote.interrupt(self.told, self.grace)
        if self.in_body and self.is_async and self.task is not None:
            self.task.cancel(self.told)

    def abandon(self) -> None:
        """Give the body up: whatever it still does, nothing of it is written any more.

        Its session must be closed after this.
        """
        self.abandoned = True
        if self.remote is not None:
            self.remote.kill()
        if self.task is not None:
            self.task.cancel(self.told)

    def put_down(self) -> None:
        """Its wake-up is not worked on any more: unless it is answered, it comes again after ``ack_wait``."""
        if self.lease is not None:
            self.lease.in_hand.pop(self.reply, None)

    def let_go(self) -> None:
        """It is over.

        Drop what refers back here, so that a run is freed at once (the collector took a tenth of a task's time).
        """
        if self.spans is not None:
            self.spans.close("evicted" if self.evicted else "given_up")
        self.spans = None
        self.context = None
        self.task = None
        self.remote = None

    def forget_timers(self) -> None:
        """Cancel what was scheduled for this run."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


class Table:
    """Every run in this process's hands, by run id."""

    def __init__(self) -> None:
        self._live: dict[str, Live] = {}
        self.stuck: set[Live] = set()
        self._abandoned: set[Live] = set()
        self._given_up: dict[Holder, int] = {}
        """And the revision of its claim."""
        self._remnants: dict[Holder, Live] = {}
        self.on_change: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._live)

    def get(self, run_id: str) -> Live | None:
        """The entry of a run, None if this process has nothing of it. Safe from any thread."""
        return self._live.get(run_id)

    def enter(self, live: Live) -> bool:
        """Take a run in; False if another delivery of it is being worked on."""
        return self._live.setdefault(live.run_id, live) is live

    def follow(self, run_id: str, delivery: Delivery) -> bool:
        """Have a delivery wait for the one in hand, if that is as good as over: its outcome is stored, and asked for this one."""
        live = self._live.get(run_id)
        if live is None or not live.answered or live.follower is not None:
            return False
        live.follower = delivery
        return True

    def leave(self, live: Live) -> None:
        """The run is done with."""
        if self._live.get(live.run_id) is live:
            del self._live[live.run_id]
            self.on_change()
        if live in self.stuck:
            self.stuck.discard(live)
            self.on_change()

    def evict(self, live: Live) -> None:
        """The body still runs, and its attempt was ended for it: free its place."""
        live.evicted = True
        self.displace(live)

    def displace(self, live: Live) -> None:
        """The body still runs, void: free its place.

        Its wake-up is another attempt's or nobody's: kept in hand as long as the body lives, it would be taken for the one
        that wakes that attempt.
        """
        live.put_down()
        self.stuck.add(live)
        if self._live.get(live.run_id) is live:
            del self._live[live.run_id]
            self.on_change()

    def abandon(self, live: Live) -> None:
        """Give the body up. Its thread or task is known as long as it goes on."""
        live.abandon()
        self.leave(live)
        self._abandoned.add(live)

    def give_up(self, live: Live) -> None:
        """Its handling ends in the middle, its session goes on: the record may name its attempt for good."""
        if live.context is None or live.answered:
            return
        mine = Holder(session=live.context.session, run_id=live.run_id, attempt=live.context.attempt)
        if self._given_up and next(iter(self._given_up)).session != mine.session:  # those of a session that is over
            self._given_up.clear()
            self._remnants.clear()
        self._given_up[mine] = live.context.fence
        self._remnants[mine] = live

    def gave_up(self, holder: Holder) -> bool:
        """Whether that attempt was had in hand and given up: no claim may take it for its own, its body would run twice."""
        return holder in self._given_up

    def goes_on(self, holder: Holder) -> bool:
        """Whether that attempt was given up and its body has not ended: who claims its run would start another beside it."""
        live = self._remnants.get(holder)
        return live is not None and live.has_body

    def remnants(self) -> list[tuple[Holder, str, int]]:
        """Attempts that were given up and whose bodies have ended, with their keys and claims: records may still name them."""
        return [
            (mine, live.key, self._given_up[mine])
            for mine, live in self._remnants.items()
            if not (live.in_body or live.in_thread)
        ]

    def forget_remnant(self, mine: Holder) -> None:
        """Its record does not name it any more."""
        self._remnants.pop(mine, None)

    def running_on(self) -> list[Live]:
        """Bodies that ignore their stop and have no slot any more. Safe from any thread."""
        for live in list(self._abandoned):
            if not (live.in_thread or live.in_body):
                self._abandoned.discard(live)
        return [*self.stuck, *self._abandoned]

    def stuck_by_actor(self) -> dict[str, int]:
        """How many those are, by actor. Safe from any thread."""
        return dict(Counter(live.actor for live in self.running_on()))

    def all(self) -> list[Live]:
        """Every entry now."""
        return list(self._live.values())

    @property
    def longest_grace(self) -> float:
        """Seconds that every body may take to end once told to stop."""
        return max((live.grace for live in self.all()), default=0.0)
