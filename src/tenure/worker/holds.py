"""Runs that a switch holds back: asked before a run is claimed and once more before its body starts.

A run of a paused queue goes back to it: nobody pulls there. Any other waits in the parking under its switch's id until that
is gone (rules: ``core.switches``), so it costs nothing meanwhile; a supervisor wakes it then.
"""

from __future__ import annotations

from tenure.core.records import Record
from tenure.core.switches import Switch, place_of
from tenure.nats.patience import Patience
from tenure.nats.runs import Found
from tenure.stores import Stores
from tenure.switchboard import Switchboard


class Holds:
    """The switches as a worker goes by them."""

    def __init__(self, stores: Stores, board: Switchboard) -> None:
        self._stores = stores
        self.board = board

    async def park(self, switch: Switch, found: Found, record: Record, patience: Patience) -> bool:
        """Have the run wait for this switch; False if that is gone by now: ask again. Raises Unavailable.

        Who wakes those that wait may have looked before this was stored.
        """
        parking, place = self._stores.parking, place_of(switch.id)
        data = self._stores.codec.encode(record)
        await parking.park(place, record, data, found.revision, patience, reserves=False)
        if self.board.rules.holds(switch.id, self._stores.clock.now()):
            return True
        await parking.remove(place, record.key, record.run_id, patience)
        return False
