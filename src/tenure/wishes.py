"""Commands as anybody may send them, in any language: read, checked, and made commands of ours or refused in words.

Used by whoever takes them in: the inbox (durable, no answer but the PubAck) and the micro service (answered at once). Every
header is one that its verb knows and every argument fits the actor's signature, or the whole command is refused: a slip in
a name must not silently mean something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tenure.actors import Actor
from tenure.checks import check_choice, check_reason, check_run_id
from tenure.core import commands as c
from tenure.core.errors import InvalidCall
from tenure.core.given import UNREADABLE
from tenure.core.marks import Place, command_id, mark
from tenure.core.records import Task
from tenure.core.subjects import check_key
from tenure.nats.wire import BROKEN_HEADERS
from tenure.payloads import MAX_DEPTH, is_deeper
from tenure.times import due_time, seconds_in

Verb = Literal["submit", "replace", "cancel"]
VERBS: tuple[Verb, ...] = ("submit", "replace", "cancel")
Reason = Literal[
    "malformed",
    "header",
    "key",
    "time",
    "arguments",
    "too_large",
    "unknown_actor",
    "foreign",
    "live",
    "crowded",
    "unreadable",
]
REASONS: tuple[Reason, ...] = Reason.__args__  # type: ignore[attr-defined]  # a Literal has them

MSG_ID = "Nats-Msg-Id"
_TRACE = "traceparent"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")
_OURS = "tenure-"
_REPLY = re.compile(r"_INBOX(?:\.[^\s\x00-\x1f.*>]+)+\Z")
_LONGEST_REPLY = 256
_KNOWN: dict[str, frozenset[str]] = {
    "submit": frozenset({"tenure-key", "tenure-delay", "tenure-at", "tenure-if-live", "tenure-reply"}),
    "replace": frozenset({"tenure-key", "tenure-delay", "tenure-at", "tenure-overlap", "tenure-reply"}),
    "cancel": frozenset({"tenure-key", "tenure-run", "tenure-reply"}),
    "status": frozenset({"tenure-key"}),
}
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_NUMBER = re.compile(r"\d+(?:\.\d+)?\Z")
Actors = Mapping[str, Actor[..., ..., Any, Any]]


class Refusal(Struct, frozen=True):
    """Why a command is not carried out: a code that does not change, and words for people."""

    reason: Reason
    text: str


class Sent(Struct, frozen=True, kw_only=True):
    """What somebody sent. ``at``: when it was accepted, from which a delay counts (seconds since the epoch).

    ``place``: where the inbox has it; None: it was not stored, and ``new_id`` makes it unique where it has no message id.
    """

    verb: str
    actor: str
    subject: str
    headers: Mapping[str, str]
    data: bytes
    at: float
    place: Place | None = None
    new_id: str = ""


class Wish(Struct, frozen=True, kw_only=True):
    """A command that may be carried out. ``args``: encoded; they are in the command's task as well."""

    verb: Verb
    key: str
    command: c.Submit | c.Replace | c.Cancel
    args: bytes = b""


def headers_of(verb: str, headers: Mapping[str, str]) -> dict[str, str] | Refusal:
    """The headers that are Tenure's, by lower-case name; names of headers are told apart by case in NATS, not here."""
    if BROKEN_HEADERS in headers:
        return Refusal("malformed", f"the headers are not clear: {headers[BROKEN_HEADERS]}")
    ours: dict[str, str] = {}
    for name, value in headers.items():
        plain = name.lower()
        if not plain.startswith(_OURS):
            continue
        if plain not in _KNOWN[verb]:
            known = ", ".join(sorted(header.title() for header in _KNOWN[verb]))
            return Refusal("header", f"a {verb} has no header {name!r}; it has {known}")
        ours[plain] = value
    if "tenure-reply" in ours and not _is_reply(ours["tenure-reply"]):
        return Refusal("header", f"Tenure-Reply {ours['tenure-reply']!r}: answers go to subjects under _INBOX. only")
    return ours


def reply_of(headers: Mapping[str, str]) -> str:
    """Where the sender hears that its command was rejected; empty: nowhere."""
    wanted = next((value for name, value in headers.items() if name.lower() == "tenure-reply"), "")
    return wanted if _is_reply(wanted) else ""


def _is_reply(subject: str) -> bool:
    """Whether nobody but one who asked listens there: neither Tenure nor the server takes anything in under such a subject."""
    return len(subject) <= _LONGEST_REPLY and _REPLY.match(subject) is not None


