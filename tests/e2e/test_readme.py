"""README is a promise: its example and every snippet run, print what it says, and each command that a page names can be read."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import tenure
from tenure import App
from tenure.cli.root import _USAGE, commands
from tenure.testing import memory

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    page
    for folder, kind in ((".", "*.md"), ("deploy", "**/*.md"), ("src/tenure", "*.md"), ("actors", "*.py"))
    for page in sorted((ROOT / folder).glob(kind))
]


def blocks() -> list[tuple[str, str]]:
    """Every fenced block of README, in order: its language and its text."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def example() -> tuple[str, str]:
    """README's example, and what it is said to print."""
    return printing("import asyncio")


def printing(begin: str) -> tuple[str, str]:
    """The snippet that begins so, and what it is said to print, which is the block after it."""
    found = blocks()
    (number,) = (number for number, (_, text) in enumerate(found) if text.startswith(begin))
    assert found[number][0] == "python"
    assert found[number + 1][0] == ""
    return found[number][1], found[number + 1][1]


def snippet(begin: str) -> str:
    (text,) = (text for language, text in blocks() if language == "python" and text.startswith(begin))
    return text


async def execute(code: str, names: dict[str, Any]) -> str:
    """Run code that may await, as in an async function; what it printed."""
    out = io.StringIO()
    made = compile(code, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(out):
        done: object = eval(made, names)  # noqa: S307  (README's own code)
        if inspect.isawaitable(done):
            await cast("Awaitable[None]", done)
    return out.getvalue()


async def app_of_readme() -> dict[str, Any]:
    """The actor that README defines, and what it takes for granted."""
    names: dict[str, Any] = vars(tenure) | {
        "app": App("snippets"),
        "tenure": tenure,
        "asyncio": asyncio,
        "timedelta": timedelta,
    }
    await execute("@app.actor\nasync def refine(path: str) -> None: ...\n", names)
    await execute(snippet("@app.actor(queue=").partition("\n\n")[0], names)
    return names


def test_the_example_prints_what_readme_says() -> None:
    code, printed = example()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == printed, done.stderr
    assert done.returncode == 0


async def test_the_calls_of_a_client_do_what_their_comments_say() -> None:
    names = await app_of_readme()
    async with memory(names["app"]) as client:
        names |= {"client": client, "call": names["extract"].call("b.pdf"), "k": "doc-2"}
        await execute(snippet("@app.actor(queue=").partition("\n\n")[2], names)
        assert names["value"] == {"pages": 10}
        assert names["out"].outcome == "cancelled"  # of the successor that was rescheduled
        assert names["run"].generation == 2
        await client.until_idle()
        assert (await client.run("doc-1").wait()).phase == "succeeded"
        assert await client.status("r-1") is not None


async def test_events_holds_and_history_print_what_readme_says() -> None:
    names = await app_of_readme()
    code, printed = printing("async for event in run.events()")
    async with memory(names["app"]) as client:
        run = await client.submit(names["extract"].call("a.pdf"), key="doc-1", delay=1.5)
        assert await execute(code, names | {"client": client, "run": run}) == printed


async def test_the_test_of_an_application_passes() -> None:
    names = await app_of_readme()
    await execute('@app.actor\nasync def remind(what: str) -> str:\n    return f"the {what} is ready"\n', names)
    await execute(snippet("async with tenure.testing.memory("), names)


def test_every_actor_that_is_written_in_passing_can_be_made() -> None:
    """Those that leave something out with three dots are no code."""
    text = " ".join(README.read_text(encoding="utf-8").split())
    made = [code for code in re.findall(r"`(@app\.actor\([^`]*\))`", text) if "..." not in code]
    assert len(made) >= 2
    for code in made:
        names = vars(tenure) | {"app": App("passing"), "timedelta": timedelta}
        body = f"exec({code[1:]!r})" if "isolation" in code else f"{code}\ndef body() -> None: ..."
        exec(body, names)  # noqa: S102  (README's own code)
    assert "limits=[Limit(2" in text


def lines_of(page: Path) -> set[str]:
    """The lines of a page that are commands."""
    return set(
        re.findall(r"^ *(?:[$#] )?(?:\.venv/bin/)?(tenure [a-z].*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    )


def mentioned(page: Path) -> set[str]:
    """Commands that are set in type within a sentence."""
    return set(re.findall(r"`(?:\.venv/bin/)?(tenure [a-z][^`\n]*)`", page.read_text(encoding="utf-8")))


def words_of(line: str) -> list[str]:
    """Up to the first gap, pipe, comment or break."""
    return shlex.split(re.split(r" {2,}| [|&>#\\]|…", line)[0])[1:]


def parsed(words: list[str]) -> None:
    """Raises where a command would complain of its words; nothing is run."""
    command: Any = commands()
    context = command.make_context("tenure", words)
    while getattr(command, "commands", None) is not None:
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_that_a_page_names_can_be_read(page: Path) -> None:
    """Its name and its options; of a mere mention an argument may be missing, as of `tenure show` and `tenure cancel --pattern`."""
    for line in lines_of(page):
        with told(page, line):
            parsed(words_of(line))
    for line in mentioned(page):
        with told(page, line):
            try:
                parsed(words_of(line))
            except _USAGE as error:
                if type(error).__name__ not in {"MissingParameter", "BadOptionUsage"}:
                    raise


@contextlib.contextmanager
def told(page: Path, line: str) -> Iterator[None]:
    try:
        yield
    except _USAGE as error:
        pytest.fail(f"{page.name}: `{line}`: {error.format_message()}")


def test_the_pages_name_commands_in_both_ways() -> None:
    assert len(lines_of(README)) >= 9
    assert len(mentioned(README)) >= 5
    assert sum(len(lines_of(page)) for page in PAGES) >= 25
