"""The demonstration: its numbers add up on a real run, and they would not if a stale copy had its way."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from contextlib import redirect_stdout
from pathlib import Path

import psutil
import pytest
from msgspec import Raw

from tenure import App
from tenure.cli.demo_crash import CrashStory
from tenure.cli.demo_ledger import Ledger
from tenure.cli.demo_report import Metrics, Report, _crash_checks, print_report
from tenure.cli.demo_story import DocumentStory, Role, cast, key_of
from tenure.core.records import SCHEMA, Holder, Last, Phase, Record, Task
from tenure.core.subjects import MAX_KEY_BYTES
from tenure.nats.runs import Found
from tests.e2e.commands import Cli, end
from tests.support import wait_until

WORDS = "The record decides and messages only wake; a stale copy never has the last word. "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dozen documents of two kinds, in two folders."""
    for number in range(12):
        path = tmp_path / ("deep/er" if number % 2 else "flat") / f"page {number}.{'md' if number % 3 else 'txt'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Page {number}\n\n" + WORDS * (number + 1) * 20, encoding="utf-8")
    return tmp_path


@pytest.mark.long
def test_the_demonstration_adds_up(folder: Path, tmp_path: Path) -> None:
    """Every fate is met at least once.

    Replaced and cancelled, waiting and running; and a schedule replaced in mid-check.
    """
    report = Cli(tmp_path, "", "unused")("demo", str(folder), "--json")
    said = json.loads(report.stdout)
    assert said["documents"] == 12
    assert all(said["checks"].values()), said
    assert said["accepted"] == said["succeeded"] + said["failed"] + said["cancelled"] + said["superseded"]
    assert said["replaced"] == {"waiting": 1, "running": 2}
    assert said["superseded_where"]["head"] >= 1
    assert said["cancelled_where"]["running"] >= 1
    assert said["cancelled_where"]["waiting"] >= 1
    assert said["stale_writes_refused"] >= 1
    assert said["stale_writes_stored"] == 0
    assert {name: len(took) for name, took in said["takeovers"].items()} == {"killed": 1, "frozen": 1}
    assert max(said["takeovers"]["killed"]) < 8.0
    assert said["monitor"]["reconfigured"] >= 2
    assert said["monitor"]["checks"] >= 1
    assert report.stderr == ""


