"""The sweep: every record's header against the sessions and the stored wake-ups, to find who owes something.

Owns nothing and writes no record; it asks keepers to look. The stored wake-ups are listed *before* the headers are read, and
a record written after that is left to its writer, so a backlog of any size costs one listing and no look. What is stored
and will never be delivered is removed before that: it would pass for a wake-up.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping

from tenure.core.records import TERMINAL, Phase, read_state
from tenure.core.subjects import encode_key
from tenure.core.sweeps import deserves_a_look
from tenure.core.switches import switch_at
from tenure.metrics import Metrics
from tenure.nats.patience import Patience
from tenure.nats.scan import Header
from tenure.nats.strays import Strays
from tenure.stores import Stores
from tenure.supervisor.census import Census
from tenure.supervisor.keepers import Keepers
from tenure.supervisor.places import LeftParked, Places
from tenure.supervisor.releases import Releases
from tenure.supervisor.schedules import Schedules
from tenure.telemetry import get_logger

_log = get_logger("tenure.supervisor")
_PAGE = 500
_MOST_STRAYS = 1_000
_SETTLE_SECONDS = 2.0
"""In so long the server has removed what was acknowledged."""


class Sweep:
    """Passes over all records of a namespace."""

    def __init__(
        self,
        stores: Stores,
        census: Census,
        metrics: Metrics,
        *,
        keepers: Keepers,
        schedules: Schedules,
        places: Places,
        releases: Releases,
        is_paused: Callable[[str], bool],
    ) -> None:
        self._stores = stores
        self._strays = Strays(stores.conn, stores.names)
        self._metrics = metrics
        self._census = census
        self._keepers = keepers
        self._schedules = schedules
        self._places = places
        self._releases = releases
        self._is_paused = is_paused
        self.calm = False
        """Whether the last pass met nothing but records that are over, or due later, and their timers: only something new
        changes that. A wake-up may become a stray, and a place under a limit be left, with no word of it in a stream."""
        self.soonest = math.inf
        """When the first of what is due later is due: its timer may be one for a later time, or never fire."""

    async def whole(self, is_mine: Callable[[str], bool]) -> int:
        """Look for everything, at the configured pace; how many records were passed. Raises Unavailable."""
        stores = self._stores
        await self._remove_strays()
        stored = await stores.work.stored(Patience(stores.clock, stores.config.patience_seconds))
        self._metrics.found_unserved(self._unserved(stored.lanes))
        await self._remove_foreign(stored.foreign)
        self._releases.saw(stored.parked, is_mine)
        limited = {name: runs for name, runs in stored.parked.items() if not switch_at(name)}
        limits = await self._places.look(is_mine, limited)
        passed = put_off = 0
        parked = LeftParked(stored.parked)
        self.calm = not (stored.parked or stored.wakeups or limits)
        self.soonest = math.inf

        def on_header(header: Header) -> None:
            nonlocal passed, put_off
            passed += 1
            state, now = read_state(header.state), stores.clock.now()
            if state is None:
                self.calm = False
                return
            if state.is_over(now):
                return
            later = state.phase is Phase.WAITING and state.due > now
            if later:
                self.soonest = min(self.soonest, state.due)
            self.calm = self.calm and not state.flags and (later or state.phase in TERMINAL)
            if state.autostart:
                self._schedules.saw(header.key, state)
            token = encode_key(header.key)
            parked.met(token, state)
            suspicious = deserves_a_look(
                state,
                age=stored.at - header.stored_at,
                now=now,
                holder_closed=bool(state.session) and self._census.is_gone(state.session),
                has_wakeup=stored.wakeups.has(f"{state.queue}.{token}", state.run_id)
                or parked.has(token, state.run_id),
                has_timer=stored.timers.has(token, state.run_id),
            )
            if suspicious:
                self.calm = False  # whoever looks after it
                put_off += is_mine(header.key) and not self._keepers.ask(header.key, header.revision)

        started = stores.clock.steady()

        async def pace() -> None:
            ahead = passed / stores.config.sweep_records_per_second - (stores.clock.steady() - started)
            if ahead > 0:
                await asyncio.sleep(ahead)

        await stores.runs.scan(on_header, _PAGE, pace)
        await self._places.remove(parked)
        if put_off:
            _log.warning("keys.put_off", number=put_off, waiting=self._keepers.waiting)
        return passed

    def _unserved(self, lanes: Mapping[tuple[str, str], int]) -> Counter[str]:
        """By queue, what waits where no worker is. A pause is meant, and says so elsewhere."""
        worked_on = self._census.queues_worked_on()
        found: Counter[str] = Counter()
        for (queue, _), number in lanes.items():
            if queue not in worked_on and not self._is_paused(queue):
                found[queue] += number
        return found

    async def _remove_strays(self) -> None:
        """Whose run still waits is missed by the pass that follows, and gets a new wake-up. Raises Unavailable."""
        patience = Patience(self._stores.clock, self._stores.config.patience_seconds)
        found = await self._strays.find(_MOST_STRAYS, patience)
        if not found:
            return
        await asyncio.sleep(_SETTLE_SECONDS)
        for stray in found & await self._strays.find(_MOST_STRAYS, patience):
            if await self._strays.remove(stray, patience):
                self._metrics.repairs["stray"] += 1
                _log.warning("wakeup.stray", subject=stray.subject, sequence=stray.seq)

    async def _remove_foreign(self, subjects: frozenset[str]) -> None:
        """No lane takes them, so no worker throws them away. Raises Unavailable."""
        if not subjects:
            return
        patience = Patience(self._stores.clock, self._stores.config.patience_seconds)
        for stray in await self._strays.at(subjects, _MOST_STRAYS, patience):
            if await self._strays.remove(stray, patience):
                self._metrics.repairs["foreign"] += 1
                _log.warning("message.removed", subject=stray.subject, sequence=stray.seq)

    async def held_by(self, sessions: set[str], is_mine: Callable[[str], bool]) -> None:
        """Look for what these closed sessions held, as fast as keepers are done with it. Raises Unavailable."""

        def on_header(header: Header) -> None:
            state = read_state(header.state)
            if state is None or not is_mine(header.key):
                return
            if state.session in sessions or "p" in state.flags:
                self._keepers.ask(header.key, header.revision, news=True)

        await self._places.look(is_mine)
        await self._stores.runs.scan(on_header, _PAGE, self._keepers.room, to_end=True)
