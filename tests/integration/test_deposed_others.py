"""A leader that was deposed and does not know it yet answers who changes what is paused, and who renews a session.

That nothing is to be changed, or that a session is gone, is not believed of it; nor is what it shows tried again without a
pause.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tenure import App, Client
from tenure.clock import SYSTEM
from tenure.core.errors import OutcomeUnknown
from tenure.core.switches import Board, Switch
from tenure.lease import Lease
from tenure.nats.connection import Answer, ApiError, Connection, Lost, PubAck
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tests.deposed import Deposed
from tests.support import close_session, wait_until


async def remembers(stores: Stores, patch: pytest.MonkeyPatch) -> Deposed:
    """It goes on knowing what is paused now, and how far it had counted."""
    deposed = Deposed(stores.conn, patch)
    await deposed.sees(f"STREAM.INFO.{stores.names.runs_stream}", {"subjects_filter": stores.names.board})
    await deposed.sees(f"STREAM.MSG.GET.{stores.names.runs_stream}", {"last_by_subj": stores.names.board})
    return deposed


async def paused(client: Client) -> list[str]:
    """The actors that are."""
    return sorted(hold.name or "" for hold in await client.blocks())


@pytest.mark.parametrize("shown", ["nothing", "another board"])
async def test_what_is_paused_is_resumed_though_a_deposed_leader_does_not_show_it(
    shown: str, app: App, client: Client, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who resumed was told that it was not paused, and it stayed so."""
    if shown == "another board":
        await client.pause(actor="a")
    deposed = await remembers(client.stores, monkeypatch)
    async with app.connect(nats_server) as other:
        hold = await other.pause(actor="work")
    deposed.left = 3
    ended = await client.resume(actor="work")
    assert not deposed.left
    assert ended is not None
    assert ended.id == hold.id
    assert await paused(client) == ["a"][: shown == "another board"]


async def test_that_nothing_is_paused_is_told_when_it_is_so(client: Client) -> None:
    for _ in range(2):
        assert await client.resume(actor="work") is None
        assert await client.blocks() == []
        await client.pause(actor="work")
        assert await client.resume(actor="work") is not None


async def test_on_one_server_nothing_is_stored_where_nothing_is_to_be_switched(client: Client) -> None:
    before = await client.stores.runs.last(client.stores.runs.patience())
    assert await client.resume(actor="work") is None
    assert await client.stores.runs.last(client.stores.runs.patience()) == before


