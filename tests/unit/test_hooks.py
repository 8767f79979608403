"""Hooks are checked when the actor is registered: what could not run later is named then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tenure import App, ConfigError, Context, Outcome
from tenure.core.records import Hook, Hooks
from tenure.hooks import MAX_HOOKS

app = App("hooks")
elsewhere = App("elsewhere")


@app.actor
async def nothing() -> None: ...


@app.actor
async def with_context_only(ctx: Context) -> None: ...


@app.actor
async def told(ctx: Context, it: Outcome, channel: str = "ops") -> None: ...


@app.actor
def told_anything(it) -> None: ...


@app.actor
def told_as_dict(*, it: dict[str, Any]) -> None: ...


@app.actor
async def text(words: str) -> None: ...


@app.actor
async def needs_more(it: Outcome, channel: str, number: int) -> None: ...


@app.actor(every=timedelta(seconds=1))
async def perpetual() -> None: ...


@elsewhere.actor
async def stranger() -> None: ...


def registered(**hooks: Any) -> Hooks | None:
    fresh = App("hooks")

    @fresh.actor(**hooks)
    async def work() -> None: ...

    return work.task.policy.hooks


def test_a_hook_is_a_call_an_actor_or_a_list_of_those() -> None:
    call = text.call("done")
    assert registered() is None
    assert registered(on_success=[], on_cancel=()) is None
    assert registered(on_success=call) == Hooks(success=(Hook(task=call.task),))
    both = registered(on_failure=[call, told], on_cancel=nothing)
    assert both == Hooks(
        failure=(Hook(task=call.task), Hook(task=told.task, outcome="it")), cancel=(Hook(task=nothing.task),)
    )


@pytest.mark.parametrize(
    ("actor", "takes"),
    [(nothing, ""), (with_context_only, ""), (told, "it"), (told_anything, "it"), (told_as_dict, "it")],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_outcome_goes_to_the_first_parameter_if_there_is_one(actor: Any, takes: str) -> None:
    hooks = registered(on_success=actor)
    assert hooks is not None
    assert hooks.success[0].outcome == takes


@pytest.mark.parametrize("kind", ["on_success", "on_failure", "on_cancel"])
@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (needs_more, "needs_more needs channel, number"),
        (text, "'words' of actor text cannot take a tenure.Outcome"),
        (stranger, "stranger belongs to app 'elsewhere'"),
        (stranger.call(), "stranger belongs to app 'elsewhere'"),
        (perpetual, "perpetual is perpetual"),
        (perpetual.call(), "perpetual is perpetual"),
        (lambda: None, "must be a call"),
        ("notify", "must be a call"),
        ([nothing, None], "must be a call"),
        ([nothing] * (MAX_HOOKS + 1), "at most 16"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_hook_that_could_not_run_is_named_with_its_actor(kind: str, hook: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"actor work: {kind}.*{words}"):
        registered(**{kind: hook})


def test_hooks_that_would_crowd_every_record_are_refused() -> None:
    """They are stored with each run, so the arguments of a call count again and again."""
    with pytest.raises(ConfigError, match=r"actor work: its hooks take .* at most 65536"):
        registered(on_success=text.call("x" * 66_000))


def test_hooks_of_hooks_are_stored_with_them() -> None:
    """Whoever submits a hook's run knows no actor's code either."""
    fresh = App("hooks")

    @fresh.actor
    async def third() -> None: ...

    @fresh.actor(on_success=third)
    async def second() -> None: ...

    @fresh.actor(on_success=second)
    async def first() -> None: ...

    hooks = first.task.policy.hooks
    assert hooks is not None
    inner = hooks.success[0].task.policy.hooks
    assert inner is not None
    assert inner.success[0].task.actor == "third"


def test_hooks_nested_deeper_than_a_record_can_be_read_are_refused() -> None:
    """Each hook holds its own hooks: a chain of them is nested in the record of the first."""
    fresh = App("hooks")

    @fresh.actor
    async def link() -> None: ...

    def chained(length: int) -> None:
        last = link
        for number in range(length):
            last = fresh.actor(name=f"{length}-{number}", on_success=last)(link.function)

    chained(20)
    with pytest.raises(ConfigError, match=r"actor 250-\d+: its hooks are nested too deep"):
        chained(250)
