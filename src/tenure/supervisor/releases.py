"""Releases: the runs that waited for a switch, woken once it is gone; and switches whose time is over, taken away.

Owns nothing. What is to be woken says the board alone: whatever is parked under the id of a switch that it does not hold
(rules: ``core.switches``). So any number of supervisors may do it, again and again, and a sweep finds what a crash has left,
or what a worker has parked that did not know yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tenure.core.errors import OutcomeUnknown, TenureError, Unavailable
from tenure.core.switches import Board, expired, place_of, switch_at
from tenure.metrics import Metrics
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tenure.switchboard import Switchboard
from tenure.telemetry import get_logger
from tenure.together import each

_log = get_logger("tenure.supervisor")
_AT_ONCE = 64
_LOOKS_AFTER = (0.0, 1.0, 3.0, 7.0)
"""Seconds after a switch is gone at which to look for what waits for it: workers know it a little later than we."""
_RETRY_SECONDS = 1.0
_IDLE_SECONDS = 60.0


class Releases:
    """Wakes what waited for switches, for one supervisor. ``is_mine`` tells which of them it looks after at once."""

    def __init__(
        self, stores: Stores, board: Switchboard, metrics: Metrics, is_mine: Callable[[], Callable[[str], bool]]
    ) -> None:
        self._stores = stores
        self._board = board
        self._metrics = metrics
        self._is_mine = is_mine
        self._known: set[str] = set()
        self._looks: dict[str, list[float]] = {}
        self._news = asyncio.Event()
        board.on_change(self._changed)

    def saw(self, places: Iterable[str], is_mine: Callable[[str], bool]) -> None:
        """A sweep finds runs parked under these names: limits' are others' affair."""
        now = self._stores.clock.now()
        for switch in filter(None, map(switch_at, places)):
            if self._board.known and not self._board.rules.holds(switch, now) and is_mine(switch):
                self._look_at(switch, (0.0,))

    @property
    def waiting(self) -> int:
        """Switches that are gone, and what waits for them is to be woken now."""
        now = self._stores.clock.steady()
        return sum(min(times, default=now) <= now for times in self._looks.values())

    async def keep(self) -> None:
        """Do so until cancelled."""
        while True:
            pause = _IDLE_SECONDS
            try:
                pause = await self._work()
            except (Unavailable, OutcomeUnknown) as error:
                self._metrics.errors["server"] += 1
                _log.warning("switch.not_released", error=str(error))
                pause = _RETRY_SECONDS
            except TenureError as error:  # the board cannot be read: for a newer Tenure, or for people
                _log.error("switch.not_released", error=str(error))
            try:
                async with asyncio.timeout(pause):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _changed(self, board: Board) -> None:
        now = {switch.id for switch in board.switches}
        is_mine = self._is_mine()
        for switch in self._known - now:
            if is_mine(switch):
                self._look_at(switch, _LOOKS_AFTER)
        self._known = now
        self._news.set()

    def _look_at(self, switch: str, after: tuple[float, ...]) -> None:
        now = self._stores.clock.steady()
        self._looks.setdefault(switch, []).extend(now + seconds for seconds in after)
        self._news.set()

    async def _work(self) -> float:
        """Whatever is to be done now; seconds until there may be something to do."""
        self._news.clear()
        await self._end_those_over()
        clock = self._stores.clock
        for switch in list(self._looks):
            now = clock.steady()
            if min(self._looks[switch]) > now:
                continue
            await self._release(switch)
            self._looks[switch] = [at for at in self._looks[switch] if at > now]
            if not self._looks[switch]:
                del self._looks[switch]
        soonest = min((at for times in self._looks.values() for at in times), default=None)
        return _IDLE_SECONDS if soonest is None else max(0.0, soonest - clock.steady())

    async def _end_those_over(self) -> None:
        """Take switches away whose time is over. Their runs are woken when the board is told anew."""
        stores = self._stores
        now = stores.clock.now()
        if expired(self._board.rules.board, now) == self._board.rules.board:
            return
        changed = await stores.switches.change(lambda board: expired(board, now), self._patience())
        if changed.after != changed.before:
            _log.info("switch.over", left=len(changed.after.switches))

    async def _release(self, switch: str) -> None:
        """Wake what waits for a switch, in the order in which it was submitted. Raises Unavailable."""
        place, before = place_of(switch), self._metrics.repairs["resumed"]
        runs = await self._stores.parking.all(place, self._patience())
        await each(runs, lambda run: self._wake(place, run[1], run[0]), _AT_ONCE)
        if runs:
            _log.info("switch.released", switch=switch, woken=self._metrics.repairs["resumed"] - before)

    async def _wake(self, place: str, key: str, run_id: str) -> None:
        parking, patience = self._stores.parking, self._patience()
        parked = await parking.get(place, key, run_id, patience)
        if parked is not None:  # else another supervisor was quicker
            await parking.release(parked, patience)
            self._metrics.repairs["resumed"] += 1

    def _patience(self) -> Patience:
        return Patience(self._stores.clock, self._stores.config.patience_seconds)
