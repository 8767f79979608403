"""An actor for tests of wrong input, and the question whether everybody else goes on."""

from __future__ import annotations

from typing import Any

from tenure import App, Client, Context, Retry


def register(app: App) -> list[str]:
    """An actor with a few types; returns the keys of its bodies."""
    bodies: list[str] = []

    @app.actor(name="typed", retry=Retry(max_attempts=3, initial=0.01))
    async def typed(ctx: Context, path: str, depth: int = 1, ratio: float = 0.0, extra: Any = None) -> str:
        bodies.append(ctx.key)
        return f"{path}/{depth}"

    return bodies


async def is_well(client: Client) -> None:
    """The worker goes on with others."""
    run = await client.submit(client.app.actors["typed"].call("fine"))
    assert await run.result(timeout=5) == "fine/1"
