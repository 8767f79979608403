"""``tenure.testing.memory``: whole applications in virtual time."""

from __future__ import annotations

import asyncio
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tenure import App, Context, Cooldown, Debounce, RateLimit, Retry, RunFailed, TenureError, Unavailable
from tenure.testing import MemoryClient, Stuck, memory, plugin

DAY = 86_400.0


@pytest.fixture
def app() -> App:
    """An app with the settings of production: nothing is scaled down."""
    return App("rehearsed")


@pytest.fixture(autouse=True)
def takes_no_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 10


async def test_a_run_is_done_at_once(app: App):
    @app.actor
    async def double(number: int) -> int:
        return 2 * number

    async with memory(app) as client:
        assert await (await client.submit(double.call(21))).result() == 42


async def test_a_delay_of_thirty_days_passes_and_is_kept_to_the_second(app: App):
    @app.actor
    async def remind(ctx: Context, what: str) -> str:
        return f"{what} at {client.now()}"

    async with memory(app, start=datetime(2030, 1, 1, tzinfo=UTC)) as client:
        began = client.now()
        run = await client.submit(remind.call("tea"), key="tea", delay=timedelta(days=30))
        (due,) = await client.scheduled()
        assert (due.key, due.actor, due.args) == ("tea", "remind", {"what": "tea"})
        assert due.delay == pytest.approx(30 * DAY)
        assert due.due == datetime.fromtimestamp(began + 30 * DAY, UTC)
        told = await run.result()
        assert float(told.removeprefix("tea at ")) - began - 30 * DAY == pytest.approx(0.0, abs=0.1)
        assert not await client.scheduled()


async def test_one_loop_may_see_many_long_delays(app: App):
    """Virtual time never goes back in a loop, so one for the session's tests soon has seen more than 194 days."""

    @app.actor
    async def remind(what: str) -> str:
        return what

    for days in (*[30] * 10, 3_000):
        async with memory(app) as client:
            run = await client.submit(remind.call("tea"), delay=timedelta(days=days))
            assert await run.result() == "tea"


async def test_retries_wait_as_long_as_they_say(app: App):
    starts: list[float] = []

    @app.actor(retry=Retry(max_attempts=4, initial=60.0, factor=10.0, maximum=10_000.0, jitter=0.0))
    async def fails(ctx: Context) -> None:
        starts.append(client.now())
        raise OSError("not today")

    async with memory(app) as client:
        run = await client.submit(fails.call())
        with pytest.raises(RunFailed, match="not today"):
            await run.result()
    pauses = [after - before for before, after in pairwise(starts)]
    assert pauses == pytest.approx([60.0, 600.0, 6_000.0], abs=0.1)


async def test_a_perpetual_actor_runs_as_often_as_time_passes(app: App):
    runs: list[float] = []

    @app.actor(every=timedelta(hours=1))
    async def tick() -> None:
        runs.append(client.now())

    async with memory(app) as client:
        await client.submit(tick.call(), key="tick")
        await client.advance(timedelta(days=2, minutes=1))
        await client.cancel("tick")
    assert len(runs) == 49


async def test_a_timeout_ends_a_body_when_its_time_is_over(app: App):
    @app.actor(timeout=3_600.0, retry=None)
    async def sleeps() -> None:
        await asyncio.sleep(DAY)  # body:

    async with memory(app) as client:
        began = client.now()
        with pytest.raises(RunFailed, match="longer than 3600"):
            await (await client.submit(sleeps.call())).result()
        assert client.now() - began == pytest.approx(3_600.0, abs=0.1)


async def test_plain_bodies_run_in_the_loop(app: App):
    @app.actor
    def plain(number: int) -> tuple[int, bool]:
        return number + 1, threading.current_thread() is threading.main_thread()

    async with memory(app) as client:
        assert await (await client.submit(plain.call(1))).result() == (2, True)


async def test_progress_is_seen_before_the_outcome_of_any_kind_of_body_and_from_the_first_moment(app: App):
    """The steady clock begins with the test; a plain body has ended before the loop hears of what it reports."""

    @app.actor
    def plain(ctx: Context) -> None:
        for page in range(3):
            ctx.report(page, 3, f"page {page}")

    @app.actor
    async def awaits(ctx: Context) -> None:
        for page in range(3):
            await ctx.progress(page, 3, f"page {page}")

    async with memory(app) as client:
        for actor in (plain, awaits):
            run = await client.submit(actor.call())
            notes = [event.progress.note async for event in run.events() if event.progress]
            assert notes == ["page 2" if actor is plain else "page 0"]


