from __future__ import annotations

import json
from pathlib import Path

import pytest

from factories.hunt_files import POINT, place, ran, result, settings
from karat.changepoints.series import Outcome
from karat.hunts.model import Attempt
from karat.hunts.probe.outcomes import read_attempt as read

HUNT = settings('[[probe.metrics]]\nname = "loss"\ngolden = "goldens/run.json"\nfile = "out/run.json"')


def series(values: list[float]) -> bytes:
    steps = {str(step): value for step, value in enumerate(values, 1)}
    body = {"lm loss": {"start_step": 1, "end_step": len(values), "step_interval": 1, "values": steps}}
    return json.dumps(body).encode()


GOOD = [10.0, 9.0, 8.0, 7.5, 7.25]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "goldens").mkdir()
    (tmp_path / "goldens" / "run.json").write_bytes(series(GOOD))
    return tmp_path


def attempt(root: Path, files: dict[str, bytes]) -> Attempt:
    came = result(ran(), files=files)
    return read(came, HUNT, stage="0", point=POINT, number=1, place=place(root))


def test_within_is_0_and_outside_is_1(root: Path) -> None:
    same = attempt(root, {"out/run.json": series(GOOD)})
    assert (same.outcome, same.samples) == (Outcome.OK, {"loss": (0.0,)})
    off = attempt(root, {"out/run.json": series([value * 1.5 for value in GOOD])})
    assert (off.outcome, off.samples) == (Outcome.OK, {"loss": (1.0,)})
    short = attempt(root, {"out/run.json": series(GOOD[:2])})
    assert short.samples == {"loss": (1.0,)}


def test_rows_that_the_golden_lacks_are_what_karat_toml_says_of_them(root: Path) -> None:
    (root / "goldens" / "speed.csv").write_text("name,speed\na,1.0\nb,2.0\n", encoding="utf-8")
    hunt = settings('[[probe.metrics]]\nname = "speed"\ngolden = "goldens/speed.csv"\nfile = "speed.csv"')
    came = result(ran(), files={"speed.csv": b"name,speed\na,1.0\nb,2.0\nc,3.0\n"})

    def found() -> Attempt:
        return read(came, hunt, stage="0", point=POINT, number=1, place=place(root))

    assert found().samples == {"speed": (0.0,)}
    (root / "karat.toml").write_text('[check]\nunknown_rows = "fail"\n', encoding="utf-8")
    # As with `unknown`: what has no golden cannot be verified.
    assert found().outcome is Outcome.BROKEN
    assert found().note.startswith("speed: ")


def test_a_run_that_left_nothing_is_a_crash(root: Path) -> None:
    found = attempt(root, {})
    assert (found.outcome, found.samples) == (Outcome.CRASH, {})
    assert found.signature == "no value for loss: the run left no out/run.json"


@pytest.mark.parametrize("golden", [None, b"<<<<<<< HEAD\n", b""])
def test_what_cannot_be_verified_is_broken_and_never_good(root: Path, golden: bytes | None) -> None:
    path = root / "goldens" / "run.json"
    path.unlink() if golden is None else path.write_bytes(golden)
    found = attempt(root, {"out/run.json": series(GOOD)})
    assert (found.outcome, found.samples, found.signature) == (Outcome.BROKEN, {}, found.note)
    assert found.note.startswith("loss: ")


def test_the_projects_own_rules_hold(root: Path) -> None:
    off = {"out/run.json": series([value * 1.2 for value in GOOD])}
    assert attempt(root, off).samples == {"loss": (1.0,)}
    (root / "karat.toml").write_text('[[rules]]\nmetric = "lm loss"\ncheck = "approx"\nrtol = 0.5\n', encoding="utf-8")
    assert attempt(root, off).samples == {"loss": (0.0,)}
