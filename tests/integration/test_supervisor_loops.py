"""Scenario 30: an internal loop of a supervisor that ends, however it ends, ends the supervisor; it never looks ready."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tenure.core.errors import TenureError, Unavailable
from tenure.nats import presence
from tenure.nats.inbox import Inbox, InboxLane
from tenure.nats.micro import Micro
from tenure.nats.presence import Presence
from tenure.nats.watch import Watch
from tenure.supervisor import Supervisor, commands, marks, sweep
from tenure.supervisor.blobs import Leftovers
from tenure.supervisor.census import Census
from tenure.supervisor.commands import Commands
from tenure.supervisor.keepers import Keepers
from tenure.supervisor.marks import Forgetter
from tenure.supervisor.releases import Releases
from tenure.supervisor.schedules import Schedules
from tenure.supervisor.sweep import Sweep
from tenure.switchboard import Switchboard
from tests.conftest import Supervisors
from tests.processes import TARGET, Site
from tests.proxy import Proxy
from tests.support import wait_until


class Broken(Exception):
    """What is raised inside the loops."""


async def poke_nothing(_supervisor: Supervisor) -> None:
    """It comes round by itself."""


async def poke_rescue(supervisor: Supervisor) -> None:
    supervisor._closed.set()


async def poke_session(supervisor: Supervisor) -> None:
    supervisor._lost.set()


async def poke_keepers(supervisor: Supervisor) -> None:
    assert supervisor._keepers is not None
    for number in range(40):
        supervisor._keepers.ask(f"k-{number}", 1)


async def poke_switches(supervisor: Supervisor) -> None:
    await Client.over(supervisor.app, supervisor.stores).pause(actor="quick")


async def poke_inbox(supervisor: Supervisor) -> None:
    subject = f"{supervisor.stores.names.root}.submit.quick"
    for _ in range(40):
        await supervisor.stores.conn.put(subject, b"")


async def poke_api(supervisor: Supervisor) -> None:
    await supervisor.stores.conn.publish(f"{supervisor.stores.names.api_prefix}status", b"", reply="nobody")


LOOPS: dict[str, tuple[type, str, Callable[[Supervisor], Awaitable[None]]]] = {
    "watch": (Watch, "_until_broken", poke_nothing),
    "close": (Census, "_close", poke_nothing),
    "sweep": (Sweep, "whole", poke_nothing),
    "schedules": (Schedules, "_commit", poke_nothing),
    "rescue": (Sweep, "held_by", poke_rescue),
    "session": (Supervisor, "_open_lease", poke_session),
    "presence": (Presence, "look", poke_nothing),
    "switches": (Switchboard, "_tell", poke_switches),
    "releases": (Releases, "_work", poke_switches),
    "keeper": (Keepers, "_look_after", poke_keepers),
    "inbox": (InboxLane, "tend", poke_nothing),
    "strays": (Inbox, "strays", poke_nothing),
    "marks": (Forgetter, "_forget", poke_inbox),
    "blobs": (Leftovers, "remove", poke_nothing),
    "command": (Commands, "_take", poke_inbox),
    "api": (Micro, "open", poke_nothing),
    "answer": (Micro, "_respond", poke_api),
}
AT_ITS_START = {"api"}
"""It waits for ever once it listens."""
FORGIVEN = {"keeper", "command"}
"""One key's defect is not the supervisor's: it ends after too many of them."""


def test_each_loop_of_the_supervisor_is_broken_here() -> None:
    """As the service starts them."""
    started = re.findall(r'\("(\w+)", ', inspect.getsource(Supervisor._serve))
    assert set(started) == set(LOOPS)


@pytest.fixture
def app(site: Site) -> App:
    return site.app


@pytest.fixture
def scheduled(app: App, monkeypatch: pytest.MonkeyPatch) -> App:
    """With a schedule that starts by itself; and what comes round seldom does so often."""

    @app.actor(every=3_600.0, autostart=True)
    async def hourly() -> None: ...

    app.config = replace(app.config, blob_grace_seconds=0.4)
    monkeypatch.setattr(presence, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(commands, "_STRAY_SECONDS", 0.1)
    monkeypatch.setattr(marks, "LATER_SECONDS", 0.1)
    return app


@pytest.mark.parametrize("loop", LOOPS)
async def test_scenario_30_a_loop_that_raises_ends_the_supervisor(
    loop: str, scheduled: App, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """prefect#22436. Raised inside each loop while it works: ``run`` raises it, and from then on it is not ready."""
    owner, method, poke = LOOPS[loop]

    def broken_at_once(*_args: Any, **_options: Any) -> Any:
        raise Broken(loop)

    async def broken(*_args: Any, **_options: Any) -> Any:
        raise Broken(loop)

    async with scheduled.supervisor(proxy.url) as supervisor:
        if loop in AT_ITS_START:
            monkeypatch.setattr(owner, method, broken)
        running = asyncio.create_task(supervisor.run())
        if loop not in AT_ITS_START:
            await wait_until(lambda: not supervisor.why_not_ready, description="it is ready")
            is_async = inspect.iscoroutinefunction(getattr(owner, method))
            monkeypatch.setattr(owner, method, broken if is_async else broken_at_once)
        await poke(supervisor)
        if loop == "watch":
            await proxy.cut()
        with pytest.raises((Broken, TenureError), match="unexpected errors" if loop in FORGIVEN else loop):
            await asyncio.wait_for(running, 5)
        assert supervisor.why_not_ready == "not running"
        monkeypatch.undo()


