"""Guards that tests on a real server hold: what is asked of it, and the scenarios from the field."""

from __future__ import annotations

from tests.mutants.guard import REAL, Guard

FIELD = (
    # -- what is asked of the server ---------------------------------------------------------------------------------
    Guard(
        "claim: a wake-up that carries its record needs no read",
        "src/tenure/worker/head.py",
        "            if found is None or found.record is None or found.record.previous:\n",
        "            if True:\n",
        (REAL + "test_requests.py::test_a_claim_needs_no_read",),
    ),
    Guard(
        "result: who waits is told, and does not ask",
        "src/tenure/nats/runs.py",
        "        self._reread_seconds = reread_seconds\n",
        "        self._reread_seconds = 0.1\n",
        (REAL + "test_requests.py::test_waiting_for_a_result_costs_no_request",),
    ),
    Guard(
        "outcome: the ack comes after it is stored",
        "src/tenure/worker/handler.py",
        "            done = await self._tail.store(",
        "            await self._stores.work.ack(live.reply)\n            done = await self._tail.store(",
        (REAL + "test_requests.py::test_the_ack_comes_last",),
    ),
    Guard(
        "pull: a slot that comes free is asked for at once",
        "src/tenure/worker/service.py",
        "        self._changed.set()\n        self.puller.refill_soon()\n",
        "        self._changed.set()\n",
        (REAL + "test_requests.py::test_a_freed_slot_is_refilled_at_once",),
    ),
)
