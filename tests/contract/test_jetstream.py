"""What the code above relies on of streams: refusals by number, markers, what is repeated, messages looked up.

Measured on a real server, and asked of the one in memory in the same words.
"""

from __future__ import annotations

import pytest
from nats.aio.msg import Msg

from tenure.nats.connection import Connection
from tests.contract.asked import SECOND, Asked
from tests.support import wait_until

DAY = 86_400 * SECOND


# -- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "STREAM.INFO",
        "STREAM.DELETE",
        "STREAM.PURGE",
        "STREAM.MSG.GET",
        pytest.param("CONSUMER.LIST", marks=pytest.mark.one_server("a cluster has an empty list of consumers for it")),
    ],
)
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
