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
