"""What the code above relies on of JetStream itself: its refusals by number, its statuses, its headers.

Measured on a real server, and asked of the one in memory in the same words.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg

from tenure import Config
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tests.support import wait_until

EXPECT = "Nats-Expected-Last-Subject-Sequence"
SECOND = 1_000_000_000
DAY = 86_400 * SECOND


@pytest.fixture
async def conn(nats_server: str) -> AsyncIterator[Connection]:
    conn = await Connection.open(nats_server, Config(request_timeout_seconds=1.0), name="jetstream")
    yield conn
    await conn.close()


@pytest.fixture
async def js(conn: Connection, namespace: str) -> AsyncIterator[Asked]:
    asked = Asked(conn, namespace.replace("-", "_"))
    yield asked
    for stream in asked.made:
        await conn.api(f"STREAM.DELETE.{stream}", {})


class Asked:
    """Calls of the API for streams whose names begin with ``name``; refusals come back as (err_code, description)."""

    def __init__(self, conn: Connection, name: str) -> None:
        self.conn = conn
        self.name = name
        self.made: list[str] = []

    async def api(self, call: str, body: Any = None) -> Any:
        answer = await self.conn.api(call, body or {})
        return (answer.err_code, answer.description) if isinstance(answer, ApiError) else answer

    async def stream(self, kind: str, **settings: Any) -> str:
        """Make a stream; its name, which is also the first token of its subjects."""
        name = f"{self.name}{kind}"
        spec = {"name": name, "subjects": [f"{name}.>"], "storage": "file", "num_replicas": 1} | settings
        made = await self.api(f"STREAM.CREATE.{name}", spec)
        assert isinstance(made, dict), made
        self.made.append(name)
        return name

    async def bucket(self, **settings: Any) -> str:
        """A stream like those of the records."""
        return await self.stream(
            "B",
            discard="new",
            max_msgs_per_subject=1,
            allow_rollup_hdrs=True,
            allow_msg_ttl=True,
            deny_delete=True,
            **settings,
        )

    async def work(self, **settings: Any) -> str:
        """A stream like that of the wake-ups, with a consumer ``d`` of its subjects under ``w``."""
        name = await self.stream(
            "W", retention="workqueue", allow_msg_schedules=True, allow_rollup_hdrs=True, **settings
        )
        await self.lane(name)
        return name

    async def lane(self, stream: str, action: str = "", **settings: Any) -> Any:
        config = {
            "durable_name": "d",
            "filter_subject": f"{stream}.w.>",
            "ack_policy": "explicit",
            "ack_wait": SECOND,
            "max_deliver": -1,
            "max_ack_pending": -1,
        } | settings
        call = f"CONSUMER.DURABLE.CREATE.{stream}.{config['durable_name']}"
        return await self.api(call, {"stream_name": stream, "config": config, "action": action})

    async def put(self, subject: str, data: bytes = b"x", **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        ack = await self.conn.put(subject, data, named or None)
        return (ack.error.err_code, ack.error.description) if ack.error else ack.seq

    async def last(self, stream: str, subject: str) -> Any:
        answer = await self.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        return answer if isinstance(answer, tuple) else answer["message"]


class Puller:
    """What a consumer sends to an inbox."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.got: list[Msg] = []
        self.inbox = conn.new_inbox()

    async def received(self, msg: Msg) -> None:
        self.got.append(msg)

    async def ask(self, stream: str, consumer: str = "d", **ask: Any) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        await self.conn.publish(subject, msgspec.json.encode(ask), reply=self.inbox)

    async def next(self, number: int = 1) -> list[Msg]:
        """The next messages, once there are so many."""
        await wait_until(lambda: len(self.got) >= number, description=f"{number} messages")
        got, self.got = self.got[:number], self.got[number:]
        return got

    async def status(self) -> tuple[str, str | None]:
        """Status and pending messages of the next one."""
        (msg,) = await self.next()
        assert msg.headers is not None
        return msg.headers["Status"], msg.headers.get("Nats-Pending-Messages")


