"""The invariants of one key over random histories: workers crash, zombies report late, commands come twice or stale."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Raw

from tenure.core import commands as c
from tenure.core.generations import leaves_trace
from tenure.core.outcomes import Apply, Decision, Did, Refused, Signal, Wake, Why, effects_of
from tenure.core.records import (
    MAX_PREVIOUS,
    TERMINAL,
    Entry,
    Holder,
    Phase,
    Policy,
    Seen,
    Task,
    decode,
    encode,
    state_of,
    ttl_of,
)
from tests.unit.core.ghost import TAILS, Ghost
from tests.unit.core.histories import BOOM, KEY, NOW, At, ask

SESSIONS = ("s0", "s1", "s2", "s3", "s4", "s5")

policies = st.builds(
    Policy,
    overlap=st.sampled_from(["stop", "stop", "wait", "parallel"]),
    max_attempts=st.integers(1, 3),
    timeout=st.sampled_from([None, 4.0]),
    every=st.sampled_from([None, None, 6.0]),
    grace=st.just(3.0),
    initial=st.just(0.5),
)
tasks = st.builds(Task, actor=st.just("a"), args=st.sampled_from([Raw(b"{}"), Raw(b'{"n":1}')]), policy=policies)


class OneKey(RuleBasedStateMachine):
    """Clients, workers, supervisors and time, in any order; nobody behaves but the core."""

    def __init__(self) -> None:
        super().__init__()
        self.at = At(None, NOW)
        self.ghost = Ghost()
        self.ids = 0
        self.past: list[c.Submit | c.Replace] = []
        self.entries: list[Entry] = []

    # -- the world ---------------------------------------------------------------------------------------------------

    def new(self, what: str) -> str:
        self.ids += 1
        return f"{what}{self.ids}"

    def put(self, command: c.Command) -> Decision | Refused:
        before, now = self.at
        result = ask(self.at, command)
        if isinstance(result, Refused):
            self.check_refusal(command, result)
            return result
        upkeep = isinstance(command, c.ClearOutbox | c.ForgetSeen) or result.did is Did.JOINED
        if result.record is not None and not upkeep:
            assert result.effects == effects_of(result.record)
        self.ghost.stored(before, result.record, result.did, command, now)
        if isinstance(command, TAILS):
            self.ghost.reported.add(command.holder)
        self.at = At(result.record, now)
        return result

    def check_refusal(self, command: c.Command, result: Refused) -> None:
        if isinstance(command, TAILS):
            record = self.at.record
            assert record is None or record.holder != command.holder
            if result.why is Why.ALREADY:
                assert command.holder in self.ghost.reported, "somebody else's write taken for one's own"
        if result.retry_at is not None:
            assert result.retry_at > self.at.now

    def a_body(self, data: st.DataObject) -> Holder:
        bodies = sorted(self.ghost.bodies, key=lambda body: -self.ghost.bodies[body])
        return data.draw(st.sampled_from(bodies), label="body")

    # -- time and sessions -------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 8.0]))
    def time_passes(self, seconds: float) -> None:
        self.at = At(self.at.record, self.at.now + seconds)

    @rule(session=st.sampled_from(SESSIONS[:4]), drain=st.booleans())
    def a_session_closes(self, session: str, drain: bool) -> None:
        mine = {body for body in self.ghost.bodies if body.session == session}
        if session not in self.ghost.closed:
            self.ghost.closed.add(session)
            if drain:
                self.ghost.drained.add(session)
                self.ghost.over |= mine

    @precondition(lambda self: self.at.record is not None and ttl_of(self.at.record) is not None)
    @rule()
    def the_record_expires(self) -> None:
        self.ghost.stored(self.at.record, None, Did.PURGED, c.Purge(), self.at.now)
        self.at = At(None, self.at.now)

    # -- clients -----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), task=tasks, delay=st.sampled_from([0.0, 0.0, 2.0]), applies=st.booleans())
    def submit(self, data: st.DataObject, task: Task, delay: float, applies: bool) -> None:
        gone = [b for b in self.ghost.bodies if b.session in self.ghost.closed - self.ghost.drained]
        command = c.Submit(
            key=KEY,
            run_id=self.new("r"),
            task=task,
            due=self.at.now + delay if delay else 0.0,
            if_live=data.draw(st.sampled_from(["keep", "replace", "reject"])),
            if_differs=data.draw(st.sampled_from(["keep", "replace", "error"])),
            lost=data.draw(st.sampled_from(gone)) if gone else None,
            seen=Seen(id=self.new("o"), origin="parent") if applies else None,
        )
        self.past.append(command)
        self.put(command)

    @rule(task=tasks)
    def replace(self, task: Task) -> None:
        command = c.Replace(key=KEY, run_id=self.new("r"), task=task)
        self.past.append(command)
        self.put(command)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def repeat_a_submit_or_replace(self, data: st.DataObject) -> None:
        """Only where the record shows that it was applied; else the client must raise OutcomeUnknown [14]."""
        command = data.draw(st.sampled_from(self.past))
        if self.at.record is not None and leaves_trace(self.at.record, command.run_id):
            result = self.put(command)
            assert isinstance(result, Refused)
            assert result.why is Why.ALREADY

    @precondition(lambda self: self.ghost.runs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(sorted(self.ghost.runs)))
        before = self.at.record
        self.put(c.Cancel(run_id=run, reason="enough"))
        after = self.at.record
        if before is not None and after is not None and before.run_id != run:
            assert (before.phase, before.stop, before.last) == (after.phase, after.stop, after.last), (
                "hit another run [10]"
            )

    @precondition(lambda self: self.at.record is not None)
    @rule()
    def cancel_what_is_there(self) -> None:
        self.put(c.Cancel())
        assert self.at.record is not None
        assert self.at.record.phase is not Phase.RUNNING

    @rule()
    def purge(self) -> None:
        self.put(c.Purge())

    # -- workers -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ghost.runs)
    @rule(data=st.data(), session=st.sampled_from(SESSIONS), current=st.integers(0, 9))
    def claim(self, data: st.DataObject, session: str, current: int) -> None:
        run = data.draw(st.sampled_from(sorted(self.ghost.runs)))
        if current and self.at.record is not None:
            run = self.at.record.run_id
        own = sorted((b for b in self.ghost.over if b.session == session), key=lambda b: b.attempt)
        if session not in self.ghost.closed:
            self.put(
                c.Claim(
                    session=session,
                    run_id=run,
                    next_run_id=self.new("r"),
                    closed=frozenset(self.ghost.closed),
                    drained=frozenset(self.ghost.drained),
                    own_lost=data.draw(st.sampled_from(own)) if own else None,
                )
            )

    @precondition(lambda self: self.ghost.bodies)
    @rule(
        data=st.data(), kind=st.sampled_from(TAILS), then=st.sampled_from([None, None, 0.0, 4.0]), final=st.booleans()
    )
    def a_body_reports(self, data: st.DataObject, kind: Any, then: float | None, final: bool) -> None:
        """Any body ever started, however often and however late."""
        body = self.a_body(data)
        successor = None if then is None else c.Successor(due=self.at.now + then, task=data.draw(tasks))
        more: dict[str, Any] = {}
        if kind is c.Succeed:
            self.entries.append(Entry(id=self.new("o"), key="child", run_id=self.new("r"), task=Task(actor="a")))
            more = {"next_run_id": self.new("r"), "successor": successor, "outbox": (self.entries[-1],)}
        elif kind is c.FailAttempt:
            more = {
                "next_run_id": self.new("r"),
                "successor": successor,
                "failure": BOOM,
                "jitter": 0.5,
                "final": final,
            }
        elif kind is c.SnoozeRun:
            more = {"due": self.at.now + (then or 0.0)}
        result = self.put(kind(holder=body, **more))
        if isinstance(result, Refused) and data.draw(st.booleans(), label="and ends"):
            self.ghost.over.add(body)

    @precondition(lambda self: self.ghost.bodies)
    @rule(data=st.data())
    def a_body_vanishes(self, data: st.DataObject) -> None:
        """It has ended and its process has said nothing yet."""
        self.ghost.over.add(self.a_body(data))

    @precondition(lambda self: self.ghost.over)
    @rule(data=st.data())
    def a_body_that_ended_confirms(self, data: st.DataObject) -> None:
        self.put(c.Confirm(holder=data.draw(st.sampled_from(sorted(self.ghost.over, key=repr)))))

    # -- supervisors -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ghost.bodies)
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        command = c.Evict(
            holder=self.a_body(data), next_run_id=self.new("r"), jitter=0.5, closed=frozenset(self.ghost.closed)
        )
        self.put(command)

    @rule()
    def expire_previous(self) -> None:
        self.put(c.ExpirePrevious(closed=frozenset(self.ghost.closed)))

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def clear_outbox(self, data: st.DataObject) -> None:
        self.put(c.ClearOutbox(ids=frozenset({data.draw(st.sampled_from(self.entries)).id})))

    @precondition(lambda self: self.at.record is not None and self.at.record.seen)
    @rule()
    def forget_seen(self) -> None:
        assert self.at.record is not None
        self.put(c.ForgetSeen(ids=frozenset({self.at.record.seen[0].id})))

    # -- always ------------------------------------------------------------------------------------------------------

    @invariant()
    def the_record_survives_the_wire(self) -> None:
        if self.at.record is not None:
            data = encode(self.at.record)
            assert decode(data) == self.at.record

    @invariant()
    def a_record_that_owes_never_expires(self) -> None:
        record = self.at.record
        if record is not None and ttl_of(record) is not None:
            assert record.phase in TERMINAL
            assert (record.previous, record.outbox, record.seen) == ((), (), ())
            assert state_of(record).split()[4] == "-"

    @invariant()
    def effects_leave_nothing_out(self) -> None:
        record = self.at.record
        if record is None:
            return
        told = [Signal(entry.holder(), "superseded") for entry in record.previous if entry.deadline is not None]
        if record.phase is Phase.STOPPING and record.holder is not None:
            told.append(Signal(record.holder, "cancel"))
        owed = [*told, *(Apply(entry) for entry in record.outbox), *([Wake()] if record.phase is Phase.WAITING else [])]
        effects = effects_of(record)
        assert len(effects) == len(owed)
        assert all(effect in effects for effect in owed)
        assert len(record.previous) <= MAX_PREVIOUS

    def teardown(self) -> None:
        """Invariant 7: once faults stop, a fresh worker and the sweep bring the key to an end."""
        if self.at.record is None:
            return
        self.ghost.closed |= set(SESSIONS)
        closed = frozenset(self.ghost.closed)
        for _ in range(20):
            record = self.at.record
            assert record is not None
            self.at = At(record, max(self.at.now, record.due) + 5.0)
            self.put(c.ExpirePrevious(closed=closed))
            if record.phase in TERMINAL or record.run_id not in {*self.ghost.runs} - {*self.ghost.outcomes}:
                break
            run = record.run_id
            self.put(c.Claim(session="fresh", run_id=run, next_run_id=self.new("r"), closed=closed))
            if self.at.record is not None and self.at.record.holder is not None:
                self.put(c.Succeed(holder=self.at.record.holder, next_run_id=self.new("r")))
            if run in self.ghost.outcomes:
                break
        else:
            raise AssertionError(f"never ends: {self.at.record}")


TestOneKey = OneKey.TestCase
TestOneKey.settings = settings(
    max_examples=250, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
