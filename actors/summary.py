"""Counting the words of a document and summing them up.

Owns: the two typed results of `actors.documents` and the arithmetic behind them. Never: files, I/O, time.

Memory is bounded: a `Tally` holds at most `MAX_DISTINCT` different words of at most `MAX_WORD_CHARACTERS` characters.
Beyond that, new words are still counted as words but get no entry of their own; `distinct` then reads "at least".
"""

import hashlib
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import msgspec

MAX_DISTINCT: Final = 100_000
"""Different words that one tally tells apart."""
MAX_WORD_CHARACTERS: Final = 40
"""Characters above which a word is counted but not kept (base64, hashes, tables without spaces)."""
KEPT_TERMS: Final = 200
"""Most frequent words that a result carries, so that it stays a few KiB whatever the document."""
TOP_TERMS: Final = 10
"""Significant words in a summary."""
WORDS_PER_MINUTE: Final = 230
"""Silent reading speed of adults, English non-fiction."""

_SIGNIFICANT_CHARACTERS: Final = 3
_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_STOP_TEXT: Final = """
    about above after again all also and any are because been before being below between both but can cannot could
    did does doing don't down during each either etc few for from further had has have having her here hers him his
    how into its it's just may might more most must neither nor not now off once only other our ours out over own
    per same she should some such than that the their theirs them then there these they this those through too under
    until upon very was were what when where whether which while who whom why will with within without would yet you
    your yours
"""
_STOP_WORDS: Final = frozenset(_STOP_TEXT.split())


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """What the first leg found in a file.

    `digest` is the SHA-256 of the stored file, `characters` counts those of the pages' text, and `terms` maps the
    `KEPT_TERMS` most frequent words, lower case, to how often they occur.
    """

    path: str
    kind: str
    title: str
    pages: int
    words: int
    characters: int
    distinct: int
    digest: str
    terms: dict[str, int]


class Refined(msgspec.Struct, frozen=True, kw_only=True):
    """What the second leg made of it.

    `reading_minutes` is at `WORDS_PER_MINUTE`; `richness` is Guiraud's index, different words over the square root of
    all words, which compares texts of unlike lengths fairly (0 for no words); `digest` is the SHA-256 of the others.
    """

    path: str
    title: str
    reading_minutes: float
    richness: float
    top: tuple[tuple[str, int], ...]
    digest: str


@dataclass(slots=True)
class Tally:
    """Running counts over the pages taken in so far."""

    pages: int = 0
    words: int = 0
    characters: int = 0
    terms: Counter[str] = field(default_factory=Counter)

    def add(self, page: str) -> None:
        """Take in one page."""
        found = words_of(page)
        self.pages += 1
        self.words += len(found)
        self.characters += len(page)
        for word in found:
            known = word in self.terms
            if known or (len(word) <= MAX_WORD_CHARACTERS and len(self.terms) < MAX_DISTINCT):
                self.terms[word] += 1


def words_of(text: str) -> list[str]:
    """Return the words in order, lower case: runs of letters of any script, joined by apostrophes or hyphens."""
    return [word.lower() for word in _WORD.findall(text)]


def count_words(text: str) -> int:
    """Return how many words a text has."""
    return sum(1 for _ in _WORD.finditer(text))


def most_frequent(terms: dict[str, int], limit: int) -> list[tuple[str, int]]:
    """Return the `limit` most frequent terms, equals in alphabetical order, so that equal texts give equal results."""
    return sorted(terms.items(), key=lambda item: (-item[1], item[0]))[:limit]


def significant(word: str) -> bool:
    """Tell whether a word may say what an (English) text is about."""
    return len(word) >= _SIGNIFICANT_CHARACTERS and word not in _STOP_WORDS


def summarise(extracted: Extracted) -> Refined:
    """Sum an extraction up; the same extraction always gives the same digest."""
    minutes = round(extracted.words / WORDS_PER_MINUTE, 2)
    richness = round(extracted.distinct / math.sqrt(extracted.words), 3) if extracted.words else 0.0
    terms = {word: count for word, count in extracted.terms.items() if significant(word)}
    top = tuple(most_frequent(terms, TOP_TERMS))
    body = msgspec.json.encode((extracted.path, extracted.title, extracted.digest, minutes, richness, top))
    return Refined(
        path=extracted.path,
        title=extracted.title,
        reading_minutes=minutes,
        richness=richness,
        top=top,
        digest=hashlib.sha256(body).hexdigest(),
    )
