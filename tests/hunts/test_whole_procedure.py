"""The document's whole procedure, for real and small: nightly images, then hours, then commits.

A registry on loopback has forty nights of a toy project of two repositories (`factories.nightlies`), podman runs them, and
checkouts are built inside a container that is kept, as a person would do it: with `karat hunt run`.
Over all forty the probe builds what it tests, over a few of them `build` does: each call of podman has its price.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from factories.container_engines import Podman
from factories.nightlies import BACK, BROKEN, DIP, MENDED, SIGNATURE, SLOWER, SLOWEST, ToyProject
from factories.registries import Registry


@pytest.fixture
def podman() -> Iterator[Podman]:
    with Podman() as made:
        yield made


@pytest.fixture
def toy(tmp_path: Path) -> ToyProject:
    return ToyProject(tmp_path / "my toy")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry(tmp_path / "registry") as made:
        yield made


def _start(toy: ToyProject, podman: Podman, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "karat", "hunt", *words],
        cwd=toy.folder,
        env={**os.environ, **podman.env, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _hunt(toy: ToyProject, podman: Podman, *words: str) -> tuple[dict[str, Any], str]:
    """The report as JSON, and what the terminal showed."""
    with _start(toy, podman, *words, "--json", "report.json") as process:
        shown, progress = process.communicate()
    assert process.returncode == 1, shown + progress
    assert podman.names() == []
    return json.loads((toy.folder / "report.json").read_text()), shown


def _killed_hunt(toy: ToyProject, podman: Podman, *, runs: int) -> None:
    """A hunt that was ended by `kill -9` while it had more to run."""
    with _start(toy, podman, "run") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(f"[{runs}"):
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL


def _found(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Of each culprit: what it is, the repository, and the one commit."""
    found = []
    for culprit in report["culprits"]:
        assert culprit["change"]["verdict"]["confirmed"], culprit
        (suspect,) = culprit["suspects"]
        assert culprit["change"]["verdict"]["part"] == suspect["part"]
        found.append((culprit["change"]["kind"], suspect["part"], suspect["id"]))
    return found


@pytest.mark.slow
def test_forty_nights_give_both_slowdowns_the_dip_and_the_crash_with_their_commits(
    toy: ToyProject, registry: Registry, podman: Podman
) -> None:
    toy.push_nights(registry, labels=True)
    toy.write_hunt(registry, build=False)
    report, shown = _hunt(toy, podman, "--jobs", "2", "--html", "report.html", "--markdown", "issue.md")
    assert _found(report) == [
        ("regression", "engine", toy.culprit("engine", SLOWER).id),
        # On a branch: the merge was found first, and looked into.
        ("regression", "front", toy.culprit("front", SLOWEST).id),
        # What is over comes after what stands.
        ("dip", "engine", toy.culprit("engine", DIP).id),
        ("dip", "engine", toy.culprit("engine", BACK).id),
        ("crash", "front", toy.culprit("front", BROKEN).id),
        ("recovery", "front", toy.culprit("front", MENDED).id),
    ]
    nights = report["stages"][0]
    _check_nights(nights)
    assert report["state"] == "done"
    stages = {stage["timeline"] for stage in report["stages"]}
    assert stages == {"containers", "checkouts", "commits"}
    for text in (shown, (toy.folder / "issue.md").read_text()):
        assert SIGNATURE in text
        assert "Copy tiles before use" in text
        assert "Fuse loads" in text
    assert SIGNATURE.partition(":")[0] in (toy.folder / "report.html").read_text()


def _check_nights(nights: dict[str, Any]) -> None:
    """Missing and broken nights are holes; the crash lasts two nights; a change across a hole is a range."""
    by_outcome: dict[str, list[str]] = {}
    for point in nights["points"]:
        by_outcome.setdefault(point.get("outcome", "not tried"), []).append(point["point"]["id"])
    assert by_outcome["missing"] == ["2023-07-21", "2023-08-04"]
    assert by_outcome["broken"] == ["2023-08-10"]
    assert by_outcome["crash"] == ["2023-07-31", "2023-08-01"]
    assert not set(by_outcome) - {"missing", "broken", "crash", "ok", "not tried"}
    crashed = [point for point in nights["points"] if point.get("outcome") == "crash"]
    signatures = {attempt["signature"] for point in crashed for attempt in point["attempts"]}
    assert signatures == {SIGNATURE}
    last = nights["changes"][-1]
    assert (last["old"]["id"], last["new"]["id"]) == ("2023-08-09", "2023-08-11")
    assert len(last["span"]["between"]) == 1


@pytest.mark.slow
def test_without_labels_the_times_of_the_nights_lead_to_the_commit_also_after_a_kill(
    toy: ToyProject, registry: Registry, podman: Podman
) -> None:
    toy.push_nights(registry, labels=False)
    toy.write_hunt(registry, first=13, last=18)
    _killed_hunt(toy, podman, runs=8)
    report, _ = _hunt(toy, podman, "resume")
    assert _found(report) == [("regression", "engine", toy.culprit("engine", SLOWER).id)]
    tried = [len(p.get("attempts", ())) for p in report["stages"][0]["points"]]
    # What the killed hunt had seen of the nights was not run again.
    assert 0 < sum(tried) <= 8
    _check_by_hand(toy, podman)


def _check_by_hand(toy: ToyProject, podman: Podman) -> None:
    """A night that is tried by hand does what the hunt did."""
    with _start(toy, podman, "try", "2023-07-23") as process:
        shown, errors = process.communicate()
    assert process.returncode == 0, errors
    assert shown.splitlines()[-1].startswith("SPEED: ")
    assert podman.names() == []
