"""An actor that fails as long as it is told to, and runs that have just failed for good."""

from __future__ import annotations

from typing import Any

from tenure import App, Client, Context, Retry
from tenure.core import commands as c
from tenure.core.records import Failure, Holder, Record
from tenure.nats.runs import Committed

BOOM = Failure(type="ValueError", message="boom", traceback="the traceback")


class Poison:
    """An actor that fails as long as it is told to."""

    def __init__(self, app: App, **options: Any) -> None:
        self.bodies = 0
        self.fails = True
        options.setdefault("retry", Retry(max_attempts=3, initial=0.01))

        @app.actor(name="poison", **options)
        async def poison(ctx: Context, text: str = "x") -> str:
            self.bodies += 1
            if self.fails:
                raise ValueError(f"attempt {ctx.attempt} of generation {ctx.generation}")
            return text

        self.actor = poison


async def held(client: Client, key: str) -> Record:
    found = await client.stores.runs.read(key)
    assert found.record is not None
    return found.record


async def fails_for_good(client: Client, app: App, key: str = "k", **options: Any) -> Record:
    """A run that has failed for good in a process that died just then: nothing but the record tells of it."""
    poison = app.actors.get("poison") or Poison(app, **options).actor
    run = await client.submit(poison.call("text"), key=key)
    runs = client.stores.runs
    await runs.commit(key, c.Claim(session="s", run_id=run.run_id, next_run_id=""))
    end = c.FailAttempt(
        holder=Holder(session="s", run_id=run.run_id, attempt=1),
        next_run_id=client.stores.clock.new_id(),
        failure=BOOM,
        jitter=0.5,
        final=True,
    )
    done = await runs.commit(key, end)
    assert isinstance(done, Committed)
    return done.record
