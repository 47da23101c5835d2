"""The document's whole procedure, for real and small: nightly images, then hours, then commits.

A registry on loopback has forty nights of a toy project of two repositories (`factories.nightlies`), podman runs them, and
checkouts are built inside a container that is kept, as a person would do it: with `karat hunt run`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from factories.container_engines import Podman
from factories.nightlies import (
    BACK,
    BROKEN,
    DIP,
    MENDED,
    SIGNATURE,
    SLOWER,
    SLOWEST,
    ToyProject,
)
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


def _hunt(toy: ToyProject, podman: Podman, *words: str) -> tuple[dict[str, Any], str]:
    """The report as JSON, and what the terminal showed."""
    done = subprocess.run(
        [sys.executable, "-m", "karat", "hunt", "run", "--json", "report.json", *words],
        cwd=toy.folder,
        env={**os.environ, **podman.env, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert podman.names() == []
    return json.loads((toy.folder / "report.json").read_text()), done.stdout


def _found(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Of each culprit: what it is, the repository, and the one commit."""
    found = []
    for culprit in report["culprits"]:
        assert culprit["change"]["verdict"]["confirmed"], culprit
        (suspect,) = culprit["suspects"]
        assert culprit["change"]["verdict"]["part"] == suspect["part"]
        found.append((culprit["change"]["kind"], suspect["part"], suspect["id"]))
    return found


def test_forty_nights_give_both_slowdowns_the_dip_and_the_crash_with_their_commits(
    toy: ToyProject, registry: Registry, podman: Podman
) -> None:
    toy.push_nights(registry, labels=True)
    toy.write_hunt(registry)
    report, shown = _hunt(
        toy, podman, "--jobs", "2", "--html", "report.html", "--markdown", "issue.md"
    )
    assert _found(report) == [
        ("dip", "engine", toy.culprit("engine", DIP).id),
        ("dip", "engine", toy.culprit("engine", BACK).id),
        ("regression", "engine", toy.culprit("engine", SLOWER).id),
        ("crash", "front", toy.culprit("front", BROKEN).id),
        ("improvement", "front", toy.culprit("front", MENDED).id),
        # On a branch: the merge was found first, and looked into.
        ("regression", "front", toy.culprit("front", SLOWEST).id),
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


def test_without_labels_the_times_of_the_nights_lead_to_the_commit(
    toy: ToyProject, registry: Registry, podman: Podman
) -> None:
    toy.push_nights(registry, labels=False)
    toy.write_hunt(registry, first=13, last=18)
    report, _ = _hunt(toy, podman)
    assert _found(report) == [("regression", "engine", toy.culprit("engine", SLOWER).id)]
