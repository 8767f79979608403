"""What the server does on behalf of users is bound by nobody's permissions. Who is not trusted must get nothing out of that.

A request names where its answer goes, a header where a message is to be stored, a consumer where it delivers. Each is tried here
by those who live in accounts of their own, at every store of the namespace and at another tenant's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client as NatsClient

from tenure import App
from tenure.core.subjects import Names
from tests.secured import DOCS, OTHER, Secured, secured
from tests.support import wait_until

__all__ = ["secured"]
RECORD = DOCS.record("victim")
TARGETS = [
    RECORD,
    OTHER.record("victim"),
    DOCS.board,
    DOCS.limit("l"),
    DOCS.work("default", "normal", "victim", "r"),
    DOCS.timer("victim", "r", 1),
    DOCS.session("s"),
    DOCS.stop("s", "r", 1),
    DOCS.dead("a", "victim", "r"),
    f"$O.{DOCS.blobs_bucket}.M.x",
    f"$JS.API.STREAM.PURGE.{DOCS.runs_stream}",
    f"$JS.API.STREAM.DELETE.{DOCS.work_stream}",
    f"$JS.ACK.{DOCS.work_stream}.default-normal.1.1.1.1.0",
    DOCS.handover("default", "a"),
    f"{DOCS.known_prefix}submit.a",
]


@pytest.fixture
async def admin(secured: Secured) -> AsyncIterator[NatsClient]:
    async with secured.admin() as connected:
        found = json.loads(
            (await ask(connected, f"$JS.API.STREAM.MSG.GET.{DOCS.runs_stream}", last_by_subj=RECORD)).data
        )
        if "error" in found:
            await connected.request(RECORD, b"the record")
        yield connected


@pytest.fixture(autouse=True)
async def _other_tenants_stores_stay_as_they_were(secured: Secured) -> AsyncIterator[None]:
    other = await nats.connect(secured.url("setup", "other"), max_reconnect_attempts=0, **secured.options("setup"))
    try:
        before = await stored(other, OTHER, inbox=True)
        yield
        assert await stored(other, OTHER, inbox=True) == before
    finally:
        await other.close()


async def ask(client: NatsClient, subject: str, **body: Any) -> Any:
    return await client.request(subject, json.dumps(body).encode() if body else b"", timeout=5)


async def stored(client: NatsClient, names: Names = DOCS, *, inbox: bool = False) -> dict[str, tuple[int, int, int]]:
    """What can be told of each stream without reading it; the inbox is there to be written to, the history follows by itself."""
    found = {}
    for one in (names.runs_stream, names.work_stream, names.sessions_stream, names.dead_stream, names.blobs_stream,
                names.refused_stream, *([names.inbox_stream] if inbox else [])):  # fmt: skip
        state = json.loads((await ask(client, f"$JS.API.STREAM.INFO.{one}")).data)["state"]
        found[one] = (state["messages"], state["first_seq"], state["last_seq"])
    return found


async def sent(secured: Secured, role: str, subject: str, payload: bytes, replies: list[str]) -> list[str]:
    """Send it once for each place where its answer is wished, and return once all answers are out: one more has come."""
    async with secured.stranger(role) as (client, denied):
        for reply in replies:
            await client.publish(subject, payload, reply=reply)
        await client.request(subject, payload, timeout=5)
        return denied


async def test_inside_the_account_the_server_writes_answers_where_the_user_may_not(
    secured: Secured, admin: NatsClient
) -> None:
    """Why guests and viewers are not inside. Should this ever fail, the server has become stricter: then read its notes."""
    before = await stored(admin)
    assert await sent(secured, "setup", "$JS.API.INFO", b"", [DOCS.record("other victim")]) == []
    assert (await stored(admin))[DOCS.runs_stream] != before[DOCS.runs_stream]


@pytest.mark.parametrize("what", ["submit.a", "cancel"])
async def test_no_answer_to_a_guest_is_written_anywhere(what: str, secured: Secured, admin: NatsClient) -> None:
    before = await stored(admin)
    await sent(secured, "guest", f"{DOCS.root}.{what}", b"{}", TARGETS)
    assert await stored(admin) == before
    async with secured.stranger("viewer") as (viewer, _):
        assert await stored(viewer) == before


@pytest.mark.parametrize("call", [f"STREAM.INFO.{DOCS.runs_stream}", f"STREAM.MSG.GET.{DOCS.runs_stream}"])
async def test_no_answer_to_a_viewer_is_written_anywhere(call: str, secured: Secured, admin: NatsClient) -> None:
    before = await stored(admin, inbox=True)
    body = json.dumps({"last_by_subj": RECORD}).encode() if "GET" in call else b""
    await sent(secured, "viewer", f"$JS.API.{call}", body, [*TARGETS, f"{DOCS.root}.cancel", f"{DOCS.root}.submit.a"])
    assert await stored(admin, inbox=True) == before


HEADERS: dict[str, tuple[dict[str, str], bool]] = {
    "schedule": ({"Nats-Schedule": "@at 2000-01-01T00:00:00Z", "Nats-Schedule-Target": TARGETS[4]}, False),
    "schedule of a record": ({"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": RECORD}, False),
    "schedule in the inbox": ({"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"{DOCS.root}.cancel"}, False),
    "target alone": ({"Nats-Schedule-Target": RECORD}, True),
    "source": ({"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": RECORD, "Nats-Schedule-Source": RECORD}, False),
    "target at another tenant": (
        {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": OTHER.record("k")}, False
    ),
    "expected sequence of another tenant": (
        {"Nats-Expected-Last-Subject-Sequence": "1", "Nats-Expected-Last-Subject-Sequence-Subject": OTHER.record("k")}, False
    ),
    "rollup of all": ({"Nats-Rollup": "all"}, False),
    "rollup of the subject": ({"Nats-Rollup": "sub"}, False),
    "ttl": ({"Nats-TTL": "1s"}, False),
    "expected stream": ({"Nats-Expected-Stream": DOCS.runs_stream}, False),
    "expected sequence": ({"Nats-Expected-Last-Sequence": "999999"}, False),
    "expected sequence of a subject": ({"Nats-Expected-Last-Subject-Sequence": "999999"}, False),
    "expected sequence of a record": (
        {"Nats-Expected-Last-Subject-Sequence": "1", "Nats-Expected-Last-Subject-Sequence-Subject": RECORD}, False
    ),
    "expected message": ({"Nats-Expected-Last-Msg-Id": "x"}, False),
    "counter": ({"Nats-Incr": "+1"}, False),
    "batch": ({"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}, False),
    "message id": ({"Nats-Msg-Id": "m"}, True),
    "marker": ({"Nats-Marker-Reason": "Purge", "KV-Operation": "PURGE"}, True),
    "names of others": ({"Nats-Subject": RECORD, "Nats-Stream": DOCS.runs_stream, "Nats-Sequence": "1"}, True),
    "trace": ({"Nats-Trace-Dest": RECORD}, False),
    "trace alone": ({"Nats-Trace-Dest": OTHER.record("k"), "Nats-Trace-Only": "true"}, False),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
async def test_no_header_of_a_guests_reaches_further_than_the_inbox(
    name: str, secured: Secured, admin: NatsClient
) -> None:
    """What is stored is stored in the inbox and acts on nothing there: what lay in it still does."""
    fields, taken = HEADERS[name]
    before, inbox = await stored(admin), (await stored(admin, inbox=True))[DOCS.inbox_stream]
    async with secured.stranger("guest") as (client, denied):
        answers = await client.subscribe("_INBOX.guest.answer")
        await client.publish(f"{DOCS.root}.submit.a", b"{}", reply="_INBOX.guest.answer", headers=fields)
        if "trace" in name:
            await wait_until(lambda: denied, description="it is refused")
            assert denied == [f"publish {fields['Nats-Trace-Dest']}".lower()]
        else:
            ack = json.loads((await answers.next_msg(5)).data)
            assert ("error" not in ack) is taken, ack
        await client.request(f"{DOCS.root}.submit.a", b"{}", timeout=5)
    assert await stored(admin) == before
    after = (await stored(admin, inbox=True))[DOCS.inbox_stream]
    assert (after[0], after[1]) == (inbox[0] + 1 + taken, inbox[1] or 1)


async def consumers(secured: Secured, targets: list[str]) -> None:
    """A viewer's consumers that deliver all records to ``targets``, and one to itself after them; return once that has."""
    call = f"$JS.API.CONSUMER.CREATE.{DOCS.runs_stream}.{{}}.{DOCS.runs_prefix}*"
    settings = {"filter_subject": f"{DOCS.runs_prefix}*", "ack_policy": "none", "deliver_policy": "all"}
    async with secured.stranger("viewer") as (client, denied):
        seen = await client.subscribe("_INBOX.viewer.here")
        for number, to in enumerate([*targets, "_INBOX.viewer.here"]):
            config = settings | {"name": f"c{number}", "deliver_subject": to}
            await ask(client, call.format(f"c{number}"), stream_name=DOCS.runs_stream, config=config)
        assert (await seen.next_msg(5)).data
        for number in range(len(targets) + 1):
            await ask(client, f"$JS.API.CONSUMER.DELETE.{DOCS.runs_stream}.c{number}")
        assert not denied


