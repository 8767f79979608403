"""README is a promise: its example prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def example() -> tuple[str, str]:
    """README's example, and what it is said to print."""
    text = README.read_text(encoding="utf-8")
    match = re.search(r"```python\n(import asyncio.*?)```\n\nprints\n\n```\n(.*?)```", text, re.DOTALL)
    assert match is not None, "README has no example followed by what it prints"
    return match[1], match[2]


def test_the_example_prints_what_readme_says() -> None:
    code, printed = example()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == printed, done.stderr
    assert done.returncode == 0
