"""A leader that was deposed and does not know it yet: it answers questions from what it had by then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure.nats.connection import Answer, Connection


class Deposed:
    """Asked over ``conn``, in a cluster: there is none elsewhere.

    What it ``sees`` it answers later too, so often as ``left`` says; all else the new leader answers.
    """

    def __init__(self, conn: Connection, patch: pytest.MonkeyPatch) -> None:
        self._request = conn.request
        self._seen: dict[tuple[str, bytes], Answer] = {}
        self.left = 0
        patch.setattr(conn, "request", self._answered)
        patch.setattr(Connection, "is_clustered", True)

    async def sees(self, call: str, body: Any = None) -> None:
        """It is still in office, and answers this question."""
        asked = f"$JS.API.{call}", msgspec.json.encode(body) if body else b""
        self._seen[asked] = await self._request(*asked)

    async def _answered(self, subject: str, payload: bytes, **options: Any) -> Answer:
        seen = self._seen.get((subject, payload))
        if seen is None or not self.left:
            return await self._request(subject, payload, **options)
        self.left -= 1
        return seen