async def test_without_workers_what_was_asked_for_can_be_looked_at(app: App):
    @app.actor
    async def never(number: int) -> None:
        raise AssertionError("nobody works here")

    async with memory(app, workers=0) as client:
        await client.submit(never.call(2), key="b", delay=60)
        await client.submit(never.call(1), key="a")
        assert [(run.key, run.args["number"]) for run in await client.scheduled()] == [("a", 1), ("b", 2)]
        with pytest.raises(Stuck, match="a"):
            await client.until_idle()


async def test_without_supervisors_either_nothing_runs_and_the_block_ends(app: App):
    @app.actor
    async def never() -> None:
        raise AssertionError("nobody works here")

    async with memory(app, workers=0, supervisors=0) as client:
        await client.submit(never.call(), key="a")
        assert [run.key for run in await client.scheduled()] == ["a"]
    with pytest.raises(Stuck, match="nothing will ever happen"):
        async with memory(app, workers=0, supervisors=0) as client:
            await (await client.submit(never.call(), key="a")).result()


async def test_what_a_program_without_tenure_publishes_is_applied_or_kept_with_the_reason(app: App):
    @app.actor
    async def remind(ctx: Context, what: str) -> str:
        return f"the {what} is ready"

    async with memory(app) as client:
        await client.publish("tenure.rehearsed.submit.remind", b'{"what": "tea"}', {"Tenure-Key": "tea"})
        await client.publish("tenure.rehearsed.submit.remind", b'{"when": 1}', {"Tenure-Key": "wrong"})
        await client.until_idle()
        done = await client.status("tea")
        assert done is not None
        assert done.phase == "succeeded"
        assert await client.status("wrong") is None
        (rejected,) = await client.dead.rejected()
        assert "when" in rejected.text
        with pytest.raises(Unavailable, match="not stored"):
            await client.publish("nobody.listens.here")


async def test_a_command_that_nobody_applies_is_not_idle(app: App):
    async with memory(app) as client:
        client.supervisors[0].stop()
        await client.advance(60)
        await client.publish("tenure.rehearsed.submit.remind", b"{}", {"Tenure-Key": "tea"})
        with pytest.raises(Stuck, match=r"tenure\.rehearsed\.submit\.remind"):
            await client.until_idle()


async def test_until_idle_returns_when_what_is_due_is_done(app: App):
    done: list[str] = []

    @app.actor
    async def child(ctx: Context) -> None:
        await asyncio.sleep(5)  # body:
        done.append(ctx.key)

    @app.actor
    async def parent(ctx: Context) -> None:
        ctx.spawn(child.call(), key="now")
        ctx.spawn(child.call(), key="later", delay=DAY)

    async with memory(app) as client:
        await client.submit(parent.call(), key="parent")
        await client.until_idle()
        assert done == ["now"]
        assert [run.key for run in await client.scheduled()] == ["later"]


async def test_a_test_that_waits_for_ever_is_told_so(app: App):
    @app.actor(queue="elsewhere")
    async def nobodys() -> None: ...

    with pytest.raises(Stuck, match="nothing will ever happen"):
        async with memory(app, queues=["default"]) as client:
            await (await client.submit(nobodys.call())).result()


async def test_a_test_that_waits_in_vain_while_a_schedule_ticks_is_told_so(app: App):
    """Something is always to come, only not what it waits for. What it awaits is cancelled, Stuck comes out of the block."""

    @app.actor(every=timedelta(hours=1))
    async def tick() -> None:
        clients[0].now()  # a body's asking is not the test's

    @app.actor(queue="elsewhere")
    async def nobodys() -> None: ...

    clients: list[MemoryClient] = []
    ended: list[BaseException] = []

    async def waits_in_vain() -> None:
        async with memory(app, queues=["default"], patience=2_000) as client:
            clients.append(client)
            await client.submit(tick.call(), key="chain")
            lost = await client.submit(nobodys.call(), key="lost")
            try:
                await lost.result()
            except BaseException as error:
                ended.append(error)
                raise

    with pytest.raises(
        Stuck, match=r"(?s)waits_in_vain.*chain: tick, every:3600, generation \d+.*lost: nobodys, waiting"
    ):
        await waits_in_vain()
    assert [type(error) for error in ended] == [asyncio.CancelledError]


