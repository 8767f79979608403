"""Who needs what on the server: the one table from which permissions are written, examined and tested.

Everything is named for one namespace. Subjects are as narrow as the code that uses them: a role that lacks one of them fails
at its work, and one that has more could do somebody else's. What the server itself does on behalf of a user is not bound by
them: it writes its answer to whatever subject a request names for it. So whoever is not trusted with the namespace's data
(``APART``) gets an account of its own, where such a subject leads nowhere; see ``accounts``.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from tenure.core.subjects import Names
from tenure.nats.inbox import CONSUMER

ROLES = ("producer", "worker", "supervisor", "setup", "viewer", "guest")
CONNECTED = ROLES[:-1]
"""Those that use the library; a guest has no more than a NATS client."""
APART = ("viewer", "guest")
"""Roles that live in accounts of their own."""

INBOXES = "_INBOX."
TOLD = "$SYS.REQ.USER.INFO"
_API = "$JS.API."
_INSIDE = ("producer", "worker", "supervisor")
_HANDS = ("worker", "supervisor")
_Wanted = tuple[tuple[str, ...], str, str, str]


class Need(Struct, frozen=True):
    """What a role cannot do without, and what for."""

    role: str
    verb: str
    subject: str
    purpose: str

    def __str__(self) -> str:
        """In words."""
        return f"{self.verb} {self.subject} ({self.purpose})"


def inbox_of(role: str) -> str:
    """The prefix of the subjects on which a role's connections hear answers: nobody can listen to another role's."""
    return f"{INBOXES}{role}"


def needs(names: Names, inbox: str = "", actors: Iterable[str] = ("*",)) -> list[Need]:
    """What each role needs. ``inbox``: a subject on which answers reach the connection; empty: as ``inbox_of`` says.

    ``actors``: those whose tasks a guest may submit.
    """
    wanted: list[_Wanted] = [
        ((role,), "subscribe", inbox or f"{inbox_of(role)}.>", "hear answers") for role in ROLES
    ]  # fmt: skip
    for part in (_everybody, _stored, _work, _sessions, _blobs, _inbox, _people, _setup):
        wanted += part(names)
    wanted += _guests(names, tuple(actors))
    return [Need(role, verb, subject, why) for roles, verb, subject, why in wanted for role in roles]


def streams(names: Names) -> tuple[str, ...]:
    """Every stream of a namespace."""
    return (
        names.runs_stream, names.work_stream, names.sessions_stream, names.blobs_stream, names.dead_stream,
        names.inbox_stream, names.history_stream, names.refused_stream,
    )  # fmt: skip


def _everybody(names: Names) -> list[_Wanted]:
    every = (*_INSIDE, "setup", "viewer")
    return [
        (every, "publish", TOLD, "let `tenure doctor` see its permissions"),
        (every, "publish", f"{_API}INFO", "ask whether there is JetStream"),
        *((every, "publish", f"{_API}STREAM.INFO.{one}", "see whether it is set up") for one in streams(names)),
    ]


def _stored(names: Names) -> list[_Wanted]:
    runs, prefix = names.runs_stream, names.runs_prefix
    return [
        ((*_INSIDE, "viewer"), "publish", f"{_API}STREAM.MSG.GET.{runs}", "read records"),
        (_INSIDE, "publish", f"{prefix}*", "store records"),
        (_HANDS, "publish", f"{names.limit_prefix}*", "take and give back places under limits"),
        (_HANDS, "publish", f"{names.rate_prefix}*", "count starts under rates"),
        (("supervisor",), "publish", names.board, "pause, block, and end that"),
        (_HANDS, "publish", f"{_API}CONSUMER.CREATE.{runs}.*.{names.board}", "follow what is paused and blocked"),
        (("supervisor", "viewer"), "publish", f"{_API}CONSUMER.CREATE.{runs}.*.{prefix}*", "pass over all records"),
        (("supervisor", "viewer"), "publish", f"{_API}CONSUMER.MSG.NEXT.{runs}.*", "pass over all records"),
        ((*_HANDS, "viewer"), "publish", f"{_API}CONSUMER.DELETE.{runs}.*", "end that"),
        (("producer", "supervisor", "viewer"), "subscribe", f"{names.event_prefix}*", "hear of results"),
        (("producer", "supervisor", "viewer"), "subscribe", f"{names.note_prefix}*.*", "hear of progress"),
    ]


def _work(names: Names) -> list[_Wanted]:
    work, looks = names.work_stream, ("supervisor", "viewer")
    return [
        ((*_INSIDE, "viewer"), "publish", f"{_API}STREAM.MSG.GET.{work}", "look up wake-ups"),
        (_INSIDE, "publish", f"{names.work_prefix}>", "store wake-ups"),
        (_INSIDE, "publish", f"{names.timer_prefix}>", "store timers"),
        (_HANDS, "publish", f"{names.park_prefix}>", "park runs that must wait"),
        (_HANDS, "publish", f"{_API}STREAM.MSG.DELETE.{work}", "remove what is parked or never delivered"),
        (_HANDS, "publish", f"{_API}STREAM.PURGE.{work}", "remove what is parked"),
        (("worker",), "publish", f"{_API}CONSUMER.DURABLE.CREATE.{work}.*", "make its lanes"),
        (("worker", *looks), "publish", f"{_API}CONSUMER.INFO.{work}.*", "see how far lanes are"),
        (looks, "publish", f"{_API}CONSUMER.LIST.{work}", "see how far lanes are"),
        (looks, "publish", f"{_API}CONSUMER.NAMES.{work}", "know which queues there are"),
        (("worker",), "publish", f"{_API}CONSUMER.MSG.NEXT.{work}.*", "pull wake-ups"),
        *((("worker",), "publish", ack, "answer wake-ups") for ack in _both("ACK", f"{work}.*.>")),
        (("worker",), "publish", f"{names.handover_prefix}>", "hand wake-ups over"),
        (("worker",), "subscribe", f"{names.handover_prefix}>", "take wake-ups over"),
        (("worker",), "publish", f"{inbox_of('worker')}.>", "say that it takes one over"),
    ]


def _both(what: str, rest: str) -> tuple[str, str]:
    """Where a delivery is answered: as servers have it, and as they may, with the domain and the account before the stream."""
    return f"$JS.{what}.{rest}", f"$JS.{what}.*.*.{rest}"


def _sessions(names: Names) -> list[_Wanted]:
    stream, prefix = names.sessions_stream, names.sessions_prefix
    create = f"{_API}CONSUMER.CREATE.{stream}.*.{prefix}"
    return [
        (_INSIDE, "publish", f"{prefix}stop.>", "tell bodies to stop"),
        ((*_INSIDE, "viewer"), "publish", f"{_API}STREAM.MSG.GET.{stream}", "read sessions and progress"),
        (_HANDS, "publish", f"{prefix}session.*", "keep a session"),
        (("worker",), "publish", f"{prefix}progress.>", "tell progress"),
        (_HANDS, "publish", f"{create}stop.>", "hear stops"),
        (("supervisor", "viewer"), "publish", f"{create}session.*", "follow sessions"),
        ((*_HANDS, "viewer"), "publish", f"{_API}CONSUMER.DELETE.{stream}.*", "end that"),
    ]


def _blobs(names: Names) -> list[_Wanted]:
    bucket, stream = names.blobs_bucket, names.blobs_stream
    return [
        (_INSIDE, "publish", f"$O.{bucket}.C.>", "store large payloads"),
        (_INSIDE, "publish", f"$O.{bucket}.M.>", "store large payloads"),
        (_INSIDE, "publish", f"{_API}STREAM.PURGE.{stream}", "replace and remove large payloads"),
        (_INSIDE, "publish", f"{_API}STREAM.MSG.GET.{stream}", "read large payloads"),
        (_INSIDE, "publish", f"{_API}STREAM.NAMES", "read large payloads"),
        (_INSIDE, "publish", f"{_API}CONSUMER.CREATE.{stream}", "read large payloads"),
        *((_INSIDE, "publish", more, "have more of large payloads sent") for more in _both("FC", f"{stream}.>")),
    ]


def _inbox(names: Names) -> list[_Wanted]:
    stream = names.inbox_stream
    of_inbox: list[tuple[str, str]] = [
        (f"{_API}CONSUMER.DURABLE.CREATE.{stream}.{CONSUMER}", "make the consumer of the inbox"),
        (f"{_API}CONSUMER.INFO.{stream}.{CONSUMER}", "see how far the inbox is"),
        (f"{_API}CONSUMER.MSG.NEXT.{stream}.{CONSUMER}", "take commands out of the inbox"),
        *((ack, "answer commands") for ack in _both("ACK", f"{stream}.{CONSUMER}.>")),
        (f"{_API}STREAM.MSG.GET.{stream}", "look into the inbox"),
        (f"{_API}STREAM.MSG.DELETE.{stream}", "empty the inbox"),
        (f"{names.known_prefix}>", "pass requests on"),
        (f"{INBOXES}>", "answer requests"),
        ("_R_.>", "answer requests of other accounts"),
    ]
    heard = (f"{names.api_prefix}>", f"{names.known_prefix}>", "$SRV.>")
    return [
        *((("supervisor",), "publish", subject, why) for subject, why in of_inbox),
        *((("supervisor",), "subscribe", subject, "hear requests") for subject in heard),
    ]


def _people(names: Names) -> list[_Wanted]:
    looks = ("supervisor", "viewer")
    return [
        (_INSIDE, "publish", f"{names.dead_prefix}>", "keep dead letters"),
        (looks, "publish", f"{_API}STREAM.MSG.GET.{names.dead_stream}", "read dead letters"),
        (_HANDS, "publish", f"{names.refused_prefix}*", "tell who was refused"),
        (looks, "publish", f"{_API}STREAM.MSG.GET.{names.history_stream}", "read the history"),
        (looks, "publish", f"{_API}STREAM.MSG.GET.{names.refused_stream}", "read the history"),
    ]


def _setup(names: Names) -> list[_Wanted]:
    made = streams(names)
    return [
        *((("setup",), "publish", f"{_API}STREAM.CREATE.{one}", "create the stream") for one in made),
        *((("setup",), "publish", f"{_API}STREAM.UPDATE.{one}", "change the stream") for one in made),
        *((("setup",), "publish", f"{_API}STREAM.DELETE.{one}", "make the history anew") for one in made[-2:]),
    ]  # fmt: skip


def _guests(names: Names, actors: tuple[str, ...]) -> list[_Wanted]:
    api = names.api_prefix
    return [
        *((("guest",), "publish", f"{names.root}.{verb}.{one}", f"{verb} a task")
          for verb in ("submit", "replace") for one in actors),
        (("guest",), "publish", f"{names.root}.cancel", "cancel a task"),
        *((("guest",), "publish", f"{api}{verb}.{one}", f"{verb} a task, answered")
          for verb in ("submit", "replace") for one in actors),
        (("guest",), "publish", f"{api}cancel", "cancel a task, answered"),
        (("guest",), "publish", f"{api}status", "ask how a task stands"),
    ]  # fmt: skip
