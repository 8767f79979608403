"""Scenarios 44 and 26, with a real process: it is killed after it has stored an outcome and before anything that this owes."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure.core.aftermath import derived_id
from tests.e2e.commands import Cli, line_of
from tests.proxy import Proxy, Publish

HOOKED = """

from tenure import Outcome


@app.actor
async def hear(ctx: Context, it: Outcome) -> None:
    with Path("heard").open("a") as file:
        print(it.run_id, it.phase, ctx.run_id, file=file)


@app.actor(retry=None, on_success=hear, on_failure=hear)
async def work(fails: bool) -> str:
    with Path("bodies").open("a") as file:
        print("one", file=file)
    if fails:
        raise Fail("for good")
    return "done"
"""


@pytest.mark.parametrize(("fails", "phase"), [(False, "succeeded"), (True, "failed")])
async def test_scenario_44_a_process_killed_between_outcome_and_hook_loses_nothing_and_doubles_nothing(
    own: Cli, nats_server: str, fails: bool, phase: str
) -> None:
    """Kill -9 once the outcome is stored and the first write that it owes is on its way; a fresh worker finishes it."""
    own.module.write_text(own.module.read_text() + HOOKED)
    arguments = ("tasks:app", "work", "--key", "k", "--args", f'{{"fails": {str(fails).lower()}}}')
    async with Proxy(nats_server) as proxy:

        def owed(publish: Publish) -> bool:
            """Writes of other keys' records than ``k`` (the hook's), and dead letters."""
            other = publish.subject.startswith(f"$KV.TENURE_{own.namespace}.") and not publish.subject.endswith(".k")
            return other or publish.subject.startswith(f"tenure.{own.namespace}.dead.")

        lost = proxy.lose(owed, times=1_000)
        process = own.start("worker", "tasks:app", "--url", proxy.url)
        await asyncio.to_thread(line_of, process)
        run = await asyncio.to_thread(own.json, "submit", *arguments)
        await lost.done.wait()
        process.kill()
        await asyncio.to_thread(process.wait, 10)
    assert (await asyncio.to_thread(own.json, "show", "k"))["phase"] == phase
    assert [path.name for path in own.folder.iterdir() if path.name in {"heard", "bodies"}] == ["bodies"]
    hook = derived_id(run["run_id"], f"{phase}.0")
    await asyncio.to_thread(finishes, own, hook)
    assert (own.folder / "heard").read_text().split() == [run["run_id"], phase, hook]
    assert (own.folder / "bodies").read_text().split() == ["one"]
    letters = await asyncio.to_thread(own.json, "dead", "ls")
    assert [one["run_id"] for one in letters] == ([run["run_id"]] if fails else [])


def finishes(own: Cli, hook: str) -> None:
    """A fresh worker gets the message of the one that was killed again."""
    with own.worker():
        end = time.monotonic() + 20
        while not (own.folder / "heard").exists():
            assert time.monotonic() < end, "the hook has not run"
            time.sleep(0.05)  # paused: between two looks
        assert own.json("result", hook)["outcome"] == "succeeded"