def read(sent: Sent, actors: Actors, limit: int) -> Wish | Refusal:
    """Make a command of what somebody sent. ``limit``: of its arguments, in bytes."""
    verb = next((known for known in VERBS if known == sent.verb), None)
    if verb is None:
        return Refusal("foreign", f"{sent.subject!r} is no subject of a command")
    ours = headers_of(verb, sent.headers)
    if isinstance(ours, Refusal):
        return ours
    actor = actors.get(sent.actor)
    if actor is None and verb != "cancel":
        return Refusal("unknown_actor", f"no actor {sent.actor!r} is known")
    try:
        key = check_key(ours["tenure-key"]) if "tenure-key" in ours else None
        command = command_id(sent.subject, key, sent.headers.get(MSG_ID), sent.place or Place(0, 0))
        if sent.place is None and MSG_ID not in sent.headers:
            command = sent.new_id
        if key is None and verb != "submit":
            return Refusal("key", f"a {verb} needs the header Tenure-Key")
        if actor is None or verb == "cancel":
            return _cancel(sent, ours, key or "", command)
        task, args = _task(sent, ours, actor, limit)
        about: dict[str, Any] = {"key": key or command, "run_id": command, "task": task, "due": _due(sent, ours)}
        return _start(sent, ours, about, args)
    except InvalidCall as error:
        return Refusal(_reason(error), str(error))


def _start(sent: Sent, ours: dict[str, str], about: dict[str, Any], args: bytes) -> Wish:
    key = about["key"]
    if sent.place is not None:
        about["seen"] = mark(sent.place, about["run_id"], msg_id=MSG_ID in sent.headers)
    if sent.verb == "replace":
        return Wish(verb="replace", key=key, command=c.Replace(**about), args=args)
    if_live: Any = ours.get("tenure-if-live", "keep")
    check_choice("Tenure-If-Live", if_live, ("keep", "replace", "reject"))
    return Wish(verb="submit", key=key, command=c.Submit(**about, if_live=if_live), args=args)


def _task(sent: Sent, ours: dict[str, str], actor: Actor[..., ..., Any, Any], limit: int) -> tuple[Task, bytes]:
    """The actor's task with these arguments, defaults and policy included, as a call of it would make it."""
    if len(sent.data) > limit:
        raise InvalidCall(f"{len(sent.data)} bytes of arguments; at most {limit} are taken", field="too_large")
    data = sent.data or b"{}"
    try:
        if is_deeper(data, MAX_DEPTH):
            raise InvalidCall(f"the arguments are nested deeper than {MAX_DEPTH} levels", field="arguments")
        _object(data)
        if not data.isascii():
            data.decode()
    except UNREADABLE as error:
        raise InvalidCall(f"the arguments are no JSON object: {error}", field="malformed") from error
    try:
        call = actor.call(**actor.decode_args(data))
    except InvalidCall as error:
        raise InvalidCall(str(error), field="arguments") from error
    except Exception as error:  # of a class of the actor's, whose values strangers choose: not a defect of ours
        raise InvalidCall(
            f"actor {actor.name}: the arguments cannot be read: {type(error).__name__}: {error}", field="arguments"
        ) from error
    if sent.verb == "replace":
        overlap: Any = ours.get("tenure-overlap", "stop")
        check_choice("Tenure-Overlap", overlap, ("stop", "wait", "parallel"))
        call = call.with_overlap(overlap)
    trace = next((value for name, value in sent.headers.items() if name.lower() == _TRACE), "")
    return replace(call.task, trace=trace if _TRACEPARENT.match(trace) else ""), call.args


def _cancel(sent: Sent, ours: dict[str, str], key: str, command: str) -> Wish:
    reason: object = ""
    if sent.data.strip():
        try:
            said = msgspec.json.decode(sent.data, type=dict[str, Any])
        except UNREADABLE as error:
            raise InvalidCall(f"what is said beside a cancel is no JSON object: {error}", field="malformed") from error
        if said.keys() - {"reason"}:
            raise InvalidCall("a cancel says nothing but its reason", field="arguments")
        reason = said.get("reason", "")
    made = c.Cancel(run_id=check_run_id(ours.get("tenure-run")), reason=check_reason(reason))
    if sent.place is not None:
        made = replace(made, seen=mark(sent.place, command, msg_id=MSG_ID in sent.headers))
    return Wish(verb="cancel", key=key, command=made)


def _due(sent: Sent, ours: dict[str, str]) -> float:
    delay, at = ours.get("tenure-delay"), ours.get("tenure-at")
    seconds, moment = None, None
    if delay is not None:
        seconds = float(delay) if _NUMBER.match(delay) else seconds_in(delay)
        if seconds is None:
            raise InvalidCall(f"Tenure-Delay {delay!r}: write it in seconds, or like 500ms, 10s, 1h30m", field="delay")
    if at is not None:
        try:
            moment = datetime.fromisoformat(at)
        except ValueError as error:
            raise InvalidCall(f"Tenure-At {at!r}: write it like 2030-01-31T08:00:00Z", field="at") from error
    try:
        return due_time(seconds, moment, sent.at)
    except OverflowError as error:
        raise InvalidCall(f"Tenure-At {at!r} is no time that can be reached", field="at") from error


_FIELDS: dict[str, Reason] = {
    "key": "key",
    "delay": "time",
    "at": "time",
    "too_large": "too_large",
    "malformed": "malformed",
    "Tenure-If-Live": "header",
    "Tenure-Overlap": "header",
    "run_id": "header",
}


def _reason(error: InvalidCall) -> Reason:
    return _FIELDS.get(error.field or "", "arguments")
