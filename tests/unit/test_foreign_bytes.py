"""Bytes that anybody may have written: whatever they are, reading them ends in a value or in an error that callers know.

Chance begins at what Tenure itself writes and spoils it, for most of pure noise is turned away at the first byte.
"""

from __future__ import annotations

import ast
import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.aio.msg import Msg

from tenure import App, Context
from tenure.core import dead, permits, rates, sessions, switches
from tenure.core.errors import InvalidCall, NewerSchema
from tenure.core.given import UNREADABLE
from tenure.core.history import Refusal as Told
from tenure.core.history import decode_refusal
from tenure.core.marks import Place
from tenure.core.records import decode, encode, read_state, state_of
from tenure.core.sealing import Codec
from tenure.core.subjects import Names, decode_key
from tenure.nats.connection import Connection
from tenure.nats.handover import Handovers
from tenure.nats.inbox import Inbox
from tenure.nats.work import Work
from tenure.wishes import Refusal, Sent, Wish, read
from tenure.worker import pipe
from tests.fuzz.spoil import spoiled
from tests.unit.core.histories import PACE, claim, fail, holder, play, submit

NAMES = Names("docs")
NOBODY = cast("Connection", None)
ACK = "$JS.ACK.TENURE_docs_WORK.default-normal.1.12.12.1790000000000000000.3"
SUBJECT = NAMES.work("default", "normal", "k", "r1")
CLAIMED = (submit(max_attempts=3), claim())
RECORDS = [play(submit(pace=PACE)).found, play(*CLAIMED).found, play(*CLAIMED, fail(holder())).found]
RECORD = RECORDS[0]
app = App("docs")


@app.actor
async def add(ctx: Context, one: int, two: list[str] | None = None) -> int:
    return one


WORK, INBOX, HANDOVERS = Work(NOBODY, NAMES, "i", Codec("docs")), Inbox(NOBODY, NAMES), Handovers(NOBODY, NAMES)
WAKE = b'{"i":"i","g":1,"r":7}\n' + encode(RECORD)
ARGUMENTS = b'{"one": 1, "two": ["a", "\xc3\xa4"]}'
encoded = msgspec.json.encode
PERMIT = permits.Permit(key="k", run_id="r", attempt=1, session="s", at=1.0)

DECODERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "record": (decode, encode(RECORDS[2])),
    "running record": (decode, encode(RECORDS[1])),
    "session": (
        sessions.decode_session,
        encoded(sessions.Session(id="s", kind="worker", host="h", pid=1, ttl=5.0, started_at=1.0)),
    ),
    "stop": (sessions.decode_signal, encoded(sessions.StopSignal(run_id="r", attempt=1, reason="cancel"))),
    "progress": (sessions.decode_progress, encoded(sessions.Progress(run_id="r", attempt=1, done=1.0, at=1.0))),
    "rejected": (
        dead.decode_rejected,
        encoded(dead.rejected(command="c", subject="s", reason="key", text="t", headers={"A": "b"}, data=b"x",
                              sent_at=1.0, now=2.0)),
    ),
    "refusal": (decode_refusal, encoded(Told(run_id="r", where="head", why="busy"))),
    "limit": (permits.decode_entry, encoded(permits.Entry(n=2, permits=(PERMIT,), line=(PERMIT,)))),
    "rate": (rates.decode_entry, encoded(rates.Entry(n=2, marks=((1, 2),)))),
    "switches": (switches.decode_board, encoded(switches.Board(switches=(switches.Switch(id="i", kind="queue", name="q", at=1.0),)))),
    "of a child": (pipe.read_in_worker, msgspec.msgpack.encode(pipe.Note(1.0, None, "n"))),
    "to a child": (pipe.read_in_child, msgspec.msgpack.encode(pipe.Tell("cancel", interrupt=True))),
}  # fmt: skip
CHANCE = st.randoms(use_true_random=False)
few = settings(max_examples=40, deadline=None, database=None)


@pytest.mark.parametrize("name", DECODERS)
def test_the_samples_can_be_read(name: str) -> None:
    read_it, sample = DECODERS[name]
    assert read_it(sample) is not None


@pytest.mark.parametrize("name", DECODERS)
@given(chance=CHANCE, noise=st.binary(max_size=40))
@few
def test_what_is_stored_is_read_or_refused_with_an_error_that_callers_know(
    name: str, chance: random.Random, noise: bytes
) -> None:
    read_it, sample = DECODERS[name]
    for data in (noise, spoiled(sample, chance), sample[:1] + noise, b"[" * 3_000):
        try:
            read_it(data)
        except (NewerSchema, *UNREADABLE):
            pass


@given(chance=CHANCE)
@few
def test_a_record_that_can_be_read_can_be_written_and_its_header_told(chance: random.Random) -> None:
    """Else a worker that means to refuse it would break over its own answer."""
    try:
        record = decode(spoiled(encode(chance.choice(RECORDS)), chance))
        again = encode(record)
    except (NewerSchema, InvalidCall, *UNREADABLE):
        return
    assert decode(again) == record
    read_state(state_of(record))


