"""Many calls at once: when their server is taken for gone."""

from __future__ import annotations

import asyncio
from typing import Any

from tenure import App, KeyIsLive, TenureError, Unavailable
from tenure.bulk import Bulk
from tenure.status import Cancelled
from tenure.stores import Stores

_PATIENCE_SECONDS = 1.0
_REFUSED = 50


class Refusing(Bulk):
    """Every call is refused, one after the other, but the first: that gets no answer as long as it has patience."""

    def __init__(self, how: TenureError) -> None:
        self.how = how
        self.refused = 0
        self.some = asyncio.Event()
        self.seconds = 0.0
        self.clock = self.config = self
        self.patience_seconds = _PATIENCE_SECONDS

    def steady(self) -> float:
        return self.seconds

    @property
    def stores(self) -> Stores:
        return self  # type: ignore[return-value]  # all that is asked of them

    def now(self) -> float:
        return self.seconds

    async def submit(self, *_call: Any, key: str | None = None, **_options: Any) -> Any:
        if key == "first":
            await self.some.wait()
            self.seconds += _PATIENCE_SECONDS
            raise Unavailable("no answer")
        await asyncio.sleep(0)  # work: on its way to the server and back
        self.seconds += 0.001
        self.refused += 1
        if self.refused == _REFUSED:
            self.some.set()
        raise self.how

    async def cancel(self, key: str, **_options: Any) -> Cancelled:
        raise NotImplementedError


async def _untried(how: TenureError) -> int:
    app = App("bulk")

    @app.actor
    async def work() -> None: ...

    keys = ["first", *(f"k{number}" for number in range(1_000))]
    out = await Refusing(how).submit_many([(work.call(), key) for key in keys])
    return sum("not submitted" in str(one) for one in out)


async def test_a_server_that_refuses_answers() -> None:
    """One call gets no answer, as where a cluster has no leader for one write; all others meet a live run and are told so."""
    assert await _untried(KeyIsLive("no", key="k", generation=1, run_id="r")) == 0


async def test_who_gets_no_answer_either_is_no_sign_of_a_server() -> None:
    assert await _untried(Unavailable("no answer")) > 0
