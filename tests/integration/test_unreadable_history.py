"""What somebody else has put beside the records is left out where people look, and told."""

from __future__ import annotations

from tenure import App, Client
from tests.conftest import Workers
from tests.logged import Heard
from tests.support import wait_until

JUNK = b"no JSON of ours"


async def quick() -> None:
    """Return."""


async def test_a_refusal_and_a_revision_that_nobody_can_read_are_left_out_of_a_history(
    app: App, client: Client, workers: Workers, log_events: Heard
) -> None:
    actor, names = app.actor(quick), app.names
    async with workers.run(app):
        await (await client.submit(actor.call(), key="k")).result(timeout=10)
    before = len(await client.history("k"))
    await client.stores.conn.put(names.refused("k"), JUNK)
    await client.stores.conn.put(names.record("k"), JUNK)

    async def both_told() -> bool:
        assert len(await client.history("k")) == before
        return {"refusal.unreadable", "revision.unreadable"} <= log_events.events

    await wait_until(both_told, description="the mirror has it too")


async def test_a_dead_letter_that_nobody_can_read_is_left_out_of_the_list(
    app: App, client: Client, log_events: Heard
) -> None:
    await client.stores.conn.put(app.names.dead("quick", "k", "r1"), JUNK)
    assert await client.dead.list() == []
    assert "letter.unreadable" in log_events.events
