"""What happened in a simulated world, line by line in virtual time: faults, bodies, asks, revisions."""

from __future__ import annotations

from tests.history.evidence import AskLine, BodyLine, CommandLine, Revision
from tests.sim.loop import SimLoop, process_here


class Trace:
    """Lines as they are told; made into text only when somebody reads them."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._lines: list[tuple[float, str, BodyLine | AskLine | CommandLine | Revision | str]] = []

    def note(self, text: str) -> None:
        """A fault, or news of a process."""
        self._add(text)

    def line(self, line: BodyLine | AskLine | CommandLine) -> None:
        """A body or an ask."""
        self._add(line)

    def revision(self, revision: Revision) -> None:
        """A record was stored."""
        self._add(revision)

    def _add(self, what: BodyLine | AskLine | CommandLine | Revision | str) -> None:
        process = process_here()
        self._lines.append((self._loop.time(), process.name if process is not None else "", what))

    def text(self, keys: set[str] | None = None) -> list[str]:
        """Every line; of bodies, asks and revisions only those of ``keys``, if given."""
        return [
            f"{at:9.4f} {who:12} {_told(what)}"
            for at, who, what in self._lines
            if keys is None or isinstance(what, str) or what.key in keys
        ]

    def digest(self) -> int:
        """Two runs of one seed have the same."""
        return hash(tuple(self.text()))


def _told(what: BodyLine | AskLine | CommandLine | Revision | str) -> str:
    if isinstance(what, str):
        return f"! {what}"
    if isinstance(what, AskLine):
        if not what.told:
            return f"? {what.ask} {what.key} {what.mode}"
        which = f"{what.run_id[-6:]} g{what.generation}"
        return f"= {what.ask} {what.key} asked at {what.asked % 1000:.4f}: {what.told} {which}"
    if isinstance(what, BodyLine):
        which = f"{what.run_id[-6:]} g{what.generation} a{what.attempt} fence {what.fence} {what.session[-6:]}"
        return f"* {what.key} {what.actor} {what.what} {what.how}{' ' if what.how else ''}{which}"
    if isinstance(what, CommandLine):
        return f"! {what.key} {what.verb} {what.id} {'acknowledged' if what.acked else 'published'}"
    return f"# {what.key} {what.before}->{what.seq} {_state(what)}"


def _state(record: Revision) -> str:
    if record.gone:
        return "purged"
    words = [record.phase, record.actor, record.run_id[-6:], f"g{record.generation} a{record.attempt}"]
    if record.holder:
        words.append(f"holder {record.holder.session[-6:]} a{record.holder.attempt}")
    words += [f"prev {entry.run_id[-6:]} a{entry.attempt}" for entry in record.previous]
    if record.last:
        words.append(f"last {record.last.run_id[-6:]} {record.last.phase}")
    if record.outbox:
        words.append(f"owes {len(record.outbox)}")
    return " ".join(words)
