"""``python -m tests.chaos.service worker ...``: Tenure's own command, which leaves behind what it has counted when it ends.

A scrape comes before the end, and what is counted after it nobody would ever know. Who is killed with -9 leaves nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from tenure import health
from tenure.cli import main


def counts_of(folder: Path, pid: int) -> Path:
    """Where a process leaves its counters, as ``/metrics`` has them."""
    return folder / f"counts-{pid}.prom"


class _Leaving(health.HealthServer):
    """Closed when all else has ended: nothing is counted after that."""

    def __init__(self, registry: Any, *rest: Any, **more: Any) -> None:
        super().__init__(registry, *rest, **more)
        self._counted = registry

    def close(self) -> None:
        super().close()
        path = counts_of(Path(os.environ["CHAOS_FOLDER"]), os.getpid())
        path.with_suffix(".part").write_bytes(generate_latest(self._counted))
        path.with_suffix(".part").rename(path)  # whole or not there


if __name__ == "__main__":
    health.HealthServer = _Leaving  # type: ignore[misc]  # the command looks it up when it begins to serve
    main()
