"""A server's configuration with an account for a namespace and a user for each role, written from the table in ``roles``.

Producers, workers, supervisors and ``tenure setup`` share the namespace's account. Guests and viewers have one each, into which
only what they may ask is imported. That is no matter of taste: a request says where its answer goes, and the server publishes it
there without a look at the user's permissions. In the namespace's account a guest could have the acknowledgement of its command
written over a record, a viewer an answer of JetStream's; from another account no answer gets there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from tenure.core.subjects import Names, check_name
from tenure.nats.roles import APART, INBOXES, ROLES, TOLD, Need, inbox_of, needs

_ABOUT = """\
# Made by `{command}`: make it anew when Tenure is upgraded.
# An account for the namespace, one each for those who are not trusted with its data, and a user for every role. To be
# included in `accounts` of nats-server's configuration; its environment has the {secrets}.
# Each connection needs its role's inbox prefix ({inboxes}<role>): $TENURE_NATS_INBOX, or the option inbox_prefix.
"""


def permissions(names: Names, actors: Iterable[str] = ("*",)) -> dict[str, dict[str, list[str]]]:
    """By role what it may ``publish`` and ``subscribe`` to. ``actors``: those whose tasks a guest may submit."""
    found: dict[str, dict[str, list[str]]] = {role: {"publish": [], "subscribe": []} for role in ROLES}
    for need in _checked(names, actors):
        found[need.role][need.verb].append(need.subject)
    return found


def configuration(names: Names, actors: Iterable[str] = ("*",), *, nkeys: bool = False) -> str:
    """The accounts as nats-server reads them. ``nkeys``: users are known by their public keys instead of passwords."""
    wanted = _checked(names, actors)
    may = permissions(names, actors)
    secrets = "public keys" if nkeys else "passwords"
    command = " ".join(_command(names, actors, nkeys=nkeys))
    lines = _ABOUT.format(command=command, inboxes=INBOXES, secrets=secrets).splitlines()
    lines += [f"{names.namespace} {{", "  jetstream: enabled", "  users: ["]
    for role in ROLES:
        if role not in APART:
            lines += _user(names.namespace, role, may[role], nkeys=nkeys)
    lines += ["  ]", "  exports: ["]
    lines += [f"    {{ {_export(need)}, accounts: [{_account(names, need.role)}] }}" for need in _shared(wanted)]
    lines += ["  ]", "}"]
    for role in APART:
        lines += [f"{_account(names, role)} {{", "  users: ["]
        lines += _user(names.namespace, role, may[role], nkeys=nkeys)
        lines += ["  ]", "  imports: ["]
        lines += [f"    {{ {_import(names, need)} }}" for need in _shared(wanted) if need.role == role]
        lines += ["  ]", "}"]
    return "\n".join([*lines, ""])


def _command(names: Names, actors: Iterable[str], *, nkeys: bool) -> Iterator[str]:
    yield f"tenure permissions -n {names.namespace}"
    yield from (f"--actor {one}" for one in actors if one != "*")
    if nkeys:
        yield "--nkeys"


def variable(namespace: str, role: str) -> str:
    """The environment variable with the password, or the public key, of a role's user."""
    return re.sub(r"\W", "_", f"{namespace}_{role}").upper()


def _checked(names: Names, actors: Iterable[str]) -> list[Need]:
    return needs(names, actors=[one if one == "*" else check_name("actor", one) for one in actors])


def _account(names: Names, role: str) -> str:
    return f"{names.namespace}-{role}"


def _user(namespace: str, role: str, may: dict[str, list[str]], *, nkeys: bool) -> Iterator[str]:
    secret = f"${variable(namespace, role)}"
    who = f"nkey: {secret}" if nkeys else f"user: {namespace}-{role}, password: {secret}"
    yield f"    {{ {who}, permissions: {{ # {role}"
    for verb in ("publish", "subscribe"):
        yield f"      {verb}: ["
        yield from (f"        {json.dumps(subject)}" for subject in may[verb])
        yield "      ]"
    yield "    } }"


def _shared(wanted: list[Need]) -> list[Need]:
    """What roles with an account of their own need of the namespace's; what a user may do is told in every account."""
    return [need for need in wanted if need.role in APART and need.subject != TOLD and not _own(need)]


def _own(need: Need) -> bool:
    """A guest's answers come by themselves: they are answers to what it asked, by its own account's inbox."""
    return need.role == "guest" and need.subject == f"{inbox_of(need.role)}.>"


def _export(need: Need) -> str:
    if need.verb == "subscribe":
        return f"stream: {json.dumps(need.subject)}"
    # A pull is answered by many messages, anything else by one.
    many = ", response_type: stream" if ".MSG.NEXT." in need.subject else ""
    return f"service: {json.dumps(need.subject)}{many}"


def _import(names: Names, need: Need) -> str:
    kind = "stream" if need.verb == "subscribe" else "service"
    return f"{kind}: {{ account: {names.namespace}, subject: {json.dumps(need.subject)} }}"
