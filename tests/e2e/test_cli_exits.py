"""A worker's process is not a body's to end: a SystemExit in a body or in what it starts is a failed attempt at most."""

from __future__ import annotations

from tests.e2e.commands import Cli, end, line_of

EXITS = """
import asyncio
import sys

from tenure import App, Config

app = App("{namespace}", config=Config(session_ttl_seconds=2.0, ack_wait_seconds=4.0, drain_seconds=0.5))


async def leave():
    await asyncio.sleep(0)  # body: it takes a turn of the loop
    sys.exit(3)


@app.actor(retry=None)
async def exits(how: str) -> str:
    if how == "child":
        await asyncio.create_task(leave())
    if how == "group":
        async with asyncio.TaskGroup() as group:
            group.create_task(leave())
    alone = asyncio.create_task(leave())
    await asyncio.wait([alone])
    asyncio.get_running_loop().call_soon(sys.exit, 4)
    await asyncio.sleep(0.01)  # body: it goes on when the other has left
    return "went on"
"""


def test_a_body_that_exits_is_a_failed_attempt_and_the_worker_goes_on(own: Cli) -> None:
    (own.folder / "exits.py").write_text(EXITS.format(namespace=own.namespace), encoding="utf-8")
    process = own.start("worker", "exits:app", "--log-json")
    line_of(process)
    submit = ("submit", "exits:app", "exits", "--wait")
    for how in ("child", "group"):
        assert "SystemExit: 3" in own.fast(*submit, "--arg", f"how={how}", code=1)[1]
    assert "went on" in own.fast(*submit, "--arg", "how=alone")[0]
    assert process.poll() is None
    log = (own.folder / "stderr.log").read_text(encoding="utf-8")
    assert log.count('"exit.ignored"') == 4
    assert end(process) == 0
