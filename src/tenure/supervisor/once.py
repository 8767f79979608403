"""One sweep, now: a supervisor's means for as long as one pass takes.

Its session is of a kind of its own: the supervisors that live share the keys among themselves, and must not count on one that
is about to go. It starts no schedules and applies no commands of the inbox: both need the app's code, and that it is the newest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tenure.core.errors import Unavailable
from tenure.overview import runs_held, session_row
from tenure.service import Service
from tenure.supervisor.census import Census
from tenure.supervisor.keepers import Keepers
from tenure.supervisor.places import Places
from tenure.supervisor.releases import Releases
from tenure.supervisor.schedules import Schedules
from tenure.supervisor.sweep import Sweep
from tenure.switchboard import Switchboard

if TYPE_CHECKING:
    from tenure.app import App

_LOOK_SECONDS = 0.05
_SETTLE_SECONDS = 0.3
"""So long nobody may have found anything more to do before the pass counts as over."""
_LONGEST_SECONDS = 300.0
_UNHEARD = 0.6
"""Share of its ttl after which a session that was not renewed may be a dead one's."""


class Repaired(Struct, frozen=True):
    """What one sweep did: ``records`` passed, ``repairs`` by kind (`tenure_repairs_total`), ``failed``: what could not be done."""

    records: int
    repairs: dict[str, int]
    failed: int


class Repair(Service):
    """``async with Repair(app, url) as repair: await repair.run()``; then ``done``."""

    kind = "repair"
    _already_runs = "the repair already runs"

    def __init__(self, app: App, url: str, *, options: dict[str, Any] | None = None) -> None:
        super().__init__(app, url, queues=(), options=options or {})
        self.done: Repaired | None = None

    async def _serve(self) -> None:
        stores, metrics = self.stores, self.metrics
        census = Census(
            stores.conn, stores.sessions, stores.clock, metrics,
            confirmed_at=lambda: self.lease.confirmed_at, ttl=stores.session_ttl, on_closed=lambda _session: None,
        )  # fmt: skip
        keepers, board = Keepers(stores, census, metrics), Switchboard(stores)
        releases = Releases(stores, board, metrics, lambda: lambda _key: True)
        sweep = Sweep(
            stores, census, metrics, keepers=keepers, releases=releases,
            schedules=Schedules(stores, metrics, {}, 0.0, lambda: None), places=Places(stores, census, metrics, board),
            is_paused=board.is_paused,
        )  # fmt: skip
        loops = [census.watch, board.run, releases.keep, *[keepers.keep] * stores.config.repairs_at_once]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(loop()) for loop in loops]
                tasks.append(group.create_task(census.close_silent(lambda name: name == self.lease.id)))
                try:
                    await self._know_who_is_gone(census)
                    records = await sweep.whole(lambda _key: True)
                    await self._until_settled(keepers, releases)
                finally:
                    for task in tasks:
                        task.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        did = {kind: number for kind, number in sorted(metrics.repairs.items()) if number}
        self.done = Repaired(records, did, sum(metrics.errors.values()))

    async def _know_who_is_gone(self, census: Census) -> None:
        """Wait until each session that may be a dead one's is closed: a ttl at most, and not at all if there is none."""
        stores = self.stores
        try:
            async with asyncio.timeout(stores.config.patience_seconds):
                await census.caught_up.wait()
        except TimeoutError:
            raise Unavailable("the server does not list the sessions") from None
        rows = [session_row(seen, stores.clock.now()) for seen in await stores.sessions.all()]
        doubtful = {row.id for row in rows if row.closed is None and row.beat_seconds > _UNHEARD * row.ttl_seconds}
        doubtful |= set(await runs_held(stores)) - {row.id for row in rows}
        until = stores.clock.steady() + max([stores.session_ttl, *(row.ttl_seconds for row in rows)]) + 1.0
        while any(not census.is_gone(name) for name in doubtful) and stores.clock.steady() < until:  # noqa: ASYNC110  (what it asks depends on clocks as well: there is no event to wait for)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _until_settled(self, keepers: Keepers, releases: Releases) -> None:
        clock = self.stores.clock
        until, quiet_since = clock.steady() + _LONGEST_SECONDS, clock.steady()
        while (now := clock.steady()) < until and now - quiet_since < _SETTLE_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            if keepers.waiting or releases.waiting:
                quiet_since = clock.steady()
        self.metrics.errors["server"] += keepers.waiting
