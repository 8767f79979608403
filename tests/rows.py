"""What the tests of DESIGN's table of gaps share: who dies where, and what must be so in the end, whatever died."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Mapping

from msgspec.structs import replace

from tenure import Client
from tenure.actors import Call
from tenure.core.records import read_state
from tenure.nats.runs import Found
from tenure.nats.scan import Header
from tests.contract.support import depth
from tests.mortal import TARGET
from tests.processes import Process, Site
from tests.support import wait_until

SOON = {"session_ttl_seconds": 1.0}
AGAIN = {"ack_wait_seconds": 1.0}
"""A redelivery is what helps; else it comes after half a minute."""

Deaths = Mapping[str, tuple[str, Call[str]]]
"""By key: the point at which the worker of its run dies, and what runs."""


class Ledger:
    """Every outcome that was stored while it watched, by run; and how things must lie in the end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._outcomes: defaultdict[str, set[tuple[int, str, str]]] = defaultdict(set)

    def saw(self, _key: str, found: Found) -> None:
        last = found.record.last if found.record is not None else None
        if last is not None:
            self._outcomes[last.run_id].add((last.attempt, last.session, last.phase.value))

    async def comes_to_rest(self, phases: Mapping[str, str], *, messages: int = 0) -> None:
        """Wait until there are these keys and no others, in these phases, with nothing owed and so many messages left.

        And no run had two outcomes on the way.
        """
        stores = self._client.stores
        found: tuple[dict[str, tuple[str, str]], int] = ({}, 0)
        wanted = ({key: (phase, "") for key, phase in phases.items()}, messages)

        async def look() -> bool:
            nonlocal found
            seen: dict[str, tuple[str, str]] = {}

            def on_header(header: Header) -> None:
                state = read_state(header.state)
                assert state is not None, header
                seen[header.key] = (state.phase.value, state.flags)

            await stores.runs.scan(on_header)
            found = (seen, await depth(stores))
            return found == wanted

        with contextlib.suppress(AssertionError):  # the comparison says more
            await wait_until(look, description="all is at rest", timeout=20.0)
        assert found == wanted, f"{found}, and not {wanted}"
        twice = {run_id: ends for run_id, ends in self._outcomes.items() if len(ends) > 1}
        assert not twice, twice


def to_queue(queue: str, call: Call[str]) -> Call[str]:
    """The same call on another queue."""
    return dataclasses.replace(call, task=replace(call.task, queue=queue))


async def die_at_work(site: Site, client: Client, deaths: Deaths) -> None:
    """Submit each run to a queue of its own, named after its key, and let its worker kill itself at its point."""
    for key, (_point, call) in deaths.items():
        await client.submit(to_queue(key, call), key=key)
    await asyncio.gather(
        *(
            site.dies(point, "worker", TARGET, "--queue", key, "--concurrency", "1")
            for key, (point, _call) in deaths.items()
        )
    )


async def start_fresh(site: Site, queues: Mapping[str, object], *options: str) -> Process:
    """A worker that has nothing in common with those that died."""
    named = [option for queue in ("default", *queues) for option in ("--queue", queue)]
    return await site.start_worker(*named, *options)


def starts(site: Site, key: str) -> list[int]:
    """The attempts whose bodies started."""
    return [event.attempt for event in site.events("started", key)]
