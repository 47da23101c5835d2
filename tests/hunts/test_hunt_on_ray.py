"""A hunt on a real Ray cluster of two nodes, one of which is killed in the middle: the answer is the same."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest

from conftest import missing
from factories.container_engines import Podman
from factories.hunts import culprits, found, hunted, stepped, values_hunt
from factories.package_indexes import PackageIndex
from factories.ray_clusters import RayCluster, ray_cluster
from factories.registries import Image, Registry, packed

if importlib.util.find_spec("ray") is None:
    missing("ray (pip install 'karat[ray]')")
if not Path("/proc/self/stat").exists():
    missing("Linux, for its /proc")

# One process has the cluster; two at a time would have no cores left.
pytestmark = pytest.mark.xdist_group("ray")

_LEVELS = stepped(24, (7, 95.0), (18, 90.0)) | {"v012": "crash"}
# Says where it runs, and takes long enough to be hit.
_SLOWLY = 'echo "$OF_NODE $1" >> where.txt; sleep 0.4\n'


def slow_hunt(folder: Path) -> Path:
    file = values_hunt(folder, _LEVELS)
    probe = folder / "probe.sh"
    probe.write_text(_SLOWLY + probe.read_text(encoding="utf-8"), encoding="utf-8")
    return file


def hunting(cluster: RayCluster, file: Path, errors: IO[str]) -> subprocess.Popen[str]:
    words = ["hunt", "run", file.name, "--engine", "ray", "--json", "-", "--quiet"]
    return subprocess.Popen(
        [sys.executable, "-m", "karat", *words],
        cwd=file.parent,
        env={**os.environ, **cluster.env, "RAY_ADDRESS": cluster.address},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


@pytest.mark.slow
def test_the_loss_of_a_node_in_the_middle_changes_no_answer(cluster: RayCluster, tmp_path: Path) -> None:
    second = cluster.add("second")
    file = slow_hunt(tmp_path / "ray")
    where = file.with_name("where.txt")
    with (tmp_path / "stderr").open("w+") as errors, hunting(cluster, file, errors) as karat:
        # At its third job, which has just begun.
        while not where.exists() or where.read_text().count("second") < 3:
            assert karat.poll() is None, (tmp_path / "stderr").read_text()
            time.sleep(0.02)
        second.kill()
        said, _ = karat.communicate()
    assert karat.returncode == 1, (tmp_path / "stderr").read_text()
    # Whatever Ray has to say, it does not say it there.
    report = json.loads(said)
    assert report["state"] == "done"
    expected = hunted(values_hunt(tmp_path / "here", _LEVELS))
    assert culprits(report) == found(expected)
    assert ("regression", "v006", "v007") in culprits(report)
    attempts = [a for p in report["stages"][0]["points"] for a in p.get("attempts", ())]
    assert any("lost and tried again" in attempt.get("note", "") for attempt in attempts)
    assert not any("second" in line for line in where.read_text().splitlines()[-3:])


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_said_with_the_next_command(tmp_path: Path) -> None:
    file = values_hunt(tmp_path, _LEVELS)
    done = subprocess.run(
        [sys.executable, "-m", "karat", "hunt", "run", file.name, "--engine", "ray"],
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "no Ray cluster answers at 127.0.0.1:1" in done.stderr
    assert "RAY_ADDRESS" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_the_loss_of_the_whole_cluster_is_no_answer(tmp_path: Path) -> None:
    # Ray by itself would end karat with exit code 1, as if it had found something.
    file = slow_hunt(tmp_path / "ray")
    where = file.with_name("where.txt")
    with ray_cluster() as own, (tmp_path / "stderr").open("w+") as errors, hunting(own, file, errors) as karat:
        while not where.exists():
            assert karat.poll() is None, (tmp_path / "stderr").read_text()
            time.sleep(0.02)
        own.head.kill()
        karat.communicate()
    said = (tmp_path / "stderr").read_text()
    assert karat.returncode == 3, said
    assert "the Ray cluster at " in said
    assert " no longer answers: " in said
    assert said.splitlines()[-1].startswith("next: karat hunt resume")
    # What was measured is kept, and the hunt goes on elsewhere, with a probe that need not be hit.
    values_hunt(file.parent, _LEVELS)
    done = subprocess.run(
        [sys.executable, "-m", "karat", "hunt", "resume", "--engine", "local", "--json", "-", "--quiet"],
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert culprits(json.loads(done.stdout)) == found(hunted(values_hunt(tmp_path / "here", _LEVELS)))


_PROBED = """
[probe]
command = {command}
timeout = "60 s"
[[probe.metrics]]
name = "speed"
regex = 'speed: ([0-9.]+)'
better = "higher"
[search]
confirmations = 1
"""


def hunted_on_two_nodes(file: Path, own: RayCluster) -> dict[str, Any]:
    with (file.parent / "stderr").open("w+") as errors, hunting(own, file, errors) as karat:
        said, _ = karat.communicate()
    assert karat.returncode == 1, (file.parent / "stderr").read_text()
    report: dict[str, Any] = json.loads(said)
    attempts = [a for p in report["stages"][0]["points"] for a in p.get("attempts", ())]
    assert len({attempt["where"].split("node ")[1] for attempt in attempts}) == 2
    return report


@pytest.mark.slow
def test_containers_on_two_nodes(tmp_path: Path, podman: Podman) -> None:
    with Registry(tmp_path / "registry") as registry, ray_cluster() as own:
        own.add("second")
        for day in range(1, 13):
            speed = f"{100 if day < 8 else 90}\n".encode()
            registry.push("toy/nightly", f"2023-08-{day:02d}", Image(layers=(packed({"opt/speed": speed}),)))
        file = tmp_path / "hunt.toml"
        command = ["sh", "-c", "sleep 0.2; echo speed: $(cat /opt/speed)"]
        file.write_text(
            f"""stages = ["containers by day"]
[containers]
image = "{registry.host}/toy/nightly:{{date:%Y-%m-%d}}"
engine = "podman"
start = 2023-08-01
end = 2023-08-12
{_PROBED.format(command=json.dumps(command))}""",
            encoding="utf-8",
        )
        report = hunted_on_two_nodes(file, own)
    assert culprits(report) == [("regression", "2023-08-07", "2023-08-08")]
    assert podman.names() == []


@pytest.mark.slow
def test_packages_on_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("uv") is None:
        missing("uv (pip install 'karat[hunt]')")
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    with PackageIndex() as index, ray_cluster() as own:
        own.add("second")
        for number in range(12):
            index.add("toy", f"1.{number}", f"speed = {100 if number < 7 else 90}")
        file = tmp_path / "hunt.toml"
        command = ["python", "-c", "import time, toy; time.sleep(0.2); print('speed:', toy.speed)"]
        file.write_text(
            f"""stages = ["packages"]
[packages]
name = "toy"
index = "{index.url}"
{_PROBED.format(command=json.dumps(command))}""",
            encoding="utf-8",
        )
        report = hunted_on_two_nodes(file, own)
    assert culprits(report) == [("regression", "1.6", "1.7")]
