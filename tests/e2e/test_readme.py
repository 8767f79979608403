"""README is a promise: its example prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_example_prints_what_readme_says() -> None:
    text = README.read_text()
    match = re.search(r"```python\n(import asyncio.*?)```\n\nprints\n\n```\n(.*?)```", text, re.DOTALL)
    assert match is not None, "README has no example followed by what it prints"
    code, printed = match.groups()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == printed, done.stderr
    assert done.returncode == 0
