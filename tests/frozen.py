"""What of Tenure's is on the wire, as it is derived from the code: names, forms of what is stored, headers.

``tests/frozen.json`` is what it was: ``python -m tests.frozen`` writes that anew. Look at the difference first: processes of the
release before read what this one writes, and the other way round, for as long as a deploy takes; what is stored stays for years.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from pathlib import Path
from typing import Any

import msgspec

from tenure import wishes
from tenure.core import aftermath, dead, history, marks, permits, rates, records, sessions, switches
from tenure.core.subjects import Names
from tenure.nats import blobs, handover, inbox, micro, parking, scan, swaps, topology, work
from tenure.nats import history as mirror

FROZEN = Path(__file__).with_name("frozen.json")
STORED: tuple[type[msgspec.Struct], ...] = (
    records.Record, sessions.Session, sessions.StopSignal, sessions.Progress, dead.DeadLetter, dead.Rejected, history.Refusal,
    permits.Entry, rates.Entry, switches.Board, work._Head, handover._Offer,
)  # fmt: skip
"""Whatever one process writes and another reads."""
SAMPLES = {
    "key": "a key/ä", "run_id": "RUN", "queue": "queue", "priority": "normal", "actor": "actor", "session": "SESSION",
    "attempt": 3, "limit": "limit", "name": "name", "command": "COMMAND",
}  # fmt: skip
READERS = frozenset({"parse_command", "parse_work", "stored_for"})


def forms() -> dict[str, list[str]]:
    """Each struct that is stored or sent, with its fields, their types and what stands for a field that is left out."""
    found: dict[str, list[str]] = {}
    todo: list[Any] = list(STORED)
    while todo:
        kind = todo.pop()
        name = f"{kind.__module__.removeprefix('tenure.')}.{kind.__qualname__}"
        if name in found:
            continue
        found[name] = []
        for field in msgspec.structs.fields(kind):
            default = "" if field.default is msgspec.NODEFAULT else f" = {field.default!r}"
            if field.default_factory is not msgspec.NODEFAULT:
                default = f" = {field.default_factory()!r}"
            if isinstance(field.default, msgspec.Raw):
                default = f" = {bytes(field.default)!r}"
            if isinstance(field.default, msgspec.Struct):
                default = f" = {type(field.default).__name__}()"
            found[name].append(f"{field.encode_name}: {written(field.type, todo)}{default}")
    return dict(sorted(found.items()))


def written(kind: Any, met: list[Any]) -> str:
    """A type in words that are the same with every Python; structs in it are added to ``met``."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(written(arg, met) for arg in args)
    if origin is typing.Literal:
        return " | ".join(repr(arg) for arg in args)
    if origin is not None:
        return f"{origin.__name__}[{', '.join('...' if arg is ... else written(arg, met) for arg in args)}]"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        met.append(kind)
    if isinstance(kind, type) and issubclass(kind, str) and kind is not str:
        return " | ".join(repr(member.value) for member in kind)  # type: ignore[attr-defined]  # an enumeration
    return "None" if kind is type(None) else str(kind.__name__)


def names() -> dict[str, Any]:
    """Every name of a namespace, and every subject made of samples: a new one is met by itself."""
    ours = Names("ns")
    found: dict[str, Any] = {name: value for name, value in vars(ours).items() if not name.startswith("_")}
    for name, method in inspect.getmembers(Names, inspect.isfunction):
        if name.startswith("_") or name in READERS:
            continue
        wanted = [one for one in inspect.signature(method).parameters if one != "self"]
        made = getattr(ours, name)(*(SAMPLES[one] for one in wanted))
        found[f"{name}({', '.join(wanted)})"] = list(made) if isinstance(made, tuple) else made
    return found


def streams() -> dict[str, Any]:
    """Each stream and bucket, and what it holds."""
    ours = Names("ns")
    specs = [make(ours, 1, "file") for make in topology._SPECS]
    specs += [mirror.spec(ours, 1, "file"), mirror.refused_spec(ours, 1, "file")]
    return {
        spec["name"]: {name: spec[name] for name in ("subjects", "republish", "retention", "mirror") if name in spec}
        for spec in specs
    }


def headers() -> dict[str, Any]:
    """Headers that mean something to Tenure, by what they are on."""
    return {
        "a compare-and-swap": swaps.EXPECT,
        "a record": scan.STATE,
        "a parked run": parking._LANE,
        "a blob": [blobs._KEY, blobs._ORIGIN],
        "a command": {verb: sorted(known) for verb, known in wishes._KNOWN.items()} | {"its id": wishes.MSG_ID},
        "an answer": [micro.ERROR, micro.ERROR_CODE],
        "consumers": [inbox.CONSUMER, handover._GROUP, micro.GROUP],
    }


def ids() -> dict[str, str]:
    """Names and ids that are worked out of others: by every process alike, or one thing has two names."""
    place = marks.Place(7, 1_700_000_000_000_000)
    return {
        "a limit": permits.name_of("actor", permits.Bound(n=2, per="site"), b'{"site":"a"}'),
        "a rate": rates.rate_name("actor", rates.Rate(n=2, seconds=60.0, per="site"), b'{"site":"a"}'),
        "a replay": aftermath.derived_id("01JDEADBEEFDEADBEEFDEADBEE", "replay"),
        "a command": marks.command_id("tenure.ns.submit.actor", "key", None, place),
        "a command with an id": marks.command_id("tenure.ns.submit.actor", "key", "id", place),
        "a mark": marks.mark(place, "COMMAND").id,
    }


def derived() -> dict[str, Any]:
    """All of it."""
    whole: dict[str, Any] = {
        "names": names(),
        "streams": streams(),
        "headers": headers(),
        "ids": ids(),
        "forms": forms(),
    }
    whole["schema"] = records.SCHEMA
    again: dict[str, Any] = json.loads(json.dumps(whole))
    return again


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(derived(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
