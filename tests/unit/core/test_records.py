"""The wire form of records and sessions, and what a sweep reads of them without decoding."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.errors import NewerSchema
from tenure.core.records import (
    NO_ARGS,
    NULL,
    SCHEMA,
    Blob,
    Count,
    Death,
    Failure,
    Last,
    Phase,
    Policy,
    Previous,
    Record,
    Settling,
    State,
    Task,
    decode,
    encode,
    read_state,
    state_of,
    ttl_of,
)
from tenure.core.sessions import (
    Progress,
    Session,
    StopSignal,
    decode_progress,
    decode_session,
    decode_signal,
    encode_session,
)
from tests.unit.core.histories import (
    BOOM,
    CANCEL,
    NOW,
    RUN,
    S1,
    SEEN,
    At,
    claim,
    fail,
    keep,
    paid,
    play,
    spawned,
    submit,
    succeed,
    supersede,
)

DEATH = Death(run_id="r0", generation=1, attempts=2, failures=2, queued_at=NOW, at=NOW, failure=BOOM)
ENDED = (*RUN, succeed(S1))


def as_dict(record: Record) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(encode(record))
    return found


def full() -> Record:
    """A record with every field set."""
    record = play(submit(seen=SEEN, timeout=5.0, every=60.0), claim(), CANCEL).found
    blob = Blob(name="r1.args", size=9, digest="ab")
    return replace(
        record,
        task=replace(record.task, queue="gpu", priority="high", blob=blob),
        due=NOW + 0.25,
        failures=2,
        failure=Failure(type="E", message="m\u00e9", traceback="t"),
        evicted=True,
        previous=(
            Previous(session="s0", run_id="r0", attempt=3, deadline=NOW),
            Previous(session="s", run_id="r", attempt=1, actor="b", counted=True),
        ),
        last=Last(run_id="r0", generation=1, phase=Phase.FAILED, at=NOW, result=Raw(b"[1]"), blob=blob, reason="why"),
        outbox=(spawned(),),
        history=(DEATH,),
        uncounted=(Count(what="superseded", where="head", actor="a", number=2),),
        taken="t",
        deployed=5.0,
        settling=Settling(since=NOW, by="r2"),
    )


def test_every_field_survives_the_wire() -> None:
    record = full()
    unset = [name for name, default in defaults() if getattr(record, name) == default]
    assert unset == []
    assert decode(encode(record)) == record


def defaults() -> list[tuple[str, object]]:
    return [(field.name, field.default) for field in msgspec.structs.fields(Record) if not field.required]


@pytest.mark.parametrize("args", [b"{}", b'{"n":1}', b'{"deep":[1,{"x":null}]}'])
def test_arguments_pass_as_they_are(args: bytes) -> None:
    record = replace(play(submit()).found, task=Task(actor="a", args=Raw(args)))
    assert bytes(decode(encode(record)).task.args) == args


@pytest.mark.parametrize("result", [b"null", b"42", b'"text"', b"[]", b'{"a":1}', b"false"])
def test_a_result_passes_as_it_is(result: bytes) -> None:
    done = c.Succeed(holder=S1, next_run_id="r2", result=Raw(result))
    last = decode(encode(play(*RUN, done).found)).last
    assert last is not None
    assert bytes(last.result) == result


def test_without_arguments_and_result_there_are_an_empty_object_and_null() -> None:
    record = play(*RUN, c.Succeed(holder=S1, next_run_id="r2")).found
    bare = decode(encode(replace(record, task=Task(actor="a"))))
    assert bare.last is not None
    assert (bare.task.args, bare.last.result) == (NO_ARGS, NULL)


def test_defaults_are_left_out() -> None:
    """A new record is small: it travels in every wake-up."""
    record = Record(
        schema=SCHEMA,
        key="k",
        run_id="r1",
        generation=1,
        phase=Phase.WAITING,
        task=Task(actor="a"),
        queued_at=NOW,
    )
    assert as_dict(record) == {
        "schema": SCHEMA,
        "key": "k",
        "run_id": "r1",
        "generation": 1,
        "phase": "waiting",
        "task": {"actor": "a"},
        "queued_at": NOW,
    }


def test_fields_that_are_not_known_are_tolerated() -> None:
    """A rolling deploy: the newer process has added a field of the same schema, here and inside."""
    record = full()
    raw = as_dict(record)
    raw["new"] = {"a": [1]}
    raw["task"] |= {"colour": "red"}  # type: ignore[operator]  # known to be a dict
    assert decode(msgspec.json.encode(raw)) == record


def test_a_record_of_a_newer_schema_is_refused_whole() -> None:
    """Rewriting it would drop what the newer process relies on."""
    raw = as_dict(full()) | {"schema": SCHEMA + 1}
    with pytest.raises(NewerSchema) as caught:
        decode(msgspec.json.encode(raw))
    assert caught.value.schema == SCHEMA + 1


@pytest.mark.parametrize("change", [{"phase": "resting"}, {"task": 7}, {"generation": "one"}, {"holder": []}])
def test_a_newer_record_is_told_from_a_broken_one_even_if_it_cannot_be_read(change: dict[str, object]) -> None:
    raw = as_dict(full()) | change
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.json.encode(raw))
    with pytest.raises(NewerSchema):
        decode(msgspec.json.encode(raw | {"schema": SCHEMA + 1}))


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[]", b'{"schema":"x"}', b'{"phase":"waiting"}', b"\xff"])
def test_what_is_no_record_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(data)


# -- expiry ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [play(submit()), play(*RUN), play(*RUN, CANCEL), play(*RUN, fail(S1))])
def test_a_live_record_never_expires(at: At) -> None:
    assert ttl_of(at.found) is None


@pytest.mark.parametrize(("seconds", "ttl"), [(86_400.0, 86_400), (0.0, 1), (0.2, 1), (1.0, 1), (1.5, 2)], ids=str)
def test_a_finished_record_expires_after_its_policy_in_whole_seconds(seconds: float, ttl: int) -> None:
    """The server takes whole seconds, at least one."""
    at = play(submit(result_ttl=seconds), claim())
    for end in (succeed(S1), fail(S1, final=True), c.Cancel(run_id="r1")):
        ended = play(end, start=at)
        if ended.found.phase is Phase.STOPPING:
            ended = play(succeed(S1), start=ended)
        assert ttl_of(paid(ended).found) == ttl


def test_a_finished_record_that_owes_something_does_not_expire() -> None:
    ended = play(*ENDED).found
    entry = Previous(session="s0", run_id="r0", attempt=1)
    assert ttl_of(ended) is not None
    assert ttl_of(replace(ended, previous=(entry,))) is None
    assert ttl_of(replace(ended, outbox=(spawned(),))) is None
    assert ttl_of(replace(ended, seen=(SEEN,))) is None


# -- what a headers-only sweep reads ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "state"),
    [
        (play(submit()), "waiting - - - - actor default 1 r1"),
        (play(submit(due=NOW + 60)), f"waiting {NOW + 60} - - - actor default 1 r1"),
        (play(*RUN), "running - - s1 - actor default 1 r1"),
        (play(submit(timeout=5.0), claim()), f"running - {NOW + 5} s1 - actor default 1 r1"),
        (play(submit(timeout=5.0), claim(), CANCEL), f"stopping - {NOW + 10} s1 - actor default 1 r1"),
        (play(*ENDED), "succeeded - - - - actor default 1 r1"),
        (play(*RUN, CANCEL, 1.0, succeed(S1)), "cancelled - - - - actor default 1 r1"),
        (play(*RUN, supersede()), "waiting - - - p actor default 2 r2"),
        (play(*RUN, succeed(S1, outbox=(spawned(),))), "succeeded - - - o actor default 1 r1"),
        (play(submit(seen=SEEN)), "waiting - - - s actor default 1 r1"),
        (
            play(
                submit(seen=SEEN),
                claim(),
                succeed(S1, outbox=(spawned(),)),
                submit("r2"),
                claim("s2", "r2"),
                supersede("r3"),
            ),
            "waiting - - - pos actor default 3 r3",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_state_header_says_what_a_sweep_looks_for(at: At, state: str) -> None:
    assert state_of(at.found) == state


def test_the_state_header_is_read_back_and_may_be_longer_or_of_an_older_tenure() -> None:
    """An older one does not tell the run; a newer one may tell more."""
    text = state_of(play(*RUN).found)
    state = read_state(text)
    assert state == State(Phase.RUNNING, 0.0, 0.0, "s1", "", "actor", "default", 1, "r1")
    kept = replace(play(keep()).found, run_id="r2")
    assert read_state(f"{state_of(kept, 5.0)} more 7") == read_state(state_of(kept, 5.0))
    ended = read_state(state_of(play(*ENDED).found, NOW + 60))
    assert ended is not None
    assert (ended.schedule, ended.autostart, ended.until) == ("", "", NOW + 60)
    assert read_state(state_of(kept)) == State(
        Phase.WAITING, 0.0, 0.0, "", "", "actor", "default", 1, "r2", "every:60", "jobs"
    )
    daily = play(submit(cron="0  4 * * 1-5", tz="Europe/Berlin")).found
    assert state_of(daily).split(" ")[9:] == ["cron:0_4_*_*_1-5@Europe/Berlin", "-"]
    older = read_state(text.removesuffix(" r1"))
    assert older is not None
    assert older == replace(state, run_id="")
    assert read_state("running - -") is None


# -- policies and sessions -------------------------------------------------------------------------------------------


def test_a_policy_on_the_wire_names_only_what_differs() -> None:
    assert msgspec.json.encode(Policy(max_attempts=1, overlap="wait")) == b'{"max_attempts":1,"overlap":"wait"}'


def test_sessions_signals_and_progress_survive_the_wire_and_tolerate_new_fields() -> None:
    session = Session(id="s1", kind="worker", host="h", pid=7, ttl=5.0, started_at=NOW)
    assert decode_session(encode_session(session)) == session
    closed = replace(session, beat=3, closed="drain")
    assert decode_session(encode_session(closed)[:-1] + b',"new":1}') == closed
    signal = StopSignal(run_id="r1", attempt=1, reason="cancel")
    assert decode_signal(msgspec.json.encode(signal)[:-1] + b',"new":1}') == signal
    progress = Progress(run_id="r1", attempt=1, done=0.5, at=NOW, total=None, note="half")
    assert decode_progress(msgspec.json.encode(progress)[:-1] + b',"new":1}') == progress