@pytest.fixture
async def puller(conn: Connection) -> Puller:
    puller = Puller(conn)
    await conn.subscribe(puller.inbox, puller.received)
    return puller


def place(msg: Msg) -> list[int]:
    """Deliveries, sequence, consumer sequence and what is still to come of a delivery."""
    parts = msg.reply.split(".")
    return [int(parts[at]) for at in (4, 5, 6, 8)]


# -- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["STREAM.INFO", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.GET", "CONSUMER.LIST"])
async def test_a_stream_that_is_not_there(call: str, js: Asked):
    body = {"seq": 1} if call == "STREAM.MSG.GET" else {}
    assert await js.api(f"{call}.NOWHERE", body) == (10059, "stream not found")
    assert await js.api("CONSUMER.INFO.NOWHERE.c") == (10059, "stream not found")


async def test_a_stream_made_twice_is_the_same_and_other_settings_are_refused(js: Asked):
    name = await js.bucket()
    before = (await js.api(f"STREAM.INFO.{name}"))["created"]
    await js.bucket()
    assert (await js.api(f"STREAM.INFO.{name}"))["created"] == before
    spec = {"name": name, "subjects": [f"{name}.>"], "max_age": DAY}
    assert (await js.api(f"STREAM.CREATE.{name}", spec))[0] == 10058
    overlapping = {"name": f"{name}2", "subjects": [f"{name}.*.x"]}
    assert (await js.api(f"STREAM.CREATE.{name}2", overlapping))[0] == 10065


async def test_settings_come_back_as_they_were_asked_for_and_can_be_updated(js: Asked):
    name = await js.bucket(metadata={"a": "b"}, subject_delete_marker_ttl=5 * SECOND)
    config = (await js.api(f"STREAM.INFO.{name}"))["config"]
    assert config["metadata"]["a"] == "b"
    assert (config["max_age"], config["max_msgs_per_subject"], config["duplicate_window"]) == (0, 1, 120 * SECOND)
    assert (config["discard"], config["retention"], config["allow_direct"]) == ("new", "limits", False)
    await js.api(f"STREAM.UPDATE.{name}", config | {"max_age": DAY})
    assert (await js.api(f"STREAM.INFO.{name}"))["config"]["max_age"] == DAY
    assert (await js.api(f"STREAM.UPDATE.{name}X", config | {"name": f"{name}X"}))[0] == 10059


async def test_state_and_subjects_page_by_page(js: Asked):
    name = await js.bucket()
    for token in ("a", "b", "c", "b"):
        await js.put(f"{name}.{token}")
    await js.put(f"{name}.z.y")
    info = await js.api(f"STREAM.INFO.{name}", {"subjects_filter": f"{name}.*"})
    state = info["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"], state["num_subjects"]) == (4, 1, 5, 4)
    assert state["subjects"] == {f"{name}.a": 1, f"{name}.b": 1, f"{name}.c": 1}
    assert (info["total"], info["offset"]) == (3, 0)
    page = await js.api(f"STREAM.INFO.{name}", {"subjects_filter": f"{name}.*", "offset": 2})
    assert list(page["state"]["subjects"]) == [f"{name}.c"]
    none = await js.api(f"STREAM.INFO.{name}", {"subjects_filter": f"{name}.nothing"})
    assert ("subjects" in none["state"], none["total"]) == (False, 0)
    assert await js.api(f"STREAM.PURGE.{name}", {"filter": f"{name}.b"}) == {
        "type": "io.nats.jetstream.api.v1.stream_purge_response",
        "success": True,
        "purged": 1,
    }


# -- what may be stored ----------------------------------------------------------------------------------------------


async def test_a_compare_and_swap_names_the_sequence_that_it_met(js: Asked):
    name = await js.bucket()
    assert await js.put(f"{name}.a", Nats_Expected_Last_Subject_Sequence="0") == 1
    assert await js.put(f"{name}.a", Nats_Expected_Last_Subject_Sequence="0") == (10071, "wrong last sequence: 1")
    assert await js.put(f"{name}.a", Nats_Expected_Last_Subject_Sequence="1") == 2
    assert await js.put(f"{name}.b", Nats_Expected_Last_Subject_Sequence="7") == (10071, "wrong last sequence: 0")
    assert (await js.put(f"{name}.b", Nats_Expected_Last_Sequence="9"))[0] == 10071
    assert (await js.put(f"{name}.b", Nats_Expected_Stream="another"))[0] == 10060


