"""Every role of ``deploy/nats`` against every class of subjects: what is not a role's own is refused by the server.

The tables here are written by hand, not made from the permissions: they say who may do what, in the words of people.
"""

from __future__ import annotations

import pytest

from tenure import App
from tenure.cli.checkup import examine
from tenure.core.subjects import Names
from tests.secured import DOCS, OTHER, Secured, secured
from tests.support import wait_until

__all__ = ["secured"]
API = "$JS.API"
Samples = dict[str, list[str]]


def classes(names: Names) -> Samples:
    """Every class of subjects of a namespace, with samples of all that can be done there."""
    return (
        of_records(names)
        | of_work(names)
        | of_sessions(names)
        | of_strangers(names)
        | of_people(names)
        | of_nobody(names)
    )


def of_records(names: Names) -> Samples:
    runs, blobs = names.runs_stream, names.blobs_stream
    return {
        "write records": [f"publish {names.record('k')}"],
        "read records": [f"publish {API}.STREAM.MSG.GET.{runs}"],
        "read all records": [
            f"publish {API}.CONSUMER.CREATE.{runs}.c.{names.runs_prefix}*",
            f"publish {API}.CONSUMER.MSG.NEXT.{runs}.c",
        ],
        "hear of results": [f"subscribe {names.event('k')}", f"subscribe {names.notes('k')}"],
        "large payloads": [
            f"publish $O.{names.blobs_bucket}.C.x",
            f"publish $O.{names.blobs_bucket}.M.x",
            f"publish {API}.STREAM.PURGE.{blobs}",
            f"publish {API}.STREAM.MSG.GET.{blobs}",
            f"publish {API}.STREAM.NAMES",
            f"publish {API}.CONSUMER.CREATE.{blobs}",
            f"publish $JS.FC.{blobs}.x",
        ],
        "switches": [f"publish {names.board}"],
        "follow switches": [f"publish {API}.CONSUMER.CREATE.{runs}.c.{names.board}"],
        "limits": [f"publish {names.limit('l')}"],
        "rates": [f"publish {names.rate('r')}"],
    }  # fmt: skip


def of_work(names: Names) -> Samples:
    work, lane = names.work_stream, names.consumer("default", "normal")
    return {
        "store wake-ups": [f"publish {names.work('default', 'normal', 'k', 'r')}"],
        "store timers": [f"publish {names.timer('k', 'r', 1)}"],
        "park": [f"publish {names.park('l', 'k', 'r')}"],
        "read wake-ups": [f"publish {API}.STREAM.MSG.GET.{work}"],
        "see lanes": [f"publish {API}.CONSUMER.INFO.{work}.{lane}"],
        "list lanes": [f"publish {API}.CONSUMER.{verb}.{work}" for verb in ("LIST", "NAMES")],
        "remove wake-ups": [f"publish {API}.STREAM.{verb}.{work}" for verb in ("PURGE", "MSG.DELETE")],
        "consume work": [
            f"publish {API}.CONSUMER.DURABLE.CREATE.{work}.{lane}",
            f"publish {API}.CONSUMER.MSG.NEXT.{work}.{lane}",
            f"publish $JS.ACK.{work}.{lane}.1.1.1.1.0",
            f"publish $JS.ACK._.x.{work}.{lane}.1.1.1.1.0.x",
        ],
        "hand over": [f"{verb} {names.handover('default', 'a')}" for verb in ("publish", "subscribe")],
    }


def of_sessions(names: Names) -> Samples:
    runs, sessions = names.runs_stream, names.sessions_stream
    create = f"publish {API}.CONSUMER.CREATE.{sessions}.c.{names.sessions_prefix}"
    return {
        "keep a session": [f"publish {names.session('s')}"],
        "stop bodies": [f"publish {names.stop('s', 'r', 1)}"],
        "tell progress": [f"publish {names.progress('k', 'r')}"],
        "read sessions": [f"publish {API}.STREAM.MSG.GET.{sessions}"],
        "hear stops": [f"{create}stop.s.*.*"],
        "follow sessions": [f"{create}session.*"],
        "end watches": [f"publish {API}.CONSUMER.DELETE.{one}.c" for one in (runs, sessions)],
    }


