"""The values for the official NATS chart make the server of `nats.conf`: three of them, as that chart writes its configuration.

The chart itself is not to be had from a package registry. Version 2.14.2 was rendered with these values by hand: Kubernetes'
schemas took every object, and its `nats.conf` was what is made here, line by line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tenure.nats.binary import find_binary
from tests.charts import CHART, DEPLOY, ROOT, documents


def given() -> dict[str, Any]:
    (page,) = documents((DEPLOY / "helm" / "nats-values.yaml").read_text(encoding="utf-8"))
    config: dict[str, Any] = page["config"]
    return config


def as_the_chart_writes_it(config: dict[str, Any]) -> str:
    """One JSON object, in which what stands between `<<` and `>>` is written as it is; `merge` goes over what the chart says."""
    servers, stores = range(config["cluster"]["replicas"]), config["jetstream"]
    made = {
        "cluster": {
            "name": "nats",
            "no_advertise": True,
            "port": 6222,
            "routes": [f"nats://nats-{number}.nats-headless:6222" for number in servers],
        },
        "http_port": 8222,
        "jetstream": {
            "max_file_store": f"<< {stores['fileStore']['maxSize']} >>",
            "max_memory_store": f"<< {stores['memoryStore']['maxSize']} >>",
            "store_dir": "/data",
            **stores["merge"],
        },
        "pid_file": "/var/run/nats/nats.pid",
        "port": 4222,
        "server_name": "<< $SERVER_NAME >>",
        **config["merge"],
    }
    return re.sub(r'"<< ([^"]*) >>"', r"\1", json.dumps(made, indent=2, sort_keys=True))


def server_says(text: str, folder: Path) -> str:
    """What nats-server finds wrong with a configuration; empty: nothing."""
    page = folder / "nats.conf"
    page.write_text(text, encoding="utf-8")
    told = subprocess.run(
        [str(find_binary()), "-t", "-c", str(page)],
        env=os.environ | {"SERVER_NAME": "nats-0"}, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return "" if told.returncode == 0 else told.stdout + told.stderr


@pytest.mark.parametrize("sync_interval", ["5s", "always"])
def test_a_server_takes_the_configuration_that_the_chart_makes(sync_interval: str, tmp_path: Path) -> None:
    """`always`: as deploy/README.md says where a power cut may take nothing."""
    config = given()
    config["jetstream"]["merge"] |= {"sync_interval": sync_interval}
    assert server_says(as_the_chart_writes_it(config), tmp_path) == ""


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_paylod": "<< 1MB >>"}, 'unknown field "max_paylod"'),
        ({"max_pending": "<< 64 MB >>"}, "Parse error"),
        ({"lame_duck_duration": "20s"}, "lame_duck_duration"),
    ],
)
def test_a_server_would_refuse_a_setting_that_it_does_not_know(
    wrong: dict[str, str], says: str, tmp_path: Path
) -> None:
    config = given()
    config["merge"] |= wrong
    assert says in server_says(as_the_chart_writes_it(config), tmp_path)


def test_nats_has_the_settings_of_the_configuration_file() -> None:
    config = given()
    conf = re.sub(r"#.*", "", (ROOT / "nats.conf").read_text(encoding="utf-8"))
    said = {name: value.strip('"') for name, value in re.findall(r'^\s*(\w+): ("[^"]*"|\S+)', conf, re.MULTILINE)}
    merged = {name: re.sub(r"^<< | >>$", "", str(value)) for name, value in config["merge"].items()}
    assert merged == {name: said[name] for name in merged}
    assert config["jetstream"]["merge"]["sync_interval"] == said["sync_interval"]
    assert config["jetstream"]["enabled"] is True
    stores = config["jetstream"]
    assert (stores["fileStore"]["maxSize"], stores["memoryStore"]["maxSize"]) == ("20Gi", "1Gi")
    assert (said["max_file"], said["max_mem"]) == ("20GB", "1GB")
    assert config["cluster"] == {"enabled": True, "replicas": 3}
    (chart,) = documents((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert chart["setup"]["replicas"] == config["cluster"]["replicas"], "a copy of each stream on each server"