@pytest.mark.parametrize("end", ["returns", "is cancelled by nobody"])
@pytest.mark.parametrize("loop", ["sweep", "rescue", "keeper"])
async def test_scenario_30_a_loop_that_ends_in_silence_ends_the_supervisor(
    loop: str, end: str, app: App, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task group takes no notice of a task that returns or is cancelled: it would go on with a part of it dead."""
    owner, method = {"sweep": (Supervisor, "_sweep"), "rescue": (Supervisor, "_rescue"), "keeper": (Keepers, "keep")}[
        loop
    ]
    gate = asyncio.Event()

    async def ends(*_args: Any, **_options: Any) -> None:
        await gate.wait()
        if end != "returns":
            raise asyncio.CancelledError

    monkeypatch.setattr(owner, method, ends)
    async with app.supervisor(nats_server) as supervisor:
        running = asyncio.create_task(supervisor.run())
        await wait_until(lambda: supervisor._census and supervisor._census.caught_up.is_set(), description="it watches")
        gate.set()
        with pytest.raises(TenureError, match=f"'{loop}' ended by itself"):
            await asyncio.wait_for(running, 5)
        assert supervisor.why_not_ready == "not running"


async def test_a_supervisor_whose_sweeps_all_fail_is_not_ready_until_one_is_over(
    site: Site, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on, a failed pass is tried again; but nothing that was lost is found meanwhile."""
    site.settings = {"patience_seconds": 1.0}
    async with site.app.connect(nats_server) as client, Supervisors(nats_server).run(site.app) as supervisor:
        await client.submit(site.app.actors["quick"].call())  # while it waits there is something to look for

        async def broken(*_args: Any, **_options: Any) -> None:
            msg = "no scan"
            raise Unavailable(msg)

        monkeypatch.setattr(supervisor.stores.runs, "scan", broken)
        await wait_until(lambda: "sweep" in supervisor.why_not_ready, description="it says that it does not sweep")
        monkeypatch.undo()
        await wait_until(lambda: not supervisor.why_not_ready, description="ready again")


async def test_a_supervisor_whose_stores_are_cut_off_is_not_ready(
    app: App, proxy: Proxy, supervised_behind: Supervisors
) -> None:
    """Its lease has a connection of its own, and is renewed all the while."""
    async with supervised_behind.run(app) as supervisor:
        await proxy.shut_out("tenure-supervisor")
        await wait_until(lambda: not supervisor.stores.conn.is_connected, description="cut off")
        assert supervisor.lease.trusted
        assert supervisor.why_not_ready == "not connected to the server"
        proxy.let_in()
        await wait_until(lambda: not supervisor.why_not_ready, description="ready again")


BREAKS = """
import sys
from tenure.cli.root import run
from tenure.supervisor.sweep import Sweep

whole = Sweep.whole
passes = []

async def broken(self, is_mine):
    passes.append(1)
    if len(passes) > 2:
        raise ZeroDivisionError("the third pass")
    passed = await whole(self, is_mine)
    self.calm = False  # else it rests
    return passed

Sweep.whole = broken
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", [("supervisor",), ("worker", "--with-supervisor")])
async def test_scenario_30_the_process_ends_and_says_why(site: Site, command: tuple[str, ...]) -> None:
    """Of a supervisor alone and of one beside a worker: an exit code that is not 0, in seconds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        BREAKS,
        command[0],
        TARGET,
        *command[1:],
        env=site.environment(),
        cwd=site.folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 20)
    assert b"ready" in out
    assert process.returncode == 1
    assert b"the third pass" in err


async def test_a_supervisor_rests_three_times_as_long_as_its_pass_took(
    app: App, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short its pause is set: else a namespace of many records keeps a core busy."""
    began: list[float] = []
    ended: list[float] = []
    whole = Sweep.whole

    async def slow(self: Sweep, is_mine: Callable[[str], bool]) -> int:
        began.append(asyncio.get_running_loop().time())
        passed = await whole(self, is_mine)
        self.calm = False  # else it rests for longer
        await asyncio.sleep(0.3)  # body: many records
        ended.append(asyncio.get_running_loop().time())
        return passed

    monkeypatch.setattr(Sweep, "whole", slow)
    async with supervisors.run(app):
        await wait_until(lambda: len(began) >= 2, description="a second pass")
    assert began[1] - ended[0] >= 3 * (ended[0] - began[0]) - 0.05


async def test_a_supervisor_passes_over_no_more_records_a_second_than_it_may(
    site: Site, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every page it waits for as long as that page may take."""
    site.settings = {"sweep_records_per_second": 50.0}
    monkeypatch.setattr(sweep, "_PAGE", 10)
    app, number = site.app, 30
    async with app.connect(nats_server) as client:
        await client.submit_many([(app.actors["quick"].call(), f"k-{n}") for n in range(number)])
        async with Supervisors(nats_server).run(app) as supervisor:
            assert supervisor.metrics.swept_records == number
            assert supervisor.metrics.swept_seconds >= number / 50.0