def of_strangers(names: Names) -> Samples:
    inbox = names.inbox_stream
    return {
        "use the inbox": [
            f"publish {names.root}.{what}"
            for what in ("submit.a", "replace.a", "cancel", "api.submit.a", "api.replace.a", "api.cancel", "api.status")
        ],
        "serve the inbox": [
            f"publish {API}.CONSUMER.DURABLE.CREATE.{inbox}.supervisors",
            f"publish {API}.CONSUMER.INFO.{inbox}.supervisors",
            f"publish {API}.CONSUMER.MSG.NEXT.{inbox}.supervisors",
            f"publish $JS.ACK.{inbox}.supervisors.1.1.1.1.0",
            f"publish {API}.STREAM.MSG.GET.{inbox}",
            f"publish {API}.STREAM.MSG.DELETE.{inbox}",
            f"publish {names.known_prefix}submit.a",
            f"subscribe {names.api_prefix}>",
            f"subscribe {names.known_prefix}>",
            "subscribe $SRV.>",
            "publish _INBOX.guest.x",
            "publish _R_.x",
        ],
    }


def of_people(names: Names) -> Samples:
    dead = names.dead_stream
    admin = [f"{API}.STREAM.{verb}.{one}" for verb in ("CREATE", "UPDATE") for one in every(names)]
    return {
        "look at streams": [f"publish {API}.STREAM.INFO.{one}" for one in every(names)],
        "keep dead letters": [f"publish {names.dead('a', 'k', 'r')}"],
        "read dead letters": [f"publish {API}.STREAM.MSG.GET.{dead}"],
        "tell refusals": [f"publish {names.refused('k')}"],
        "read the history": [f"publish {API}.STREAM.MSG.GET.{one}" for one in every(names)[-2:]],
        "make streams": [f"publish {one}" for one in admin],
        "make the history anew": [f"publish {API}.STREAM.DELETE.{one}" for one in every(names)[-2:]],
    }


def of_nobody(names: Names) -> Samples:
    runs, work, inbox = names.runs_stream, names.work_stream, names.inbox_stream
    lane = names.consumer("default", "normal")
    return {
        "nobody": [
            *(
                f"publish {API}.STREAM.{verb}.{one}"
                for one in every(names)[:-2]
                for verb in ("DELETE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE")
            ),
            *(f"publish {API}.{verb}.{runs}" for verb in ("STREAM.PURGE", "STREAM.MSG.DELETE", "DIRECT.GET")),
            *(f"publish {API}.STREAM.{verb}" for verb in ("LIST", "RESTORE.NEW")),
            f"publish {API}.DIRECT.GET.{runs}.{names.record('k')}",
            f"publish {API}.CONSUMER.CREATE.{work}.c.{names.work_prefix}>",
            f"publish {API}.CONSUMER.CREATE.{work}",
            f"publish {API}.CONSUMER.CREATE.{runs}",
            f"publish {API}.CONSUMER.CREATE.{inbox}.c.{names.root}.>",
            f"publish {API}.CONSUMER.DELETE.{work}.{lane}",
            f"publish {API}.CONSUMER.DELETE.{inbox}.supervisors",
            f"publish {API}.CONSUMER.PAUSE.{work}.{lane}",
            f"publish {API}.CONSUMER.UNPIN.{work}.{lane}",
            *(
                f"publish {API}.STREAM.{verb}.{one}"
                for one in (names.sessions_stream, names.dead_stream, *every(names)[-2:])
                for verb in ("PURGE", "MSG.DELETE")
            ),
            *(
                f"publish {API}.CONSUMER.{verb}"
                for one in (names.dead_stream, *every(names)[-2:])
                for verb in (
                    f"CREATE.{one}",
                    f"CREATE.{one}.c.x",
                    f"DURABLE.CREATE.{one}.c",
                    f"MSG.NEXT.{one}.c",
                    f"DELETE.{one}.c",
                )
            ),
            f"publish {API}.ACCOUNT.PURGE.docs",
            f"publish {API}.META.LEADER.STEPDOWN",
            f"publish {API}.META.SERVER.REMOVE",
            "publish $SYS.REQ.SERVER.PING",
            "publish $SYS.REQ.ACCOUNT.docs.CONNZ",
            f"publish {names.root}.anything",
            f"publish {names.event('k')}",
            f"publish {names.runs_prefix}foreign.k",
            "publish anything",
            "subscribe >",
            "subscribe _INBOX.>",
            "subscribe _INBOX.x.>",
            f"subscribe {names.root}.>",
            f"subscribe {names.work_prefix}>",
            f"subscribe {names.root}.submit.*",
            "subscribe $KV.>",
            "subscribe $JS.EVENT.>",
            "subscribe $SYS.>",
        ],
    }


