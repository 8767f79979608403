"""All commands, and the one place where whatever they raise becomes a sentence and an exit code."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.main import get_command

from tenure.cli import options as o
from tenure.cli.above import queues, sessions
from tenure.cli.cancel import cancel
from tenure.cli.dead import dead
from tenure.cli.demo import demo
from tenure.cli.dev import dev
from tenure.cli.doctor import doctor
from tenure.cli.hold import block, blocks, pause, resume, unblock
from tenure.cli.limits import limits
from tenure.cli.look import ls, show, watch
from tenure.cli.operate import server, setup
from tenure.cli.permissions import permissions
from tenure.cli.problems import Exit, complain, tell, usage
from tenure.cli.repair import repair
from tenure.cli.supervisor import supervisor
from tenure.cli.tasks import replace, result, submit, trigger
from tenure.cli.top import top
from tenure.cli.worker import worker
from tenure.core.errors import InvalidCall

_USAGE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What typer raises for a wrong command line; it lives in click or, since typer brings its own, in typer."""
_EPILOG = "Exit codes: 0 ok, 1 the run failed or was refused, 2 usage or configuration, 3 unavailable: try again."
_GROUPS: dict[str, tuple[Callable[..., int], ...]] = {
    "Try it": (demo, server, dev),
    "Run it": (setup, worker, supervisor, repair, doctor, permissions),
    "Start and end": (submit, replace, cancel, trigger),
    "Hold back": (pause, resume, block, unblock, blocks),
    "Look": (show, result, watch, ls, queues, sessions, limits, top),
}


def _version(asked: bool) -> None:
    if asked:
        from tenure import __version__

        print(__version__)
        raise typer.Exit


def _root(
    _version_asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Durable tasks addressed by key on NATS JetStream."""


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="A small part of everything, once.", show_default=False)
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 1 if a goal is missed; not with --quick.", show_default=False)
    ] = False,
    as_json: o.AsJson = False,
) -> int:
    """Measure this machine: submit, drain, latency, lateness, with a server of its own.

    Exit code 1 if a task was lost, doubled or failed; with --check also if a figure missed its goal.
    """
    from tenure.cli.bench import run_bench

    if quick and check:
        raise InvalidCall("--check judges by a whole run: leave --quick out")
    return run_bench(quick=quick, as_json=as_json, check=check)


def _flowing(command: object) -> str:
    """Its docstring in paragraphs as wide as the terminal, not as the source."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")


def make() -> typer.Typer:
    """The typer app."""
    root = typer.Typer(name="tenure", no_args_is_help=True, epilog=_EPILOG)
    root.callback()(_root)
    for panel, commands in _GROUPS.items():
        for command in commands:
            root.command(rich_help_panel=panel, help=_flowing(command))(command)
    for below in dead.registered_commands:
        below.help = _flowing(below.callback)
    root.add_typer(dead, name="dead", rich_help_panel="Look")
    if find_spec("tenure.cli.bench") is not None:
        root.command(rich_help_panel="Try it")(bench)
    return root


@cache
def commands() -> Any:
    """All of them, as they are run; made once, as that takes longer than most of them."""
    root = get_command(make())
    _plain_flags(root)
    return root


def _plain_flags(command: Any) -> None:
    """In the help a flag is told as `--wait`: typer's `--wait <bool>` reads as if a word had to follow."""
    for option in command.get_params(typer.Context(command)):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for below in getattr(command, "commands", {}).values():
        _plain_flags(below)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        code = commands().main(arguments, prog_name="tenure", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except _USAGE as error:
        text = error.format_message()
        if text:  # else it was the help that was told, as nothing was asked for
            complain(usage(text))
        return Exit.USAGE
    except Exception as error:  # noqa: BLE001  (whatever it is becomes a sentence and an exit code)
        return tell(error)
    return code if isinstance(code, int) else Exit.OK
