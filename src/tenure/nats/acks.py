"""What the ack subject of a delivered message tells: there JetStream writes where a delivery stands."""

from __future__ import annotations

import msgspec


class Ack(msgspec.Struct, frozen=True):
    """What the ack subject of a delivered message tells.

    Its consumer, its place in stream and consumer, its deliveries; when it was stored (server's clock, seconds since
    the epoch), and how many more are to come.
    """

    consumer: str
    deliveries: int
    stream_sequence: int
    consumer_sequence: int
    stored_at: float
    pending: int
    stored_ns: int = 0
    """The same time, exact: a float has no room for it."""


def parse_ack(reply: str) -> Ack | None:
    """Read ``$JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<sequence>.<consumer sequence>...``; None if it is none."""
    parts = reply.split(".")
    at = 4 if len(parts) == 9 else 6  # noqa: PLR2004  (the older form has nine tokens)
    try:
        if parts[0] != "$JS" or parts[1] != "ACK":
            return None
        deliveries, sequence, delivery, stored_at, pending = parts[at : at + 5]
        return Ack(
            parts[at - 1],
            int(deliveries),
            int(sequence),
            int(delivery),
            int(stored_at) / 1_000_000_000,
            int(pending),
            int(stored_at),
        )
    except (IndexError, ValueError, OverflowError):  # the last: a time that no float holds
        return None
