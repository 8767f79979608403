"""An actor that counts its bodies, and the faults that a proxy can do to a write."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from tenure import App, Context, Retry, Snooze
from tests.support import FAST

QUICK = replace(FAST, request_timeout_seconds=0.3)
"""An answer is missed soon."""
FAULTS = ["lose_answer", "cut_answer", "hold", "lose"]


class Counted:
    """An actor that counts its bodies."""

    def __init__(self, app: App, **options: Any) -> None:
        self.bodies: list[tuple[int, int]] = []
        self.failures: list[int] = []
        options.setdefault("retry", Retry(max_attempts=3, initial=0.05))

        @app.actor(name="counted", **options)
        async def counted(ctx: Context, ends: str = "return") -> str:
            self.bodies.append((ctx.generation, ctx.attempt))
            self.failures.append(ctx.failures)
            if ends in {"raise", "snooze"} and len(self.bodies) == 1:
                raise RuntimeError if ends == "raise" else Snooze(0.01)
            if ends == "stop":
                await asyncio.Event().wait()
            return f"by attempt {ctx.attempt}"

        self.actor = counted
