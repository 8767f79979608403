"""Chaos for a short time; ``make chaos`` is for a long one. The seed is drawn, printed, and taken from CHAOS_SEED if set."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import network
from tests.chaos.kinds import FIRST
from tests.chaos.processes import Child
from tests.support import wait_until

ROOT = Path(__file__).resolve().parents[2]


_SHOWN = ("--least-kills", "1", "--least-keys", "50")
_FIRST = [f"--first={kind}" for kind in FIRST]
"""Else a run so short shows some of these by luck only."""


def chaos(*options: str, seconds: float) -> None:
    """One run in a process of its own; it ends what it started, however it ends."""
    seed = os.environ.get("CHAOS_SEED")
    command = [sys.executable, "-m", "tests.chaos", *options, *(["--seed", seed] if seed else [])]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            told, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            told, _ = process.communicate()
            told += f"\nnot over after {seconds} s"
    print(told)
    assert re.search(rf"seed {seed or '[0-9]+'}\b", told), "what it takes to run it again"
    assert process.returncode == 0, told


@pytest.mark.chaos
@pytest.mark.timeout(120)
def test_every_invariant_holds_under_kills_and_freezes_on_one_server() -> None:
    """Workers, supervisors, producers, children of workers; the server: killed, frozen and ended in order."""
    chaos("--seconds", "8", "--keys", "300", "--rate", "40", "--quiet", "40", *_SHOWN, *_FIRST, seconds=100)


@pytest.mark.chaos
@pytest.mark.timeout(150)
def test_every_invariant_holds_while_leaders_die_and_members_are_cut_off() -> None:
    """Three servers: leaders killed, frozen, stepping down; where namespaces can be made, nodes and clients cut off."""
    chaos(
        "--servers",
        "3",
        "--seconds",
        "8",
        "--keys",
        "300",
        "--rate",
        "20",
        "--quiet",
        "70",
        *_SHOWN,
        *_FIRST,
        seconds=130,
    )


_COUNTED = ("--every", "0.4", "--keys", "200", "--rate", "40", "--quiet", "40", "--least-keys", "50")
_ENDS = (*_COUNTED, "--seconds", "6", "--exact", "ends")


@pytest.mark.chaos
@pytest.mark.timeout(120)
def test_superseded_and_cancelled_add_up_exactly_where_processes_end_in_order() -> None:
    """Workers and supervisors drain in mid-run: what each counted until its very end, summed, is what the records tell."""
    chaos(*_ENDS, "--only", "term", seconds=100)


@pytest.mark.chaos
@pytest.mark.timeout(120)
def test_counters_add_up_but_for_the_last_writes_of_those_killed_with_9() -> None:
    """No fewer than there were, less what each of them can have counted between its last scrape and its end; never more."""
    chaos(*_ENDS, "--only", "kill", "--least-kills", "4", seconds=100)


@pytest.mark.long
@pytest.mark.chaos
@pytest.mark.timeout(160)
def test_fenced_add_up_exactly_with_what_the_history_was_told_while_processes_freeze() -> None:
    """By process: a worker is frozen past its session's ttl, another takes its run over, and the old body comes to its end."""
    chaos(*_COUNTED, "--seconds", "20", "--exact", "fenced", "--only", "freeze", seconds=150)


@pytest.mark.long
@pytest.mark.chaos
async def test_a_run_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    """SIGKILL of the run itself while its servers, workers and producers work."""
    folder = tmp_path / "run"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.chaos", "--seconds", "60", "--folder", str(folder)]
    run = Child("run", command, tmp_path, env={"PYTHONPATH": path})
    run.start()
    try:
        await wait_until(lambda: any(folder.glob("logs/bodies-*")), description="bodies run", timeout=30.0)
        assert len(started_by(folder)) > 5
    finally:
        run.kill()
    await wait_until(lambda: not started_by(folder), description="everything has ended")


def started_by(folder: Path) -> list[str]:
    """Processes that have the folder in their arguments or their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if str(folder).encode() in (path / "cmdline").read_bytes() + (path / "environ").read_bytes():
                found.append(path.name)
    return found


@pytest.mark.chaos
def test_a_member_that_is_cut_off_is_reached_by_nobody_until_it_is_healed(tmp_path: Path) -> None:
    """Else the cuts of the nemesis would be none."""
    why_not = network.why_not()
    if why_not:
        pytest.skip(f"nobody is cut off in the chaos tests here: {why_not}")
    with network.Network() as net:
        space, address = net.add("one")
        server = Child("one", [sys.executable, "-c", _ECHO.format(address=address)], tmp_path, netns=space)
        server.start()
        try:
            assert reached(address)
            net.cut("one")
            assert not reached(address, tries=1)
            net.heal("one")
            assert reached(address)
        finally:
            server.kill()


_ECHO = """
import socket
with socket.create_server(("{address}", 4222)) as server:
    while True:
        server.accept()[0].close()
"""


def reached(address: str, tries: int = 50) -> bool:
    """Whether a connection can be made."""
    probe = "import socket, sys; socket.create_connection((sys.argv[1], 4222), timeout=0.5).close()"
    return any(
        subprocess.run([sys.executable, "-c", probe, address], check=False, capture_output=True).returncode == 0
        for _ in range(tries)
    )
