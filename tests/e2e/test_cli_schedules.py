"""What people do with schedules on the command line."""

from __future__ import annotations

import re
import time

from tests.e2e.commands import Cli, Worker


def test_a_schedule_is_listed_and_triggered_and_goes_on(cli: Cli, worker: Worker) -> None:
    cli.fast("submit", "tasks:app", "yearly", "--key", "reports")
    cli.fast("submit", "tasks:app", "say", "--key", "no-schedule", "--arg", "text=x", "--delay", "1h")
    (row,) = cli.fast_json("ls", "--schedules")
    assert (row["key"], row["schedule"], row["phase"]) == ("reports", "cron:30 4 1 1 *@Europe/Berlin", "scheduled")
    assert row["due"].endswith("-01-01T03:30:00Z")
    assert re.search(r"reports +30 4 1 1 \* Europe/Berlin +scheduled ", cli("ls", "--schedules").stdout)
    run = cli.json("trigger", "reports")
    assert (run["generation"], run["triggered"]) == (1, True)
    deadline = time.monotonic() + 20.0
    while (after := cli.fast_json("show", "reports"))["generation"] == 1:
        assert time.monotonic() < deadline, "the triggered run has no successor"
    assert (after["phase"], after["due"]) == ("scheduled", row["due"])


def test_a_schedule_is_paused_and_resumed_and_its_last_outcome_is_listed(own: Cli) -> None:
    """Paused by its actor: it is listed so, a trigger starts nothing, and after the resume that run comes."""
    with own.worker("--with-supervisor"):
        own.fast("submit", "tasks:app", "yearly", "--key", "reports")
        (row,) = own.fast_json("ls", "--schedules")
        assert (row["held_by"], row["last"], row["last_at"]) == ("", "", None)
        assert own.fast_json("pause", "yearly")["phases"] == {"scheduled": 1}
        (row,) = own.fast_json("ls", "--schedules")
        assert (row["phase"], row["held_by"]) == ("scheduled", "actor yearly")
        table = own.fast("ls", "--schedules")[0]
        assert re.search(r"LAST +LAST AT +HELD BY.*actor yearly", table, re.DOTALL)
        assert "30 4 1 1 * Europe/Berlin" in table
        own.fast("trigger", "reports", code=1)
        assert own.fast_json("show", "reports")["generation"] == 1
        own.fast("resume", "yearly")
        deadline = time.monotonic() + 20.0
        while (row := own.fast_json("ls", "--schedules")[0])["last"] != "succeeded":
            assert time.monotonic() < deadline, "it does not run"
        assert (row["phase"], row["generation"], row["held_by"]) == ("scheduled", 2, "")
        assert row["last_at"] is not None


def test_a_trigger_of_what_does_not_wait_says_so(cli: Cli, worker: Worker) -> None:
    assert "no key" in cli.fast("trigger", "nobody", code=2)[1]
    cli.fast("submit", "tasks:app", "say", "--key", "done", "--arg", "text=x", "--wait")
    assert cli.fast_json("trigger", "done", code=1)["triggered"] is False
    assert "'done' does not wait: it is succeeded" in cli.fast("trigger", "done", code=1)[1]