TEXT = st.text(max_size=60)
NUMBERS = st.lists(st.integers().map(str) | st.sampled_from(["9" * 400, "9" * 5_000]), min_size=5, max_size=5)


@given(text=TEXT, numbers=NUMBERS, data=st.binary(max_size=60), chance=CHANCE)
@settings(max_examples=200, deadline=None, database=None)
def test_a_delivery_is_taken_apart_whatever_it_is(
    text: str, numbers: list[str], data: bytes, chance: random.Random
) -> None:
    subject = chance.choice([text, SUBJECT, NAMES.work_prefix + text])
    numbered = "$JS.ACK.TENURE_docs_WORK.default-normal." + ".".join(numbers)
    reply = chance.choice([text, ACK, numbered, ACK[:-1] + text])
    message = Msg(cast("Any", None), subject, reply, chance.choice([data, spoiled(WAKE, chance)]), {"a": text})
    delivery = WORK.open(message)
    assert delivery.found is None or delivery.to is not None
    INBOX.open(message)
    offer = encoded({"subject": SUBJECT, "reply": chance.choice([numbered, ACK])})
    for payload in (data, offer, spoiled(offer, chance)):
        HANDOVERS._open(payload, "default")


@given(text=TEXT)
@few
def test_headers_and_subjects_of_records_are_read_or_are_none(text: str) -> None:
    for header in (text, state_of(RECORD) + text, text.join(state_of(RECORD).split(" ")), text + state_of(RECORD)):
        read_state(header)
    NAMES.parse_command(text)
    NAMES.parse_command(f"{NAMES.root}.{text}")
    with contextlib.suppress(ValueError):
        assert NAMES.record(decode_key(text)) == NAMES.runs_prefix + text


HEADERS = (
    "Tenure-Key",
    "Tenure-Delay",
    "Tenure-At",
    "Tenure-If-Live",
    "Tenure-Overlap",
    "Tenure-Run",
    "Tenure-Reply",
    "Nats-Msg-Id",
)
MEANT = st.sampled_from(["k", "1.5", "500ms", "9" * 400, "1e400", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00Z",
                         "keep", "replace", "stop", "parallel", "2026-02-30T00:00:00Z", "\ud800", "nan", "inf"])  # fmt: skip


@given(
    verb=st.sampled_from(["submit", "replace", "cancel", "status", ""]),
    headers=st.dictionaries(st.sampled_from(HEADERS) | TEXT, MEANT | TEXT, max_size=4),
    actor=st.sampled_from(["add", "other"]),
    stored=st.booleans(),
    noise=st.binary(max_size=20),
    chance=CHANCE,
)
@settings(max_examples=200, deadline=None, database=None)
def test_a_command_is_carried_out_or_refused_in_words(
    verb: str, headers: dict[str, str], actor: str, *, stored: bool, noise: bytes, chance: random.Random
) -> None:
    place = Place(1, 1_790_000_000_000_000) if stored else None
    for data in (ARGUMENTS, spoiled(ARGUMENTS, chance), noise, b'{"reason": "r"}', b""):
        sent = Sent(
            verb=verb, actor=actor, subject=f"tenure.docs.{verb}.{actor}", headers=headers, data=data, at=1_790_000_000.0,
            place=place, new_id="n",
        )  # fmt: skip
        said = read(sent, app.actors, 1_000_000)
        assert isinstance(said, Wish | Refusal)
        if isinstance(said, Refusal):
            assert said.text


# -- no code in data ---------------------------------------------------------------------------------------------------

SOURCES = Path(__file__).parents[2] / "src"
BUILDS_OBJECTS = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml"}
PICKLES_BY_ITSELF = {"multiprocessing", "copyreg", "ProcessPoolExecutor"}


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"eval", "exec", "compile"}
        ):
            yield f"{node.func.id}()"


def test_nothing_is_pickled_and_no_data_is_run() -> None:
    """Whoever may write a record must not be able to have a process build whatever object the bytes name."""
    forbidden = BUILDS_OBJECTS | PICKLES_BY_ITSELF | {"eval()", "exec()", "compile()"}
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(word.removesuffix("()") in text for word in forbidden):  # most files need no second look
            found[path.name] = set(names_in(ast.parse(text))) & forbidden
    assert {name: met for name, met in found.items() if met} == {}


def test_a_pickle_would_be_found() -> None:
    for text in (
        "import pickle",
        "from multiprocessing import Pool",
        "import concurrent.futures as f; f.ProcessPoolExecutor()",
        "eval(x)",
    ):
        assert set(names_in(ast.parse(text))) & (BUILDS_OBJECTS | PICKLES_BY_ITSELF | {"eval()"})
