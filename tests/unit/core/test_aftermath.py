"""What an outcome owes: hooks and the dead letter go with the write that stores it, on every path that ends a run."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.aftermath import MAX_OWED_LETTERS, Outcome, derived_id
from tenure.core.dead import MAX_HISTORY, DeadLetter, decode_letter, encode_letter, letter_of, replay_of
from tenure.core.errors import NewerSchema
from tenure.core.outcomes import Apply, Why
from tenure.core.permits import Bound
from tenure.core.rates import Pace
from tenure.core.records import (
    HOOKS_SCHEMA,
    LIMITS_SCHEMA,
    PLAIN_SCHEMA,
    SCHEDULE_SCHEMA,
    SCHEMA,
    Entry,
    Hook,
    Hooks,
    Phase,
    Policy,
    Record,
    Task,
    decode,
    encode,
    ttl_of,
)
from tests.unit.core.histories import (
    BOOM,
    CANCEL,
    KEY,
    NOW,
    S1,
    Step,
    claim,
    decided,
    evict,
    fail,
    holder,
    paid,
    play,
    refused,
    snooze,
    spawned,
    submit,
    succeed,
    supersede,
    task,
)

HOOKS = Hooks(
    success=(Hook(task=Task(actor="pleased")),),
    failure=(Hook(task=Task(actor="sorry"), outcome="it"), Hook(task=Task(actor="page"))),
    cancel=(Hook(task=Task(actor="tidy"), outcome="it"),),
)
HOOKED = (submit(hooks=HOOKS, max_attempts=1), claim())
TIMED = (submit(hooks=HOOKS, max_attempts=1, timeout=5.0), claim())
PERPETUAL = (submit(hooks=HOOKS, max_attempts=1, every=60.0), claim())
CASES: dict[str, tuple[tuple[Step, ...], list[str]]] = {
    "success": ((*HOOKED, succeed(S1)), ["pleased"]),
    "success of a perpetual run": ((*PERPETUAL, succeed(S1)), ["pleased"]),
    "success and a successor by the body": ((*HOOKED, succeed(S1, then=c.Successor(due=NOW + 9))), ["pleased"]),
    "failure with the budget used up": ((*HOOKED, fail(S1)), ["DEAD", "sorry", "page"]),
    "failure of a perpetual run": ((*PERPETUAL, fail(S1)), ["DEAD", "sorry", "page"]),
    "failure that is final": ((submit(hooks=HOOKS), claim(), fail(S1, final=True)), ["DEAD", "sorry", "page"]),
    "failure without hooks": ((submit(max_attempts=1), claim(), fail(S1)), ["DEAD"]),
    "a retry": ((submit(hooks=HOOKS), claim(), fail(S1)), []),
    "a snooze": ((*HOOKED, snooze(S1)), []),
    "a hand-back": ((*HOOKED, c.HandBack(holder=S1)), []),
    "a takeover without budget": ((*HOOKED, claim("s2", closed="s1")), ["DEAD", "sorry", "page"]),
    "that of a perpetual run": ((*PERPETUAL, claim("s2", closed="s1")), ["DEAD", "sorry", "page"]),
    "an eviction without budget": ((*TIMED, 15.0, evict(S1)), ["DEAD", "sorry", "page"]),
    "a submit over a lost holder": ((*HOOKED, submit("r2", lost=S1)), ["DEAD", "sorry", "page"]),
    "a cancel while waiting": ((submit(hooks=HOOKS), CANCEL), ["tidy"]),
    "a cancel that is under way": ((*HOOKED, CANCEL), []),
    "a stop, told by the holder": ((*HOOKED, CANCEL, succeed(S1)), ["tidy"]),
    "a stop, by force": ((*HOOKED, CANCEL, 10.0, evict(S1)), ["tidy"]),
    "a stop, found by a head check": ((*HOOKED, CANCEL, claim("s2", closed="s1")), ["tidy"]),
    "a submit over a stopping run": ((*HOOKED, CANCEL, submit("r2")), ["tidy"]),
    "a replace over a stopping run": ((*HOOKED, CANCEL, supersede("r2")), ["tidy"]),
    "superseded while waiting": ((submit(hooks=HOOKS), supersede("r2")), []),
    "superseded while running": ((*HOOKED, supersede("r2")), []),
}


def owed(record: Record) -> list[str]:
    return ["DEAD" if entry.dead else entry.task.actor for entry in record.outbox]


@pytest.mark.parametrize(("steps", "expected"), CASES.values(), ids=CASES)
def test_an_outcome_owes_its_hooks_and_a_final_failure_its_letter(steps: tuple[Step, ...], expected: list[str]) -> None:
    *before, last = steps
    decision = decided(play(*before), last) if not isinstance(last, int | float) else None
    assert decision is not None
    assert decision.record is not None
    assert owed(decision.record) == expected
    assert [effect.entry for effect in decision.effects if isinstance(effect, Apply)] == list(decision.record.outbox)


@pytest.mark.parametrize("end", [succeed(S1), fail(S1, final=True), c.HandBack(holder=S1)], ids=type)
def test_a_superseded_body_owes_nothing(end: c.Command) -> None:
    at = play(*HOOKED, supersede("r2"))
    assert refused(at, end) is Why.SUPERSEDED
    assert at.found.outbox == ()


def test_every_outcome_of_a_perpetual_chain_has_its_own_hooks() -> None:
    at = play(*PERPETUAL, succeed(S1))
    second = at.found.run_id
    at = play(60.0, claim("s1", second), succeed(holder("s1", second)), start=at)
    at = play(c.Cancel(run_id=at.found.run_id), start=at)
    assert owed(at.found) == ["pleased", "pleased", "tidy"]
    ids = [entry.run_id for entry in at.found.outbox]
    assert len(set(ids)) == 3
    assert ids == [entry.key for entry in at.found.outbox], "a hook's run has a key of its own"


def test_spawned_runs_hooks_and_letters_go_together() -> None:
    at = play(*HOOKED, succeed(S1, outbox=(spawned(),)))
    assert [entry.id for entry in at.found.outbox] == ["o1", "hook.r1.succeeded.0"]


@pytest.mark.parametrize("newer", [submit("r2"), supersede("r2")], ids=type)
def test_a_new_generation_carries_hooks_and_letters_on(newer: c.Command) -> None:
    at = play(*HOOKED, fail(S1))
    after = play(newer, start=at)
    assert after.found.outbox == at.found.outbox
    assert after.found.schema == HOOKS_SCHEMA


def test_a_record_that_owes_a_letter_neither_expires_nor_is_purged() -> None:
    at = play(*HOOKED, fail(S1))
    assert ttl_of(at.found) is None
    assert refused(at, c.Purge()) is Why.OWED
    assert ttl_of(paid(at).found) is not None
    assert play(c.Purge(), start=paid(at)).record is None


def test_deciding_twice_owes_the_same_things() -> None:
    """A CAS is refused, the record is read again and the outcome decided anew: no id may change by that."""
    at = play(*HOOKED)
    assert decided(at, fail(S1)).record == decided(at, fail(S1)).record


def test_letters_that_nobody_takes_do_not_fill_the_record() -> None:
    """The dead stream refuses them while a perpetual key fails again and again; the spawned run stays."""
    at = play(*PERPETUAL, succeed(S1, outbox=(spawned(),)))
    for _ in range(MAX_OWED_LETTERS + 3):
        run = at.found.run_id
        at = play(60.0, claim("s1", run), fail(holder("s1", run)), start=at)
    dead = [entry for entry in at.found.outbox if entry.dead]
    assert [entry.dead[-1].generation for entry in dead] == [5, 6, 7, 8]
    assert "child" in {entry.key for entry in at.found.outbox}


# -- what a hook is told ---------------------------------------------------------------------------------------------


class Args(msgspec.Struct):
    it: Outcome


def told(record: Record) -> Outcome:
    entry = next(entry for entry in record.outbox if b"it" in bytes(entry.task.args))
    return msgspec.json.decode(entry.task.args, type=Args).it


def test_a_hook_is_told_of_a_failure() -> None:
    it = told(play(*HOOKED, fail(S1)).found)
    assert (it.key, it.generation, it.run_id, it.actor, it.phase, it.attempt) == (KEY, 1, "r1", "actor", "failed", 1)
    assert (it.error_type, it.error_message, it.result, it.reason) == (BOOM.type, BOOM.message, None, None)
    assert it.ended_at.timestamp() == NOW


def test_a_hook_is_told_of_a_cancel() -> None:
    it = told(play(submit(hooks=HOOKS), CANCEL).found)
    assert (it.phase, it.reason, it.error_type, it.attempt) == ("cancelled", CANCEL.reason, None, 0)


def test_a_hook_is_told_of_the_result_as_plain_values() -> None:
    hooks = Hooks(success=(Hook(task=Task(actor="h"), outcome="it"),))
    done = c.Succeed(holder=S1, next_run_id="", result=Raw(b'{"pages":[1,null]}'))
    assert told(play(submit(hooks=hooks), claim(), done).found).result == {"pages": [1, None]}


def test_derived_ids_are_ulids_that_never_change() -> None:
    """They are stored: another way of deriving them would start a hook twice in a rolling deploy."""
    run_id = "01JDN5Z7Q8XKQ4V6T2M9C3B1AF"
    assert derived_id(run_id, "succeeded.0") == "01JDN5Z7Q8NEDHZXA2NW50NSF0"
    made = {derived_id(run_id, place) for place in ("succeeded.0", "succeeded.1", "failed.0", "replay")}
    assert len(made) == 4
    assert all(len(name) == 26 and name.startswith(run_id[:10]) and not set(name) & set("ILOU") for name in made)
    assert len(derived_id("r1", "replay")) == 26
    assert len(derived_id("r1", "id \ud800")) == 26, "whatever text somebody may have sent as an id"


# -- dead letters ----------------------------------------------------------------------------------------------------


def letter(record: Record) -> DeadLetter:
    return letter_of(next(entry for entry in record.outbox if entry.dead))


def test_a_letter_tells_everything_and_survives_the_wire() -> None:
    one = letter(play(submit(max_attempts=2), claim(), fail(S1), 1.0, claim("s2"), fail(holder("s2", attempt=2))).found)
    assert (one.key, one.run_id, one.generation, one.actor) == (KEY, "r1", 1, "actor")
    assert (one.queue, one.priority, one.attempts, one.failures, one.failure) == ("default", "normal", 2, 2, BOOM)
    assert (one.died_at, one.history, one.schema) == (NOW + 1.0, (), SCHEMA)
    assert one.task.policy.max_attempts == 2
    assert decode_letter(encode_letter(one)[:-1] + b',"new":1}') == one


def test_a_replay_is_the_same_task_under_a_run_id_of_its_own_that_never_changes() -> None:
    at = paid(play(*HOOKED, fail(S1)))
    command = replay_of(letter(play(*HOOKED, fail(S1)).found))
    assert command == replay_of(letter(play(*HOOKED, fail(S1)).found))
    again = play(command, start=at)
    assert (again.found.generation, again.found.run_id, again.found.task) == (
        2,
        derived_id("r1", "replay"),
        at.found.task,
    )
    assert refused(again, command) is Why.ALREADY


def test_a_replay_whose_letter_was_not_removed_starts_no_second_run_however_late() -> None:
    """Submit, crash before the removal; the run ends, the key moves on twice; then the letter is replayed again."""
    command = replay_of(letter(play(*HOOKED, fail(S1)).found))
    at = play(command, start=paid(play(*HOOKED, fail(S1))))
    for run in (command.run_id, "r3", "r4"):
        at = play(claim("s1", run), succeed(holder("s1", run)), start=at)
        at = play(submit("r3" if run == command.run_id else "r4" if run == "r3" else "r5"), start=at)
    assert refused(at, command) is Why.ALREADY
    forgotten = play(c.ForgetSeen(ids=frozenset({"replay.r1"})), start=at)
    assert forgotten.found.seen == ()


def test_a_live_key_refuses_a_replay() -> None:
    command = replay_of(letter(play(*HOOKED, fail(S1)).found))
    at = play(submit("r2"), start=paid(play(*HOOKED, fail(S1))))
    assert refused(at, command) is Why.LIVE
    assert refused(play(claim("s1", "r2"), start=at), command) is Why.LIVE


def test_a_run_that_dies_again_tells_the_earlier_failures_too_in_bounds() -> None:
    at = play(*HOOKED, fail(S1))
    for _ in range(MAX_HISTORY + 2):
        command = replay_of(letter(at.found))
        run = command.run_id
        at = play(command, claim("s1", run), fail(holder("s1", run)), start=paid(at))
    last = letter(at.found)
    assert last.generation == MAX_HISTORY + 3
    assert [death.generation for death in last.history] == list(range(3, MAX_HISTORY + 3))
    assert {death.failure.message for death in last.history} == {BOOM.message}
    assert {death.failure.traceback for death in last.history} == {""}


def test_history_ends_with_the_run_that_replays() -> None:
    """Neither a successor nor a later submit is a replay."""
    command = replace(replay_of(letter(play(*PERPETUAL, fail(S1)).found)), key=KEY)
    at = play(command, start=None)
    assert len(at.found.history) == 1
    after = play(claim("s1", command.run_id), fail(holder("s1", command.run_id)), start=at)
    assert (after.found.phase, after.found.history) == (Phase.WAITING, ())
    assert play(supersede("r9"), start=at).found.history == ()


def test_a_letter_of_a_newer_schema_is_not_replayed() -> None:
    one = replace(letter(play(*HOOKED, fail(S1)).found), schema=SCHEMA + 1)
    with pytest.raises(NewerSchema):
        replay_of(one)


# -- records of before -----------------------------------------------------------------------------------------------

BEFORE = (
    b'{"schema":1,"key":"k","run_id":"r1","generation":1,"phase":"succeeded","task":{"actor":"a","policy":'
    b'{"max_attempts":2}},"queued_at":1000.0,"attempt":1,"outbox":[{"id":"r1.1.0","key":"child","run_id":"r2",'
    b'"task":{"actor":"b"}}]}'
)


def test_a_record_of_before_decodes_and_means_the_same() -> None:
    record = decode(BEFORE)
    assert record.outbox == (Entry(id="r1.1.0", key="child", run_id="r2", task=Task(actor="b")),)
    assert (record.outbox[0].dead, record.task.policy.hooks, record.history) == ((), None, ())
    assert encode(record) == BEFORE


def test_a_record_says_the_schema_that_what_it_holds_needs() -> None:
    """In a rolling deploy older processes go on with all others."""
    assert play(submit()).found.schema == PLAIN_SCHEMA
    assert play(submit(), claim(), succeed(S1, outbox=(spawned(),))).found.schema == PLAIN_SCHEMA
    assert play(submit(hooks=HOOKS)).found.schema == HOOKS_SCHEMA
    failed = play(submit(), claim(), fail(S1, final=True))
    assert failed.found.schema == HOOKS_SCHEMA
    assert paid(failed).found.schema == PLAIN_SCHEMA
    hooked = replace(spawned(), task=Task(actor="x", policy=Policy(hooks=HOOKS)))
    assert play(submit(), claim(), succeed(S1, outbox=(hooked,))).found.schema == HOOKS_SCHEMA
    assert play(submit(every=2.0)).found.schema == PLAIN_SCHEMA
    assert play(submit(every=2.0, catch_up="all")).found.schema == SCHEDULE_SCHEMA
    assert play(submit(cron="0 4 * * *")).found.schema == SCHEDULE_SCHEMA
    assert play(submit(limits=(Bound(n=1),))).found.schema == LIMITS_SCHEMA
    assert play(submit(pace=Pace(cooldown=1.0))).found.schema == SCHEMA
    paced = Hooks(success=(Hook(task=task(pace=Pace(cooldown=1.0))),))
    assert play(submit(hooks=paced, limits=(Bound(n=1),))).found.schema == SCHEMA
    limited = Hooks(success=(Hook(task=task(limits=(Bound(n=1),))),))
    assert play(submit(hooks=limited)).found.schema == LIMITS_SCHEMA, (
        "an older process would pass the hook on without its limits"
    )
    later = replace(spawned(), task=Task(actor="x", policy=Policy(cron="0 4 * * *")))
    assert play(submit(), claim(), succeed(S1, outbox=(later,))).found.schema == SCHEDULE_SCHEMA
