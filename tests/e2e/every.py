"""Every command, and for each exit code of the command line how a user comes by it: what a new command has to be given first.

Words with which a command ends so, in the app of `commands.py` and on the stage of `test_cli_codes.py`; or the test that shows
it; or why it cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from typer.main import get_command

from tenure.cli.root import make


class By(NamedTuple):
    """Shown elsewhere."""

    page: str
    test: str


class Never(NamedTuple):
    """Cannot be."""

    because: str


Words = tuple[str, ...]


class Codes(NamedTuple):
    """0 well, 1 the run failed or was refused, 3 no server or no time left. 2 is found by its options, for every command.

    ``unavailable`` None: as ``well``, where no server is.
    """

    well: Words | By
    failed: Words | By | Never
    unavailable: By | Never | None = None


_LOOKS = Never("it only looks: what it finds is no failure of its own")
_OWN_SERVER = Never("its server is its own")
_SAY = ("tasks:app", "say", "--arg", "text=x")
_FAIL = ("tasks:app", "fail", "--arg", "why=no")
_SERVICES, _SUPERVISOR, _DEMO, _BENCH = (
    f"tests/e2e/test_{name}.py" for name in ("cli_services", "cli_supervisor", "demo", "bench")
)
_CODES = "tests/e2e/test_cli_codes.py"
EVERY: dict[str, Codes] = {
    "demo": Codes(
        By(_DEMO, "test_the_demonstration_adds_up"),
        By(_CODES, "test_a_demonstration_that_does_not_add_up_is_exit_code_1"),
        _OWN_SERVER,
    ),
    "server": Codes(
        By(_SERVICES, "test_server_serves_until_it_is_told_to_stop_and_keeps_its_store"),
        Never("a server that cannot start is told as what is wrong with its port or store"),
        _OWN_SERVER,
    ),
    "dev": Codes(
        By(_SERVICES, "test_dev_serves_and_works_until_it_is_told_to_stop"),
        Never("its worker's end is told, and it waits for the next change"),
        Never("its worker's end is told, and it waits for the next change"),
    ),
    "bench": Codes(
        By(_BENCH, "test_a_quick_run_gives_every_figure_as_one_json_object_and_loses_nothing"),
        By(_BENCH, "test_check_is_exit_code_1_if_a_goal_is_missed_and_only_then"),
        _OWN_SERVER,
    ),
    "setup": Codes(("setup", "tasks:app"), Never("what cannot be changed is a mistake in the settings, 2")),
    "worker": Codes(
        By(_SERVICES, "test_sigterm_under_load_drains_and_another_worker_finishes_the_rest"),
        By(_CODES, "test_a_defect_is_exit_code_1_of_every_command_that_asks_a_server"),
        By(_CODES, "test_without_a_server_it_is_exit_code_3"),
    ),
    "supervisor": Codes(
        By(_SUPERVISOR, "test_a_supervisor_says_when_it_is_ready_and_ends_when_told"),
        By(_CODES, "test_a_defect_is_exit_code_1_of_every_command_that_asks_a_server"),
        By(_CODES, "test_without_a_server_it_is_exit_code_3"),
    ),
    "repair": Codes(("repair",), Never("what it could not repair is to be tried again, 3")),
    "doctor": Codes(
        By("tests/e2e/test_cli_doctor.py", "test_a_healthy_namespace_is_exit_code_0"),
        Never("what is wrong is 2, what is down 3"),
        By("tests/e2e/test_cli_doctor.py", "test_no_server_is_exit_code_3_and_no_namespace_2"),
    ),
    "permissions": Codes(("permissions",), _LOOKS, Never("it asks no server")),
    "submit": Codes(("submit", *_SAY, "--wait"), ("submit", *_FAIL, "--wait")),
    "replace": Codes(("replace", *_SAY, "--key", "r", "--wait"), ("replace", *_FAIL, "--key", "r", "--wait")),
    "cancel": Codes(
        ("cancel", "later"), Never("a run that is over is told so, `finished`; a key that is not there is 2")
    ),
    "trigger": Codes(("trigger", "soon"), ("trigger", "good")),
    "pause": Codes(("pause", "idle", "--queue"), Never("what is paused already stays so")),
    "resume": Codes(("resume", "paused", "--queue"), ("resume", "going", "--queue")),
    "block": Codes(("block", "new-*"), Never("what is blocked already stays so")),
    "unblock": Codes(("unblock", "old-*"), ("unblock", "free-*")),
    "blocks": Codes(("blocks",), _LOOKS),
    "show": Codes(("show", "good"), _LOOKS),
    "result": Codes(("result", "good"), ("result", "bad")),
    "watch": Codes(("watch", "good"), ("watch", "bad")),
    "ls": Codes(("ls",), _LOOKS),
    "queues": Codes(("queues",), _LOOKS),
    "sessions": Codes(("sessions",), _LOOKS),
    "limits": Codes(("limits",), _LOOKS),
    "top": Codes(("top", "--once", "--every", "100ms"), _LOOKS),
    "dead ls": Codes(("dead", "ls"), _LOOKS),
    "dead rejected": Codes(("dead", "rejected"), _LOOKS),
    "dead show": Codes(("dead", "show", "bad"), _LOOKS),
    "dead replay": Codes(("dead", "replay", "again"), ("dead", "replay", "live")),
    "dead purge": Codes(
        ("dead", "purge", "forget"), By("tests/e2e/test_cli_dead.py", "test_a_wide_purge_says_how_many_and_asks")
    ),
}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that there is, with the words that lead to it."""
    root: Any = get_command(make())
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        if below is None:
            yield name, command
        else:
            yield from ((f"{name} {word}", one) for word, one in below.items())


ALL = dict(commands())


def takes(name: str, option: str) -> bool:
    """Whether a command has this option, or an argument that is called so."""
    return any(option in (*one.opts, one.name) for one in ALL[name].params)


def typed(name: str) -> Words:
    """The command with what it needs, so that nothing is wrong with its line; of a TARGET or an app named `tasks:app`."""
    well = EVERY[name].well
    if not isinstance(well, By):
        return well
    return (*name.split(), *(("tasks:app",) if takes(name, "target") else ()))


def asks_a_server() -> Iterator[str]:
    """Names of the commands that are told where it is."""
    return (name for name in ALL if takes(name, "--url"))
