"""The command line.

Thin over the public library; it parses, calls, prints, and turns every error into a sentence and an exit code.

Start at ``root`` (what commands there are). Nothing is imported before a command needs it, so that ``tenure --help`` is
quick.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point ``tenure``."""
    from tenure.cli.root import run

    sys.exit(run(sys.argv[1:]))
