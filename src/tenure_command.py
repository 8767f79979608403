"""The command ``tenure`` before anything of the package is imported, which takes half a second: Ctrl-C then just ends it.

No module of the package could say so: the package itself is imported before any of its modules.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """The entry point ``tenure``."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started us wants it ignored
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tenure.cli.root import run

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
