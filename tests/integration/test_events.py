"""What a reader of events gets that takes its time."""

from __future__ import annotations

from tenure import App, Client
from tenure.core.sessions import Progress
from tests.support import wait_until


async def test_a_slow_reader_of_events_holds_one_progress_and_misses_no_status(app: App, client: Client) -> None:
    """Two hundred are told while it is busy with the first event; then its run ends."""

    @app.actor
    async def later() -> None:
        raise NotImplementedError

    run = await client.submit(later.call(), key="k", delay=600)
    arrived: list[Progress] = []

    async def on_progress(progress: Progress) -> None:
        arrived.append(progress)

    stop = await client.stores.sessions.follow_progress("k", on_progress)
    told: list[tuple[str, object]] = []
    async for event in run.events():
        told.append((event.kind, event.progress.done if event.progress else event.status and event.status.phase))
        if len(told) == 1:
            for done in range(1, 201):
                note = Progress(run_id=run.run_id, attempt=1, done=done, total=200, note="", at=client.now())
                await client.stores.sessions.note("k", note)
            await wait_until(lambda: len(arrived) == 200, description="all of it has arrived")
            await run.cancel()
    await stop()
    assert told == [("status", "scheduled"), ("progress", 200), ("status", "cancelled")]
