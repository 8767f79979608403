"""A newer release of the library: a copy with the next schema and one field more, which it writes for the actor ``hold``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tenure.core.records import SCHEMA
from tests.e2e.commands import ROOT
from tests.processes import Site

NEWER = SCHEMA + 1
_CHANGES = (
    ("core/records.py", f"\nSCHEMA = {SCHEMA}\n", f"\nSCHEMA = {NEWER}\n"),
    (
        "core/records.py",
        "    pace: Pace | None = None\n\n\nclass Blob",
        '    pace: Pace | None = None\n    tint: str = ""\n\n\nclass Blob',
    ),
    ("core/schemas.py", "    if policy.pace is not None:\n", "    if policy.tint:\n"),
    ("settings.py", "    return Policy(\n", '    return Policy(\n        tint="new" if actor == "hold" else "",\n'),
)
_SUBMIT = """
import asyncio, sys
from pathlib import Path
from tests import site_app

namespace, folder, url, actor, *keys = sys.argv[1:]
app = site_app.make(namespace, Path(folder))

async def main():
    async with app.connect(url) as client:
        for key in keys:
            await client.submit(app.actors[actor].call(), key=key)

asyncio.run(main())
"""


class NewerSite(Site):
    """The processes of a site as the newer release runs them: its commands are those of the copy."""

    def __init__(self, folder: Path, url: str, namespace: str, **settings: Any) -> None:
        super().__init__(folder, url, namespace, **settings)
        self._source = folder / "newer"
        shutil.copytree(ROOT / "src", self._source, ignore=shutil.ignore_patterns("__pycache__"))
        for name, old, new in _CHANGES:
            file = self._source / "tenure" / name
            text = file.read_text(encoding="utf-8")
            assert text.count(old) == 1, (name, old)
            file.write_text(text.replace(old, new), encoding="utf-8")

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONPATH": f"{self._source}{os.pathsep}{ROOT}"}

    def start(self, *arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        """In a process that has imported nothing of ours yet."""
        with (self.folder / "stderr.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tenure.cli", *arguments],
                cwd=cwd or self.folder,
                env=self.environment() | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def setup(self) -> None:
        """`tenure setup`."""
        process = self.command("setup", "tests.site_app:app")
        said, _ = process.communicate(timeout=50)
        assert process.returncode == 0, said

    def submit(self, actor: str, keys: list[str]) -> None:
        """As a producer of the newer release."""
        where = [self.namespace, str(self.folder), self.url]
        subprocess.run([sys.executable, "-c", _SUBMIT, *where, actor, *keys], check=True, env=self.environment())