async def test_who_has_a_timer_of_its_own_or_asks_for_something_does_not_wait_in_vain(app: App):
    @app.actor(every=timedelta(hours=1))
    async def tick() -> None: ...

    @app.actor
    async def slow() -> None:
        await asyncio.sleep(DAY)  # body:
        slept.set()

    slept = asyncio.Event()
    async with memory(app, patience=1_000) as client:
        await client.submit(tick.call(), key="chain")
        await client.advance(timedelta(days=5))
        for _ in range(5):
            await (await client.submit(slow.call())).result()
        slept.clear()
        await client.submit(slow.call(), delay=timedelta(days=2))
        await client.advance(1.5 * DAY)
        await slept.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * DAY):
                await asyncio.Event().wait()


async def test_the_same_seed_gives_the_same_runs(app: App):
    @app.actor
    async def nothing() -> None: ...

    async def ids() -> list[str]:
        async with memory(app, start=datetime(2030, 1, 1, tzinfo=UTC), seed=3) as client:
            return [(await client.submit(nothing.call())).run_id for _ in range(3)]

    assert await ids() == await ids()


async def test_a_server_that_is_gone_for_a_while_loses_nothing(app: App):
    @app.actor
    async def nap(ctx: Context) -> int:
        await asyncio.sleep(10)  # body:
        return ctx.attempt

    async with memory(app, workers=2) as client:
        run = await client.submit(nap.call())
        await client.advance(1)
        client.server.kill()
        await client.advance(2)
        client.server.start()
        assert await run.result() == 1


class TestFixture:
    @pytest.fixture
    def tenure_app(self) -> App:
        app = App("fixed")

        @app.actor
        async def greet(name: str) -> str:
            return f"hello {name}"

        return app

    async def test_it_runs_the_app_that_a_fixture_names(self, tenure_app: App, tenure_client: MemoryClient):
        run = await tenure_client.submit(
            tenure_app.actors["greet"].call("you"), key="greeting", delay=timedelta(days=3)
        )
        assert await run.result() == "hello you"


async def test_rates_debounce_and_cooldown_keep_to_virtual_time(app: App):
    starts: dict[str, list[float]] = {"paced": [], "index": [], "report": []}

    @app.actor(limits=[RateLimit(2, timedelta(hours=1))])
    async def paced() -> None:
        starts["paced"].append(client.now())

    @app.actor(limits=[Debounce(timedelta(minutes=10), timedelta(hours=2))])
    async def index(number: int) -> int:
        starts["index"].append(client.now())
        return number

    @app.actor(limits=[Cooldown(timedelta(days=3))])
    async def report() -> None:
        starts["report"].append(client.now())

    async with memory(app) as client:
        began = client.now()
        for run in [await client.submit(paced.call(), key=f"k{i}") for i in range(6)]:
            await run.result()
        hours = sorted((at - began) / 3_600 for at in starts["paced"])
        assert hours == pytest.approx([0, 0, 1, 1, 2, 2], abs=0.01)
        assert min(later - one for one, later in zip(hours, hours[2:], strict=False)) >= 1.0
        for number in range(3):
            last = await client.submit(index.call(number), key="doc")
            await asyncio.sleep(300)  # body: five minutes of the loop's time
        saved = client.now() - 300
        assert await last.result() == 2
        assert [at - saved for at in starts["index"]] == pytest.approx([600], abs=1.0)
        while len(starts["report"]) < 2:
            await client.submit(report.call(), key="r")
            await asyncio.sleep(3_600)  # body: an hour of the loop's time
        assert starts["report"][1] - starts["report"][0] == pytest.approx(3 * DAY, abs=3_700)


@pytest.mark.parametrize("by_environment", [False, True])
async def test_code_that_connects_by_itself_reaches_the_server(
    app: App, monkeypatch: pytest.MonkeyPatch, by_environment: bool
):
    @app.actor
    async def double(number: int) -> int:
        return 2 * number

    async with memory(app) as client:
        monkeypatch.setenv("TENURE_NATS_URL", client.server.url if by_environment else "nats://127.0.0.1:1")
        async with app.connect() if by_environment else app.connect(client.server.url) as other:
            assert await (await other.submit(double.call(21))).result() == 42


def test_a_client_of_another_loop_says_which_options_make_it_one(app: App):
    with asyncio.Runner() as fixture, asyncio.Runner() as test:
        client = fixture.run(memory(app).__aenter__())
        with pytest.raises(
            TenureError, match=r"asyncio_default_fixture_loop_scope and asyncio_default_test_loop_scope"
        ):
            test.run(client.status("k"))
        fixture.run(client.__aexit__(None, None, None))


def test_without_pytest_asyncio_the_fixture_says_what_it_needs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pytest_asyncio", None)
    names = runpy.run_path(plugin.__file__)
    with pytest.raises(pytest.fail.Exception, match="needs pytest-asyncio"):
        names["tenure_client"].__wrapped__()
