"""What ``tenure watch`` prints of the progress of bodies."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

from tests.e2e.commands import Cli, Worker, end
from tests.support import wait_until


def test_watch_of_a_pattern_prints_progress(cli: Cli, worker: Worker) -> None:
    """A key is submitted again and again until the watch has subscribed."""
    watching = cli.start("watch", "walk/*", "--json")
    assert watching.stdout is not None
    seen: list[dict[str, Any]] = []

    def read() -> None:
        assert watching.stdout is not None
        seen.extend(map(json.loads, watching.stdout))

    def progress() -> list[dict[str, Any]]:
        return [event for event in seen if event["kind"] == "progress"]

    async def main() -> None:
        reading = asyncio.create_task(asyncio.to_thread(read))
        number = 0

        async def told() -> bool:
            nonlocal number
            number += 1
            for key in (f"walk/{number}", f"run/{number}"):
                nap = ("submit", "tasks:app", "nap", "--key", key, "--arg", "seconds=0.1")
                await asyncio.to_thread(cli.fast, *nap)
            return any(event["generation"] == 1 for event in progress())

        await wait_until(told, description="the watch prints progress", timeout=20)
        watching.send_signal(signal.SIGINT)
        await reading

    asyncio.run(main())
    assert end(watching) == 0
    assert {event["key"].partition("/")[0] for event in seen} == {"walk"}
    first = progress()[0]
    assert (first["progress"]["done"], first["progress"]["total"], first["progress"]["note"]) == (1.0, 2.0, "asleep")


def test_watch_of_a_key_prints_each_step_of_its_run_as_it_happens(cli: Cli, worker: Worker) -> None:
    """As people type it. It has subscribed before it prints the first line, so nothing is left to chance."""
    cli.fast("submit", "tasks:app", "nap", "--key", "step", "--arg", "seconds=0.1", "--delay", "1h")
    watching = cli.start("watch", "step")
    assert watching.stdout is not None
    assert watching.stdout.readline() == "step  generation 1  scheduled\n"
    cli.fast("trigger", "step")
    told = [line.strip().removeprefix("step  generation 1  ") for line in watching.stdout]
    assert end(watching) == 0
    assert [line for line in told if not line.startswith(("queued", "scheduled"))] == [
        "running  attempt 1",
        "progress  1 of 2  asleep",
        "succeeded  attempt 1",
    ]
