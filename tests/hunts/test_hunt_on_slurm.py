"""A hunt on a real Slurm of two nodes, one of which is drained in the middle, then killed and resumed: the same answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from conftest import missing
from factories.hunts import culprits, found, hunted, stepped, values_hunt
from factories.registries import Image, Registry
from factories.slurm_clusters import SlurmCluster
from karat.engines.job import EngineSettings, JobResult, open_engine
from karat.findings import CannotVerify, UsageError
from karat.hunts.hunt_toml import read, workspace_of
from karat.hunts.probe.jobs import job_for
from karat.hunts.probe.outcomes import read_attempt
from karat.hunts.settings import Stage
from karat.hunts.timelines.containers import open_containers

# One process has the cluster.
pytestmark = pytest.mark.xdist_group("slurm")

_LEVELS = stepped(24, (7, 95.0), (18, 90.0)) | {"v012": "crash"}
# Says where it runs, and stays on the second node while it is to be hit there.
_SLOWLY = 'echo "$SLURMD_NODENAME $1" >> where.txt; [ $SLURMD_NODENAME = first ] || [ ! -e hold ] || sleep 1000\n'


def hunting(slurm: SlurmCluster, file: Path, errors: IO[str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "karat", "hunt", *words, "--engine", "slurm", "--json", "-", "--quiet"],
        cwd=file.parent,
        env={**os.environ, **slurm.env, "KARAT_AREAS": str(file.parent / "areas")},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


@pytest.mark.slow
def test_a_node_drained_and_a_driver_killed_in_the_middle_change_no_answer(slurm: SlurmCluster, tmp_path: Path) -> None:
    file = values_hunt(tmp_path / "slurm", _LEVELS)
    probe, where = file.with_name("probe.sh"), file.with_name("where.txt")
    probe.write_text(_SLOWLY + probe.read_text(encoding="utf-8"), encoding="utf-8")

    def running() -> set[tuple[str, str]]:
        """Whose jobs run, and on which nodes."""
        lines = slurm.ask("squeue", "--noheader", "--states=RUNNING", "--format=%j %N").splitlines()
        return {(name, node) for name, node in map(str.split, lines)}

    with (tmp_path / "stderr").open("w+") as errors:
        with hunting(slurm, file, errors, "run", file.name) as karat:
            names: set[str] = set()
            while not where.exists() or where.read_text().count("\n") < 4 or not names:
                assert karat.poll() is None, (tmp_path / "stderr").read_text()
                names |= {name for name, _ in running()}
            (of_the_killed,) = names
            karat.kill()
        file.with_name("hold").touch()
        with hunting(slurm, file, errors, "resume") as karat:
            while not any(node == "second" and name != of_the_killed for name, node in running()):
                assert karat.poll() is None, (tmp_path / "stderr").read_text()
                time.sleep(0.02)
            try:
                slurm.drain("second")
                said, _ = karat.communicate()
            finally:
                slurm.resume("second")
    assert karat.returncode == 1, (tmp_path / "stderr").read_text()
    report = json.loads(said)
    assert report["state"] == "done"
    assert culprits(report) == found(hunted(values_hunt(tmp_path / "here", _LEVELS)))
    assert ("regression", "v006", "v007") in culprits(report)
    attempts = [a for p in report["stages"][0]["points"] for a in p.get("attempts", ())]
    assert any("lost and tried again: Slurm job " in attempt.get("note", "") for attempt in attempts)
    assert slurm.jobs() == []


def nights_hunt(folder: Path, image: str, command: str, more: str = "") -> Path:
    file = folder / "hunt.toml"
    file.write_text(
        f"""
stages = ["containers by day"]
[containers]
image = "{image}"
engine = "pyxis"
start = 2023-08-20
end = 2023-08-21
mounts = [".:/dir:ro"]
[probe]
command = ["sh", "-c", {json.dumps(command)}]
env = {{ PATH = "/opt/bin:/usr/bin:/bin", SIZE = "8" }}
timeout = "5 s"
[[probe.metrics]]
name = "speed"
regex = 'speed: ([0-9.]+)'
[engine]
kind = "slurm"
{more}""",
        encoding="utf-8",
    )
    return file


@pytest.mark.slow
def test_images_are_run_by_pyxis(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not slurm.has_pyxis:
        missing("spank.h (apt install libslurm-dev gcc)")
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    monkeypatch.setenv("KARAT_AREAS", str(tmp_path / "areas"))
    show = "env | grep -E '^(PYXIS_|PATH|SIZE|KARAT_POINT)'; cat nothing; case $KARAT_POINT in *20) echo speed: 1;; *) exit 3;; esac"
    with Registry(tmp_path / "registry") as registry:
        digests = [registry.push("toy/nightly", f"2023-08-{day}", Image(labels={"day": str(day)})) for day in (20, 21)]
        file = nights_hunt(tmp_path, f"{registry.host}/toy/nightly:{{date:%Y-%m-%d}}", show)
        settings, place = read(file), workspace_of(file, read(file))
        timeline = open_containers(settings, Stage(timeline="containers", text="containers by day"), None, place)
        engine = open_engine(EngineSettings(kind="slurm", slots=2), place.work)
        for point in timeline.points:
            engine.submit(job_for(timeline, point, settings, key=point.id, place=place))
        results: dict[str, JobResult] = {}
        while len(results) < 2:
            results |= {result.key: result for result in engine.wait()}
        engine.close()
        timeline.close()
    first, second = results["2023-08-20"], results["2023-08-21"]
    assert [ran.name for ran in first.ran] == ["pull", "run 1"]
    told = dict(line.split("=", 1) for line in first.ran[-1].output.decode().splitlines() if "=" in line)
    assert told["PYXIS_IMAGE"] == f"{registry.host}#toy/nightly:{digests[0]}"
    assert told["PYXIS_NAME"].startswith(f"karat-{place.hunt}-")
    assert f"{tmp_path}:/dir:ro" in told["PYXIS_MOUNTS"].split(",")
    assert {"KARAT_OUT", "SIZE"} <= set(told["PYXIS_ENV"].split(","))
    assert told["PATH"] == "/opt/bin:/usr/bin:/bin"
    assert told["SIZE"] == "8"
    # A failure names no node: the same crash on two of them is one.
    attempts = [
        read_attempt(result, settings, stage="1", point=point, number=1, place=place)
        for point, result in zip(timeline.points, (first, second), strict=True)
    ]
    assert [attempt.outcome for attempt in attempts] == ["ok", "crash"]
    assert b"srun: error" not in second.ran[-1].output


def test_without_pyxis_or_slurm_it_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    file = nights_hunt(tmp_path, "registry.example/toy:{date}", "true")
    stage, place = Stage(timeline="containers", text="containers by day"), workspace_of(file, read(file))
    with pytest.raises(CannotVerify, match="expected srun with the plugin pyxis") as refused:
        open_containers(read(file), stage, None, place)
    assert refused.value.next_command == "srun --help"
    file.write_text(file.read_text().replace('kind = "slurm"', ""))
    with pytest.raises(UsageError, match=r'expected kind = "slurm" under \[engine\], found'):
        open_containers(read(file), stage, None, place)
