"""What `karat pack` left, as one place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from factories.captured import capture, capture_many, identity
from factories.commands import karat
from karat.bundles.cases import cases
from karat.bundles.layout import is_of_zips
from karat.bundles.places import open_pack
from karat.findings import UsageError


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A capture directory, and a pack of it."""
    capture_many(tmp_path / "captures", 2)
    assert karat("pack", "captures", "--name", "all", "-q", cwd=tmp_path).code == 0
    return tmp_path


def test_a_pack_stands_for_the_zip_of_all_cases(here: Path) -> None:
    assert is_of_zips(here / "packed")
    assert len(cases(open_pack(here / "packed", str(here / "packed")))) == 4
    with pytest.raises(
        UsageError, match=r"packed/cases: expected one zip of all cases in a folder of zips, found none"
    ):
        open_pack(here / "packed/cases", str(here / "packed/cases"))
    shutil.copy(here / "packed/all.zip", here / "packed/more.zip")
    with pytest.raises(UsageError, match=r"found all\.zip, more\.zip"):
        open_pack(here / "packed", str(here / "packed"))


def test_other_folders_are_none(here: Path) -> None:
    assert not is_of_zips(here / "captures")
    assert not is_of_zips(here / "gone")
    (here / "empty").mkdir()
    assert not is_of_zips(here / "empty")
    (here / "packed/cases/readme.md").touch()
    assert not is_of_zips(here / "packed/cases")


@pytest.mark.slow
@pytest.mark.parametrize("side", ["packed", "packed/all.zip"])
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
