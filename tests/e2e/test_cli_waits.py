"""Commands that wait for a result: for so long, and for whose."""

from __future__ import annotations

import asyncio
import json
import re
import threading

import pytest

from tenure import App
from tests.e2e.commands import Cli, Worker, end, line_of
from tests.e2e.test_cli_above import until


def test_a_wait_that_takes_too_long_is_exit_code_3_and_the_run_goes_on(cli: Cli, worker: Worker) -> None:
    call = ("tasks:app", "say", "--key", "waits", "--arg", "text=x", "--delay", "1h", "--wait", "--timeout", "100ms")
    assert re.search(
        r"not over after 0.1 s: 'waits' is scheduled: it is due at [\d :-]{8,16}\n",
        cli.fast("submit", *call, code=3)[1],
    )
    assert "not over after 0.1 s" in cli.fast("replace", *call, code=3)[1]
    assert cli.fast_json("show", "waits")["generation"] == 2
    assert cli.fast_json("submit", "tasks:app", "say", "--arg", "text=x", "--wait", "--timeout", "1m")["result"] == "x"
    assert "--timeout goes with --wait" in cli.fast("submit", *call[:-3], "--timeout", "1s", code=2)[1]


def test_a_result_goes_on_to_the_newest_generation_if_it_is_to_follow(cli: Cli, worker: Worker) -> None:
    """The key is replaced while two wait for its result; both were there before, for the run was not over."""
    nap = ("tasks:app", "nap", "--key", "followed", "--arg")
    cli.fast("submit", *nap, "seconds=60")
    plain, following = (cli.start("result", "followed", *more, "--json") for more in ((), ("--follow",)))

    def told() -> bool:
        cli.fast("replace", *nap, "seconds=60")
        return plain.poll() is not None

    until(told, "the one that does not follow is told that its run was superseded")
    assert end(plain) == 1
    cli.fast("replace", *nap, "seconds=0.01")
    said = json.loads(line_of(following))
    assert (said["outcome"], said["result"]) == ("succeeded", "rested")
    assert following.wait(10) == 0


@pytest.mark.parametrize("command", [("result", "k"), ("watch", "k")])
def test_who_waits_for_a_run_that_nobody_takes_is_told_so(
    own: Cli, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.cli.waits._AFTER_SECONDS", 0.2)
    own.fast("submit", "tasks:app", "say", "--key", "k", "--arg", "text=x")

    async def soon() -> None:
        async with App(own.namespace).connect(own.url) as client:
            await asyncio.sleep(1.0)  # paused: while the command waits
            await client.cancel("k")

    cancelling = threading.Thread(target=asyncio.run, args=(soon(),))
    cancelling.start()
    said = own.fast(*command, code=1)[1]
    cancelling.join()
    assert f"'k' is queued, and no worker of {own.namespace!r} takes queue 'default'" in said
    assert said.count("no worker") == 1


def test_a_wait_that_is_over_tells_why_the_run_did_not_start(own: Cli) -> None:
    call = ("submit", "tasks:app", "say", "--key", "k", "--arg", "text=x", "--wait", "--timeout", "100ms")
    assert "not over after 0.1 s: 'k' is queued, and no worker of" in own.fast(*call, code=3)[1]
    own.fast("pause", "say", "--for", "1h", "--app", "tasks:app")
    assert "not over after 0.1 s: 'k' is queued: it waits for actor say, paused until " in own.fast(*call, code=3)[1]


def test_who_waits_for_a_run_that_runs_is_told_nothing(
    cli: Cli, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.cli.waits._AFTER_SECONDS", 0.1)
    nap = ("submit", "tasks:app", "nap", "--arg", "seconds=0.7", "--wait")
    assert cli.fast(*nap)[1] == ""


def test_a_module_that_waits_when_it_is_imported_is_told_of(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.cli.parsing._LONG_SECONDS", 0.1)
    waits = "import time\nfrom tenure import App\n\ntime.sleep({})  # body: of a script\napp = App('unused')\n"
    for seconds, told in ((0.5, True), (0.0, False)):
        name = f"imported_{told}".lower()
        (own.folder / f"{name}.py").write_text(waits.format(seconds), encoding="utf-8")
        said = own.fast("submit", f"{name}:app", "nothing", code=2)[1]
        assert (f"the import of '{name}' takes long" in said) is told


def test_a_worker_of_an_app_without_actors_says_so(own: Cli) -> None:
    (own.folder / "bare.py").write_text(f"from tenure import App\n\napp = App('{own.namespace}')\n", encoding="utf-8")
    worker = own.start("worker", "bare:app")
    assert "ready" in line_of(worker)
    assert end(worker) == 0
    assert "has no actors, so this worker runs nothing" in (own.folder / "stderr.log").read_text(encoding="utf-8")
