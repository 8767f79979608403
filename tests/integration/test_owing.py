"""Keys that owe what is not taken: they go on, and leave no more messages than keys that owe nothing."""

from __future__ import annotations

import pytest

from tenure import App, Snooze
from tenure.core.dead import DeadLetter
from tenure.core.errors import StillOwed
from tenure.nats.dead import Dead
from tenure.nats.patience import Patience
from tenure.testing import memory


@pytest.fixture(autouse=True)
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dead stream takes no letter."""

    async def keep(_dead: Dead, letter: DeadLetter, _patience: Patience) -> None:
        raise StillOwed(f"the letter of {letter.run_id} is not taken")

    monkeypatch.setattr(Dead, "keep", keep)


@pytest.mark.parametrize("anew", [False, True], ids=["snoozes", "is submitted anew"])
async def test_a_key_that_goes_on_owing_leaves_no_message_of_each_attempt_and_generation(*, anew: bool) -> None:
    app = App("owing")

    @app.actor(retry=None)
    async def work(*, bad: bool) -> None:
        if bad:
            raise ValueError("its letter is owed from now on")
        if not anew:
            raise Snooze(1.0)

    async with memory(app) as client:
        await (await client.submit(work.call(bad=True), key="k")).wait()
        for second in range(60):
            if anew or not second:
                await client.submit(work.call(bad=False), key="k")
            await client.advance(1)
        left = client.server.jetstream.streams[app.names.work_stream].messages
        assert len(left) <= 2
