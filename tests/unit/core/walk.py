"""A walk through the protocol of one key: clients, workers, supervisors and time, in any order.

Nobody behaves but the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.generations import leaves_trace
from tenure.core.marks import Place, is_marked, mark
from tenure.core.outcomes import Apply, Decision, Did, Refused, Signal, Wake, Why, effects_of
from tenure.core.pace import settled_by
from tenure.core.permits import Bound
from tenure.core.records import (
    TERMINAL,
    Death,
    Entry,
    Holder,
    Hook,
    Hooks,
    Phase,
    Policy,
    Record,
    Seen,
    Task,
    decode,
    encode,
    ttl_of,
)
from tenure.core.schemas import schema_for
from tests.unit.core.ghost import TAILS, Ghost
from tests.unit.core.histories import BOOM, KEY, NOW, PACE, At, ask

T = TypeVar("T")
MORTAL, FRESH = ("s0", "s1", "s2"), ("s3", "s4", "s5")
ARGUMENTS = (Raw(b"{}"), Raw(b'{"n":1}'))
HALF, SELDOM, RARELY = (True, False), (True, False, False, False), (True, *[False] * 19)
HOOKS = Hooks(
    success=(Hook(task=Task(actor="h")),),
    failure=(Hook(task=Task(actor="h"), outcome="it"),),
    cancel=(Hook(task=Task(actor="h")), Hook(task=Task(actor="h"), outcome="it")),
)
DEATH = Death(run_id="r", generation=1, attempts=1, failures=1, queued_at=NOW, at=NOW, failure=BOOM)


class Pick(Protocol):
    """Where chance comes from: a seed, or hypothesis."""

    def __call__(self, choices: Sequence[T], /) -> T: ...


class Walk:
    """The key at its present state, the ghost's books, and every action that may come next."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.at = At(None, NOW)
        self.ghost = Ghost()
        self.done: list[tuple[Did | Why, c.Command]] = []
        self._ids = 0
        self._wishes: list[c.Submit | c.Replace] = []
        self._entries: list[Entry] = []
        self._commands: list[c.Submit | c.Replace | c.Cancel] = []

    def go(self, steps: int) -> None:
        """Take ``steps`` actions, then let the faults stop."""
        for _ in range(steps):
            self.pick(ACTIONS)(self)
            self.check_record()
        self.comes_to_an_end()

    # -- one step ----------------------------------------------------------------------------------------------------

    def new(self, what: str) -> str:
        self._ids += 1
        return f"{what}{self._ids}"

    def put(self, command: c.Command) -> Decision | Refused:
        before, now = self.at
        result = ask(self.at, command)
        self.done.append((result.why if isinstance(result, Refused) else result.did, command))
        if isinstance(result, Refused):
            self._check_refusal(command, result)
            return result
        owes_nothing_new = result.did in {Did.CLEARED, Did.FORGOT, Did.JOINED, Did.PURGED, Did.COUNTED, Did.SETTLED}
        assert owes_nothing_new or result.record is None or result.effects == effects_of(result.record)
        self.ghost.stored(before, result, command, now)
        if isinstance(command, TAILS):
            self.ghost.reported.add(command.holder)
        self.at = At(result.record, now)
        return result

    def _check_refusal(self, command: c.Command, result: Refused) -> None:
        if isinstance(command, TAILS):
            record = self.at.record
            assert record is None or record.holder != command.holder
            if result.why is Why.ALREADY:
                assert command.holder in self.ghost.reported, "somebody else's write taken for one's own [23]"
        assert result.retry_at is None or result.retry_at > self.at.now

    def check_record(self) -> None:
        record = self.at.record
        if record is None:
            return
        assert decode(encode(record)) == record
        assert record.schema == schema_for(record.task, record.outbox, record.history)
        if ttl_of(record) is not None:
            assert record.phase in TERMINAL
            assert (record.previous, record.outbox, record.to_forget) == ((), (), ()), "expires while it owes [5, 6, 7]"
        untold = [entry for entry in record.previous if entry.deadline is None]
        assert not untold or record.task.policy.overlap != "stop", "the newest policy applies to all [4]"
        told = [Signal(entry.holder(), "superseded") for entry in record.previous if entry.deadline is not None]
        if record.phase is Phase.STOPPING and record.holder is not None:
            told.append(Signal(record.holder, "cancel"))
        owed = [*told, *map(Apply, record.outbox), *([Wake()] if record.phase is Phase.WAITING else [])]
        effects = effects_of(record)
        assert len(effects) == len(owed)
        assert all(effect in effects for effect in owed)

    # -- choices -----------------------------------------------------------------------------------------------------

    def a_task(self) -> Task:
        policy = Policy(
            limits=self.pick(((), (), (), (Bound(n=1),))),
            pace=self.pick((*[None] * 5, PACE)),
            overlap=self.pick(("stop", "wait", "parallel")),
            max_attempts=self.pick((1, 2, 3)),
            timeout=self.pick((None, 4.0)),
            every=6.0 if self.pick(SELDOM) else None,
            grace=3.0,
            hooks=self.pick((None, None, HOOKS)),
        )
        return Task(actor="a", args=self.pick(ARGUMENTS), policy=policy)

    def a_run(self) -> str:
        """The current one, or any that ever was."""
        if self.at.record is not None and self.pick(HALF):
            return self.at.record.run_id
        return self.pick([*self.ghost.runs])

    def a_body(self) -> Holder:
        """The holder, or any that ever was: zombies report too."""
        if self.at.record is not None and self.at.record.holder is not None and self.pick(HALF):
            return self.at.record.holder
        return self.pick([*self.ghost.bodies])

    def a_successor(self) -> c.Successor | None:
        if not self.pick(SELDOM):
            return None
        return c.Successor(due=self.at.now + self.pick((0.0, 4.0)), task=self.a_task() if self.pick(HALF) else None)

    # -- time and sessions -------------------------------------------------------------------------------------------

    def time_passes(self) -> None:
        self.at = At(self.at.record, self.at.now + self.pick((0.5, 1.0, 3.0, 8.0)))

    def a_session_closes(self) -> None:
        session = self.pick(MORTAL)
        if session not in self.ghost.closed and self.pick(HALF):
            self.ghost.closed.add(session)
            if self.pick(HALF):  # a drain: its bodies have ended
                self.ghost.drained.add(session)
                self.ghost.over |= {body for body in self.ghost.bodies if body.session == session}

    def the_record_expires(self) -> None:
        if self.at.record is not None and ttl_of(self.at.record) is not None:
            self.ghost.stored(self.at.record, Decision(Did.PURGED, None), c.Purge(), self.at.now)
            self.at = At(None, self.at.now)

    # -- clients -----------------------------------------------------------------------------------------------------

    def submit(self) -> None:
        gone = [body for body in self.ghost.bodies if body.session in self.ghost.closed - self.ghost.drained]
        command = c.Submit(
            key=KEY,
            run_id=self.new("r"),
            task=self.a_task(),
            due=self.at.now + 2.0 if self.pick(SELDOM) else 0.0,
            if_live=self.pick(("keep", "replace", "reject")),
            if_differs=self.pick(("keep", "replace", "error")),
            lost=self.pick(gone) if gone else None,
            seen=Seen(id=self.new("o"), origin="parent") if self.pick(SELDOM) else None,
            history=(DEATH,) if self.pick(SELDOM) else (),
        )
        self._wishes.append(command)
        self.put(command)

    def replace(self) -> None:
        command = c.Replace(key=KEY, run_id=self.new("r"), task=self.a_task())
        self._wishes.append(command)
        self.put(command)

    def keep_alive(self) -> None:
        if self.pick(HALF):
            task = self.a_task()
            task = replace(task, policy=replace(task.policy, every=self.pick((5.0, 6.0)), autostart="jobs"))
            deployed = self.pick((1.0, 2.0, 3.0))
            self.put(c.KeepAlive(key=KEY, run_id=self.new("r"), task=task, deployed=deployed))

    def retire(self) -> None:
        self.put(c.Retire(deployed=self.pick((1.0, 2.0, 3.0))))

    def trigger(self) -> None:
        self.put(c.Trigger())

    def repeat_a_wish(self) -> None:
        """Only where the record shows that it was applied; else its client must raise OutcomeUnknown [14]."""
        wish = self.pick(self._wishes[-3:]) if self._wishes else None
        if wish is not None and self.at.record is not None and leaves_trace(self.at.record, wish.run_id):
            result = self.put(wish)
            assert isinstance(result, Refused)
            assert result.why is Why.ALREADY

    def cancel(self) -> None:
        before = self.at.record
        if before is None:
            return
        run = self.a_run()
        self.put(c.Cancel(run_id=run, reason="enough"))
        after = self.at.found
        assert after.phase is not Phase.RUNNING or run != after.run_id
        if before.run_id != run:
            hit = (before.phase, before.stop, before.last) != (after.phase, after.stop, after.last)
            assert not hit, "a cancel hit another run [10]"

    def a_command_of_the_inbox(self) -> None:
        """It is applied once, also told again after others: while its mark is there: while it has a message, and a copy."""
        place, msg_id = Place(len(self._commands) + 1, int(self.at.now * 1_000_000)), self.pick(HALF)
        made: c.Submit | c.Replace | c.Cancel
        if (kind := self.pick(("submit", "replace", "cancel"))) == "cancel":
            made = c.Cancel(seen=mark(place, self.new("c"), msg_id=msg_id))
        else:
            run_id = self.new("r")
            command = c.Submit if kind == "submit" else c.Replace
            made = command(key=KEY, run_id=run_id, task=self.a_task(), seen=mark(place, run_id, msg_id=msg_id))
        self._commands.append(made)
        if self.at.record is not None or not isinstance(made, c.Cancel):
            self.put(made)

    def a_command_comes_again(self) -> None:
        record = self.at.record
        again = self.pick(self._commands[-4:]) if self._commands else None
        if again is not None and again.seen is not None and record is not None and is_marked(record, again.seen):
            result = self.put(again)
            assert isinstance(result, Refused)
            assert result.why is Why.ALREADY, "a command of the inbox is applied twice [13]"

    def purge(self) -> None:
        if self.pick(SELDOM):
            self.put(c.Purge())

    # -- workers -----------------------------------------------------------------------------------------------------

    def claim(self) -> None:
        session = self.pick((*MORTAL, *FRESH))
        if session in self.ghost.closed or not self.ghost.runs:
            return
        record = self.at.record
        if record is not None and record.holder is not None and record.holder.session not in self.ghost.closed:
            session = record.holder.session if self.pick(HALF) else session
        missed = [body for body in self.ghost.bodies if body.session == session and body in self.ghost.over]
        self.put(
            c.Claim(
                session=session,
                run_id=self.a_run(),
                next_run_id=self.new("r"),
                closed=frozenset(self.ghost.closed),
                drained=frozenset(self.ghost.drained),
                own_lost=self.pick(missed[-2:]) if missed else None,
                permit=self.pick((0, self.next_attempt())),
                held=self.pick(RARELY),
                excess="full" if self.pick(RARELY) else "",
                settled="other" if self.pick(RARELY) else settled_by(self.at.record),
            )
        )

    def next_attempt(self) -> int:
        return self.at.record.attempt + 1 if self.at.record is not None else 1

    def a_body_reports(self) -> None:
        """Any body ever started, however often and however late."""
        if not self.ghost.bodies:
            return
        body = self.a_body()
        result = self.put(self.pick((self._success, self._success, self._failure, self._snooze, self._hand_back))(body))
        if isinstance(result, Refused) and self.pick(HALF):
            self.ghost.over.add(body)

    def _success(self, body: Holder) -> c.Command:
        policy = Policy(hooks=self.pick((None, None, None, HOOKS)))
        spawned = Entry(id=self.new("o"), key="child", run_id=self.new("r"), task=Task(actor="a", policy=policy))
        self._entries.append(spawned)
        return c.Succeed(
            holder=body,
            next_run_id=self.new("r"),
            successor=self.a_successor(),
            outbox=(spawned,) if self.pick(HALF) else (),
        )

    def _failure(self, body: Holder) -> c.Command:
        final, then = self.pick(SELDOM), self.a_successor()
        return c.FailAttempt(
            holder=body, next_run_id=self.new("r"), failure=BOOM, jitter=0.5, final=final, successor=then
        )

    def _snooze(self, body: Holder) -> c.Command:
        return c.SnoozeRun(holder=body, due=self.at.now + self.pick((0.0, 4.0)))

    def _hand_back(self, body: Holder) -> c.Command:
        return c.HandBack(holder=body)

    def a_body_ends_unheard(self) -> None:
        if self.pick(HALF) and self.ghost.bodies:
            self.ghost.over.add(self.a_body())

    def a_body_confirms(self) -> None:
        if self.ghost.over:
            self.put(c.Confirm(holder=self.pick([body for body in self.ghost.bodies if body in self.ghost.over])))

    # -- supervisors -------------------------------------------------------------------------------------------------

    def evict(self) -> None:
        if self.ghost.bodies:
            closed = frozenset(self.ghost.closed)
            self.put(c.Evict(holder=self.a_body(), next_run_id=self.new("r"), jitter=0.5, closed=closed))

    def expire_previous(self) -> None:
        self.put(c.ExpirePrevious(closed=frozenset(self.ghost.closed)))

    def clear_outbox(self) -> None:
        owed = self.at.record.outbox if self.at.record is not None else ()
        if entries := (*self._entries[-4:], *owed):
            self.put(c.ClearOutbox(ids=frozenset({self.pick(entries).id})))

    def forget_seen(self) -> None:
        if self.at.record is not None and self.at.record.seen:
            self.put(c.ForgetSeen(ids=frozenset({self.pick(self.at.record.seen).id})))

    def take_counts(self) -> None:
        self.put(c.TakeCounts(tag="t"))

    # -- the end -----------------------------------------------------------------------------------------------------

    def comes_to_an_end(self) -> None:
        """Invariant 7.

        Once faults stop, a fresh worker and the sweep bring the current run to its end, and the key to rest.
        """
        if (record := self.at.record) is None:
            return
        run = record.run_id
        self.ghost.closed |= {*MORTAL, *FRESH}
        closed = frozenset(self.ghost.closed)
        for _ in range(2):
            self.at = At(self.at.record, max(self.at.now, self.at.found.due) + 10.0)
            claim = c.Claim(session="s9", run_id=run, next_run_id=self.new("r"), closed=closed)
            self.put(replace(claim, permit=self.next_attempt(), settled=settled_by(self.at.record)))
            if self.at.found.run_id == run and self.at.found.holder is not None:
                self.put(c.Succeed(holder=self.at.found.holder, next_run_id=self.new("r")))
        assert self.ghost.outcomes[run].run_id == run
        self._rests(self.at.found)

    def _rests(self, record: Record) -> None:
        self.put(c.ExpirePrevious(closed=frozenset(self.ghost.closed)))
        self.put(c.ClearOutbox(ids=frozenset(entry.id for entry in record.outbox)))
        self.put(c.ForgetSeen(ids=frozenset(entry.id for entry in record.seen)))
        assert (ttl_of(self.at.found) is not None) == (self.at.found.phase in TERMINAL)


ACTIONS: tuple[Callable[[Walk], None], ...] = (
    *[Walk.claim] * 5,
    *[Walk.a_body_reports] * 4,
    *[Walk.time_passes] * 3,
    *[Walk.submit] * 3,
    *[Walk.evict] * 2,
    *[Walk.cancel] * 2,
    Walk.replace,
    Walk.keep_alive,
    Walk.retire,
    Walk.trigger,
    Walk.repeat_a_wish,
    Walk.a_command_of_the_inbox,
    Walk.a_command_comes_again,
    Walk.a_session_closes,
    Walk.a_body_ends_unheard,
    Walk.a_body_confirms,
    Walk.expire_previous,
    Walk.clear_outbox,
    Walk.forget_seen,
    Walk.take_counts,
    Walk.the_record_expires,
    Walk.purge,
)