async def test_a_message_id_is_stored_once(js: Asked):
    name = await js.bucket()
    assert await js.put(f"{name}.a", Nats_Msg_Id="m") == 1
    assert await js.put(f"{name}.a", Nats_Msg_Id="m") == 1
    assert await js.put(f"{name}.a", Nats_Msg_Id="n") == 2


@pytest.mark.parametrize(
    ("ttl", "answer"), [("1s", 1), ("1", 1), ("3600s", 1), ("0.5s", 10165), ("500ms", 10165), ("soon", 10165)]
)
async def test_which_ttl_a_message_may_have(ttl: str, answer: int, js: Asked):
    got = await js.put(f"{await js.bucket()}.a", Nats_TTL=ttl)
    assert (got[0] if isinstance(got, tuple) else got) == answer
    assert (await js.put(f"{await js.work()}.w.a", Nats_TTL="1s"))[0] == 10166


async def test_a_rollup_removes_what_was_under_its_subject(js: Asked):
    name = await js.stream("S", allow_rollup_hdrs=True)
    for subject in ("a", "a", "b"):
        await js.put(f"{name}.{subject}")
    await js.put(f"{name}.a", Nats_Rollup="sub")
    info = await js.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
    assert info["state"]["subjects"] == {f"{name}.a": 1, f"{name}.b": 1}
    assert (await js.put(f"{name}.a", Nats_Rollup="some"))[0] == 10111
    plain = await js.stream("P")
    assert (await js.put(f"{plain}.a", Nats_Rollup="sub"))[0] == 10111


async def test_what_expires_leaves_a_marker_and_what_is_a_marker_leaves_nothing(js: Asked, conn: Connection):
    name = await js.bucket(subject_delete_marker_ttl=5 * SECOND, republish={"src": ">", "dest": f"{js.name}.ev.>"})
    events: list[Msg] = []

    async def heard(msg: Msg) -> None:
        events.append(msg)

    await conn.subscribe(f"{js.name}.ev.>", heard)
    await js.put(f"{name}.a", Nats_TTL="1s")
    await js.put(f"{name}.p", b"", KV_Operation="PURGE", Nats_Rollup="sub", Nats_TTL="1s")
    await wait_until(lambda: len(events) == 3, description="the first has expired")
    marker = await js.last(name, f"{name}.a")
    assert marker["seq"] == 3
    assert "data" not in marker
    headers = events[2].headers
    assert headers is not None
    assert headers["Nats-Marker-Reason"] == "MaxAge"
    assert (headers["Nats-Sequence"], headers["Nats-Last-Sequence"]) == ("3", "1")
    assert (headers["Nats-TTL"], headers["Nats-Rollup"]) == ("5s", "sub")

    async def gone() -> bool:
        return bool(await js.last(name, f"{name}.p") == (10037, "no message found"))

    await wait_until(gone, description="the marker has expired")
    assert await js.put(f"{name}.a", Nats_Expected_Last_Subject_Sequence="0") == (10071, "wrong last sequence: 3")


async def test_what_is_repeated_has_its_place_in_the_stream(js: Asked, conn: Connection):
    name = await js.bucket(
        republish={"src": f"{js.name}B.p.*.*", "dest": f"{js.name}.n.{{{{wildcard(2)}}}}.{{{{wildcard(1)}}}}"}
    )
    events: list[Msg] = []

    async def heard(msg: Msg) -> None:
        events.append(msg)

    await conn.subscribe(f"{js.name}.n.>", heard)
    await js.put(f"{name}.other", b"0")
    await js.put(f"{name}.p.x.y", b"1", Mine="is kept")
    await js.put(f"{name}.p.x.y", b"2")
    await wait_until(lambda: len(events) == 2, description="both are repeated")
    headers = events[0].headers
    assert headers is not None
    assert events[0].subject == f"{js.name}.n.y.x"
    assert (headers["Mine"], headers["Nats-Stream"], headers["Nats-Subject"]) == ("is kept", name, f"{name}.p.x.y")
    assert [(m.headers or {})["Nats-Sequence"] for m in events] == ["2", "3"]
    assert [(m.headers or {})["Nats-Last-Sequence"] for m in events] == ["0", "2"]


