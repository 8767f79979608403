"""What the image does when it is started, and how its check sees it; without an engine, in the tests' own interpreter."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.charts import ROOT
from tests.e2e.commands import Cli, Worker, end, line_of
from tests.e2e.test_wheel import build, contents
from tests.support import wait_until
from tests.unit.test_image import copied, options, services, words


def test_what_the_build_is_given_makes_a_wheel_with_the_app_that_the_image_starts(tmp_path: Path) -> None:
    """Nothing else of the repository is there when the image is built, nor anything but the wheel when it is started."""
    sent = tmp_path / "src"
    sent.mkdir()
    for source in copied():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, sent / source, symlinks=True)
        else:
            shutil.copy(ROOT / source, sent)
    packed = contents(build(sent, tmp_path / "wheel", "wheel"))
    module, _, _ = options(words("CMD"))["target"].partition(":")
    assert {f"{module.replace('.', '/')}.py", "tenure/nats.conf", "tenure_command.py"} <= packed.keys()


async def test_the_worker_of_the_compose_file_becomes_ready_drains_and_is_seen_by_the_check_of_the_image(
    own: Cli,
) -> None:
    """With its own `--killed-after`: the app of the examples can end within the time that the file allows."""
    command = [word.replace("9100", "0").replace("0.0.0.0", "127.0.0.1") for word in services()["worker"]["command"]]  # noqa: S104  (what is not tried here)
    worker = Worker(process := own.start(*command, cwd=ROOT), line_of(process))
    assert worker.said["namespace"] == "docs"
    port = worker.said["metrics"].rpartition(":")[2]
    check = [word.replace("9100", port) for word in words("HEALTHCHECK")]
    assert check[0] == "python"

    def healthy() -> bool:
        return subprocess.run([sys.executable, *check[1:]], stderr=subprocess.DEVNULL, check=False).returncode == 0

    await wait_until(healthy, description="the check passes")
    assert end(process) == 0
    assert not healthy()
