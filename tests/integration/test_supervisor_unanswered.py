"""A server that does not answer one loop of a supervisor, or what no loop can read: told, and looked at again; nothing ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from tenure import App
from tenure.core.errors import InvalidCall, StillOwed, Unavailable, UnreadableRecord
from tenure.nats import presence
from tenure.nats.dead import Dead
from tenure.nats.inbox import Inbox, InboxLane
from tenure.nats.runs import Runs
from tenure.supervisor import Supervisor, commands, marks
from tenure.supervisor.api import Api
from tenure.supervisor.blobs import Leftovers
from tenure.supervisor.commands import Commands
from tenure.supervisor.keepers import Keepers
from tenure.supervisor.marks import Forgetter
from tenure.supervisor.places import Places
from tenure.supervisor.releases import Releases
from tenure.supervisor.sweep import Sweep
from tests.conftest import Supervisors
from tests.integration.test_supervisor_loops import (
    poke_inbox,
    poke_keepers,
    poke_nothing,
    poke_rescue,
    poke_session,
    poke_switches,
)
from tests.logged import Heard
from tests.support import FAST, wait_until


async def poke_limits(supervisor: Supervisor) -> None:
    """An entry that nobody needs: the next sweep tends it."""
    stores = supervisor.stores
    await stores.limits.write("quick=1", None, 0, stores.runs.patience())


async def poke_rejections(supervisor: Supervisor) -> None:
    """Commands that cannot be carried out."""
    for _ in range(9):
        await supervisor.stores.conn.put(f"{supervisor.stores.names.root}.submit.quick", b"no JSON")


async def poke_requests(supervisor: Supervisor) -> None:
    """Nobody waits for the answers."""
    for number in range(9):
        await supervisor.stores.conn.publish(
            f"{supervisor.stores.names.api_prefix}cancel", b"{}", reply=f"nobody.{number}"
        )


class Case(NamedTuple):
    """A method that raises until that was told; then it does what it does, and has to be called again."""

    owner: type
    method: str
    poke: Callable[[Supervisor], Awaitable[None]] = poke_nothing
    error: type[Exception] = Unavailable
    at_its_start: bool = False


CASES = {
    "inbox.not_opened": Case(InboxLane, "open", at_its_start=True),
    "inbox.crashed": Case(Commands, "_received", poke_inbox, RuntimeError, at_its_start=True),
    "request.crashed": Case(Api, "_command", poke_requests, RuntimeError),
    "inbox.not_searched": Case(Inbox, "strays"),
    "command.not_applied": Case(Commands, "_take", poke_inbox),
    "command.not_kept": Case(Dead, "keep_rejected", poke_rejections, StillOwed),
    "marks.not_forgotten": Case(Forgetter, "_forget", poke_inbox),
    "blobs.not_looked_at": Case(Leftovers, "remove"),
    "schedule.not_kept": Case(Runs, "commit", at_its_start=True),
    "schedule.passed_over": Case(Runs, "commit", error=UnreadableRecord, at_its_start=True),
    "schedule.passed_over for it has become too large": Case(Runs, "commit", error=InvalidCall, at_its_start=True),
    "switch.not_released": Case(Releases, "_work", poke_switches),
    "key.not_repaired": Case(Keepers, "_look_after", poke_keepers),
    "record.passed_over": Case(Keepers, "_look_after", poke_keepers, UnreadableRecord),
    "limit.not_repaired": Case(Places, "_tend", poke_limits),
    "session.not_opened": Case(Supervisor, "_open_lease", poke_session),
    "sweep.failed": Case(Sweep, "whole"),
    "sweep.failed after a session was closed": Case(Sweep, "held_by", poke_rescue),
}


@pytest.fixture
def app(namespace: str, monkeypatch: pytest.MonkeyPatch) -> App:
    """With a schedule that starts by itself; and what comes round seldom does so often."""
    app = App(namespace, config=replace(FAST, sweep_seconds=0.1, blob_grace_seconds=0.4))

    @app.actor
    async def quick() -> None: ...

    @app.actor(every=3_600.0, autostart=True)
    async def hourly() -> None: ...

    for module, name in ((presence, "_LOOK_SECONDS"), (commands, "_STRAY_SECONDS"), (marks, "LATER_SECONDS")):
        monkeypatch.setattr(module, name, 0.1)
    return app


@pytest.mark.parametrize("event", CASES)
async def test_what_gets_no_answer_is_told_and_done_at_the_next_look(
    event: str, app: App, nats_server: str, monkeypatch: pytest.MonkeyPatch, log_events: Heard
) -> None:
    case, told = CASES[event], event.partition(" ")[0]
    original = getattr(case.owner, case.method)
    done = asyncio.Event()

    async def unanswered(*args: Any, **options: Any) -> Any:
        if told not in log_events.events:
            raise case.error("on purpose")
        result = await original(*args, **options)
        done.set()
        return result

    async with app.supervisor(nats_server) as supervisor:
        if case.at_its_start:
            monkeypatch.setattr(case.owner, case.method, unanswered)
        running = asyncio.create_task(supervisor.run())
        await wait_until(lambda: not supervisor.why_not_ready, description="it is ready")
        monkeypatch.setattr(case.owner, case.method, unanswered)
        await case.poke(supervisor)
        await wait_until(done.is_set, description=f"{told}, and then it is done")
        await wait_until(lambda: not supervisor.why_not_ready, description="it is ready still, or again")
        supervisor.stop()
        await running
    assert told in log_events.events


async def test_a_schedule_whose_key_has_another_run_is_told_of_once(
    app: App, nats_server: str, supervisors: Supervisors, log_events: Heard
) -> None:
    """Somebody has submitted under its name: it begins when that run has ended."""
    async with app.connect(nats_server) as client:
        other = await client.submit(app.actors["quick"].call(), key="hourly", delay=600)
        async with supervisors.run(app):
            await wait_until(lambda: "schedule.key_taken" in log_events.events, description="it is told")
            await other.cancel()

            async def begun() -> bool:
                status = await client.status("hourly")
                return status is not None and status.actor == "hourly"

            await wait_until(begun, description="the schedule has begun")
