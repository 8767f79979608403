"""Whether what ``setup`` made is still there: somebody may delete a stream under processes that run.

Every write would then be repeated for as long as its session lives, and nobody would know why. This looks every few
seconds and says it in words. It decides one thing: a runs bucket that was deleted and made *again* counts its revisions
from 1 anew, so that what is in a process's hands could overwrite a stranger's record [12]. Such a process must end.

The same answers tell the server's time, which the clock of this process is aligned to. Reads only; ``topology`` creates.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, Literal

from tenure.clock import AlignedClock
from tenure.core.errors import ConfigError
from tenure.core.subjects import Names
from tenure.nats.asking import NO_STREAM
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.topology import incarnation_of
from tenure.telemetry import get_logger

_LOOK_SECONDS = 4.0
_MISSING_LOOK_SECONDS = 1.0
_log = get_logger("tenure.presence")


class Presence:
    """The streams of one namespace, as they were last seen."""

    def __init__(self, conn: Connection, names: Names, incarnation: str, clock: AlignedClock) -> None:
        self._conn = conn
        self._clock = clock
        self._names = names
        self._incarnation = incarnation
        self._called = {
            names.runs_stream: f"the runs bucket {names.runs_bucket}",
            names.work_stream: f"the work stream {names.work_stream}",
            names.sessions_stream: f"the sessions bucket {names.sessions_bucket}",
            names.blobs_stream: f"the blobs bucket {names.blobs_bucket}",
            names.dead_stream: f"the dead-letter stream {names.dead_stream}",
            names.inbox_stream: f"the inbox {names.inbox_stream}",
        }
        self.missing = ""
        """What is gone and what to do about it, in words; empty while everything is there."""

    async def run(self) -> None:
        """Look every few seconds, for ever. Raises ConfigError once the runs bucket is another than at the start."""
        while True:
            await asyncio.sleep(_MISSING_LOOK_SECONDS if self.missing else _LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Bring ``missing`` up to date; a server that does not answer changes nothing. Raises as ``run`` does."""
        runs, *others = self._called
        sent = self._clock.steady()
        first = await self._info(runs)
        if isinstance(first, dict):  # one stream: the leaders of others may have clocks of their own
            self._clock.align(datetime.fromisoformat(first["ts"]).timestamp(), sent)
            if incarnation_of(first) != self._incarnation:
                msg = (
                    f"{self._called[runs]} was deleted and made anew since this process started: its revisions mean nothing"
                    " any more, and no outcome of what ran was stored; start the process again"
                )
                raise ConfigError(msg)
        if first is None:
            return
        answers = [first, *await asyncio.gather(*map(self._info, others))]  # together: one packet
        if None in answers:
            return
        gone = [called for called, answer in zip(self._called.values(), answers, strict=True) if answer is False]
        before, self.missing = self.missing, ""
        if gone:
            self.missing = f"{' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone: run `tenure setup`"
        if self.missing != before:
            if self.missing:
                _log.error("stream.missing", reason=self.missing)
            else:
                _log.warning("stream.restored", namespace=self._names.namespace)

    async def _info(self, stream: str) -> dict[str, Any] | Literal[False] | None:
        """What the server says of it; False if there is none, None if it says nothing."""
        try:
            answer = await self._conn.api(f"STREAM.INFO.{stream}", {})
        except (NotSent, Lost):
            return None
        if isinstance(answer, ApiError):
            return False if answer.err_code == NO_STREAM else None
        return answer