# -- messages --------------------------------------------------------------------------------------------------------


async def test_messages_by_sequence_and_by_subject(js: Asked):
    name = await js.stream("S")
    for subject in ("a", "b", "a"):
        await js.put(f"{name}.{subject}")
    assert (await js.last(name, f"{name}.a"))["seq"] == 3
    assert (await js.last(name, f"{name}.*"))["seq"] == 3
    assert await js.last(name, f"{name}.c") == (10037, "no message found")
    call = f"STREAM.MSG.GET.{name}"
    assert (await js.api(call, {"seq": 1, "next_by_subj": f"{name}.b"}))["message"]["seq"] == 2
    assert (await js.api(call, {"seq": 2, "next_by_subj": f"{name}.a"}))["message"]["seq"] == 3
    assert (await js.api(call, {"seq": 2, "next_by_subj": f"{name}.>"}))["message"]["seq"] == 2
    assert await js.api(call, {"seq": 4, "next_by_subj": f"{name}.>"}) == (10037, "no message found")
    assert await js.api(call, {"seq": 9}) == (10037, "no message found")
    assert (await js.api(call))[0] == 10003


async def test_deleting_a_message_says_by_its_number_why_it_is_not_there(js: Asked):
    name = await js.stream("S")
    for _ in range(4):
        await js.put(f"{name}.a")
    call = f"STREAM.MSG.DELETE.{name}"
    assert (await js.api(call, {"seq": 3, "no_erase": True}))["success"]
    assert await js.api(call, {"seq": 3, "no_erase": True}) == (10043, "sequence 3 not found")
    assert (await js.api(call, {"seq": 1}))["success"]
    assert await js.api(call, {"seq": 1}) == (10057, "no message found")
    assert await js.api(call, {"seq": 9}) == (10057, "stream store EOF")
    assert await js.api(f"STREAM.MSG.DELETE.{await js.bucket()}", {"seq": 1}) == (10057, "message delete not permitted")


# -- consumers -------------------------------------------------------------------------------------------------------


async def test_a_consumer_that_exists_with_other_settings(js: Asked):
    name = await js.work()
    assert isinstance(await js.lane(name, "create"), dict)
    assert await js.lane(name, "create", ack_wait=2 * SECOND) == (10148, "consumer already exists")
    assert (await js.lane(name, ack_wait=2 * SECOND))["config"]["ack_wait"] == 2 * SECOND
    assert (await js.lane(name, deliver_policy="new"))[0] == 10012
    assert (await js.lane(name, durable_name="e"))[0] == 10100
    assert (await js.lane(name, durable_name="e", filter_subject=f"{name}.v", ack_policy="none"))[0] == 10084
    assert await js.api(f"CONSUMER.INFO.{name}.nobody") == (10014, "consumer not found")
    assert await js.api(f"CONSUMER.DELETE.{name}.nobody") == (10014, "consumer not found")
    listed = await js.api(f"CONSUMER.LIST.{name}")
    assert (listed["total"], [each["name"] for each in listed["consumers"]]) == (1, ["d"])
    assert (await js.api(f"CONSUMER.NAMES.{name}"))["consumers"] == ["d"]


