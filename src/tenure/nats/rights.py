"""What the connected user may do, as the server itself tells it: for people who look for the permission that is missing."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, convert, json

from tenure.core.given import UNREADABLE
from tenure.core.subjects import Names
from tenure.nats.connection import Connection, Lost, NotSent

_TOLD = "$SYS.REQ.USER.INFO"


class _Allowed(Struct, frozen=True):
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class _Permissions(Struct, frozen=True):
    publish: _Allowed = _Allowed()
    subscribe: _Allowed = _Allowed()


class Rights(Struct, frozen=True):
    """The user, its account, and what it may publish and subscribe to; no ``permissions``: everything."""

    user: str = ""
    account: str = ""
    permissions: _Permissions | None = None

    def may(self, verb: str, subject: str) -> bool:
        """Whether it may ``publish`` or ``subscribe`` to every subject that fits, none of them denied."""
        if self.permissions is None:
            return True
        given = self.permissions.publish if verb == "publish" else self.permissions.subscribe
        # A permission to subscribe may end in the name of a queue group; ours do not depend on it.
        allow, deny = [entry.split()[0] for entry in given.allow], [entry.split()[0] for entry in given.deny]
        return (not allow or any(covers(one, subject) for one in allow)) and not any(meet(one, subject) for one in deny)


class Need(Struct, frozen=True):
    """What a role cannot do without, and what for."""

    role: str
    verb: str
    subject: str
    purpose: str

    def __str__(self) -> str:
        """In words."""
        return f"{self.verb} {self.subject} ({self.purpose})"


ROLES = ("producer", "worker", "supervisor", "setup")


def needs(names: Names, inbox: str) -> list[Need]:
    """What each role needs. ``inbox``: a subject on which answers reach this connection."""
    api, look = "$JS.API.", ("producer", "worker", "supervisor")
    runs, work, sessions = names.runs_stream, names.work_stream, names.sessions_stream
    wanted = [
        (ROLES, "subscribe", inbox, "hear answers"),
        (ROLES, "publish", f"{api}INFO", "ask whether there is JetStream"),
        (ROLES, "publish", f"{api}STREAM.INFO.{runs}", "see whether the namespace is set up"),
        (("setup",), "publish", f"{api}STREAM.CREATE.{runs}", "create the streams"),
        (("setup",), "publish", f"{api}STREAM.UPDATE.{runs}", "change the streams"),
        (look, "publish", f"{api}STREAM.INFO.{work}", "see what is stored"),
        (look, "publish", f"{api}STREAM.MSG.GET.{work}", "look up wake-ups"),
        (look, "publish", f"{names.runs_prefix}*", "store records"),
        (look, "publish", f"{names.work_prefix}>", "store wake-ups"),
        (look, "publish", f"{names.timer_prefix}>", "store timers"),
        (look, "publish", f"{names.sessions_prefix}stop.>", "tell bodies to stop"),
        (look, "publish", f"{names.dead_prefix}>", "keep dead letters"),
        (("producer",), "subscribe", f"{names.event_prefix}*", "hear of results"),
        (("worker", "supervisor"), "publish", f"{names.sessions_prefix}session.*", "keep a session"),
        (("worker", "supervisor"), "publish", f"{api}CONSUMER.CREATE.{sessions}.>", "follow stops and sessions"),
        (("worker",), "publish", f"{api}CONSUMER.DURABLE.CREATE.{work}.*", "make its lanes"),
        (("worker",), "publish", f"{api}CONSUMER.MSG.NEXT.{work}.*", "pull wake-ups"),
        (("worker",), "publish", f"$JS.ACK.{work}.>", "answer wake-ups"),
        (("worker",), "publish", f"{names.handover_prefix}>", "hand wake-ups over"),
        (("worker",), "subscribe", f"{names.handover_prefix}>", "take wake-ups over"),
        (("supervisor",), "publish", f"{api}STREAM.MSG.DELETE.{work}", "remove what is never delivered"),
        (("supervisor",), "publish", f"{api}STREAM.MSG.DELETE.{names.inbox_stream}", "empty the inbox"),
        (("supervisor",), "subscribe", f"{names.api_prefix}>", "answer requests"),
    ]
    return [Need(role, verb, subject, why) for roles, verb, subject, why in wanted for role in roles]


async def rights_of(conn: Connection) -> Rights | None:
    """What the server says of this connection's user; None if it says nothing (it may not be allowed to ask)."""
    try:
        answer = await conn.request(_TOLD, b"")
        told: dict[str, Any] = json.decode(answer.data)
        return convert(told.get("data") or {}, Rights)
    except (NotSent, Lost, *UNREADABLE):
        return None


def covers(allowed: str, subject: str) -> bool:
    """Whether every subject that fits ``subject`` fits ``allowed``; both may have wildcards."""
    wide, narrow = allowed.split("."), subject.split(".")
    for index, part in enumerate(wide):
        if part == ">":
            return len(narrow) > index
        if index >= len(narrow) or narrow[index] == ">" or part not in {"*", narrow[index]}:
            return False
    return len(wide) == len(narrow)


def meet(one: str, other: str) -> bool:
    """Whether some subject fits both."""
    left, right = one.split("."), other.split(".")
    for mine, theirs in zip(left, right, strict=False):
        if ">" in {mine, theirs}:
            return True
        if "*" not in {mine, theirs} and mine != theirs:
            return False
    return len(left) == len(right)
