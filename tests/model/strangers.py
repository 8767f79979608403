"""What strangers publish, made commands by the shipped ``wishes.read``; and the code of schedules that start by themselves."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.actors import Actor
from tenure.core import commands as c
from tenure.core.marks import Place
from tenure.core.records import CatchUp, Policy, Task
from tenure.wishes import MSG_ID, Refusal, Sent, read
from tenure.wishes import Wish as Command
from tests.model.cells import NOW, TICK

ACTOR = "a"
PLAIN = Policy(max_attempts=3, initial=0.0, grace=TICK)
MODULE = "code"
EVERY_TICK = f"*/{TICK:.0f} * * * * *"


class Message(Struct, frozen=True, kw_only=True):
    """What is published, once. ``key``: None lets the command's id be the key; ``msg_id``: None where it has none."""

    verb: str
    key: str | None = "key"
    msg_id: str | None = None
    overlap: str = ""
    if_live: str = ""


class Code(Struct, frozen=True, kw_only=True):
    """What one release says of the schedule: when it was deployed and its task, None where it has it no more."""

    deployed: float
    task: Task | None = None


def scheduled(catch_up: CatchUp = "all", *, priority: str = "normal") -> Task:
    """A schedule that fires with every tick."""
    policy = replace(PLAIN, cron=EVERY_TICK, catch_up=catch_up, autostart=MODULE)
    return Task(actor=ACTOR, priority=priority, policy=policy)


def command_of(message: Message, place: int, *, rounded: bool) -> Command:
    """What a supervisor makes of it. ``rounded``: its time is read in another way, which gives another microsecond."""
    headers = {"Tenure-Key": message.key, MSG_ID: message.msg_id, "Tenure-Overlap": message.overlap}
    headers["Tenure-If-Live"] = message.if_live
    wish = read(
        Sent(
            verb=message.verb,
            actor=ACTOR,
            subject=f"tenure.model.{message.verb}.{ACTOR}",
            headers={name: value for name, value in headers.items() if value},
            data=b"",
            at=NOW,
            place=Place(place, int(NOW) * 1_000_000 + place + rounded),
        ),
        _ACTORS,
        1_000,
    )
    if isinstance(wish, Refusal):
        raise TypeError(wish)
    return wish


def asked(code: Code, key: str, run_id: str) -> c.KeepAlive | c.Retire:
    """``Schedules.keep``: what a supervisor of this code asks of the key."""
    if code.task is None:
        return c.Retire(deployed=code.deployed)
    return c.KeepAlive(key=key, run_id=run_id, task=code.task, deployed=code.deployed)


def _body() -> None:
    """Nobody calls it: bodies are moves."""


_ACTORS: dict[str, Actor[Any, Any, Any, Any]] = {
    ACTOR: Actor(_body, ACTOR, Task(actor=ACTOR, policy=PLAIN), {}, "model")
}
