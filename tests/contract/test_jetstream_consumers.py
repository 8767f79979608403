"""What the code above relies on of consumers and schedules: statuses, turns, what comes again and what does not.

Measured on a real server, and asked of the one in memory in the same words.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tenure.nats.connection import Connection, Lost, NotSent
from tests.contract.asked import SECOND, Asked, Puller, place
from tests.support import wait_until


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
    for asking, number in ((puller, 1), (other, 2)):
        await asking.ask(name, batch=2, expires=SECOND)
        await js.waits(name, number)
    for number in range(3):
        await js.put(f"{name}.w.{number}")
    assert [m.subject for m in await puller.next(2)] == [f"{name}.w.0", f"{name}.w.2"]
    assert [m.subject for m in await other.next()] == [f"{name}.w.1"]
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
    await js.waits(name, 1)
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


async def test_who_makes_a_consumer_that_delivers_is_told_what_is_still_to_come(js: Asked, puller: Puller):
    name = await js.bucket()
    for token in ("a", "b"):
        await js.put(f"{name}.{token}")
    config = {
        "name": "p",
        "ack_policy": "none",
        "deliver_policy": "last_per_subject",
        "filter_subject": f"{name}.*",
        "deliver_subject": puller.inbox,
        "mem_storage": True,
    }
    made = await js.api(f"CONSUMER.CREATE.{name}.p.{name}.*", {"stream_name": name, "config": config})
    assert (made["num_pending"], made["delivered"]["consumer_seq"]) == (2, 0)
    assert [m.subject for m in await puller.next(2)] == [f"{name}.a", f"{name}.b"]


async def test_a_call_that_is_none(js: Asked, conn: Connection):
    with pytest.raises((Lost, NotSent)):
        await conn.request("$JS.API.DANCE", b"", timeout=0.3)
    answer = await conn.request(f"$JS.API.STREAM.CREATE.{js.name}", b"{bad")
    assert msgspec.json.decode(answer.data)["error"]["err_code"] == 10025