async def test_a_viewers_consumer_delivers_into_no_store(secured: Secured, admin: NatsClient) -> None:
    """The server does not look at where a consumer delivers; but only somebody who listens there gets it, and no stream does."""
    before = await stored(admin, inbox=True)
    await consumers(secured, [*TARGETS, f"{DOCS.root}.submit.a"])
    assert await stored(admin, inbox=True) == before


async def test_a_record_that_a_viewer_has_delivered_as_a_cancel_is_rejected(
    secured: Secured, admin: NatsClient
) -> None:
    """A stream does listen on a subject that it has word for word, as the inbox has this one; and a record is no command."""
    app, before = App("docs"), await stored(admin)
    url, options = secured.url("supervisor"), secured.options("supervisor")
    await ask(admin, f"$JS.API.STREAM.PURGE.{DOCS.inbox_stream}")
    await consumers(secured, [f"{DOCS.root}.cancel"])
    async with app.supervisor(url, **options) as supervisor, app.connect(url, **options) as client:
        running = asyncio.create_task(supervisor.run())
        told = await wait_until(client.dead.rejected, description="it is rejected")
        supervisor.stop()
        await running
    assert {one.reason for one in told} == {"foreign"}  # it keeps the subject that it was stored under
    assert (await stored(admin))[DOCS.runs_stream] == before[DOCS.runs_stream]


async def test_a_viewers_consumer_is_of_the_stream_that_it_may_read(secured: Secured, admin: NatsClient) -> None:
    call = f"$JS.API.CONSUMER.CREATE.{DOCS.runs_stream}.c.{DOCS.runs_prefix}*"
    async with secured.stranger("viewer") as (client, _):
        for stream, filtered in (
            (DOCS.inbox_stream, f"{DOCS.runs_prefix}*"),
            (DOCS.runs_stream, f"{DOCS.runs_prefix}>"),
        ):
            answer = await ask(client, call, stream_name=stream, config={"name": "c", "filter_subject": filtered})
            assert "error" in json.loads(answer.data)