async def test_a_refused_change_is_not_made_again_on_what_is_older_than_its_refusal(
    app: App, client: Client, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, as fast as the server could refuse it, for as long as the deposed leader answered."""
    await client.pause(actor="a")
    deposed = await remembers(client.stores, monkeypatch)
    async with app.connect(nats_server) as other:
        await other.pause(actor="b")
    writes, put = list[str](), Connection.put

    async def counted(conn: Connection, subject: str, *args: Any, **more: Any) -> Any:
        if subject == client.stores.names.board:
            writes.append(subject)
        return await put(conn, subject, *args, **more)

    monkeypatch.setattr(Connection, "put", counted)
    deposed.left = 6
    await client.pause(actor="c")
    assert not deposed.left
    assert len(writes) == 2
    assert await paused(client) == ["a", "b", "c"]


async def test_a_change_whose_answer_is_lost_and_that_cannot_be_found_again_has_no_known_fate(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored, and refused as it is sent again; then the server is away."""
    stores, lost = client.stores, list[bool]()
    put, request = stores.conn.put, stores.conn.request

    async def unheard(subject: str, *args: Any, **more: Any) -> PubAck:
        ack = await put(subject, *args, **more)
        if not lost:
            lost.append(True)
            raise Lost("the answer")
        return ack

    async def away(subject: str, *args: Any, **more: Any) -> Answer:
        if lost and subject.startswith("$JS.API."):
            raise Lost("the server is away")
        return await request(subject, *args, **more)

    monkeypatch.setattr(stores.conn, "put", unheard)
    monkeypatch.setattr(stores.conn, "request", away)
    switch = Switch(id="s", kind="actor", name="work", at=0.0)
    with pytest.raises(OutcomeUnknown, match="has no known fate, and it cannot be read"):
        await stores.switches.change(lambda _board: Board(switches=(switch,)), Patience(SYSTEM, 0.5))


def refuses(stores: Stores, met: int, times: int, patch: pytest.MonkeyPatch) -> list[float]:
    """The deposed leader refuses so many changes of what is paused. When each was sent, the last one included."""
    put, sent = stores.conn.put, list[float]()

    async def refused(subject: str, *args: Any, **more: Any) -> PubAck:
        if subject == stores.names.board:
            sent.append(SYSTEM.steady())
            if len(sent) <= times:
                return PubAck(error=refusal(met))
        return await put(subject, *args, **more)

    patch.setattr(stores.conn, "put", refused)
    return sent


def refusal(met: int) -> ApiError:
    return ApiError(code=400, err_code=10071, description=f"wrong last sequence: {met}")


async def test_what_a_deposed_leader_refuses_is_not_decided_on_what_it_shows(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it names is older than what was read: of that nothing was paused yet."""
    await client.pause(actor="a")
    patience = client.stores.runs.patience()
    before = (await client.stores.switches._read(patience)).revision
    deposed = await remembers(client.stores, monkeypatch)
    hold = await client.pause(actor="work")
    read, reads = client.stores.switches._read, list[int]()

    async def asked(patience: Patience) -> Any:
        found = await read(patience)
        if not reads:
            deposed.left = 3
        reads.append(found.revision)
        return found

    monkeypatch.setattr(client.stores.switches, "_read", asked)
    sent = refuses(client.stores, before, 1, monkeypatch)
    ended = await client.resume(actor="work")
    assert not deposed.left
    assert ended is not None
    assert ended.id == hold.id
    assert len(sent) == 2
    assert await paused(client) == ["a"]


async def test_a_change_that_a_deposed_leader_refuses_is_made_again_after_a_pause(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is read from is in office, and who refuses is not: it was tried as fast as it could refuse it."""
    await client.pause(actor="a")
    sent = refuses(client.stores, 0, 6, monkeypatch)
    await client.pause(actor="b")
    assert len(sent) == 7
    assert sent[-1] - sent[0] > 0.3
    assert await paused(client) == ["a", "b"]


class Leaders:
    """Who answers a lease. The deposed one gives ``shown`` to as many reads of its entry, and ``counted`` if asked how far it is.

    ``unheard``: so many renewals are stored and their answer is lost; ``refuses``: so many are refused by the deposed one, which
    has no such entry. ``renewals``: when each was sent.
    """

    def __init__(self, client: Client, patch: pytest.MonkeyPatch, ttl: float) -> None:
        self._stores, self._request, self._put = client.stores, Connection.request, Connection.put
        self.lost: list[str] = []
        self.lease = Lease(
            url=client.stores.conn._url,
            names=client.app.names,
            config=client.app.config,
            clock=SYSTEM,
            kind="worker",
            ttl=ttl,
            options={},
            on_stop=lambda _signal: None,
            on_lost=self.lost.append,
        )
        self.unheard = self.refuses = 0
        self.shown: list[Answer] = []
        self.counted: list[Answer] = []
        self.renewals: list[float] = []
        self._subject = client.app.names.session(self.lease.id)
        stream = client.app.names.sessions_stream
        self._read = f"$JS.API.STREAM.MSG.GET.{stream}", msgspec.json.encode({"last_by_subj": self._subject})
        self._info = f"$JS.API.STREAM.INFO.{stream}", msgspec.json.encode({"subjects_filter": self._subject})

        async def request(conn: Connection, *args: Any, **more: Any) -> Answer:
            return await self._answered(conn, *args, **more)

        async def put(conn: Connection, *args: Any, **more: Any) -> PubAck:
            return await self._stored(conn, *args, **more)

        patch.setattr(Connection, "request", request)
        patch.setattr(Connection, "put", put)

    async def entry(self) -> Answer:
        """What is shown of the session now."""
        return await self._request(self._stores.conn, *self._read)

    async def count(self) -> Answer:
        """How far the stream is now."""
        return await self._request(self._stores.conn, *self._info)

    async def purge(self) -> None:
        """Remove the entry, as somebody may by hand."""
        stream = self._stores.names.sessions_stream
        await self._stores.conn.api(f"STREAM.PURGE.{stream}", {"filter": self._subject})

    async def _answered(self, conn: Connection, subject: str, payload: bytes, **more: Any) -> Answer:
        asked = subject, payload
        told = {self._read: self.shown, self._info: self.counted}.get(asked)
        return told.pop() if told else await self._request(conn, subject, payload, **more)

    async def _stored(self, conn: Connection, subject: str, data: bytes, *args: Any, **more: Any) -> PubAck:
        renewal = subject == self._subject and b'"beat"' in data
        if renewal:
            self.renewals.append(SYSTEM.steady())
            if self.refuses:
                self.refuses -= 1
                return PubAck(error=refusal(0))
        ack = await self._put(conn, subject, data, *args, **more)
        if renewal and self.unheard:
            self.unheard -= 1
            raise Lost("the answer")
        return ack

    @property
    def pauses(self) -> list[float]:
        """Between the renewals."""
        return [after - before for before, after in zip(self.renewals, self.renewals[1:], strict=False)]


@pytest.fixture
def ttl() -> float:
    """Of the session."""
    return 5.0


@pytest.fixture
async def leaders(client: Client, monkeypatch: pytest.MonkeyPatch, ttl: float) -> AsyncIterator[Leaders]:
    leaders = Leaders(client, monkeypatch, ttl)
    try:
        yield leaders
    finally:
        await leaders.lease.close("drain")


async def renewed(leaders: Leaders) -> None:
    """Wait until a renewal is confirmed that is sent from now on."""
    now = SYSTEM.steady()
    await wait_until(lambda: leaders.lost or leaders.lease.confirmed_at > now, description="renewed, or lost")


@pytest.mark.parametrize("shown", ["nothing", "its entry as it was"])
async def test_a_session_whose_renewal_was_not_answered_is_not_given_up_on_what_is_older(
    shown: str, leaders: Leaders
) -> None:
    """Its bodies were interrupted; or it was written again as fast as the server could refuse it."""
    before = await leaders.entry()
    await leaders.lease.open()
    answer = before if shown == "nothing" else await leaders.entry()
    leaders.shown += [answer] * 3
    leaders.unheard = 1
    await wait_until(lambda: leaders.lost or not leaders.shown, description="the deposed leader was asked")
    await renewed(leaders)
    assert not leaders.lost
    assert leaders.lease.trusted
    assert min(leaders.pauses[:4]) > 0.15


async def test_a_session_is_not_given_up_because_a_leader_without_it_has_refused_its_renewal(leaders: Leaders) -> None:
    """It was deposed before the session was created: it has no entry to compare with, and none to show."""
    nothing, count = await leaders.entry(), await leaders.count()
    await leaders.lease.open()
    leaders.shown += [nothing] * 2
    leaders.counted += [count] * 2
    leaders.refuses = 2
    await wait_until(lambda: leaders.lost or not leaders.shown, description="the deposed leader was asked")
    await renewed(leaders)
    assert not leaders.lost
    assert not leaders.counted


async def test_a_session_that_is_gone_is_noticed_though_a_deposed_leader_still_shows_it(leaders: Leaders) -> None:
    await leaders.lease.open()
    leaders.shown += [await leaders.entry()] * 3
    await leaders.purge()
    await wait_until(lambda: leaders.lost, description="it is lost")
    assert leaders.lost == ["its entry is gone"]
    assert not leaders.shown
    assert min(leaders.pauses) > 0.15


async def test_a_session_that_is_closed_is_noticed_though_a_deposed_leader_does_not_show_it(
    client: Client, leaders: Leaders
) -> None:
    before = await leaders.entry()
    await leaders.lease.open()
    await close_session(client, leaders.lease.id)
    leaders.shown.append(before)
    await wait_until(lambda: leaders.lost, description="it is lost")
    assert leaders.lost == ["closed: expired"]


@pytest.mark.parametrize("ttl", [1.0])
async def test_a_session_of_which_only_what_is_older_is_shown_is_lost_when_its_trust_ends(leaders: Leaders) -> None:
    before = await leaders.entry()
    await leaders.lease.open()
    leaders.shown += [before] * 1000
    leaders.unheard = 1000
    opened = SYSTEM.steady()
    await wait_until(lambda: leaders.lost, description="it is lost")
    assert leaders.lost == ["no renewal was confirmed in time"]
    assert SYSTEM.steady() - opened < 3.0
    assert not leaders.lease.trusted
    leaders.unheard = 0
