"""Limits whose number is another in newer code: who waits by then."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tenure import App, Limit
from tests.conftest import Workers
from tests.support import FAST, wait_until


@pytest.mark.parametrize("per", [None, "case"])
async def test_whoever_is_parked_starts_when_newer_code_allows_more(
    namespace: str, nats_server: str, workers: Workers, per: str | None
) -> None:
    """Nobody starts, ends or is submitted: the start of the worker that knows the new number is enough."""
    gate, inside = asyncio.Event(), Counter[str]()

    def code(n: int) -> tuple[App, Any]:
        app = App(namespace, config=FAST)

        @app.actor(limits=[Limit(n, per=per)])
        async def capped(case: str) -> None:
            inside[case] += 1
            await gate.wait()

        return app, capped

    app, capped = code(1)
    async with app.connect(nats_server) as client, workers.run(app) as running:
        runs = [await client.submit(capped.call("x")) for _ in range(5)]
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["capped", "parked"] == 4, description="all but one are parked")
        async with workers.run(code(3)[0]):
            await wait_until(lambda: inside["x"] == 3, description="two more run")
            gate.set()
            for run in runs:
                await run.result(10)
