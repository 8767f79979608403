"""Commands that are answered: the same as the inbox takes, as requests to a NATS micro service, and a look at a key.

Nothing is stored before it is applied, so a request whose answer does not come may have happened or not: with the same
``Nats-Msg-Id`` it may be made again. A supervisor whose code does not know the actor passes the request on to one that does:
in a rolling deploy both are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict, replace

from tenure.client import Client
from tenure.core import commands as c
from tenure.core.dead import rejected
from tenure.core.errors import InvalidCall, KeyIsLive, OutcomeUnknown, TenureError, Unavailable
from tenure.metrics import Metrics
from tenure.nats.micro import Micro, Reply, Request
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tenure.supervisor.told import tell_rejected
from tenure.telemetry import get_logger
from tenure.wishes import Reason, Refusal, Sent, Wish, headers_of, read

if TYPE_CHECKING:
    from tenure.app import App

_log = get_logger("tenure.supervisor")
AT_ONCE = 32
"""Requests that are answered at the same time; more wait."""
_CODES: dict[str, int] = {"unknown_actor": 404, "live": 409, "crowded": 409}
_BAD, _GONE, _BROKEN, _LATER, _UNKNOWN = 400, 404, 500, 503, 504


class Api:
    """The micro service of one supervisor."""

    def __init__(self, app: App, stores: Stores, metrics: Metrics) -> None:
        from tenure import __version__

        names = stores.names
        self._app = app
        self._stores = stores
        self._metrics = metrics
        self._client = Client.over(app, stores)
        self._prefix = names.api_prefix
        self._known_prefix = names.known_prefix
        self._micro = Micro(
            stores.conn,
            stores.clock,
            name=f"tenure-{names.namespace}",
            version=__version__,
            description=f"Durable tasks of the namespace {names.namespace}: submit, replace, cancel, status",
            endpoints=[
                ("submit", f"{self._prefix}submit.*"),
                ("replace", f"{self._prefix}replace.*"),
                ("cancel", f"{self._prefix}cancel"),
                ("status", f"{self._prefix}status"),
            ],
        )

    async def listen(self) -> None:
        """Take requests in, until cancelled."""
        also = [f"{self._known_prefix}{verb}.{actor}" for actor in self._app.actors for verb in ("submit", "replace")]
        close = await self._micro.open(also)
        try:
            await asyncio.Event().wait()
        finally:
            await close()

    async def answer(self) -> None:
        """Answer one request after the other, until cancelled."""
        while True:
            await self._micro.answer(await self._micro.next(), self._made)

    async def _made(self, request: Request) -> Reply:
        try:
            if request.endpoint.name == "status":
                return await self._status(request)
            return await self._command(request)
        except OutcomeUnknown as error:
            return _error("outcome_unknown", str(error), _UNKNOWN)
        except Unavailable as error:
            return _error("unavailable", str(error), _LATER)
        except TenureError as error:  # a record of a newer Tenure, or none of ours
            return _error("unreadable", str(error), _BROKEN)
        except Exception as error:  # noqa: BLE001  (a defect of ours ends this request, not the supervisor)
            self._metrics.errors["command"] += 1
            _log.exception("request.crashed", subject=request.subject)
            return _error("internal", type(error).__name__, _BROKEN)

    # -- commands ----------------------------------------------------------------------------------------------------

    async def _command(self, request: Request) -> Reply:
        stores, verb = self._stores, request.endpoint.name
        actor = "" if verb == "cancel" else request.subject.rpartition(".")[2]
        sent = Sent(
            verb=verb,
            actor=actor,
            subject=f"{self._prefix}{verb}.{actor}".removesuffix(
                "."
            ),  # the same where it was passed on: the id is made from it
            headers=request.headers,
            data=request.data,
            at=stores.clock.now(),
            new_id=stores.clock.new_id(),
        )
        wish = read(sent, self._app.actors, stores.config.blob_limit_bytes)
        if isinstance(wish, Refusal):
            known = f"{self._known_prefix}{verb}.{actor}"
            if wish.reason == "unknown_actor" and request.subject != known and actor:
                passed = await self._micro.pass_on(request, known)
                if passed is not None:
                    return passed
            return await self._refused(sent, wish)
        try:
            reply = await self._carry_out(wish)
        except KeyIsLive as error:
            reason: Reason = (
                "live" if isinstance(wish.command, c.Submit) and wish.command.if_live == "reject" else "crowded"
            )
            return await self._refused(sent, Refusal(reason, str(error)))
        except InvalidCall as error:
            return await self._refused(sent, Refusal("too_large", str(error)))
        return reply

    async def _carry_out(self, wish: Wish) -> Reply:
        client, command = self._client, wish.command
        if isinstance(command, c.Cancel):
            out = await client.cancel(wish.key, run_id=command.run_id, reason=command.reason)
            self._metrics.commands["cancel", "applied" if out.outcome in {"cancelled", "stopping"} else "kept"] += 1
            if out.outcome == "not_found":
                return _error("not_found", f"there is no key {wish.key!r}", _GONE)
            phase = await self._phase(wish.key, out.run_id)
            return _answer(asdict(out) | {"phase": phase, "accepted": out.outcome in {"cancelled", "stopping"}})
        task = await self._stores.with_args(command.task, wish.args, command.run_id, key=wish.key)
        run = await client._start(replace(command, task=task), Any)  # noqa: SLF001  (a submit like the client's own)
        self._metrics.commands[wish.verb, "applied" if run.accepted else "kept"] += 1
        said = {"key": run.key, "generation": run.generation, "run_id": run.run_id, "accepted": run.accepted}
        return _answer(said | {"phase": await self._phase(run.key, run.run_id)})

    async def _phase(self, key: str, run_id: str) -> str:
        """Of this run: what its key shows, or ``superseded`` if that is at another one already."""
        status = await self._client.status(key)
        return status.phase if status is not None and status.run_id == run_id else "superseded"

    async def _status(self, request: Request) -> Reply:
        ours = headers_of("status", request.headers)
        if isinstance(ours, Refusal):
            return _error(ours.reason, ours.text, _BAD)
        try:
            status = await self._client.status(ours.get("tenure-key", ""))
        except InvalidCall as error:
            return _error("key", str(error), _BAD)
        if status is None:
            return _error("not_found", f"there is no key {ours['tenure-key']!r}", _GONE)
        return _answer(asdict(status))

    async def _refused(self, sent: Sent, refusal: Refusal) -> Reply:
        """Answer it, and keep it for people where that can be done."""
        stores = self._stores
        letter = rejected(
            command=sent.new_id,
            subject=sent.subject,
            reason=refusal.reason,
            text=refusal.text,
            headers=sent.headers,
            data=sent.data,
            sent_at=sent.at,
            now=sent.at,
        )
        self._metrics.commands[sent.verb, "rejected"] += 1
        self._metrics.rejections[refusal.reason] += 1
        await tell_rejected(stores.history, sent.headers, refusal.reason, refusal.text)
        try:
            await stores.dead.keep_rejected(letter, Patience(stores.clock, stores.config.request_timeout_seconds))
        except TenureError as error:
            _log.warning("command.not_kept", subject=sent.subject, error=str(error))
        return _error(refusal.reason, refusal.text, _CODES.get(refusal.reason, _BAD))


def _answer(said: Mapping[str, Any]) -> Reply:
    return Reply(msgspec.json.encode(said))


def _error(reason: str, text: str, code: int) -> Reply:
    return Reply(msgspec.json.encode({"error": reason, "text": text}), code, text)
