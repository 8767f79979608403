"""Ctrl-C before a command has begun."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.commands import ROOT

_SLOW = """
import time
print("begun", flush=True)
time.sleep(50)  # body:
"""


def test_ctrl_c_while_the_package_is_imported_prints_no_traceback(tmp_path: Path) -> None:
    """As the console script does it, with a package of that name that takes its time."""
    (tmp_path / "tenure").mkdir()
    (tmp_path / "tenure" / "__init__.py").write_text(_SLOW, encoding="utf-8")
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / 'src')!r}]"
    with subprocess.Popen(
        [sys.executable, "-c", f"{path}; from tenure_command import main; main()"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            assert command.stdout is not None
            assert command.stdout.readline() == "begun\n"
            command.send_signal(signal.SIGINT)
            assert command.communicate(timeout=10) == ("", "")
            assert command.returncode == -signal.SIGINT
        finally:
            command.kill()
