"""What may happen to a message on its way between a client and the server."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

PROMPT: Sequence[float] = (0.0,)
"""One copy, at the next turn of the loop, in order."""


class Message(msgspec.Struct, frozen=True):
    """A message on its way; ``headers`` as they are on the wire."""

    subject: str
    reply: str
    headers: bytes
    data: bytes


class Link:
    """The way between one client and the server. A simulation overrides ``up`` and ``down``.

    Each is asked once for every message and answers with one delay in seconds per copy: none, and the message is lost; a
    delay of 0 keeps the order. Pings and their answers pass too, as ``PING`` and ``PONG``: where all is lost, a client
    notices as it does with a real server. Subscribing is never lost or late: it is the client library's own affair.
    Who has to see more of a message than that overrides ``sent`` and ``received``.
    """

    def sent(self, message: Message) -> Sequence[float]:
        """As ``up``, with all that there is of the message."""
        return self.up(message.subject, message.data)

    def received(self, message: Message) -> Sequence[float]:
        """As ``down``, with all that there is of the message."""
        return self.down(message.subject, message.data)

    def up(self, subject: str, payload: bytes) -> Sequence[float]:
        """For a message that the client has sent."""
        del subject, payload
        return PROMPT

    def down(self, subject: str, payload: bytes) -> Sequence[float]:
        """For a message that the server has sent."""
        del subject, payload
        return PROMPT
