"""What the connected user may do, as the server itself tells it: for people who look for the permission that is missing."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, convert, json

from tenure.core.given import UNREADABLE
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.roles import TOLD


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


async def rights_of(conn: Connection) -> Rights | None:
    """What the server says of this connection's user; None if it says nothing (it may not be allowed to ask)."""
    try:
        answer = await conn.request(TOLD, b"")
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