def test_a_folder_with_too_few_documents_is_told(tmp_path: Path) -> None:
    (tmp_path / "only.txt").write_text(WORDS, encoding="utf-8")
    done = Cli(tmp_path, "", "unused")("demo", str(tmp_path), code=2)
    assert done.stderr == f"tenure: found 1 documents in {tmp_path}; the demonstration needs at least 7\n"
    done = Cli(tmp_path, "", "unused")("demo", str(tmp_path / "nowhere"), code=2)
    assert done.stderr == f"tenure: there is no folder {tmp_path / 'nowhere'}\n"


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_demonstration_leaves_nothing(
    folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Server, workers and the temporary store are gone, although the workers were in the middle of their work."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = Cli(tmp_path, "", "unused").start("demo", str(folder), TMPDIR=str(scratch))
    parent = psutil.Process(process.pid)
    family: list[psutil.Process] = []

    def at_work() -> bool:
        family[:] = parent.children(recursive=True)
        logs = list(scratch.glob("tenure-demo-*/*.log"))
        return len(logs) == 3 and all(b"session.opened" in log.read_bytes() for log in logs)

    await wait_until(
        at_work, description="the supervisor and the first two workers have opened their sessions", timeout=20
    )
    process.send_signal(number)
    assert await asyncio.to_thread(process.wait, 20) == 130
    end(process)
    assert len(family) == 4
    assert not [child for child in family if child.is_running()]
    assert list(scratch.iterdir()) == []


# -- would it notice? ------------------------------------------------------------------------------------------------


def record(generation: int, phase: Phase, *, last: Last | None = None) -> Record:
    held = Holder(session="s", run_id=f"r{generation}", attempt=1) if phase is Phase.RUNNING else None
    return Record(
        schema=SCHEMA,
        key="k",
        run_id=f"r{generation}",
        generation=generation,
        phase=phase,
        task=Task(actor="a", args=Raw(b"{}")),
        queued_at=1.0,
        attempt=0 if phase is Phase.WAITING else 1,
        holder=held,
        last=last,
    )


def last(generation: int, result: bytes = b"1") -> Last:
    return Last(run_id=f"r{generation}", generation=generation, phase=Phase.SUCCEEDED, at=2.0, result=Raw(result))


def written(*records: Record) -> Ledger:
    ledger = Ledger()
    for revision, each in enumerate(records, 1):
        ledger.note("k", Found(each, revision))
    return ledger


def test_a_replaced_run_is_superseded_and_no_stale_write() -> None:
    ledger = written(
        record(1, Phase.WAITING),
        record(1, Phase.RUNNING),
        record(2, Phase.WAITING),
        record(2, Phase.RUNNING),
        record(2, Phase.SUCCEEDED, last=last(2)),
    )
    assert (ledger.superseded, ledger.count(Phase.SUCCEEDED), ledger.bodies, ledger.stale) == (1, 1, 2, [])


def test_an_outcome_with_its_successor_is_not_superseded() -> None:
    """A perpetual run: its outcome and the next generation arrive in one write."""
    ledger = written(record(1, Phase.RUNNING), record(2, Phase.WAITING, last=last(1)))
    assert (ledger.superseded, ledger.count(Phase.SUCCEEDED), ledger.stale) == (0, 1, [])


def test_an_outcome_of_a_superseded_run_is_noticed() -> None:
    """Generation 1 stores its outcome although generation 2 has the key: the very thing that must never happen."""
    ledger = written(record(1, Phase.RUNNING), record(2, Phase.WAITING), record(2, Phase.WAITING, last=last(1)))
    assert len(ledger.stale) == 1
    assert "after generation 1 was void" in ledger.stale[0]


def test_a_generation_that_comes_back_is_noticed() -> None:
    ledger = written(record(2, Phase.WAITING), record(1, Phase.WAITING))
    assert ledger.stale == ["'k' went from generation 2 to 1"]


def test_a_second_outcome_of_one_run_is_noticed() -> None:
    done = record(1, Phase.SUCCEEDED, last=last(1))
    ledger = written(done, record(1, Phase.SUCCEEDED, last=last(1, b"2")))
    assert ledger.stale == ["run r1 of 'k' has two outcomes"]


def test_events_out_of_order_change_nothing() -> None:
    ledger = written(record(1, Phase.WAITING), record(2, Phase.WAITING))
    ledger.note("k", Found(record(1, Phase.WAITING), 1))
    found = ledger.record("k")
    assert found is not None
    assert (found.generation, ledger.stale) == (2, [])


def test_every_fate_has_documents_and_keys_fit(folder: Path) -> None:
    paths = [path for path in folder.rglob("*.*") if path.is_file()]
    roles = [document.role for document in cast(paths, folder)]
    assert {roles.count(role) for role in Role if role not in (Role.RUN, Role.CUT_DOWN)} == {1}
    assert roles.count(Role.CUT_DOWN) == 2
    keys = {document.key for document in cast(paths, folder)}
    assert len(keys) == 12
    assert "flat/page 0.txt" in keys
    long = folder / ("ä" * 200) / "a.txt"
    assert len(key_of(long, folder).encode()) + len("/refined") <= MAX_KEY_BYTES
    assert key_of(long, folder) != key_of(long.with_name("b.txt"), folder)


@pytest.mark.parametrize(("killed", "frozen", "holds"), [(5.0, 7.9, True), (8.1, 5.0, False), (5.0, 8.1, False)])
def test_a_takeover_that_takes_longer_than_is_promised_fails(killed: float, frozen: float, holds: bool) -> None:
    app = App("unused")

    @app.actor
    async def read() -> None: ...

    client = app.connect("nats://127.0.0.1:1")
    crash = CrashStory(client, [], 1, 2)
    crash.took = {"killed": [killed], "frozen": [frozen]}
    story = DocumentStory(client, Ledger(), read, [])
    assert _crash_checks(story, crash, Metrics(), [0])["each of them started elsewhere within 8 s"] is holds


def test_the_table_shows_what_fails() -> None:
    report = Report(
        documents=1, workers=3, seconds=1.0, tasks_per_second=2.0, accepted=2, succeeded=1, failed=0, cancelled=0,
        superseded=1, bodies=2, replaced={"waiting": 1, "running": 0}, superseded_where={"head": 1, "tail": 0},
        cancelled_where={}, monitor={"checks": 1, "reconfigured": 1, "in_mid_check": 1, "old_schedule_came_back": 0},
        takeovers={"killed": [4.5, 5.0], "frozen": [5.2]}, repaired={"takeover": 2},
        stale_writes_refused=0, stale_writes_stored=1, checks={"no stale write was stored": False, "sums": True},
        problems=["'k' holds the result of a call that was replaced"],
    )  # fmt: skip
    assert not report.ok
    out = io.StringIO()
    with redirect_stdout(out):
        print_report(report)
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "FAILS no stale write was stored" in lines
    assert "holds sums" in lines
    assert "superseded 1 head 1" in lines
    assert "taken over (killed) 2 started again after 4.5 to 5 s" in lines
    assert "taken over (frozen) 1 started again after 5.2 s" in lines
    assert "problem 'k' holds the result of a call that was replaced" in lines