def every(names: Names) -> list[str]:
    """Written out: a stream that is new must be thought about here."""
    prefix = f"TENURE_{names.namespace}"
    buckets = [f"KV_{prefix}", f"KV_{prefix}_SESSIONS", f"OBJ_{prefix}_BLOBS"]
    return [*buckets, *(f"{prefix}_{name}" for name in ("WORK", "INBOX", "DEAD", "HISTORY", "REFUSED"))]


_ALL = {"look at streams"}
_WRITES = {
    *_ALL, "write records", "read records", "store wake-ups", "store timers", "read wake-ups", "stop bodies",
    "read sessions", "keep dead letters", "large payloads",
}  # fmt: skip
_HANDS = {
    *_WRITES, "park", "remove wake-ups", "keep a session", "hear stops", "end watches", "tell refusals",
    "follow switches", "limits", "rates",
}  # fmt: skip
_LOOKS = {
    *_ALL, "read records", "read all records", "hear of results", "read wake-ups", "see lanes", "list lanes",
    "read sessions", "follow sessions", "end watches", "read dead letters", "read the history",
}  # fmt: skip
MAY: dict[str, set[str]] = {
    "producer": _WRITES | {"hear of results"},
    "worker": _HANDS | {"see lanes", "consume work", "hand over", "tell progress"},
    "supervisor": _HANDS | _LOOKS | {"switches", "serve the inbox"},
    "setup": _ALL | {"make streams", "make the history anew"},
    "viewer": _LOOKS,
    "guest": {"use the inbox"},
}


@pytest.mark.parametrize("role", MAY)
async def test_a_role_may_do_its_own_and_is_denied_everything_else(role: str, secured: Secured) -> None:
    """The payload is no JSON: what is permitted is refused later, or harmless."""
    permitted = [sample for name, samples in classes(DOCS).items() if name in MAY[role] for sample in samples]
    denied = [sample for name, samples in classes(DOCS).items() if name not in MAY[role] for sample in samples]
    if role == "guest":
        denied += [f"publish {API}.INFO", "publish $SYS.REQ.USER.INFO"]
    denied += [f"subscribe _INBOX.{one}.>" for one in MAY if one != role]
    (permitted if role in {"worker", "supervisor"} else denied).append("publish _INBOX.worker.x")
    denied += [sample for samples in classes(OTHER).values() for sample in samples if "other" in sample]
    async with secured.stranger(role) as (client, told):
        for sample in permitted + denied:
            verb, _, subject = sample.partition(" ")
            if verb == "publish":
                await client.publish(subject, b"?")
            else:
                await client.subscribe(subject)
        # The server tells in the order in which it was asked: refusals of what is permitted would come first.
        await wait_until(lambda: len(told) >= len(denied), description="all refusals are told")
    assert sorted(told) == sorted(sample.lower() for sample in denied)  # nats-py tells it in small letters


@pytest.mark.parametrize("role", ["producer", "worker", "supervisor", "setup", "viewer"])
async def test_doctor_finds_each_role_enough_for_itself_and_says_what_it_lacks_for_another(
    role: str, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_NATS_INBOX", secured.options(role)["inbox_prefix"].decode())
    other = "setup" if role != "setup" else "worker"
    found = [one for one in await examine(App("docs"), secured.url(role), other, 30.0) if one.check == "permissions"]
    assert role in found[0].text.partition("enough for ")[2].split(", ")
    missing = f"publish {API}.STREAM.CREATE.{DOCS.runs_stream} (create the stream)"
    assert (missing if other == "setup" else f"publish $JS.ACK.{DOCS.work_stream}.*.> (answer wake-ups)") in found[
        -1
    ].text
    assert found[-1].state == "wrong"
