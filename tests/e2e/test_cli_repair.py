"""``tenure repair``: one sweep, typed by somebody whose supervisors are gone."""

from __future__ import annotations

import asyncio
import re
import signal

import pytest

from tenure import App
from tests.e2e.commands import Cli
from tests.e2e.test_cli_above import until
from tests.support import FAST


@pytest.mark.long
def test_a_repair_closes_a_dead_workers_session_and_has_its_run_taken_over(own: Cli) -> None:
    with own.worker() as worker:
        own.fast("submit", "tasks:app", "nap", "--key", "k", "--arg", "seconds=60")
        until(lambda: own.fast_json("show", "k")["phase"] == "running", "the run starts")
        worker.process.send_signal(signal.SIGKILL)
        worker.process.wait(5)
    until(lambda: own.fast_json("sessions")[0]["state"] == "silent", "its ttl passes")
    dry = own.fast_json("repair", "--dry-run")
    assert [row["state"] for row in dry["sessions"]] == ["silent"]
    assert [(row["key"], row["why"]) for row in dry["keys"]] == [("k", "the process that holds it is gone")]
    assert "the process that holds it is gone" in own.fast("repair", "--dry-run")[0]
    assert own.fast_json("sessions")[0]["state"] == "silent", "a dry run changes nothing"
    done = own.json("repair")
    assert done["repairs"] == {"session": 1, "takeover": 1}
    assert (done["records"], done["failed"]) == (1, 0)
    assert own.fast_json("sessions") == []
    ended = own.fast_json("sessions", "--all")
    assert {(row["kind"], row["closed"]) for row in ended} == {("worker", "expired"), ("repair", "drain")}
    with own.worker():
        until(
            lambda: own.fast_json("show", "k")["phase"] == "failed",
            "a worker takes it over, and it has no attempt left",
        )


async def lose_wakeups(own: Cli) -> None:
    async with App(own.namespace, config=FAST).connect(own.url) as client:
        names = client.stores.names
        await client.stores.conn.api(f"STREAM.PURGE.{names.work_stream}", {"filter": f"{names.work_prefix}>"})


def test_a_repair_stores_a_lost_wake_up_again(own: Cli) -> None:
    own.fast("submit", "tasks:app", "say", "--key", "k", "--arg", "text=x")
    asyncio.run(lose_wakeups(own))
    lost = ["it waits, and no wake-up of it is stored"]
    until(lambda: [row["why"] for row in own.fast_json("repair", "--dry-run")["keys"]] == lost, "the record settles")
    assert re.search(r"wakeup +1", own("repair").stdout)
    assert own.fast_json("queues")[0]["waiting"] == 1
    assert own.fast_json("repair") == {"records": 1, "repairs": {}, "failed": 0}
    assert "repaired  0" in own.fast("repair")[0]


def test_a_repair_of_what_is_not_there_is_told(own: Cli) -> None:
    assert "there is no namespace 'tpyo'" in own.fast("repair", "--namespace", "tpyo", code=2)[1]
    assert "there is no namespace 'tpyo'" in own.fast("repair", "--dry-run", "--namespace", "tpyo", code=2)[1]
    assert "cannot reach a NATS server" in own.fast("repair", "--url", "nats://127.0.0.1:1", code=3)[1]
