# ruff: noqa: INP001  (a script, not a package)
"""Print every log event of the library as a Markdown table: level, fields and writers from the code, meaning from here.

With ``--write`` it replaces the section between the two markers in ``src/tenure/ARCHITECTURE.md``; a unit test fails if it
differs, or if an event lacks its meaning or a meaning its event.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tenure"
PAGE = SOURCE / "ARCHITECTURE.md"
BEGIN, END = "<!-- log-table:begin -->", "<!-- log-table:end -->"
LEVELS = {level: level for level in ("debug", "info", "warning", "error")} | {"exception": "error"}

MEANINGS = {
    "actor.crowded": "a worker that knows the actor listens and has no free slot: looked at again within 2 s",
    "args.encrypted": "its large arguments are encrypted with a key that this process lacks: it is put off for who has that",
    "actor.unknown": "no worker that knows the actor listens: is its code deployed?",
    "attempt.failed": "an attempt failed; `error`: the type alone, `retried`: whether another follows",
    "blob.removed": "arguments or a result that nothing names any more",
    "blobs.not_looked_at": "the blob store could not be listed; tried again",
    "child.died": "a body's child process ended by itself: a failed attempt",
    "child.killed": "a body ignored its stop past its grace, and was killed with its child process",
    "child.not_gone": "a killed child process is still there: stuck in the kernel",
    "child.not_ready": "a child process was not ready in time; tried three times",
    "child.not_started": "the system starts no process; the run is handed back",
    "clock.differs": "this machine's time of day is wrong by so much; the server's is used",
    "command.crashed": "a defect of ours while a command of the inbox was applied; it comes again",
    "command.not_applied": "the server did not answer; the command comes again",
    "command.not_kept": "a rejected command could not be stored as such; it waits, or its sender is told",
    "command.rejected": "a command that cannot be carried out; why in words: `tenure dead rejected`",
    "command.stray": "a command that was delivered to nobody, applied now",
    "connection.abandoned": "a broken connection could not be closed in order",
    "connection.failed": "what a connection, or a try to make one, met",
    "connection.lost": "no server is connected; nats-py tries for ever",
    "connection.restored": "connected again",
    "consumer.changed": "a consumer had other settings; if it comes again and again, processes disagree",
    "delivery.handed_over": "a run of an actor that is not known here went to a worker that knows it",
    "desk.crashed": "a defect of ours while an offer of another worker was taken",
    "drain.cut_off": "the drain ended without its server: exit code 3",
    "drain.ended": "`given_up`: bodies that did not end",
    "drain.started": "`running`: runs in hand",
    "entry.unreadable": "a session's entry is none of Tenure's",
    "exit.ignored": "a task or callback that a body started raised SystemExit: the worker goes on",
    "history.not_kept": "the history's streams are missing or not the same; nothing else depends on them",
    "inbox.crashed": "a defect of ours in the pull of the inbox; it starts afresh",
    "inbox.not_opened": "the inbox cannot be pulled now; tried again",
    "inbox.not_searched": "the look for commands that are delivered to nobody got no answer",
    "keeper.crashed": "a defect of ours while a key was repaired; the next sweep finds it again",
    "key.not_repaired": "the server did not answer; the next sweep finds it again",
    "key.repaired": "something was found undone and done; `kind` as in `tenure_repairs_total`",
    "keys.put_off": "a sweep found more suspicious keys than may wait for repair; the next one finds these again",
    "lane.broken": "a pull could not be made; tried again",
    "lane.crashed": "a defect of ours in a pull, which starts afresh",
    "lane.refused": "the server ended a pull, and why",
    "lane.silent": "nothing was heard of a pull, not even that it stands: made anew",
    "lease.left_open": "a session could not be closed at the end; a supervisor does it",
    "lease.lost": "the session is not trusted any more: its bodies are told `lease_lost`",
    "lease.not_renewed": "a renewal failed; tried again while the session lives",
    "lease.renewed": "renewed after failures",
    "letter.unreadable": "a dead letter, or a rejected command, that is none of Tenure's, or of a newer one",
    "limit.changed": "by newer code it allows another number of bodies, or starts; to and fro: see `App(deployed=)`",
    "limit.full": "a run finds no place, for those who hold or await one fill a message; asked for again after `ack_wait`",
    "limit.handed_over": "parked runs were given free places of a limit",
    "limits.not_looked_at": "a worker's start could not hand over what newer code allows more; the next start or end, or a sweep, does",
    "limit.not_repaired": "the server did not answer, or the entry is none of Tenure's; looked at again",
    "limit.repaired": "what a crash had left of a limit is put right; `kind` as in `tenure_repairs_total`",
    "marks.not_forgotten": "applied commands could not be forgotten yet; the sweep does it",
    "message.foreign": "a message in the work stream that is no wake-up; removed",
    "message.removed": "a message in the work stream whose subject names nothing of Tenure's: nobody would ever take it",
    "outbox.unpaid": "a spawned run, a hook or a dead letter could not be stored yet; tried again",
    "permission.missing": "the user of this process may not do what it has to; what, in the server's words",
    "place.not_given_back": "a place under a limit could not be given back; a supervisor does it",
    "publish.dropped": "an ack or a hint was lost with its connection",
    "record.newer": "a record of a newer Tenure: upgrade this process",
    "record.passed_over": "a sweep met a record that is newer than it knows, or none of Tenure's",
    "record.encrypted": "a record that no key of this process opens (why: `error`); another worker may have it",
    "record.unreadable": "a record that is none of Tenure's, or damaged",
    "refusal.unreadable": "an entry of the history is none of Tenure's; left out",
    "remnant.not_settled": "an attempt that was given up could not be taken out of its record yet; tried again",
    "request.crashed": "a defect of ours while a request to the micro service was answered",
    "revision.unreadable": "a revision in the history is none of Tenure's; left out",
    "run.abandoned": "bodies did not end in time and are given up; `keys`: twenty at most",
    "run.crashed": "a defect of ours while a run was handled; others go on",
    "run.effects_owed": "an ended attempt's effects could not be carried out yet; its wake-up comes again",
    "run.ended": "an outcome was stored",
    "run.fenced": "an outcome was refused: another attempt holds the run",
    "run.given_up": "the server did not answer for as long as the session lived",
    "run.not_evicted": "an attempt that overstayed could not be ended yet; tried again",
    "run.stuck": "a body ignores its stop past its grace; it is void and has lost its slot",
    "run.superseded": "an outcome was refused: the key is at a newer generation",
    "run.taken_over": "a run of a dead session was claimed",
    "schedule.changed": "a schedule's chain was started, changed or ended as the code has it",
    "schedule.key_taken": "somebody's run has the key of a schedule",
    "schedule.unknown": "a schedule starts by itself, and no supervisor that is alive has its module: end it, or run that code",
    "schedule.outdated": "code that was deployed later has another schedule; if this is the new code: see `App(deployed=)`",
    "schedule.not_kept": "the server did not answer; asked again",
    "schedule.passed_over": "a schedule's record is newer than this process knows, none of Tenure's, or owes what must be paid first",
    "scrape.dropped": "who asked for metrics went away",
    "scrape.failed": "metrics could not be made",
    "seen.not_forgotten": "an applied entry could not be forgotten yet; the sweep does it",
    "session.closed": "a process was silent for its ttl; what it held is taken over",
    "session.not_closed": "it was renewed meanwhile, or the server did not answer",
    "session.not_opened": "no session could be opened; tried again",
    "session.opened": "this process's session",
    "stream.missing": "a stream is gone or was made anew: not ready",
    "stream.restored": "the streams are there again",
    "sweep.failed": "the server did not answer; the next sweep starts afresh",
    "switch.not_released": "what waited for a switch could not be woken yet (warning), or the board cannot be read (error)",
    "switch.over": "a pause had an end, and it is reached; `left`: switches that are on",
    "switch.released": "what waited for a switch is woken",
    "switches.changed": "what is paused or blocked is known here; `paused_or_blocked`: how many",
    "switches.unreadable": "the board cannot be read: nothing starts before it can",
    "thread.not_started": "the system starts no thread; the run is handed back, and looked at again after 2 s",
    "wakeup.stray": "a wake-up that its consumer took for acknowledged, removed; its run gets another",
    "watch.not_started": "a watch could not be started; tried again",
    "watch.refused": "the server refused a watch; tried again",
    "watch.silent": "a watch was silent; made anew",
}


@dataclass(frozen=True)
class Written:
    """One place in the code that writes an event."""

    event: str
    level: str
    fields: tuple[str, ...]
    module: str


@cache
def written() -> list[Written]:
    """Every place in the library that writes one. ValueError for one that cannot be read off the code."""
    found: list[Written] = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        code = path.read_text(encoding="utf-8")
        if "get_logger" in code:
            found += _written_in(ast.parse(code), module)
    return found


def _written_in(tree: ast.Module, module: str) -> Iterator[Written]:
    calls = [
        (function, call) for function in ast.walk(tree) if isinstance(function, _FUNCTIONS) for call in _calls(function)
    ]
    passing_on: dict[str, str] = {}  # functions that write the event that they are given
    for function, call in calls:
        if _is_log(call) and isinstance(call.args[0], ast.Name) and isinstance(call.func, ast.Attribute):
            passing_on[function.name] = call.func.attr
    for function, call in calls:
        called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if not (_is_log(call) or called in passing_on) or function.name in passing_on:
            continue
        name = call.args[0]
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str) or len(call.args) > 1:
            raise ValueError(f"{module}:{call.lineno}: an event is one literal, and fields are named")
        level = passing_on.get(called, called)
        fields = [field for keyword in call.keywords for field in _fields(keyword, function)]
        fields += ["exception"] if level == "exception" or "exc_info" in fields else []
        yield Written(name.value, LEVELS[level], tuple(f for f in fields if f != "exc_info"), module)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _calls(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """Calls in the function itself, not in those that it defines."""
    todo: list[ast.AST] = function.body[::-1]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call):
            yield node
        todo += [child for child in ast.iter_child_nodes(node) if not isinstance(child, _FUNCTIONS)][::-1]


def _is_log(call: ast.Call) -> bool:
    """``_log.<level>(...)``, or the same of a logger that was asked for on the spot."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in LEVELS or not call.args:
        return False
    match call.func.value:
        case ast.Name(id="_log") | ast.Call(func=ast.Name(id="get_logger")):
            return True
    return False


