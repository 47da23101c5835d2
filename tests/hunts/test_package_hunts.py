"""A whole hunt over released versions, as a user runs it: an index on loopback, real uv, the command line."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import missing
from factories.package_indexes import PackageIndex

if importlib.util.find_spec("uv") is None:
    missing("uv (pip install 'karat[hunt]')")

HUNT = """
name = "toy"
stages = ["packages"]

[packages]
name = "toy"
{index}

[probe]
command = ["python", "-c", "import toy; print('SPEED:', toy.speed)"]
{looked_at}

[search]
confirmations = 1
"""
SECRET = "ghp_PlantedPassword0000000000000000000"  # noqa: S105 - planted, and looked for afterwards
SPEED = '[[probe.metrics]]\nname = "speed"\nregex = "SPEED: (.*)"\nbetter = "higher"\n'
CRASH = '[probe.crash]\nkind = "exception"\npattern = "AttributeError"\n'


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, toml: str, **environment: str) -> dict[str, Any]:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "uv-cache"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (folder / "hunt.toml").write_text(toml, encoding="utf-8")
    done = subprocess.run(
        (sys.executable, "-m", "karat", "hunt", "run", "--json", "found.json", "-q"),
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 1, done.stderr
    found: dict[str, Any] = json.loads((folder / "found.json").read_bytes())
    return found


def found_changes(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (culprit["metric"], culprit["change"]["old"]["id"], culprit["change"]["new"]["id"])
        for culprit in report["culprits"]
    ]


@pytest.mark.slow
def test_the_release_and_the_dependency_that_made_it_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PackageIndex() as index:
        index.add("dep", "1.0", "factor = 1.0", upload_time="2019-01-01T00:00:00Z")
        # Wanted by toy from 1.5 on.
        index.add("dep", "2.0", "factor = 0.9", upload_time="2020-01-05T12:00:00Z")
        for number in range(7):
            speed = 100 if number < 2 else 80
            index.add(
                "toy",
                f"1.{number}",
                f"from dep import factor\nspeed = {speed} * factor",
                requires=["dep<2" if number < 5 else "dep"],
                upload_time=f"2020-01-{number + 1:02}T00:00:00Z",
            )
        index.file("toy", "toy-1.3-py3-none-any.whl.asc")
        found = run(tmp_path, monkeypatch, HUNT.format(index=f'index = "{index.url}"', looked_at=SPEED))
    assert found_changes(found) == [("speed", "1.1", "1.2"), ("speed", "1.4", "1.5")]
    suspects = [[(s["part"], s["id"]) for s in c["suspects"]] for c in found["culprits"]]
    assert suspects == [[("toy", "1.2")], [("dep", "2.0"), ("toy", "1.5")]]


@pytest.mark.slow
def test_the_release_that_took_a_name_away_from_an_index_with_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PackageIndex(password=SECRET) as index:
        for number in range(7):
            text = {3: "import nothing_of_the_kind"}.get(number, "speed = 1" if number < 5 else "")
            index.add("toy", f"1.{number}", text, upload_time=f"2020-01-{number + 1:02}T00:00:00Z")
        # Not in hunt.toml: after all tests no file may hold it.
        found = run(
            tmp_path,
            monkeypatch,
            HUNT.format(index="", looked_at=CRASH) + 'strategy = "bisect"\n',
            UV_DEFAULT_INDEX=index.with_password,
        )
    assert found_changes(found) == [("crash", "1.4", "1.5")]
    points = {point["point"]["id"]: point for point in found["stages"][0]["points"]}
    # Another error is not taken for the one that is hunted.
    assert points["1.3"]["outcome"] == "broken"
