"""The inbox, applied: each command once, whoever of several supervisors has it in hand, and however often.

One command: read, decide, CAS, effects, ack; then, some time later, forget. What makes that exact (ARCHITECTURE, *The
inbox*): the CAS leaves the command's mark in the record that it changes; nobody writes over a record that it has read
without looking, *after* that read, whether the message is still stored; and the mark is forgotten only once it is not.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.actors import Actor
from tenure.core import commands as c
from tenure.core.dead import rejected
from tenure.core.errors import InvalidCall, NewerSchema, OutcomeUnknown, StillOwed, Unavailable, UnreadableRecord
from tenure.core.inbox import expects_nothing, fate_of, is_told_on_a_read, may_be_rejected, was_cut_off
from tenure.core.marks import Place, command_id
from tenure.core.outcomes import Why
from tenure.crashes import Crashes
from tenure.metrics import Metrics
from tenure.nats.asking import DEPOSED_SECONDS
from tenure.nats.inbox import InboxLane, Message
from tenure.nats.patience import Patience
from tenure.nats.runs import NOTHING, Committed, Declined
from tenure.stores import Stores
from tenure.supervisor.marks import Forgetter
from tenure.supervisor.told import tell_rejected
from tenure.telemetry import get_logger
from tenure.wishes import MSG_ID, Refusal, Sent, Wish, read, reply_of

_log = get_logger("tenure.supervisor")
_TEND_SECONDS = 1.0
_STRAY_SECONDS = 2.0
"""In so long the server has removed what was acknowledged."""
_STRAYS_AT_ONCE = 100
_MANY_DELIVERIES = 8
"""A command is not given up before so many looks: each may be that of another supervisor, which knows more actors."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.25, 30.0


class _Stray(Struct):
    """A command that the server has forgotten to deliver: how often it was taken in, when it may be again (never: it is in hand)."""

    deliveries: int = 0
    again_at: float = 0.0


