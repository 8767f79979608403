"""What the server has said that this user may not do: it says so by the way, and leaves the request itself unanswered."""

from __future__ import annotations

import re

from tenure.telemetry import get_logger

_SAID = re.compile(r'permissions violation for \w+ to "([^"]*)"', re.IGNORECASE)
_KEPT = 256
_log = get_logger("tenure.nats")


class Denied:
    """The subjects of one connection's refusals, the first ``_KEPT`` of them."""

    def __init__(self) -> None:
        self._subjects: set[str] = set()

    def note(self, error: str) -> bool:
        """Whether the server's word is about a permission; each is told in the log once."""
        said = _SAID.search(error)
        if said is None:
            return False
        subject = said[1].lower()  # nats-py makes all that the server says small
        if subject not in self._subjects and len(self._subjects) < _KEPT:
            self._subjects.add(subject)
            _log.warning("permission.missing", error=said[0])
        return True

    def __contains__(self, subject: str) -> bool:
        return subject.lower() in self._subjects
