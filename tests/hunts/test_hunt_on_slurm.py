"""A hunt on a real Slurm of two nodes, one of which is drained in the middle, then killed and resumed: the same answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest

from factories.hunts import found, hunted, stepped, values_hunt
from factories.slurm_clusters import SlurmCluster

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


def culprits(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    changes = [culprit["change"] for culprit in report["culprits"]]
    return [(c["kind"], c["old"]["label"], c["new"]["label"]) for c in changes]


@pytest.mark.slow
def test_a_node_drained_and_a_driver_killed_in_the_middle_change_no_answer(slurm: SlurmCluster, tmp_path: Path) -> None:
    file = values_hunt(tmp_path / "slurm", _LEVELS)
    probe, where = file.with_name("probe.sh"), file.with_name("where.txt")
    probe.write_text(_SLOWLY + probe.read_text(encoding="utf-8"), encoding="utf-8")

    def reached(lines: int, node: str, karat: subprocess.Popen[str]) -> None:
        while not where.exists() or node not in "".join(where.read_text().splitlines()[lines:]):
            assert karat.poll() is None, (tmp_path / "stderr").read_text()
            time.sleep(0.02)

    with (tmp_path / "stderr").open("w+") as errors:
        with hunting(slurm, file, errors, "run", file.name) as karat:
            reached(3, "first", karat)
            karat.kill()
        file.with_name("hold").touch()
        with hunting(slurm, file, errors, "resume") as karat:
            reached(where.read_text().count("\n"), "second", karat)
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
