"""What the server in memory has and a real one has not: faults at will, a life of its own, the same run twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg

from tenure.core.errors import ConfigError, Unavailable
from tenure.core.subjects import Names
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.memory import PROMPT, Link, MemoryServer
from tenure.nats.memory import registry as memory_registry
from tenure.nats.memory.broker import Subjects, fits, overlap
from tenure.stores import Stores
from tests.contract.support import QUICK, depth, pull, submitted
from tests.support import FAST, wait_until

SECOND = 1_000_000_000


@dataclass
class Ways(Link):
    """A link whose delays a test sets; it keeps what passed."""

    ups: Callable[[str], Sequence[float]] = lambda _subject: PROMPT
    downs: Callable[[str], Sequence[float]] = lambda _subject: PROMPT
    passed: list[tuple[str, str]] = field(default_factory=list)

    def up(self, subject: str, payload: bytes) -> Sequence[float]:
        del payload
        self.passed.append(("up", subject))
        return self.ups(subject)

    def down(self, subject: str, payload: bytes) -> Sequence[float]:
        del payload
        self.passed.append(("down", subject))
        return self.downs(subject)


@pytest.fixture
async def ways() -> Ways:
    return Ways()


@pytest.fixture
async def server(namespace: str, ways: Ways) -> AsyncIterator[MemoryServer]:
    with MemoryServer(namespace, link=lambda _client: ways) as server:
        yield server


@asynccontextmanager
async def connected(server: MemoryServer, name: str = "c") -> AsyncIterator[Connection]:
    conn = await Connection.open(server.url, QUICK, name=name)
    try:
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def opened(server: MemoryServer, namespace: str = "n") -> AsyncIterator[Stores]:
    stores = await Stores.open(server.url, Names(namespace), FAST, name="stores")
    try:
        yield stores
    finally:
        await stores.close()


# -- life ------------------------------------------------------------------------------------------------------------


async def test_a_server_is_found_while_it_lives_and_nothing_is_left_of_it(namespace: str) -> None:
    server = MemoryServer(namespace)
    with pytest.raises(ConfigError, match=f"start a MemoryServer\\('{namespace}'\\)"):
        await Connection.open(server.url, QUICK, name="early")
    with server:
        async with connected(server) as conn:
            assert conn.is_connected
        with pytest.raises(ConfigError, match="already"):
            MemoryServer(namespace).start()
    assert namespace not in memory_registry._servers
    with pytest.raises(ConfigError, match="there is no server"):
        await Connection.open(server.url, QUICK, name="late")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a/b", "ä"])
def test_a_name_that_no_url_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name"):
        MemoryServer(name)


async def test_a_killed_server_refuses_connections_and_keeps_what_was_stored(server: MemoryServer) -> None:
    async with opened(server) as stores:
        made = await submitted(stores)
        server.kill()
        with pytest.raises(Unavailable):
            await Connection.open(server.url, QUICK.__class__(connect_timeout_seconds=0.2), name="refused")
        await wait_until(lambda: not stores.conn.is_connected, description="noticed")
        server.start()
        assert (await stores.runs.read("k")).record == made.record


async def test_it_is_reached_from_its_own_loop_only(server: MemoryServer) -> None:
    def elsewhere() -> None:
        with pytest.raises(ConfigError, match="another event loop"):
            asyncio.run(Connection.open(server.url, QUICK, name="elsewhere"))

    await asyncio.to_thread(elsewhere)


async def test_a_paused_server_says_nothing_and_then_everything(server: MemoryServer) -> None:
    async with opened(server) as stores:
        server.pause()
        asked = asyncio.create_task(stores.conn.api("INFO", {}, timeout=5.0))
        with pytest.raises(Lost):
            await stores.conn.api("INFO", {}, timeout=0.1)
        assert not asked.done()
        server.resume()
        assert await asked
        assert stores.conn.raw.stats["reconnects"] == 0


async def test_a_paused_server_does_nothing_by_itself(server: MemoryServer) -> None:
    done: list[str] = []
    server.pause()
    server.call_later(0.0, lambda: done.append("fired"))
    await asyncio.sleep(0.02)  # paused: past its time
    assert not done
    server.resume()
    assert done == ["fired"]


async def test_what_was_published_just_before_a_close_is_taken(server: MemoryServer) -> None:
    async with opened(server) as stores:
        async with connected(server) as conn:
            await conn.publish(stores.names.work("q", "p", "k", "r"), b"x")
        assert await depth(stores) == 1


async def test_a_client_leaves_a_server_that_is_paused_for_long(server: MemoryServer) -> None:
    """Its pings are not answered."""
    async with connected(server) as conn:
        conn.raw.options["ping_interval"] = 0.05
        server.pause()
        conn.raw._ping_interval_task.cancel()  # type: ignore[union-attr]  # it sleeps for the longer interval
        conn.raw._ping_interval_task = asyncio.create_task(conn.raw._ping_interval())
        await wait_until(lambda: not conn.is_connected, description="it has left")
        server.resume()
        await wait_until(lambda: conn.is_connected, description="it is back")


# -- faults ----------------------------------------------------------------------------------------------------------


async def test_what_is_lost_on_the_way_up_has_not_happened(server: MemoryServer, ways: Ways) -> None:
    async with opened(server) as stores:
        ways.ups = lambda subject: () if subject.startswith("$KV.") else PROMPT
        with pytest.raises(Lost):
            await stores.conn.put(stores.names.record("k"), b"x", timeout=0.1)
        ways.ups = lambda _subject: PROMPT
        assert (await stores.runs.read("k")).revision == 0


async def test_an_answer_that_is_lost_belongs_to_what_has_happened(server: MemoryServer, ways: Ways) -> None:
    async with opened(server) as stores:
        ways.downs = lambda _subject: ()
        with pytest.raises(Lost):
            await stores.conn.put(stores.names.work("q", "p", "k", "r"), b"x", timeout=0.1)
        ways.downs = lambda _subject: PROMPT
        assert await depth(stores) == 1


async def test_a_message_comes_late_twice_and_out_of_order_as_its_link_says(server: MemoryServer, ways: Ways) -> None:
    got: list[bytes] = []

    async def heard(msg: Msg) -> None:
        got.append(msg.data)

    async with connected(server) as conn:
        await conn.subscribe("s.*", heard)
        ways.ups = lambda subject: (0.2, 0.1) if subject == "s.slow" else PROMPT
        ways.downs = lambda subject: (0.0, 0.0) if subject == "s.quick" else PROMPT
        await conn.publish("s.slow", b"slow")
        await conn.publish("s.quick", b"quick")
        await wait_until(lambda: len(got) == 4, description="every copy")
    assert got == [b"quick", b"quick", b"slow", b"slow"]


async def test_a_write_may_be_applied_after_its_sender_was_cut_off(server: MemoryServer, ways: Ways) -> None:
    async with opened(server) as stores:
        ways.ups = lambda subject: (0.2,) if subject.startswith("$KV.") else PROMPT
        writing = asyncio.create_task(stores.conn.put(stores.names.record("k"), b"x"))
        await asyncio.sleep(0)  # work: it is sent
        await asyncio.sleep(0.05)  # work: it is on its way
        assert server.disconnect("stores") == 1
        with pytest.raises(Lost):
            await writing
        await wait_until(lambda: stores.conn.is_connected, description="connected again")
        stream = server.jetstream.streams[stores.names.runs_stream]
        await wait_until(lambda: stream.last_seq == 1, description="it is applied")


async def test_what_was_on_its_way_to_a_killed_server_is_lost(server: MemoryServer, ways: Ways) -> None:
    async with opened(server) as stores:
        ways.ups = lambda subject: (0.05,) if subject.startswith("$KV.") else PROMPT
        writing = asyncio.create_task(stores.conn.put(stores.names.record("k"), b"x"))
        await wait_until(lambda: ("up", stores.names.record("k")) in ways.passed, description="it is sent")
        server.kill()
        server.start()
        with pytest.raises(Lost):
            await writing
        await wait_until(lambda: stores.conn.is_connected, description="connected again")
        await asyncio.sleep(0.1)  # paused: past its arrival
        assert (await stores.runs.read("k")).revision == 0


async def test_what_a_client_publishes_while_it_is_cut_off_is_sent_after_all(server: MemoryServer) -> None:
    """As nats-py does: the caller was told that it was not sent, or that its fate is unknown."""
    got: list[bytes] = []

    async def heard(msg: Msg) -> None:
        got.append(msg.data)

    async with connected(server) as listener, connected(server, "cut off") as conn:
        await listener.subscribe("s", heard)
        server.disconnect("cut off")
        await wait_until(lambda: not conn.is_connected, description="noticed")
        with pytest.raises(NotSent):
            await conn.request("s", b"refused")
        await conn.raw.publish("s", b"kept")
        await wait_until(lambda: got, description="sent after the reconnect")
    assert got == [b"kept"]


# -- what a kill leaves ----------------------------------------------------------------------------------------------


async def test_a_kill_keeps_lanes_and_what_is_in_hand_and_ends_watches(server: MemoryServer) -> None:
    async with opened(server) as stores:
        made = await submitted(stores)
        async with pull(stores) as pulled:
            await stores.work.wake(made.record, made.data, made.revision, stores.clock.now(), stores.runs.patience())
            await pulled.next()
            watch = asyncio.create_task(
                stores.sessions.watch_stops("s", lambda _signal: None).run(live := asyncio.Event())
            )
            await live.wait()
            server.kill()
            assert [*server.jetstream.streams[stores.names.work_stream].consumers] == ["default-normal"]
            assert not server.jetstream.streams[stores.names.sessions_stream].consumers
            await wait_until(lambda: not stores.conn.is_connected, description="noticed")
            server.start()
            again = await pulled.next()
            assert again.deliveries == 2
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)


async def test_a_schedule_that_was_missed_fires_after_the_start(server: MemoryServer) -> None:
    async with opened(server) as stores:
        made = await submitted(stores, due=stores.clock.now() + 2.6)
        await stores.work.wake(made.record, made.data, made.revision, stores.clock.now(), stores.runs.patience())
        server.kill()
        await asyncio.sleep(2.2)  # paused: until it is due
        assert server.jetstream.streams[stores.names.work_stream].last_seq == 1
        server.start()
        stream = server.jetstream.streams[stores.names.work_stream]
        await wait_until(lambda: stream.last_seq == 2, description="it has fired", timeout=0.5)


# -- races of schedules ----------------------------------------------------------------------------------------------

SCHEDULED = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "w.k"}
WORK = {"subjects": ["w.>", "t.>"], "retention": "workqueue", "allow_msg_schedules": True}


async def _stored(conn: Connection) -> dict[str, int]:
    info = await conn.api("STREAM.INFO.W", {"subjects_filter": ">"})
    assert isinstance(info, dict)
    return dict(info["state"].get("subjects", {}))


@pytest.mark.parametrize("how", ["replaced", "cancelled"])
async def test_within_the_gap_a_cancelled_schedule_fires_and_a_newer_one_vanishes(namespace: str, how: str) -> None:
    """Measured: 200-400 of 3,000 in a burst. So no subject of a schedule is ever used twice."""
    collected = asyncio.Event()

    def gap() -> float:
        collected.set()
        return 0.2

    with MemoryServer(namespace, schedule_gap=gap) as server:
        async with connected(server) as conn:
            await conn.api("STREAM.CREATE.W", {"name": "W"} | WORK)
            await conn.put("t.k", b"old", SCHEDULED)
            await collected.wait()
            if how == "replaced":
                newer = SCHEDULED | {"Nats-Schedule": "@at 2090-01-01T00:00:00Z"}
                assert (await conn.put("t.k", b"new", newer)).error is None
                assert (await _stored(conn)) == {"t.k": 1}
            else:
                await conn.api("STREAM.PURGE.W", {"filter": "t.k"})
                assert not await _stored(conn)

            async def fired() -> bool:
                return await _stored(conn) == {"w.k": 1}

            await wait_until(fired, description="the old one has fired, and nothing else is left")


# -- the same run twice ----------------------------------------------------------------------------------------------


async def _trace() -> list[tuple[str, str]]:
    """What passed a link in a small scenario, names made anew each time left as they are."""
    ways = Ways()
    with MemoryServer("same", link=lambda _client: ways) as server:
        async with opened(server) as stores, opened(server) as other:
            for number in range(3):
                await submitted(stores, f"k{number}")
            async with pull(stores) as one, pull(other) as two:
                for number in range(3):
                    found = await other.runs.read(f"k{number}")
                    assert found.record is not None
                    await other.work.wake(found.record, b"", found.revision, 0.0, other.runs.patience())
                await wait_until(lambda: len(one.at) + len(two.at) == 3, description="all arrive")
    return [(way, subject) for way, subject in ways.passed if ".work." not in subject]


async def test_the_same_things_happen_in_the_same_order_with_the_same_names() -> None:
    assert await _trace() == await _trace()


# -- subjects --------------------------------------------------------------------------------------------------------

TOKENS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4).map(".".join)
FILTERS = st.one_of(TOKENS, TOKENS.map(lambda wanted: f"{wanted}.>"), st.just(">"))
SUBJECTS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4).map(".".join)


def _plainly_fits(subject: str, wanted: str) -> bool:
    if wanted == ">":
        return True
    head, _, tail = wanted.partition(".")
    first, _, rest = subject.partition(".")
    if head not in {"*", first}:
        return False
    return _plainly_fits(rest, tail) if rest and tail else not rest and not tail


@given(st.lists(FILTERS, max_size=8), SUBJECTS, st.data())
def test_whoever_fits_is_found_in_the_order_of_coming(wanted: list[str], subject: str, data: st.DataObject) -> None:
    index: Subjects[int] = Subjects()
    for number, each in enumerate(wanted):
        index.add(each, number)
    gone = data.draw(st.sets(st.sampled_from(range(len(wanted))))) if wanted else set()
    for number in sorted(gone):
        index.remove(wanted[number], number)
    fitting = [n for n, each in enumerate(wanted) if n not in gone and _plainly_fits(subject, each)]
    assert index.match(subject) == fitting
    assert [n for n, each in enumerate(wanted) if n not in gone and fits(subject, each)] == fitting


@given(FILTERS, FILTERS)
def test_filters_overlap_if_some_subject_fits_both(one: str, other: str) -> None:
    every = [".".join(t) for t in _subjects(4)]
    if any(_plainly_fits(subject, one) and _plainly_fits(subject, other) for subject in every):
        assert overlap(one, other)


def _subjects(longest: int) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for _ in range(longest):
        found += [[*each, token] for each in found for token in ("a", "b") if [*each, token] not in found]
    return found[1:]
