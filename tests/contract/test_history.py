"""What the mirror of the runs bucket and the stream of refusals promise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from tenure.core.commands import Purge
from tenure.core.history import Refusal, Told, Written
from tenure.core.records import Policy
from tenure.nats.history import History
from tenure.stores import Stores
from tests.contract.support import finished, submit, submitted
from tests.support import until_mirrored, wait_until


@pytest.fixture(autouse=True)
async def mirrored(stores: Stores) -> None:
    await until_mirrored(stores)


STALE = Refusal(run_id="r1", where="head", why="the run was over", who="s1", generation=1, seen=7)


async def read(stores: Stores, key: str) -> tuple[list[Written], list[Told]]:
    return await stores.history.read(key, stores.runs.patience())


def having(stores: Stores, key: str, revisions: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return len((await read(stores, key))[0]) >= revisions

    return look


async def test_every_revision_is_kept_with_its_number(stores: Stores) -> None:
    first = await submitted(stores, "k/1")
    await submitted(stores, "other")
    last = await finished(stores, first.record)
    await wait_until(having(stores, "k/1", 3), description="three revisions")
    written, _ = await read(stores, "k/1")

    assert [one.revision for one in written] == [first.revision, last.revision - 1, last.revision]
    assert (written[0].record, written[-1].record) == (first.record, last.record)
    assert [one.at for one in written] == sorted(one.at for one in written)


async def test_a_purge_wipes_out_the_record_and_not_its_history(stores: Stores) -> None:
    first = await submitted(stores, "k")
    await stores.runs.commit("k", Purge())
    again = await submitted(stores, "k")
    await wait_until(having(stores, "k", 3), description="three revisions")
    written, _ = await read(stores, "k")

    assert [(one.revision, one.record) for one in written] == [
        (first.revision, first.record),
        (first.revision + 1, None),
        (again.revision, again.record),
    ]


async def test_what_expires_stays_in_its_history(stores: Stores) -> None:
    await finished(stores, (await submitted(stores, "k", policy=Policy(result_ttl=1.0))).record)

    async def gone() -> bool:
        return (await stores.runs.read("k")).record is None

    await wait_until(gone, description="the record expires")
    written, _ = await read(stores, "k")

    assert [one.record is None for one in written] == [False, False, False]


async def test_a_thousand_writes_at_once_are_all_kept(stores: Stores) -> None:
    await asyncio.gather(*(stores.runs.commit(f"k{n}", submit(f"k{n}")) for n in range(1_000)))

    async def all_there() -> bool:
        answer = await stores.conn.api(f"STREAM.INFO.{stores.names.history_stream}", {})
        assert isinstance(answer, dict)
        return bool(answer["state"]["messages"] == 1_000)

    await wait_until(all_there, description="a thousand revisions")


async def test_a_refusal_is_kept_under_its_key(stores: Stores) -> None:
    await stores.history.tell("k/1", STALE)
    await stores.history.tell("k/2", replace(STALE, who="s2"))

    async def there() -> bool:
        return bool((await read(stores, "k/1"))[1])

    await wait_until(there, description="the refusal is stored")
    _, told = await read(stores, "k/1")

    assert [one.refusal for one in told] == [STALE]
    assert abs(told[0].at - stores.clock.now()) < 5


async def test_refusals_without_end_are_not_sent_without_end(stores: Stores) -> None:
    now = 0.0
    history = History(stores.conn, stores.names, lambda: now, stores.codec, enabled=True)
    for _ in range(600):
        await history.tell("k", STALE)
    assert history.dropped == 100
    now = 1.0
    for _ in range(60):
        await history.tell("k", STALE)
    assert history.dropped == 110
