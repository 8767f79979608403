"""The fences that bodies are given, as workers come by them: the revision of the claim, or of a later write that still shows it.

The core knows no revisions; the bucket has one sequence for all its keys, and markers of keys that are gone take part in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.core.records import Holder, Record


@dataclass
class Fences:
    """The bucket's sequence, every claim that was stored, in order, and what each body was given that began."""

    revision: int = 0
    claims: list[Holder] = field(default_factory=list)
    given: dict[Holder, int] = field(default_factory=dict)
    unheard: dict[Holder, int] = field(default_factory=dict)
    """Claims of which no answer came yet, and how many more writes come before somebody reads."""

    def stored(self, after: Record | None, *, claimed: bool) -> None:
        """One write of the key, and now and then one of another key before it. None: the key is gone."""
        self.revision += 1 + len(self.claims) % 2
        holder = after.holder if after is not None else None
        if claimed:
            assert holder is not None
            self.claims.append(holder)
            self.unheard[holder] = len(self.claims) % 3
        for body, writes in list(self.unheard.items()):
            if body != holder:  # not recognised: its body never begins
                del self.unheard[body]
            elif writes:
                self.unheard[body] = writes - 1
            else:
                del self.unheard[body]
                self._begin(body)

    def _begin(self, body: Holder) -> None:
        fence, place = self.fence(body), self.claims.index(body)
        for other, known in self.given.items():
            earlier = self.claims.index(other) < place
            assert known < fence if earlier else known > fence, f"a fence went back: {other} {known}, {body} {fence}"
        self.given[body] = fence

    def fence(self, body: Holder) -> int:
        """What the body is given."""
        assert body not in self.given, "a body began twice"
        return self.revision


class FromOne(Fences):
    """A key's revisions begin anew with it: then an old body's fence is above a new one's."""

    def stored(self, after: Record | None, *, claimed: bool) -> None:
        super().stored(after, claimed=claimed)
        if after is None:
            self.revision = 0


class OfTheAttempt(Fences):
    """The attempt as fence: it begins anew with each generation."""

    def fence(self, body: Holder) -> int:
        return body.attempt
