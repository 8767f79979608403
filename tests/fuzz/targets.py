"""What is fuzzed: each target takes bytes that anybody may have stored or sent, and may end in what it declares only.

A target goes on as far as a process would with what it has read: a record is written again, shown, and decided on. Its seeds
are what the real encoders write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgspec
from nats.aio.msg import Msg

from tenure import App, Encryption
from tenure.core import commands as c
from tenure.core import dead, permits, rates, sessions, switches
from tenure.core.cron import ScheduleError, fire_after, last_fire
from tenure.core.errors import EncryptedRecord, IllegalTransition, InvalidCall, NewerSchema
from tenure.core.expiry import is_over
from tenure.core.given import UNREADABLE
from tenure.core.history import Refusal as Told
from tenure.core.history import Written, decode_refusal, steps
from tenure.core.marks import Place
from tenure.core.outcomes import effects_of
from tenure.core.records import Policy, Record, read_state, state_of, ttl_of
from tenure.core.schedule import next_due
from tenure.core.sealing import Codec
from tenure.core.subjects import Names
from tenure.core.transitions import transition
from tenure.nats.acks import parse_ack
from tenure.nats.connection import Connection
from tenure.nats.handover import Handovers
from tenure.nats.inbox import Inbox
from tenure.nats.work import Work
from tenure.status import status_of
from tenure.wishes import Refusal, Sent, Wish, read
from tests.unit.core.histories import PACE, claim, fail, holder, play, submit, succeed, supersede

NAMES, NOBODY, NOW = Names("docs"), cast("Connection", None), 1_790_000_000.0
CODEC = Codec("docs", Encryption({"k": bytes(32)}, "k"))
PLAIN = Codec("docs")
DECLARED = (NewerSchema, EncryptedRecord, *UNREADABLE)
"""What reading may raise: whoever reads knows what to do about these."""
WORK, INBOX, HANDOVERS = Work(NOBODY, NAMES, "i", PLAIN), Inbox(NOBODY, NAMES), Handovers(NOBODY, NAMES)
ACK = "$JS.ACK.TENURE_docs_WORK.default-normal.1.12.12.1790000000000000000.3"
app = App("docs")


@app.actor
async def add(one: int, two: list[str] | None = None) -> int:
    return one


class Target(NamedTuple):
    """``run`` takes bytes, and raises only what is a fault of ours."""

    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


_CLAIMED = (submit(max_attempts=3), claim())
RECORDS = (
    play(submit(pace=PACE)).found,
    play(*_CLAIMED).found,
    play(*_CLAIMED, supersede()).found,
    play(*_CLAIMED, fail(holder())).found,
    play(submit(max_attempts=1), claim(), fail(holder())).found,
    play(submit(every=60.0), claim(), succeed(holder())).found,
    play(submit(cron="30 4 * * *", tz="Europe/Berlin")).found,
)
_COMMANDS: tuple[c.Command, ...] = (
    claim("s2"),
    claim("s2", closed="s1"),
    submit("r9"),
    supersede("r9"),
    c.Cancel(reason="r"),
    c.Trigger(),
    succeed(holder()),
    fail(holder()),
    c.SnoozeRun(holder=holder(), due=5.0),
    c.HandBack(holder=holder()),
    c.Evict(holder=holder(), next_run_id="n", jitter=0.5, closed=frozenset({"s1"}), tag="t"),
    c.Confirm(holder=holder(), tag="t"),
    c.ExpirePrevious(closed=frozenset({"s1"}), tag="t"),
    c.TakeCounts(tag="t"),
    c.Purge(),
)


def _record(data: bytes) -> None:
    try:
        record = PLAIN.decode(data, "k")
    except DECLARED:
        return
    _used(record)


def _sealed(data: bytes) -> None:
    try:
        record = CODEC.decode(data, "k")
    except DECLARED:
        return
    assert CODEC.decode(CODEC.encode(record), record.key) == record


def _used(record: Record) -> None:
    """Whatever a process does with a record that it could read."""
    try:
        again = PLAIN.encode(record)
    except InvalidCall:
        return
    assert PLAIN.decode(again, "k") == record
    read_state(state_of(record))
    ttl_of(record), is_over(record, NOW), effects_of(record), status_of(record, NOW)
    steps([Written(1, NOW, record)], (), NOW)
    for command in _COMMANDS:
        try:
            result = transition(record, command, NOW)
        except (IllegalTransition, InvalidCall):
            continue
        written = getattr(result, "record", None)
        if written is not None:
            PLAIN.decode(PLAIN.encode(written), "k")


def _wakeup(data: bytes) -> None:
    subject = NAMES.work("default", "normal", "k", "r1")
    delivery = WORK.open(Msg(cast("Any", None), subject, ACK, data, {}))
    assert delivery.found is None or delivery.to is not None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _subjects(data: bytes) -> None:
    text = _text(data)
    parse_ack(text)
    read_state(text)
    NAMES.parse_work(text)
    NAMES.parse_command(text)
    for prefix in (NAMES.work_prefix, NAMES.timer_prefix, NAMES.park_prefix):
        NAMES.stored_for(prefix, prefix + text)


def _command(data: bytes) -> None:
    """Lines: the verb, the actor, headers; an empty one, then the payload."""
    head, _, payload = data.partition(b"\n\n")
    verb, actor, *lines = (*_text(head).split("\n"), "", "")[:8]
    headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    for place in (Place(1, 1_790_000_000_000_000), None):
        sent = Sent(
            verb=verb, actor=actor.strip(), subject=f"tenure.docs.{verb}.{actor}", headers=headers, data=payload, at=NOW,
            place=place, new_id="n",
        )  # fmt: skip
        said = read(sent, app.actors, 1_000_000)
        assert isinstance(said, Wish | Refusal)
    dead.rejected(command="c", subject="s", reason="key", text="t", headers=headers, data=payload, sent_at=NOW, now=NOW)


def _schedule(data: bytes) -> None:
    """``<expression>|<zone>``."""
    expression, _, zone = _text(data).partition("|")
    for ask in (fire_after, last_fire):
        try:
            ask(expression, zone, NOW)
        except ScheduleError:
            return
    next_due(Policy(cron=expression, tz=zone), NOW - 60.0, NOW)


def _board(data: bytes) -> None:
    try:
        board = CODEC.decode_board(data)
    except DECLARED:
        return
    rules = switches.Rules(board)
    rules.queue("default", NOW)
    rules.run("k", "add", b'{"one": 1}', NOW)
    rules.next_end(NOW)
    switches.expired(board, NOW)
    CODEC.decode_board(CODEC.encode_board(board))


def _limit(data: bytes) -> None:
    try:
        entry = permits.decode_entry(data)
    except DECLARED:
        return
    take = permits.Take(key="k", run_id="r1", attempt=1, session="s", n=2, deployed=1.0)
    asked = (take, permits.Give(run_id="r", attempt=1, session="s"), permits.Look(n=2, deployed=1.0))
    permits.room_to_hand_over(entry, asked, may_wait=True)
    decided = permits.decide(entry, asked, (("p", "rp"),), {"r1"}, NOW, may_wait=True)
    permits.decode_entry(permits.encode_entry(decided.entry))


def _rate(data: bytes) -> None:
    try:
        entry = rates.decode_entry(data)
    except DECLARED:
        return
    now = int(NOW * 1_000_000)
    asked = (rates.Start(key="k", run_id="r1", within=1_000, n=2), rates.Leave(run_id="r", mark=1), rates.Look())
    searched = rates.room_to_hand_over(entry, asked, 1_000_000, now)
    rates.next_room(entry, 1_000_000, now)
    decided = rates.decide(entry, asked, (("p", "rp"),), {"r1"}, 1_000_000, now, searched)
    rates.ttl_of(decided.entry, 1_000_000, now)
    rates.decode_entry(rates.encode_entry(decided.entry))


def _letter(data: bytes) -> None:
    try:
        letter, sealed = CODEC.decode_letter(data)
    except DECLARED:
        return
    if not sealed:
        try:
            command = dead.replay_of(letter)
        except NewerSchema:
            return
        transition(None, command, NOW)
        CODEC.decode_letter(CODEC.encode_letter(letter))


def _decoder(decode: Callable[[bytes], object]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        with contextlib.suppress(*DECLARED):
            decode(data)

    return run


_encoded = msgspec.json.encode
_DEAD = RECORDS[4].outbox[0]
_PERMIT = permits.Permit(key="k", run_id="r", attempt=1, session="s", at=1.0)
_SWITCH = switches.Switch(id="i", kind="arguments", name="add", at=1.0, args={"one": ("1",)})
_PROGRESS = sessions.Progress(run_id="r", attempt=1, done=1.0, at=1.0, note="n")
_REJECTED = dead.rejected(
    command="c", subject="s", reason="key", text="t", headers={"A": "b"}, data=b"x", sent_at=1.0, now=2.0
)
_SESSION = sessions.Session(id="s", kind="worker", host="h", pid=1, ttl=5.0, started_at=1.0)

TARGETS: dict[str, Target] = {
    "record": Target(_record, tuple(map(PLAIN.encode, RECORDS))),
    "sealed": Target(_sealed, tuple(map(CODEC.encode, RECORDS))),
    "wakeup": Target(_wakeup, tuple(b'{"i":"i","g":1,"r":7}\n' + PLAIN.encode(record) for record in RECORDS)),
    "subjects": Target(
        _subjects,
        (ACK.encode(), NAMES.work("default", "normal", "k", "r1").encode(), *(state_of(r).encode() for r in RECORDS)),
    ),
    "command": Target(
        _command,
        (
            b'submit\nadd\nTenure-Key: k\nTenure-Delay: 1.5\n\n{"one": 1, "two": ["a"]}',
            b'replace\nadd\nTenure-Key: k\nTenure-At: 2026-11-29T00:00:00Z\nTenure-Overlap: stop\n\n{"one": 1}',
            b'cancel\n \nTenure-Key: k\nTenure-Run: r\n\n{"reason": "r"}',
        ),
    ),
    "schedule": Target(
        _schedule, (b"30 4 * * *|Europe/Berlin", b"*/5 0 8-18 * * mon-fri|UTC", b"0 0 29 2 *|Asia/Tokyo")
    ),
    "switches": Target(
        _board,
        (
            CODEC.encode_board(switches.Board(switches=(_SWITCH,))),
            PLAIN.encode_board(
                switches.Board(switches=(_SWITCH, switches.Switch(id="j", kind="keys", pattern="a*", at=1.0)))
            ),
        ),
    ),
    "limit": Target(_limit, (_encoded(permits.Entry(n=2, permits=(_PERMIT,), line=(_PERMIT,))),)),
    "rate": Target(
        _rate, (_encoded(rates.Entry(n=2, marks=((1, 2),), places=(rates.Place(key="k", run_id="r", at=1),))),)
    ),
    "letter": Target(_letter, tuple(one.encode_letter(dead.letter_of(_DEAD)) for one in (PLAIN, CODEC))),
    "rejected": Target(
        _decoder(CODEC.decode_rejected), tuple(one.encode_rejected(_REJECTED) for one in (PLAIN, CODEC))
    ),
    "progress": Target(
        _decoder(lambda data: CODEC.decode_progress(data, "k")),
        tuple(one.encode_progress(_PROGRESS, "k") for one in (PLAIN, CODEC)),
    ),
    "session": Target(_decoder(sessions.decode_session), (_encoded(_SESSION),)),
    "signal": Target(
        _decoder(sessions.decode_signal), (_encoded(sessions.StopSignal(run_id="r", attempt=1, reason="cancel")),)
    ),
    "refusal": Target(_decoder(decode_refusal), (_encoded(Told(run_id="r", where="head", why="busy")),)),
    "handover": Target(
        lambda data: HANDOVERS._open(data, "default"),
        (_encoded({"subject": NAMES.work("default", "normal", "k", "r1"), "reply": ACK}),),
    ),
    "blob": Target(_decoder(lambda data: CODEC.open_blob(data, "r1.args")), (CODEC.seal_blob(b"{}", "r1.args"), b"{}")),
}
