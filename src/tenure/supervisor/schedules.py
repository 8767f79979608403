"""Schedules that start by themselves (``autostart``): each has a chain of runs, and the one that the code has.

Owns nothing and needs no leader: every supervisor asks for every schedule of its code, and each ask is a CAS on the one
record that is named after the actor, so one of them starts it. Which code is the newest, the record says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tenure.actors import Actor, module_of
from tenure.core import commands as c
from tenure.core.errors import OutcomeUnknown, TenureError, Unavailable
from tenure.core.outcomes import Why
from tenure.core.records import TERMINAL, State
from tenure.core.sweeps import is_orphan
from tenure.metrics import Metrics
from tenure.nats.runs import Committed
from tenure.stores import Stores
from tenure.telemetry import get_logger

_log = get_logger("tenure.supervisor")


class Schedules:
    """The schedules of one supervisor's code."""

    def __init__(
        self,
        stores: Stores,
        metrics: Metrics,
        actors: Mapping[str, Actor[..., ..., Any, Any]],
        deployed: float,
        known: Callable[[], set[str] | None],
    ) -> None:
        """``known``: modules of every supervisor's code that lives, None if that cannot be said."""
        self._stores = stores
        self._metrics = metrics
        self._actors = {name: actor for name, actor in actors.items() if actor.task.policy.autostart}
        self._modules = {module_of(actor.function) for actor in actors.values()}
        self._deployed = deployed
        self._gone: set[str] = set()
        self._taken: set[str] = set()
        self._outdated: set[str] = set()
        self._known = known
        self._foreign: dict[str, str] = {}
        self._unknown: set[str] = set()

    async def keep(self) -> None:
        """Ask for each of them, and again and again, until cancelled."""
        while True:
            for name, actor in self._actors.items():
                run_id = self._stores.clock.new_id()
                await self._commit(
                    name, c.KeepAlive(key=name, run_id=run_id, task=actor.call().task, deployed=self._deployed)
                )
            gone, self._gone = self._gone, set()
            for key in sorted(gone):
                await self._commit(key, c.Retire(deployed=self._deployed))
            self._tell_unknown()
            await asyncio.sleep(self._stores.config.sweep_seconds)

    def saw(self, key: str, state: State) -> None:
        """A sweep passes over this record; it may be a schedule of our modules that they have no more."""
        self._foreign.pop(key, None)
        if is_orphan(key, state, self._modules, self._actors):
            self._gone.add(key)
        elif key == state.actor and state.autostart not in self._modules and state.phase not in TERMINAL:
            self._foreign[key] = state.autostart

    def _tell_unknown(self) -> None:
        """Once, of each that no supervisor's code has: its runs go on, and nobody ends it. Another app's is not such."""
        known = self._known()
        unknown = {key for key, module in self._foreign.items() if known is not None and module not in known}
        for key in sorted(unknown - self._unknown):
            hint = "if it is not to go on: `tenure cancel`; else run a supervisor with that code"
            _log.warning("schedule.unknown", key=key, module=self._foreign[key], hint=hint)
        self._unknown = unknown

    async def _commit(self, key: str, command: c.KeepAlive | c.Retire) -> None:
        stores = self._stores
        patience = stores.runs.patience()
        try:
            result = await stores.runs.commit(key, command, patience=patience)
            if isinstance(result, Committed):
                self._metrics.repairs["schedule"] += 1
                _log.info("schedule.changed", key=key, did=result.decision.did.value)
                await stores.carry_out(result, patience)
            if isinstance(result, Committed):
                self._outdated.discard(key)
            elif result.refused.why is Why.OUTDATED and key not in self._outdated:
                self._outdated.add(key)
                _log.warning("schedule.outdated", key=key, hint="say in all processes when their release was deployed")
            if isinstance(result, Committed) or result.refused.why is not Why.DIFFERS:
                self._taken.discard(key)
            elif key not in self._taken:  # told once: it is looked at again each round
                self._taken.add(key)
                record = result.found.record
                actor = record.task.actor if record is not None else ""
                _log.warning("schedule.key_taken", key=key, actor=actor, hint="it starts once that run has ended")
        except (Unavailable, OutcomeUnknown) as error:  # the next round asks again
            self._metrics.errors["server"] += 1
            _log.warning("schedule.not_kept", key=key, error=str(error))
            if isinstance(command, c.Retire):  # it may be long until a sweep sees it again
                self._gone.add(key)
        except TenureError as error:  # this key's trouble: for a newer Tenure, for people, or for a keeper
            _log.warning("schedule.passed_over", key=key, error=str(error))
