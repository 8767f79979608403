"""The example of large payloads, events, history and a fence outside: real databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from actors import tables
from actors.tables import app, export, load
from tenure import Fail, RunFailed, Stopped
from tenure.testing import context, memory

ROWS = 20_000
CSV = "word,length\n" + "".join(f"word-{number},{len(str(number))}\n" for number in range(ROWS))


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "words.db")


async def test_a_large_csv_goes_in_and_comes_out_again(database: str) -> None:
    async with memory(app) as client:
        run = await client.submit(load.call(database, CSV), key="words")
        told = [str(event) async for event in run.events()]
        assert told[0] in {"words  generation 1  queued", "words  generation 1  running  attempt 1"}
        assert told[-1] == "words  generation 1  succeeded  attempt 1"
        assert await run.result() == ROWS
        out = await client.submit(export.call(database, "SELECT * FROM words"))
        assert await out.result() == CSV
        beside = [blob async for blob in client.stores.blobs.kept(client.stores.runs.patience())]
        assert len(beside) == 2  # the text that went in, and the one that came out


def test_progress_is_told_in_rows(database: str) -> None:
    loading, exporting = context(app, key="words"), context(app)
    load(loading, database, CSV)
    assert [told.done for told in loading.progressed] == list(range(1_000, ROWS + 1, 1_000))
    assert (loading.progressed[-1].total, loading.progressed[-1].note) == (ROWS, "rows")
    export(exporting, database, "SELECT * FROM words")
    assert (exporting.progressed[-1].done, exporting.progressed[-1].total) == (ROWS, None)


async def test_a_locked_database_is_tried_again_and_the_history_tells(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LOCK_SECONDS", 0.0)
    async with memory(app) as client:
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            run = await client.submit(load.call(database, CSV), key="words")
            await client.until_idle()
        assert await run.result() == ROWS
        await client.advance(1)
        steps = await client.history("words")
    assert [(step.what, step.attempt) for step in steps] == [
        ("submitted", 0), ("claimed", 1), ("retried", 1), ("claimed", 2), ("succeeded", 2),
    ]  # fmt: skip
    assert steps[2].why == "sqlite3.OperationalError: database is locked"


@pytest.mark.parametrize("text", ["", "\n", "a,b\n1\n", 'a\n"1'])
async def test_a_text_that_is_no_table_is_not_tried_again(database: str, text: str) -> None:
    async with memory(app) as client:
        run = await client.submit(load.call(database, text), key="words")
        with pytest.raises(RunFailed, match="the text"):
            await run.result()
        assert (await run.wait()).attempt == 1


@pytest.mark.parametrize("query", ["SELECT * FROM nothing", "slect 1", "DROP TABLE words", ""])
async def test_an_export_only_reads(database: str, query: str) -> None:
    load(context(app, key="words"), database, CSV)
    if not query:
        assert export(context(app), database, query) == "\n"
        return
    with pytest.raises(Fail, match=r"words\.db"):
        export(context(app), database, query)


def test_a_name_with_quotes_is_only_a_name(database: str) -> None:
    name = 'a"b; DROP TABLE words'
    load(context(app, key="words"), database, CSV)
    assert load(context(app, key=name), database, 'x";--,y\n1,2\n') == 1
    assert export(context(app), database, 'SELECT * FROM "a""b; DROP TABLE words"') == '"x"";--",y\n1,2\n'
    assert export(context(app), database, "SELECT count(*) FROM words").endswith(f"{ROWS}\n")


def test_an_older_attempt_writes_nothing_however_late_it_wakes(database: str) -> None:
    load(context(app, key="words", fence=7), database, "a\nnew\n")
    for late in (3, 7):
        with pytest.raises(Fail, match="later attempt"):
            load(context(app, key="words", fence=late), database, "a\nold\n")
    assert export(context(app), database, "SELECT * FROM words") == "a\nnew\n"
    load(context(app, key="words", fence=8), database, "a\nnewer\n")
    assert export(context(app), database, "SELECT * FROM words") == "a\nnewer\n"


def test_what_was_begun_and_told_to_stop_leaves_the_table_as_it_was(database: str) -> None:
    load(context(app, key="words", fence=1), database, "a\nwhole\n")
    stopped = context(app, key="words", fence=2)
    stopped.stop()
    with pytest.raises(Stopped):
        load(stopped, database, CSV)
    assert export(context(app), database, "SELECT * FROM words") == "a\nwhole\n"
