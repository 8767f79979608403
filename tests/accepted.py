"""What was accepted: a producer that goes on whatever fails, and the app whose bodies it asks for."""

from __future__ import annotations

import asyncio
import contextlib

from tenure import App, Client, Config, Context, OutcomeUnknown, Unavailable
from tests.support import wait_until


def make_app(namespace: str, bodies: list[tuple[str, int]]) -> App:
    """One actor; each of its bodies adds its key and attempt. Little patience: who is told no asks again."""
    app = App(namespace, config=Config(replicas=3, patience_seconds=2.0, request_timeout_seconds=0.5))

    @app.actor
    async def work(ctx: Context) -> None:
        bodies.append((ctx.key, ctx.attempt))

    return app


class Producer:
    """Submits one key after the other from several tasks, until told to stop, and keeps which were accepted."""

    def __init__(self, client: Client) -> None:
        self.told: list[str] = []
        self.answered = 0
        """Submits of which something was heard: that they are accepted, or that nobody knows."""
        self._client = client
        self._made = 0
        self._enough = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(self._submit())

    async def hears(self, number: int) -> None:
        """Wait until so many more submits were answered."""
        end = self.answered + number
        await wait_until(lambda: self.answered >= end, description=f"{number} submits are answered", timeout=60.0)

    def stop(self) -> None:
        self._enough = True

    async def _submit(self) -> None:
        while not self._enough:
            self._made += 1
            key = f"k-{self._made}-end"
            with contextlib.suppress(Unavailable, OutcomeUnknown):
                await self._client.submit(self._client.app.actors["work"].call(), key=key)
                self.told.append(key)
            self.answered += 1
