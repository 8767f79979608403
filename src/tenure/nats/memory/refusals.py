"""The error answers of JetStream, as the real server words and numbers them."""

from __future__ import annotations

import msgspec


class Refusal(msgspec.Struct, frozen=True):
    """One error."""

    code: int
    err_code: int
    description: str


class Refused(Exception):
    """Raised where a request is refused."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.description)
        self.refusal = refusal


def refuse(code: int, err_code: int, description: str) -> Refused:
    """An error to be raised."""
    return Refused(Refusal(code, err_code, description))


def wrong_sequence(actual: int) -> Refused:
    """A compare-and-swap met another sequence."""
    return refuse(400, 10071, f"wrong last sequence: {actual}")


def no_stream() -> Refused:
    """There is no stream of this name."""
    return refuse(404, 10059, "stream not found")


def no_consumer() -> Refused:
    """There is no consumer of this name."""
    return refuse(404, 10014, "consumer not found")


def no_message() -> Refused:
    """Nothing is stored there."""
    return refuse(404, 10037, "no message found")


def bad_request() -> Refused:
    """The request makes no sense."""
    return refuse(400, 10003, "bad request")