async def test_pulls_take_turns_and_run_out_with_what_is_left(js: Asked, conn: Connection, puller: Puller):
    name = await js.work()
    other = Puller(conn)
    await conn.subscribe(other.inbox, other.received)
    for number in range(3):
        await js.put(f"{name}.w.{number}")
    await js.api(f"CONSUMER.INFO.{name}.d")
    await puller.ask(name, batch=2, expires=SECOND // 2)
    await other.ask(name, batch=2, expires=SECOND // 2)
    got = await puller.next(2)
    assert [m.subject for m in got] == [f"{name}.w.0", f"{name}.w.1"] or [m.subject for m in got] == [
        f"{name}.w.0",
        f"{name}.w.2",
    ]
    await other.next(1)
    assert await other.status() == ("408", "1")
    assert not puller.got


async def test_an_outstanding_pull_hears_that_the_server_is_there(js: Asked, puller: Puller):
    name = await js.work()
    await puller.ask(name, batch=3, expires=SECOND, idle_heartbeat=SECOND // 4)
    assert await puller.status() == ("100", None)
    await js.put(f"{name}.w.a")
    (msg,) = await puller.next()
    assert place(msg) == [1, 1, 1, 0]
    got = await puller.next(2)
    assert [(m.headers or {})["Status"] for m in got] == ["100", "100"]
    await wait_until(lambda: puller.got, description="it runs out")
    assert (puller.got[-1].headers or {})["Status"] in {"408", "100"}
    await puller.ask(name, batch=1, expires=SECOND, idle_heartbeat=SECOND * 3 // 4)
    await wait_until(
        lambda: any((m.headers or {}).get("Status") == "400" for m in puller.got), description="too long a heartbeat"
    )


async def test_who_does_not_wait_is_told_that_there_is_no_more(js: Asked, puller: Puller):
    name = await js.work()
    await puller.ask(name, batch=3, no_wait=True)
    assert await puller.status() == ("404", None)
    for number in range(4):
        await js.put(f"{name}.w.{number}")
    await puller.ask(name, batch=3, no_wait=True)
    assert len(await puller.next(3)) == 3
    await puller.ask(name, batch=3, no_wait=True)
    (msg,) = await puller.next()
    assert msg.subject == f"{name}.w.3"
    assert await puller.status() == ("404", None)


async def test_a_deleted_consumer_tells_who_waits_and_then_nobody_answers(js: Asked, puller: Puller):
    name = await js.work()
    await puller.ask(name, batch=3, expires=5 * SECOND)

    async def waits() -> bool:
        return bool((await js.api(f"CONSUMER.INFO.{name}.d"))["num_waiting"])

    await wait_until(waits, description="the pull stands")
    await js.api(f"CONSUMER.DELETE.{name}.d")
    assert await puller.status() == ("409", None)
    await puller.ask(name, batch=3, expires=5 * SECOND)
    assert await puller.status() == ("503", None)


async def test_what_is_unanswered_comes_again_and_an_answer_of_any_delivery_counts(
    js: Asked, conn: Connection, puller: Puller
):
    name = await js.work()
    for token in ("a", "b"):
        await js.put(f"{name}.w.{token}")
    await puller.ask(name, batch=9, expires=5 * SECOND)
    first, second = await puller.next(2)
    info = await js.api(f"CONSUMER.INFO.{name}.d")
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"], info["delivered"]["stream_seq"]) == (2, 0, 2)
    assert (await conn.request(second.reply, b"+ACK")).data == b""
    assert (await conn.request(second.reply, b"+ACK")).data == b""  # answered, too
    assert (await js.api(f"CONSUMER.INFO.{name}.d"))["ack_floor"]["stream_seq"] == 0
    (again,) = await puller.next()
    assert place(again) == [2, 1, 3, 0]
    await conn.publish(first.reply, b"-NAK")  # of the first delivery
    (third,) = await puller.next()
    assert place(third)[0] == 3
    assert (await conn.request(first.reply, b"+ACK")).data == b""
    info = await js.api(f"CONSUMER.INFO.{name}.d")
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, 2)
    assert (await js.api(f"STREAM.INFO.{name}"))["state"]["messages"] == 0


async def test_a_consumer_made_anew_does_not_know_the_deliveries_of_the_old_one(
    js: Asked, conn: Connection, puller: Puller
):
    name = await js.work()
    await js.put(f"{name}.w.a")
    await puller.ask(name, batch=1, expires=5 * SECOND)
    (old,) = await puller.next()
    await js.api(f"CONSUMER.DELETE.{name}.d")
    await js.lane(name)
    with pytest.raises(Lost):
        await conn.request(old.reply, b"+ACK", timeout=0.3)
    assert (await js.api(f"STREAM.INFO.{name}"))["state"]["messages"] == 1
    await puller.ask(name, batch=1, expires=5 * SECOND)
    (new,) = await puller.next()
    assert place(new)[0] == 1


async def test_what_is_removed_while_it_is_in_hand_counts_no_more_and_does_not_come_again(js: Asked, puller: Puller):
    name = await js.work()
    await js.put(f"{name}.w.a")
    await puller.ask(name, batch=9, expires=5 * SECOND)
    await puller.next()
    await js.api(f"STREAM.PURGE.{name}")

    async def nothing() -> bool:
        return not (await js.api(f"CONSUMER.INFO.{name}.d"))["num_ack_pending"]

    await wait_until(nothing, description="it does not count any more")
    await asyncio.sleep(1.3)  # paused: past its ack_wait
    assert not puller.got


async def test_a_schedule_fires_once_into_its_target_with_headers_of_its_own(js: Asked, puller: Puller):
    name = await js.work()
    at = "@at 2020-01-01T00:00:00+00:00"
    await js.put(f"{name}.t.k", b"s", Nats_Schedule=at, Nats_Schedule_Target=f"{name}.w.k", Mine="is kept")
    await puller.ask(name, batch=9, expires=5 * SECOND)
    (msg,) = await puller.next()
    assert (msg.subject, msg.data) == (f"{name}.w.k", b"s")
    assert msg.headers == {"Mine": "is kept", "Nats-Scheduler": f"{name}.t.k", "Nats-Schedule-Next": "purge"}
    info = await js.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
    assert info["state"]["subjects"] == {f"{name}.w.k": 1}


@pytest.mark.parametrize(
    ("at", "target", "refusal"),
    [("@at soon", "w.k", 10189), ("@at 2020-01-01T00:00:00Z", "", 10190)],
)
async def test_which_schedules_there_cannot_be(at: str, target: str, refusal: int, js: Asked):
    name = await js.work()
    got = await js.put(f"{name}.t.k", Nats_Schedule=at, Nats_Schedule_Target=f"{name}.{target}" if target else "q.k")
    assert got[0] == refusal
    bucket = await js.bucket()
    got = await js.put(f"{bucket}.t", Nats_Schedule="@at 2020-01-01T00:00:00Z", Nats_Schedule_Target=f"{bucket}.w")
    assert got[0] == 10188


async def test_a_scan_shows_headers_and_sizes_in_the_order_of_the_last_writes(js: Asked, puller: Puller):
    name = await js.bucket()
    for token in ("a", "b", "a"):
        await js.put(f"{name}.{token}", b"yy", Mine=token)
    config = {
        "name": "s",
        "ack_policy": "none",
        "deliver_policy": "last_per_subject",
        "filter_subject": f"{name}.*",
        "headers_only": True,
        "mem_storage": True,
        "inactive_threshold": 30 * SECOND,
    }
    made = await js.api(f"CONSUMER.CREATE.{name}.s.{name}.*", {"stream_name": name, "config": config})
    assert made["num_pending"] == 2
    await puller.ask(name, "s", batch=9, no_wait=True)
    got = await puller.next(2)
    assert [m.subject for m in got] == [f"{name}.b", f"{name}.a"]
    assert [m.data for m in got] == [b"", b""]
    assert got[0].headers == {"Mine": "b", "Nats-Msg-Size": "2"}
    assert [place(m) for m in got] == [[1, 2, 1, 1], [1, 3, 2, 0]]


async def test_a_call_that_is_none(js: Asked, conn: Connection):
    with pytest.raises((Lost, NotSent)):
        await conn.request("$JS.API.DANCE", b"", timeout=0.3)
    answer = await conn.request(f"$JS.API.STREAM.CREATE.{js.name}", b"{bad")
    assert msgspec.json.decode(answer.data)["error"]["err_code"] == 10025
