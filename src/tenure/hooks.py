"""Hooks of an actor: what is to be submitted when a run of it has succeeded, has failed for good, or is cancelled.

They are checked and encoded when the actor is registered, and stored in the policy of each of its runs, so that whoever
ends a run can act on them without the actor's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec

from tenure.actors import Actor, Call, check_call
from tenure.core.aftermath import Outcome
from tenure.core.errors import ConfigError, InvalidCall
from tenure.core.records import Hook, Hooks
from tenure.core.schedule import is_perpetual

OneHook = Call[Any] | Actor[..., ..., Any, Any]
AskedHooks = OneHook | Sequence[OneHook] | None

MAX_HOOKS = 16
MAX_HOOKS_BYTES = 65_536
"""What one actor's hooks may take of every record of its runs: twice, when such a run ends."""

_SAMPLE = {
    "key": "k", "generation": 1, "run_id": "r", "actor": "a", "attempt": 1, "ended_at": datetime.fromtimestamp(0, UTC),
}  # fmt: skip


def make_hooks(
    actor: str, namespace: str, *, on_success: AskedHooks, on_failure: AskedHooks, on_cancel: AskedHooks
) -> Hooks | None:
    """The stored form of an actor's hooks, None if it has none. Raises ConfigError that names the actor and the hook."""
    hooks = Hooks(
        success=_hooks(actor, "on_success", on_success, namespace),
        failure=_hooks(actor, "on_failure", on_failure, namespace),
        cancel=_hooks(actor, "on_cancel", on_cancel, namespace),
    )
    if hooks == Hooks():
        return None
    size = len(msgspec.json.encode(hooks))
    if size > MAX_HOOKS_BYTES:
        _bad(
            f"actor {actor}: its hooks take {size} bytes, at most {MAX_HOOKS_BYTES} fit: pass references in their arguments"
        )
    return hooks


def _hooks(actor: str, kind: str, asked: AskedHooks, namespace: str) -> tuple[Hook, ...]:
    if asked is None:
        return ()
    given = asked if isinstance(asked, list | tuple) else [asked]
    if len(given) > MAX_HOOKS:
        _bad(f"actor {actor}: {kind} names {len(given)} hooks, at most {MAX_HOOKS} are allowed")
    return tuple(_hook(f"actor {actor}: {kind}", one, namespace) for one in given)


def _hook(about: str, asked: object, namespace: str) -> Hook:
    if isinstance(asked, Actor):
        if asked.namespace != namespace:
            _bad(f"{about}: actor {asked.name} belongs to app {asked.namespace!r}, and this is app {namespace!r}")
        hook = Hook(task=asked.task, outcome=_parameter(about, asked))
    elif isinstance(asked, Call):
        try:
            check_call(asked, namespace)
        except InvalidCall as error:
            _bad(f"{about}: {error}")
        hook = Hook(task=asked.task)
    else:
        _bad(f"{about} must be a call (actor.call(...)), an actor, or a list of those, got {asked!r}")
    if is_perpetual(hook.task.policy):
        _bad(f"{about}: actor {hook.task.actor} is perpetual: each outcome would start one more chain that never ends")
    return hook


def _parameter(about: str, actor: Actor[..., ..., Any, Any]) -> str:
    """Name of the parameter that takes the outcome: the first; empty if there is none."""
    if not actor.parameters:
        return ""
    first, *others = actor.parameters
    more = [parameter.name for parameter in others if parameter.default is parameter.empty]
    if more:
        _bad(
            f"{about}: actor {actor.name} needs {', '.join(more)} besides the outcome: give a default, or a call of it"
        )
    for phase in ("succeeded", "failed", "cancelled"):
        sample = Outcome(phase=phase, **_SAMPLE)  # type: ignore[arg-type]  # fields by name
        try:
            actor.decode_args(msgspec.json.encode({first.name: sample}))
        except InvalidCall as error:
            _bad(f"{about}: parameter {first.name!r} of actor {actor.name} cannot take a tenure.Outcome: {error}")
    return first.name


def _bad(text: str) -> NoReturn:
    raise ConfigError(text)
