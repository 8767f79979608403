"""Example: CSV of any size into an SQLite database and out of it again, watched from outside.

    async with app.connect() as client:
        run = await client.submit(load.call("words.db", Path("words.csv").read_text()), key="words")
        async for event in run.events():                             # the same as `tenure watch words -n tables`
            print(event)
        text = await (await client.submit(export.call("words.db", "SELECT * FROM words"))).result()
        for step in await client.history("words"):                   # `tenure show words --history -n tables`
            print(step.at, step.generation, step.attempt, step.what, step.why)

What it shows:

* **The key is the table.** However often `words` is submitted, replaced and retried, one run at a time has the table `words`.
* **Large arguments and results.** Over 64 KiB they lie beside the record, up to 32 MiB, and go when it goes; nothing in the code
  says so (`Config.inline_limit_bytes`). What is larger belongs into files or an object store, and its name into the call.
* **Progress.** `ctx.report` costs next to nothing: `run.events()` and `tenure watch` get the newest.
* **`ctx.fence` for the outside.** A body that was frozen, and whose run was taken over meanwhile, wakes up in the middle of its
  work. Tenure stores nothing of it, and neither does this database, which keeps the highest fence that has written a table.
* **What to retry, and its history.** A locked database is tried again, a mistake in the text or the query is not. The history
  tells each attempt, who made it, and why it was not the last.

Relative paths are looked up from the worker's working folder; give absolute ones.
"""

import csv
import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tenure import App, Context, Fail, Retry

app = App("tables")
RETRY = Retry(max_attempts=5, initial=0.5, maximum=30.0, factor=3.0, jitter=0.2)
STEP = 1_000
"""Rows between two looks at whether to stop."""
LOCK_SECONDS = 2.0
"""How long an attempt waits while somebody else writes."""


@app.actor(timeout=600.0, retry=RETRY)
def load(ctx: Context, database: str, text: str) -> int:
    """Make the table that is called as the run's key of a CSV text with a line of names; how many rows it has.

    All of it or nothing, in place of the table that was. Raises `Fail` for a text that is no table, and if a later attempt
    has written it; `sqlite3.OperationalError`, to be retried, if somebody else writes.
    """
    names, rows = read_csv(text)
    table, columns = quoted(ctx.key), ", ".join(map(quoted, names))
    with opened(database, "rwc") as db:
        db.execute("BEGIN IMMEDIATE")
        take_fence(db, ctx)
        db.execute(f"DROP TABLE IF EXISTS {table}")
        db.execute(f"CREATE TABLE {table} ({columns})")
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"  # noqa: S608  (names are quoted)
        for start in range(0, len(rows), STEP):
            ctx.check()
            db.executemany(insert, rows[start : start + STEP])
            ctx.report(min(start + STEP, len(rows)), len(rows), "rows")
        db.execute("COMMIT")
    return len(rows)


@app.actor(timeout=600.0, retry=RETRY)
def export(ctx: Context, database: str, query: str) -> str:
    """What a query finds, as CSV with a line of names. Raises `Fail` for a query that only reading cannot answer."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    with opened(database, "ro") as db:
        found = db.execute(query)
        writer.writerow(column[0] for column in found.description or ())
        done = 0
        while rows := found.fetchmany(STEP):
            ctx.check()
            writer.writerows(rows)
            done += len(rows)
            ctx.report(done, note="rows")
    return out.getvalue()


def read_csv(text: str) -> tuple[list[str], list[list[str]]]:
    """Names and rows. Raises `Fail` for what is no table."""
    try:
        lines = [line for line in csv.reader(io.StringIO(text), strict=True) if line]
    except csv.Error as error:
        raise Fail(f"the text is no CSV: {error}") from error
    names, rows = (lines[0], lines[1:]) if lines else ([], [])
    if not names or any(len(row) != len(names) for row in rows):
        raise Fail("the text must begin with a line of names, and have as many values in every other line")
    return names, rows


def take_fence(db: sqlite3.Connection, ctx: Context) -> None:
    """Note that this attempt writes; raises `Fail` if a later one has written. Goes, as all that it does, with the transaction."""
    db.execute("CREATE TABLE IF NOT EXISTS tenure_fences (key TEXT PRIMARY KEY, fence INTEGER)")
    taken = db.execute(
        "INSERT INTO tenure_fences VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET fence = excluded.fence"
        " WHERE tenure_fences.fence < excluded.fence",
        (ctx.key, ctx.fence),
    )
    if taken.rowcount == 0:
        raise Fail(f"a later attempt has written {ctx.key!r}")


def quoted(name: str) -> str:
    """A name as SQL has it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def opened(database: str, mode: str) -> Iterator[sqlite3.Connection]:
    """A database. What is not committed at the end is undone; whatever a retry would not change becomes a `Fail`."""
    try:
        where = f"{Path(database).absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(where, timeout=LOCK_SECONDS, isolation_level=None, uri=True)) as db:
            yield db
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the rest of it are details
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}:
            raise
        raise Fail(f"{database}: {error}") from error
