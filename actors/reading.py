"""Reading a file as a document, page by page, within bounded memory.

Owns: what kind a file is and what is refused. Never: counting, progress, retries.

* A file is held as bytes (at most `MAX_BYTES`, before and after gunzip), so memory is the bytes and one page. Whoever
  reads pages may stop after any of them. A page of PDF is a page; for the rest see `actors.pages`.
* What no retry can help (missing, binary, broken, too large) is `Unreadable`. Any other `OSError` (an I/O error, a
  stale network mount) passes through: the next attempt may succeed.
"""

import errno
import gzip
import hashlib
import io
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .pages import (
    BOMS,
    PAGE_CHARACTERS,
    SLICE_BYTES,
    Kind,
    Unreadable,
    clean_title,
    decode_slices,
    guess_encoding,
    html_text,
    paginate,
    title_of,
)

if TYPE_CHECKING:
    from pypdf import PdfReader

__all__ = ["MAX_BYTES", "Document", "Stored", "Unreadable", "detect_kind", "gunzip", "load", "open_document"]

MAX_BYTES: Final = 64 * 2**20
"""Bytes of a file, as stored and again after gunzip, above which it is refused."""

_HEAD_BYTES: Final = 8 * 2**10
_MAX_PAGE_BYTES: Final = 16 * 2**20  # drawing commands of one PDF page, decompressed; a page full of text has 50 KiB
_MAX_CONTROL_SHARE: Final = 0.05
_GZIP_MAGIC: Final = b"\x1f\x8b"
_PDF_MAGIC: Final = b"%PDF-"
_PERMANENT: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}
)
_MAGIC: Final = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x7fELF", "an ELF program"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"BZh", "compressed with bzip2"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (_GZIP_MAGIC, "gzip inside gzip"),
)
_SUFFIXES: Final[dict[str, Kind]] = {
    ".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html", ".xhtml": "html",
}  # fmt: skip
_HTML_START: Final = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+html|html)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stored:
    """The bytes of one file: `data` after gunzip, `digest` (SHA-256, hexadecimal) of what the disk holds."""

    path: str
    data: bytes | bytearray
    digest: str


@dataclass(frozen=True, slots=True)
class Document:
    """An opened document. `pages` can be gone through once and raises `Unreadable` where the file turns out broken.

    `expected_pages` is exact for PDF and an estimate by size for the rest.
    """

    path: str
    kind: Kind
    title: str
    digest: str
    expected_pages: int
    pages: Iterator[str]


def open_document(path: str) -> Document:
    """Open the file at `path`, plain or gzipped, and say what it is.

    Raises `Unreadable` for a file that is missing, not regular, not permitted, over `MAX_BYTES`, binary or broken.
    """
    stored = load(path)
    kind = detect_kind(path, stored.data)
    if kind == "pdf":
        return _open_pdf(stored)
    encoding = guess_encoding(stored.data)
    slices = decode_slices(stored.data, encoding)
    pages = paginate(html_text(path, slices) if kind == "html" else slices)
    head = bytes(stored.data[:SLICE_BYTES]).decode(encoding, "replace")
    expected = -(-len(stored.data) // PAGE_CHARACTERS)
    return Document(path, kind, title_of(kind, head) or Path(path).name, stored.digest, expected, pages)


def load(path: str, limit: int = MAX_BYTES) -> Stored:
    """Read a regular file of at most `limit` bytes and gunzip it, again to at most `limit` bytes."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # before open(): opening a pipe would wait for its writer
            raise Unreadable(path, "not a regular file")
        with Path(path).open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        if error.errno not in _PERMANENT:
            raise
        raise Unreadable(path, (error.strerror or str(error)).lower()) from error
    except ValueError as error:  # a NUL character in the path
        raise Unreadable(path, str(error)) from error
    if len(data) > limit:
        raise Unreadable(path, f"larger than {limit:,} bytes")
    digest = hashlib.sha256(data).hexdigest()
    return Stored(path, gunzip(path, data, limit) if data.startswith(_GZIP_MAGIC) else data, digest)


def gunzip(path: str, data: bytes, limit: int = MAX_BYTES) -> bytearray:
    """Decompress `data`; `Unreadable` when it is broken or as soon as it yields more than `limit` bytes."""
    plain = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while piece := stream.read(SLICE_BYTES):
                plain += piece
                if len(plain) > limit:
                    raise Unreadable(path, f"decompresses to more than {limit:,} bytes")
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise Unreadable(path, f"broken gzip data ({error})") from error
    return plain


def detect_kind(path: str, data: bytes | bytearray) -> Kind:
    """Tell the kind by what the bytes show, then by the name (less `.gz`); `Unreadable` for anything binary."""
    head = bytes(data[:_HEAD_BYTES])
    if _PDF_MAGIC in head[:1024]:  # readers accept rubbish before the mark, and some mailers put it there
        return "pdf"
    for magic, name in _MAGIC:
        if head.startswith(magic):
            raise Unreadable(path, f"not a document but {name}")
    if looks_binary(head):
        raise Unreadable(path, "not a document but unknown binary data")
    if _HTML_START.match(head):
        return "html"
    return _SUFFIXES.get(Path(path.removesuffix(".gz")).suffix.lower(), "text")


def looks_binary(head: bytes) -> bool:
    """Tell whether bytes are no text in any encoding we read: NUL bytes or many control characters, and no BOM."""
    if any(head.startswith(bom) for bom, _ in BOMS):
        return False
    controls = sum(head.count(code) for code in range(32) if code not in b"\b\t\n\v\f\r\x1b")
    return b"\0" in head or controls > len(head) * _MAX_CONTROL_SHARE


def _open_pdf(stored: Stored) -> Document:
    try:
        from pypdf import PdfReader
    except ImportError as error:
        raise Unreadable(stored.path, "reading PDF needs pypdf: pip install 'tenure[documents]'") from error
    try:
        reader = PdfReader(io.BytesIO(stored.data))
        locked = reader.is_encrypted and not reader.decrypt(
            ""
        )  # the empty password opens those that only forbid printing
        count = 0 if locked else len(reader.pages)
        title = "" if locked or reader.metadata is None else clean_title(str(reader.metadata.get("/Title") or ""))
    except Exception as error:
        raise _broken_pdf(stored.path, error) from error
    if locked:
        raise Unreadable(stored.path, "an encrypted PDF")
    pages = pdf_pages(stored.path, reader)
    return Document(stored.path, "pdf", title or Path(stored.path).name, stored.digest, count, pages)


def pdf_pages(path: str, reader: "PdfReader") -> Iterator[str]:
    """Yield the text of each PDF page, empty for a page that is a picture; `Unreadable` for one that is broken or huge.

    pypdf bounds what one stream decompresses to. This bounds the commands of a page as well, which it would hold as
    objects many times that size. A file made to waste time is ended by the run's timeout only.
    """
    for number, page in enumerate(reader.pages, start=1):
        try:
            contents = page.get_contents()
            size = 0 if contents is None else len(contents.get_data())
            text = page.extract_text() if size <= _MAX_PAGE_BYTES else None
        except Exception as error:
            raise _broken_pdf(path, error, number) from error
        if text is None:
            raise Unreadable(path, f"page {number} decompresses to more than {_MAX_PAGE_BYTES:,} bytes")
        yield text


def _broken_pdf(path: str, error: Exception, page: int | None = None) -> Unreadable:
    """Say where a PDF is broken; pypdf trips over a broken file with KeyError, RecursionError and what not."""
    where = "" if page is None else f", page {page}"
    return Unreadable(path, f"broken PDF{where} ({type(error).__name__}: {str(error)[:200]})")