def _fields(keyword: ast.keyword, function: ast.AST) -> list[str]:
    """The names behind ``name=...`` or ``**about``, which is a literal in the same function."""
    if keyword.arg is not None:
        return [keyword.arg]
    for node in ast.walk(function):
        match node, keyword.value:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys)), ast.Name(id=wanted) if (
                name == wanted
            ):
                return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    raise ValueError(f"line {keyword.lineno}: its fields cannot be read off the code")


def section() -> str:
    """Return what belongs between the markers, markers included."""
    by_event: dict[str, list[Written]] = {}
    for one in written():
        by_event.setdefault(one.event, []).append(one)
    rows = ["| event | level | fields | written by | meaning |", "| --- | --- | --- | --- | --- |"]
    for event, places in sorted(by_event.items()):
        levels = ", ".join(dict.fromkeys(place.level for place in places))
        fields = ", ".join(_told(field, places) for field in dict.fromkeys(f for place in places for f in place.fields))
        modules = ", ".join(f"`{module}`" for module in dict.fromkeys(place.module for place in places))
        rows.append(f"| `{event}` | {levels} | {fields} | {modules} | {MEANINGS.get(event, '')} |")
    legend = (
        "Made by `python scripts/log_table.py --write` from the code, with the meanings that stand in that script. A field in\n"
        "brackets is not always there."
    )
    return f"{BEGIN}\n\n{legend}\n\n" + "\n".join(rows) + f"\n\n{END}"


def _told(field: str, places: list[Written]) -> str:
    return field if all(field in place.fields for place in places) else f"({field})"


def main(arguments: list[str]) -> int:
    """Print the section, or write it into its page; 1 if the page lacks the markers."""
    if "--write" not in arguments:
        sys.stdout.write(section() + "\n")
        return 0
    from state_table import put

    return 0 if put(PAGE, BEGIN, section(), END) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
