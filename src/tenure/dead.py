"""``client.dead``: look at runs that failed for good, run them again, or forget them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from tenure.checks import check_limit
from tenure.core import commands as c
from tenure.core.aftermath import ID_FORM
from tenure.core.dead import DeadLetter, Rejected, replay_mark, replay_of
from tenure.core.errors import EncryptedRecord, OutcomeUnknown, Unavailable
from tenure.core.subjects import check_name, encode_key
from tenure.nats.dead import Kept
from tenure.run import Run

if TYPE_CHECKING:
    from tenure.client import Client

Letters = list[DeadLetter]
Commands = list[Rejected]
Found = list[Kept]  # names of their own, for in the class below `list` is a method


class DeadLetters:
    """Dead letters of the client's namespace. A letter is named by its run id, by its key, or is given itself."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(
        self, *, actor: str | None = None, queue: str | None = None, key: str | None = None, limit: int | None = None
    ) -> Letters:
        """Letters of an actor, a queue, a key, or all; the oldest first, at most ``limit``.

        Raises InvalidCall, ConfigError (no such name is possible), Unavailable.
        """
        limit = check_limit(limit)
        if queue is not None:
            check_name("queue", queue)
        found: Letters = []
        async for kept in self._find(actor=actor, key=key):
            if queue is None or kept.letter.queue == queue:
                found.append(kept.letter)
            if len(found) == limit:
                break
        return found

    async def rejected(self, *, limit: int | None = None) -> Commands:
        """Commands that strangers sent (to the inbox, or to the micro service) and that were not carried out; the oldest first.

        Raises InvalidCall, Unavailable.
        """
        limit = check_limit(limit)
        stores = self._client.stores
        found: Commands = []
        async for one in stores.dead.find_rejected(stores.runs.patience()):
            found.append(one)
            if len(found) == limit:
                break
        return found

    async def get(self, which: str) -> DeadLetter | None:
        """The letter of a run id, or the newest of a key; None if there is none. Raises InvalidCall, Unavailable."""
        kept = await self._named(which)
        return kept[-1].letter if kept else None

    async def replay(self, which: str | DeadLetter) -> Run[Any] | None:
        """Run it again: a new generation of the same key, with the same task; then remove the letter.

        Of a key with several letters, the newest. Returns the new run's handle, or None if there is no such letter.
        However often and by whomever one letter is replayed, one run comes of it: repeat it after OutcomeUnknown.
        Raises KeyIsLive (wait for that run's end, or cancel it, and replay then), InvalidCall, Unavailable,
        OutcomeUnknown, NewerSchema, EncryptedRecord.
        """
        kept = await self._named(which)
        if not kept:
            return None
        letter = kept[-1].letter
        if kept[-1].sealed:
            raise EncryptedRecord(kept[-1].sealed, key=letter.key, key_id="")
        actor = self._client.app.actors.get(letter.actor)

        stores, there = self._client.stores, True

        async def is_there() -> bool:
            """Asked after the key was read: a letter that is gone by then was replayed before, and its run may be over."""
            nonlocal there
            there = await stores.dead.holds(kept[-1], stores.runs.patience())
            return there

        run = await self._client._start(replay_of(letter), actor.result_type if actor else Any, is_there)  # noqa: SLF001  (a submit like the client's own)
        if not there:  # nothing was started, so nothing is removed
            return run
        try:
            await self._forget(kept[-1])
        except Unavailable as error:  # never "nothing happened": the run is started
            msg = f"{run.key!r} runs again, but its dead letter may still be there: {error}"
            raise OutcomeUnknown(msg, key=run.key, generation=run.generation, run_id=run.run_id) from error
        return run

    async def purge(self, which: str | DeadLetter) -> int:
        """Forget the letter of a run id, or all of a key; how many were removed.

        Raises InvalidCall, Unavailable, OutcomeUnknown (letters were removed, or may be: repeat it).
        """
        removed = 0
        for kept in await self._named(which):
            try:
                removed += await self._settled(kept)
            except Unavailable as error:
                if not removed:
                    raise
                msg = f"{removed} dead letters of {kept.letter.key!r} are removed, not all: {error}"
                raise OutcomeUnknown(msg, **_about(kept)) from error
        return removed

    async def _settled(self, kept: Kept) -> bool:
        """Remove a letter that its record does not owe any more: else whoever finds that debt would store it again."""
        stores = self._client.stores
        patience = stores.runs.patience()
        found = await stores.runs.read(
            kept.letter.key, patience, blind=True
        )  # its letter may go without the key as well
        if found.record is not None and any(
            owed.dead and owed.run_id == kept.letter.run_id for owed in found.record.outbox
        ):
            await stores.complete(found, patience)
        return await self._forget(kept)

    async def _forget(self, kept: Kept) -> bool:
        """Remove a letter and then, from the key's record, the memory of its replay."""
        stores = self._client.stores
        patience = stores.runs.patience()
        removed = await stores.dead.remove(kept, patience)
        mark = c.ForgetSeen(ids=frozenset({replay_mark(kept.letter)}))
        try:
            await stores.runs.commit(kept.letter.key, mark, patience=patience, blind=True)
        except Unavailable as error:  # a supervisor forgets it later
            msg = f"the dead letter of {kept.letter.key!r} is removed, but its record still remembers it: {error}"
            raise OutcomeUnknown(msg, **_about(kept)) from error
        return removed

    async def _named(self, which: str | DeadLetter) -> Found:
        """By run id if it is one and has a letter, else by key; the oldest first."""
        if isinstance(which, DeadLetter):
            return [kept async for kept in self._find(actor=which.actor, key=which.key, run_id=which.run_id)]
        encode_key(which)
        if re.fullmatch(ID_FORM, which):
            by_run = [kept async for kept in self._find(run_id=which)]
            if by_run:
                return by_run
        return [kept async for kept in self._find(key=which)]

    def _find(
        self, *, actor: str | None = None, key: str | None = None, run_id: str | None = None
    ) -> AsyncIterator[Kept]:
        if actor is not None:
            check_name("actor", actor)
        stores = self._client.stores
        return stores.dead.find(stores.runs.patience(), actor=actor, key=key, run_id=run_id)


def _about(kept: Kept) -> dict[str, Any]:
    letter = kept.letter
    return {"key": letter.key, "generation": letter.generation, "run_id": letter.run_id}
