"""A folder of zips as one place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from factories.captured import capture, capture_many, identity
from factories.commands import karat
from karat.bundles.cases import cases
from karat.bundles.folders import open_zips
from karat.bundles.layout import is_of_zips
from karat.bundles.verify import verify_place
from karat.findings import UsageError
from karat.tensors.tensor import Damaged


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A capture directory, and a pack of it."""
    capture_many(tmp_path / "captures", 2)
    assert karat("pack", "captures", "--name", "all", "-q", cwd=tmp_path).code == 0
    return tmp_path


def test_zips_of_single_cases_are_one_place(here: Path) -> None:
    folder = here / "packed/cases"
    assert is_of_zips(folder)
    place = open_zips(folder, str(folder))
    told = verify_place(place)
    assert (told.cases, told.tensors, told.findings) == (4, 12, ())
    assert [case.path for case in cases(place)] == sorted(
        path.parent.relative_to(here / "captures").as_posix() for path in here.glob("captures/*/*/*/manifest.json")
    )
    with pytest.raises(Damaged, match="found nothing"):
        place.extent("gone")


def test_other_folders_are_none(here: Path) -> None:
    assert not is_of_zips(here / "captures")
    assert not is_of_zips(here / "gone")
    (here / "empty").mkdir()
    assert not is_of_zips(here / "empty")
    (here / "packed/cases/readme.md").touch()
    assert not is_of_zips(here / "packed/cases")


@pytest.mark.slow
def test_what_a_pack_at_work_has_not_finished_is_left_alone(here: Path) -> None:
    folder = here / "packed/cases"
    shutil.copytree(folder, folder / ".karat-pack-0123")
    assert len(cases(open_zips(folder, str(folder)))) == 4


@pytest.mark.slow
def test_a_case_in_two_zips_is_nobodys(here: Path) -> None:
    shutil.copy(here / "packed/all.zip", here / "packed/cases")
    with pytest.raises(UsageError, match=r"found models/\S+ in all.zip and in models/"):
        open_zips(here / "packed/cases", str(here / "packed/cases"))


@pytest.mark.slow
@pytest.mark.parametrize("side", ["packed", "packed/cases", "packed/all.zip"])
def test_a_pack_is_a_side_of_a_diff_and_a_bundle_to_replay(here: Path, side: str) -> None:
    for pair in (("captures", side), (side, "captures")):
        done = karat("diff", *pair, cwd=here)
        assert (done.code, done.err) == (0, ""), done
        assert "4 goldens compared (4 same)" in done.out
    capture(here / "captures", identity("test_new"))
    done = karat("diff", side, "captures", cwd=here)
    assert "(1 new, 4 same)" in done.out
    done = karat("replay", side, "--run", "json:loads", cwd=here)
    assert "4 cases: 4 failed" in done.out
