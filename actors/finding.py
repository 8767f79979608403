"""Finding documents that are on any Linux machine, for demonstrations and load.

Owns: where to look and what to take, judged by name and size alone (no file is opened). Never: reading, and never an
error: a folder that is missing, forbidden or full of rubbish gives fewer documents, at worst none.
"""

import os
import stat
import sys
import sysconfig
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Final

MAX_FOUND_BYTES: Final = 2 * 2**20
"""Bytes, as stored, of the largest document found: a demonstration should not hang on one file."""
MAX_VISITED: Final = 50_000
"""Files looked at under one root before the search ends with what it has."""
MAX_DEPTH: Final = 12
"""Folders below the root that are entered."""

_SUFFIX_KINDS: Final = {
    ".txt": "text", ".text": "text", ".rst": "text", ".md": "markdown", ".markdown": "markdown",
    ".html": "html", ".htm": "html", ".pdf": "pdf",
}  # fmt: skip
_TEXT_NAMES: Final = (
    "authors", "bugs", "changelog", "changes", "copying", "copyright", "faq", "history", "install", "licence",
    "license", "news", "notice", "readme", "thanks",
)  # fmt: skip
_NOT_TEXT: Final = frozenset(
    {".py", ".pyc", ".js", ".css", ".png", ".svg", ".gif", ".jpg", ".db", ".json", ".xml", ".yml"}
)


def find_documents(folder: Path | None = None, limit: int = 300) -> list[Path]:
    """Return up to `limit` documents, a mixture of kinds, the same list every time for the same files.

    Looks under `folder`; without one under `/usr/share/doc` and then, while there are fewer than `limit`, where the
    running Python keeps its own documentation and its packages' licences. Takes readable, non-empty regular files of at
    most `MAX_FOUND_BYTES` whose name says text, Markdown, HTML or PDF, plain or gzipped. Follows no symbolic link, so
    there are no loops and nothing twice. Never raises; no document found is an empty list.
    """
    found: dict[Path, None] = {}
    for root in default_folders() if folder is None else [folder]:
        if len(found) >= limit:
            break
        found.update(dict.fromkeys(mixed(documents_under(root))))
    return list(found)[: max(limit, 0)]


def default_folders() -> list[Path]:
    """Return where a Linux machine, or at least its Python, keeps documents; they need not exist."""
    prefixes = [Path(prefix) / "share" / "doc" for prefix in (sys.prefix, sys.base_prefix)]
    libraries = [Path(path) for name in ("purelib", "platlib", "stdlib") if (path := sysconfig.get_path(name))]
    return [Path("/usr/share/doc"), *prefixes, *libraries, Path("/usr/share/common-licenses")]


def documents_under(root: Path) -> list[tuple[str, Path]]:
    """Return (group, path) of every document under `root` in the order of a sorted walk."""
    found = []
    for number, path in enumerate(_walk(root)):
        if number >= MAX_VISITED:
            break
        group = group_of(path.name)
        if group is not None and _takeable(path):
            found.append((group, path))
    return found


def group_of(name: str) -> str | None:
    """Tell by a file's name which group of documents it belongs to, such as `text` or `text.gz`, if to any."""
    plain = name.lower().removesuffix(".gz")
    suffix = Path(plain).suffix
    kind = _SUFFIX_KINDS.get(suffix)
    if kind is None and plain.startswith(_TEXT_NAMES) and suffix not in _NOT_TEXT:
        kind = "text"
    return kind and kind + name.lower()[len(plain) :]


def mixed(documents: list[tuple[str, Path]]) -> Iterator[Path]:
    """Take one document of each group in turn, groups in alphabetical order, until all are taken."""
    groups: dict[str, list[Path]] = {}
    for group, path in documents:
        groups.setdefault(group, []).append(path)
    turns = zip_longest(*(groups[name] for name in sorted(groups)))
    return (path for path in chain.from_iterable(turns) if path is not None)


def _walk(root: Path) -> Iterator[Path]:
    """Yield files in sorted order. `os.walk` enters no linked folder and passes over those it may not list."""
    try:
        base = root.absolute()
        for folder, subfolders, files in os.walk(base):
            deep = len(Path(folder).relative_to(base).parts) >= MAX_DEPTH
            subfolders[:] = [] if deep else sorted(subfolders)
            yield from (Path(folder, name) for name in sorted(files))
    except (OSError, ValueError):  # the working folder is gone; a NUL character in the path
        return


def _takeable(path: Path) -> bool:
    try:
        str(path).encode()  # a name that is no UTF-8 could not travel as an argument
        status = path.lstat()
        readable = os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False
    return readable and stat.S_ISREG(status.st_mode) and 0 < status.st_size <= MAX_FOUND_BYTES
