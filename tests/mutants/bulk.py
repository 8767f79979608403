"""Guards of what many calls at once have in common: they end, with or without their server, and leave nobody behind."""

from __future__ import annotations

from tests.mutants.guard import REAL, STORE, Guard

_GONE = REAL + "test_bulk_without_server.py"

BULK = (
    Guard(
        "bulk: without its server a cancel of many does not wait for each in turn",
        "src/tenure/bulk.py",
        "                self.is_gone = True\n",
        "                pass\n",
        (f"{_GONE}::test_a_cancel_of_many_ends_soon_without_its_server_and_goes_on_when_it_is_repeated",),
    ),
    Guard(
        "bulk: one key's trouble is not the server's end",
        "src/tenure/bulk.py",
        "            if self._heard <= began <= self._clock.steady() - self._patience_seconds:\n",
        "            if True:\n",
        (
            f"{REAL}test_bulk_cancel.py::test_five_thousand_are_cancelled_128_at_a_time_and_one_that_fails_stops_nothing",
        ),
    ),
    Guard(
        "bulk: a refusal is an answer",
        "src/tenure/bulk.py",
        "        except TenureError:  # a refusal is an answer\n            self._heard = self._clock.steady()\n            raise\n",
        "",
        ("tests/unit/test_bulk.py::test_a_server_that_refuses_answers",),
    ),
    Guard(
        "scan: a pass ends though others write faster than it reads",
        "src/tenure/nats/scan.py",
        "        return sequence > self._sequence\n",
        "        return False\n",
        (STORE + "test_scan.py",),
    ),
    Guard(
        "scan: a pass to the end meets what was written again meanwhile",
        "src/tenure/nats/scan.py",
        "        self._more = again\n",
        "        self._more = False\n",
        (STORE + "test_scan.py",),
    ),
    Guard(
        "reach: large arguments are read two at a time",
        "src/tenure/reach.py",
        "if record.task.blob is None else blobs:",
        "if True else blobs:",
        (f"{REAL}test_reach.py::test_of_large_arguments_two_are_in_memory_at_once",),
    ),
    Guard(
        "together: a failure ends the others",
        "src/tenure/together.py",
        "            task.cancel()\n",
        "            task.remove_done_callback(print)\n",
        ("tests/unit/test_together.py",),
    ),
)
