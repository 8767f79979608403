"""From bytes to pages of text: encodings, HTML, page breaks and titles.

Owns: what counts as a page and which text of a file is seen. Never: files, gzip, PDF (`actors.reading`), counting.

Everything is a stream: bytes are decoded a slice at a time and pages come out as soon as they are full, so the text of
a document never exists as a whole. A page ends at a form feed, or after at most `PAGE_CHARACTERS` characters at a
space, so that no word is cut in two (a run of characters without a space is cut all the same).
"""

import codecs
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from typing import Final, Literal

Kind = Literal["text", "markdown", "html", "pdf"]

PAGE_CHARACTERS: Final = 3_000
"""Characters of a page of text."""
TITLE_CHARACTERS: Final = 120
"""Characters at which a title is cut."""
SLICE_BYTES: Final = 64 * 2**10
"""Bytes that are decoded, or decompressed, at a time."""
BOMS: Final = (  # longest first: the mark of UTF-32-LE begins with that of UTF-16-LE
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks and the encoding that each announces."""

_HEAD_BYTES: Final = 8 * 2**10
_MAX_PENDING_CHARACTERS: Final = 2**20  # the parser scans all that it holds again with every slice
_META_CHARSET: Final = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,30})", re.IGNORECASE)
_CHARSETS: Final = re.compile(r"iso-?8859-\d+|windows-125\d|koi8-[ru]|shift_jis|euc-(?:jp|kr)|gb(?:k|2312|18030)|big5")
_HEADING: Final = re.compile(r"^ {0,3}#{1,6}[ \t]+(.{1,500})", re.MULTILINE)
_FORM_FEEDS: Final = re.compile(r"\f+")
_LETTERS: Final = re.compile(r"[^\W\d_]{2}")


class Unreadable(Exception):
    """The file cannot be read as a document, now or at another try; the text names the path and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def guess_encoding(data: bytes | bytearray) -> str:
    """Choose by byte order mark, then valid UTF-8, then an HTML charset of a known family, else Windows-1252.

    A charset is believed from a list only: Python also has "encodings" that decompress or run escapes.
    """
    for bom, name in BOMS:
        if data.startswith(bom):
            return name
    try:
        for _ in decode_slices(data, "utf-8", errors="strict"):
            pass
    except UnicodeDecodeError:
        found = _META_CHARSET.search(data[:_HEAD_BYTES])
        charset = found[1].decode("ascii", "replace").lower() if found else ""
        return charset if _CHARSETS.fullmatch(charset) and _is_codec(charset) else "cp1252"
    return "utf-8"


def _is_codec(name: str) -> bool:
    try:
        codecs.lookup(name)
    except LookupError:  # iso-8859-99
        return False
    return True


def decode_slices(data: bytes | bytearray, encoding: str, errors: str = "replace") -> Iterator[str]:
    """Decode a slice at a time, so that the whole text never exists at once; a character may span two slices."""
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    for start in range(0, len(data), SLICE_BYTES):
        yield decoder.decode(bytes(data[start : start + SLICE_BYTES]))
    yield decoder.decode(b"", final=True)


def paginate(pieces: Iterable[str], size: int = PAGE_CHARACTERS) -> Iterator[str]:
    """Cut a stream of text into pages of at most `size` characters; pages without a visible character are left out."""
    rest = ""
    for piece in pieces:
        rest += _FORM_FEEDS.sub("\f", piece)
        start = 0
        while end := _page_end(rest, start, size):
            page, start = rest[start:end], end
            if page.strip():
                yield page
        rest = rest[start:]
    if rest.strip():
        yield rest


def _page_end(text: str, start: int, size: int) -> int:
    """Return where the page that begins at `start` ends, or 0 while that has not been read yet."""
    form_feed = text.find("\f", start, start + size)
    if form_feed >= 0:
        return form_feed + 1
    if len(text) - start <= size:
        return 0
    space = max(text.rfind(mark, start + size // 2, start + size) for mark in " \n")
    return space + 1 if space >= 0 else start + size


class _HtmlText(HTMLParser):
    """Collects the visible text and, apart from it, the title."""

    _HIDING = frozenset({"script", "style", "title"})
    _INLINE = frozenset(
        {"a", "abbr", "b", "code", "em", "font", "i", "kbd", "samp", "small", "span", "strong", "tt", "u"}
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.title = ""
        self._inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag in self._HIDING:
            self._inside = tag
        self._break(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs  # <title/> or <script/>: nothing would end what it hides
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = None
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self.text.append(re.sub(r"\s+", " ", data))
        elif self._inside == "title" and len(self.title) < TITLE_CHARACTERS:
            self.title += data

    def _break(self, tag: str) -> None:
        if tag not in self._INLINE:
            self.text.append("\n")

    def take(self) -> str:
        text = "".join(self.text)
        self.text.clear()
        return text


def html_text(path: str, pieces: Iterable[str]) -> Iterator[str]:
    """Strip tags, scripts and styles, piece by piece; `Unreadable` for a tag or script that goes on for a mebibyte."""
    parser = _HtmlText()
    for piece in pieces:
        parser.feed(piece)
        if len(parser.rawdata) > _MAX_PENDING_CHARACTERS:
            raise Unreadable(
                path, f"an HTML tag, comment or script of more than {_MAX_PENDING_CHARACTERS:,} characters"
            )
        yield parser.take()
    parser.feed("\n")  # not close(): this lets text after an open "&" out and leaves an unclosed tag in
    yield parser.take()


def title_of(kind: Kind, head: str) -> str:
    """Find a title in the beginning of a text: HTML's title, the first heading of Markdown, else the first line."""
    if kind == "html":
        parser = _HtmlText()
        parser.feed(head)
        return clean_title(parser.title)
    heading = _HEADING.search(head) if kind == "markdown" else None
    if heading:
        return clean_title(heading[1].rstrip("# \t"))
    return next((clean_title(line) for line in head.splitlines() if _LETTERS.search(line)), "")


def clean_title(text: str) -> str:
    """Make one short printable line (lone surrogates, which no JSON carries, go as well)."""
    printable = "".join(char if char.isprintable() else " " for char in text[: TITLE_CHARACTERS * 8])
    return " ".join(printable.split())[:TITLE_CHARACTERS]
