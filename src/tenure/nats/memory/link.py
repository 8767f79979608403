"""What may happen to a message on its way between a client and the server."""

from __future__ import annotations

from collections.abc import Sequence

PROMPT: Sequence[float] = (0.0,)
"""One copy, at the next turn of the loop, in order."""


class Link:
    """The way between one client and the server. A simulation overrides ``up`` and ``down``.

    Each is asked once for every message and answers with one delay in seconds per copy: none, and the message is lost; a
    delay of 0 keeps the order. Pings and their answers pass too, as ``PING`` and ``PONG``: where all is lost, a client
    notices as it does with a real server. Subscribing is never lost or late: it is the client library's own affair.
    """

    def up(self, subject: str, payload: bytes) -> Sequence[float]:
        """For a message that the client has sent."""
        del subject, payload
        return PROMPT

    def down(self, subject: str, payload: bytes) -> Sequence[float]:
        """For a message that the server has sent."""
        del subject, payload
        return PROMPT