class Commands:
    """What one supervisor does about the inbox of its namespace."""

    def __init__(self, stores: Stores, metrics: Metrics, actors: Mapping[str, Actor[..., ..., Any, Any]]) -> None:
        self._stores = stores
        self._metrics = metrics
        self._actors = actors
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._at_once = stores.config.commands_at_once
        self._in_hand = 0
        self._strays: dict[Place, _Stray] = {}
        self._crashes = Crashes(stores.clock)
        self._lane: InboxLane | None = None
        self.forgetter = Forgetter(stores, metrics)

    # -- pulling -----------------------------------------------------------------------------------------------------

    async def pull(self) -> None:
        """Take commands in, until cancelled."""
        stores = self._stores
        lane = InboxLane(
            stores.conn,
            stores.names,
            stores.inbox,
            clock=stores.clock,
            on_message=self._received,
            on_crash=lambda: _log.exception("inbox.crashed"),
        )
        while True:
            try:
                await lane.open()
                break
            except Unavailable as error:
                _log.warning("inbox.not_opened", error=str(error))
                await asyncio.sleep(_TEND_SECONDS)
        self._lane = lane
        try:
            while True:
                await self._refill()
                await asyncio.sleep(_TEND_SECONDS)
                await lane.tend()
        finally:
            self._lane = None
            await lane.close()
            while not self._queue.empty():  # nobody takes them any more: another supervisor need not wait for ack_wait
                await stores.inbox.nak(self._queue.get_nowait())

    async def find_strays(self) -> None:
        """Take in, again and again until cancelled, what the server has forgotten to deliver and is there a second time."""
        sequence, seen = 1, set[Place]()
        while True:
            await asyncio.sleep(_STRAY_SECONDS)
            stores = self._stores
            patience = Patience(stores.clock, stores.config.patience_seconds)
            try:
                strays = await stores.inbox.strays(sequence, _STRAYS_AT_ONCE, patience)
            except Unavailable as error:
                _log.warning("inbox.not_searched", error=str(error))
                continue
            for stray in strays:
                seen.add(stray.place)
                await self._take_in(stray)
            if len(strays) == _STRAYS_AT_ONCE:  # those that are put off again and again hide none that come after them
                sequence = strays[-1].place.sequence + 1
                continue
            self._strays = {place: stray for place, stray in self._strays.items() if place in seen}
            sequence, seen = 1, set()

    async def _take_in(self, stray: Message) -> None:
        known = self._strays.get(stray.place)
        if known is None:
            self._strays[stray.place] = _Stray()
        elif self._stores.clock.steady() >= known.again_at:
            known.deliveries, known.again_at = known.deliveries + 1, math.inf
            if known.deliveries == 1:
                self._metrics.repairs["stray"] += 1
                _log.warning("command.stray", subject=stray.subject, place=stray.place)
            await self._received(replace(stray, deliveries=known.deliveries))

    async def _received(self, message: Message) -> None:
        self._in_hand += 1
        self._queue.put_nowait(message)  # never more than were asked for

    async def _refill(self) -> None:
        """Ask for more once half of what may be in hand has come free: a pull for each would cost a publish for each."""
        lane = self._lane
        if lane is not None and self._at_once - self._in_hand - lane.outstanding >= (self._at_once + 1) // 2:
            await lane.want(self._at_once - self._in_hand)

    # -- applying ----------------------------------------------------------------------------------------------------

    async def apply(self) -> None:
        """Apply one command after the other, until cancelled. Raises TenureError after too many unexpected errors."""
        while True:
            message = await self._queue.get()
            try:
                await self._handle(message)
            finally:
                self._in_hand -= 1
                self._let_go(message)
            await self._refill()

    async def _handle(self, message: Message) -> None:
        verb, actor = self._stores.names.parse_command(message.subject)
        kind = verb or "other"
        try:
            outcome = await self._take(message, verb, actor)
        except (Unavailable, OutcomeUnknown) as error:  # the server: whoever has it next finds out what happened
            self._metrics.errors["server"] += 1
            _log.warning("command.not_applied", subject=message.subject, place=message.place, error=str(error))
            await self._put_off(message)
            outcome = "put_off"
        except Exception:  # noqa: BLE001  (a defect of ours ends this command's turn, not the supervisor)
            self._metrics.errors["command"] += 1
            _log.exception("command.crashed", subject=message.subject, place=message.place)
            await self._put_off(message)
            if (failure := self._crashes.one_more()) is not None:
                raise failure from None
            outcome = "put_off"
        self._metrics.commands[kind, outcome] += 1

    async def _take(self, message: Message, verb: str, actor: str) -> str:
        """Carry out what the message asks for; the label of what became of it."""
        stores = self._stores
        sent = Sent(
            verb=verb,
            actor=actor,
            subject=message.subject,
            headers=message.headers,
            data=message.data,
            at=_sent_at(message),
            place=message.place,
        )
        wish = read(sent, self._actors, stores.config.blob_limit_bytes)
        if isinstance(wish, Refusal):
            return await self._refused(message, wish)
        patience = Patience(stores.clock, stores.config.patience_seconds)
        try:
            result = await self._commit(message, wish, patience)
            if result is None:  # no ack: where the inbox was wrong, it would lose what was accepted
                await self._put_off(message)
                return "kept"
            return await self._done(message, wish, result, patience)
        except (NewerSchema, UnreadableRecord) as error:  # for a newer Tenure, or for people
            return await self._refused(message, Refusal("unreadable", str(error)))
        except InvalidCall as error:
            return await self._refused(message, Refusal("too_large", str(error)))

    async def _commit(self, message: Message, wish: Wish, patience: Patience) -> Committed | Declined | None:
        """Store what the command changes; None: its message is not stored any more, as the inbox says.

        Whatever is written was read, and then the message was seen; but for what expects nothing, at first. What may
        have been rejected already, and its sender told, is looked for as well. A cancel that finds nothing to do is acknowledged
        though nothing is written: so what it has found is stored once more, unless nobody can show what was before the command.
        """
        stores = self._stores
        command, unsure = wish.command, self._may_be_shown_less(message)
        if not isinstance(command, c.Cancel):
            task = await stores.with_args(command.task, wish.args, command.run_id, key=wish.key, patience=patience)
            command = replace(command, task=task)
        again = message.deliveries > 1 or not message.reply
        at = NOTHING if expects_nothing(command) and (unsure or not again) else None
        looks = again or may_be_rejected(command)
        first, stored = at is not None and not again, True

        async def is_stored() -> bool:
            nonlocal first, stored
            blind, first = first, False
            if blind:
                return True
            stored = await stores.inbox.holds(message.place, patience)
            return stored and not (looks and await self._is_rejected(message, patience))

        result = await stores.runs.commit(wish.key, command, at=at, check=is_stored, patience=patience)
        if isinstance(command, c.Submit) and isinstance(result, Declined):
            lost = await stores.lost_holder(result)
            if lost is not None:
                command = replace(command, lost=lost)
                result = await stores.runs.commit(wish.key, command, check=is_stored, patience=patience)
        while unsure and stored and isinstance(result, Declined) and is_told_on_a_read(command, result.refused.why):
            found = result.found
            swapped = await stores.runs.restore(wish.key, found, patience)
            if swapped.revision:
                break
            newer = swapped.met > found.revision  # else who refuses is older than who was read from
            if not (newer or await patience.pause()):
                raise Unavailable(f"the record of {wish.key!r} cannot be seen: it is older than it was")
            since = max(found.revision, swapped.met)
            result = await stores.runs.commit(wish.key, command, check=is_stored, patience=patience, since=since)
        return result if stored else None

    def _may_be_shown_less(self, message: Message) -> bool:
        """Whether a read may show what was before the command: of a leader that was deposed since, and does not know it yet."""
        age = self._stores.clock.now() - _sent_at(message)
        return self._stores.topology.session_copies > 1 and age < DEPOSED_SECONDS

    async def _done(self, message: Message, wish: Wish, result: Committed | Declined, patience: Patience) -> str:
        stores, command = self._stores, wish.command
        try:
            if isinstance(result, Committed):
                await stores.carry_out(result, patience)
            elif was_cut_off(result.refused.why):
                await stores.complete(result.found, patience)
        except StillOwed as error:  # what an older run of the key owes to others is not this command's affair
            _log.warning("outbox.unpaid", key=wish.key, error=str(error))
        why = None if isinstance(result, Committed) else result.refused.why
        fate = fate_of(command, why)
        if fate == "crowded":
            return await self._refused(
                message, Refusal("crowded", f"{wish.key!r} has too many older bodies or commands to forget")
            )
        if fate == "live":
            return await self._refused(message, Refusal("live", f"{wish.key!r} is live, and Tenure-If-Live is reject"))
        if why is Why.LIVE and isinstance(result, Declined):
            await stores.help(result.found, patience)
        await stores.inbox.ack(message)
        if fate == "applied" and command.seen is not None:
            self.forgetter.later(wish.key, command.seen, message.place, result)
        return fate

    async def _is_rejected(self, message: Message, patience: Patience) -> bool:
        """Whether a delivery of this very message was rejected: whoever did so died, or is slow, before its ack."""
        return await self._stores.dead.is_rejected(_id_of(message), _sent_at(message), patience)

    # -- refusing ----------------------------------------------------------------------------------------------------

    async def _refused(self, message: Message, refusal: Refusal) -> str:
        """Keep it for people, with the reason, and tell its sender, if it says where; or put it off, where that may help."""
        stores, now = self._stores, self._stores.clock.now()
        age = now - _sent_at(message)
        if refusal.reason in {"unknown_actor", "crowded", "unreadable"} and not (
            age > stores.config.command_patience_seconds and message.deliveries > _MANY_DELIVERIES
        ):
            await self._put_off(message)
            return "put_off"
        headers = message.headers
        letter = rejected(
            command=_id_of(message),
            subject=message.subject,
            reason=refusal.reason,
            text=refusal.text,
            headers=headers,
            data=message.data,
            sent_at=_sent_at(message),
            now=now,
        )
        patience = Patience(stores.clock, stores.config.patience_seconds)
        if not await stores.inbox.holds(message.place, patience):  # who had it next has decided: this stood still
            return "kept"
        try:
            await stores.dead.keep_rejected(letter, patience)
        except StillOwed as error:  # the dead stream is gone or full: the command waits for a person
            _log.warning("command.not_kept", subject=message.subject, error=str(error))
            await self._put_off(message)
            return "put_off"
        await stores.inbox.ack(message)
        if reply := reply_of(headers):
            await stores.inbox.reject(reply, refusal.reason, letter.text)
        await tell_rejected(stores.history, headers, refusal.reason, refusal.text)
        self._metrics.rejections[refusal.reason] += 1
        _log.warning("command.rejected", subject=message.subject, reason=refusal.reason)
        return "rejected"

    async def _put_off(self, message: Message) -> None:
        """Have it delivered again, to whoever asks first; the later, the longer it has waited already."""
        age = self._stores.clock.now() - _sent_at(message)
        wait = min(_LONGEST_SECONDS, max(_SHORTEST_SECONDS, age / 4)) * (0.75 + 0.5 * self._stores.clock.random())
        self._let_go(message, wait)
        await self._stores.inbox.nak(message, wait)

    def _let_go(self, message: Message, wait: float = 0.0) -> None:
        """A stray that is still there after that is to be taken in again: the server does not deliver it."""
        stray = None if message.reply else self._strays.get(message.place)
        if stray is not None and stray.again_at == math.inf:
            stray.again_at = self._stores.clock.steady() + wait


def _id_of(message: Message) -> str:
    return command_id(message.subject, message.headers.get("Tenure-Key"), message.headers.get(MSG_ID), message.place)


def _sent_at(message: Message) -> float:
    return message.place.stored_us / 1_000_000
