from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.bundles.layout import capture_root
from karat.findings import UsageError
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter
from karat.snapshots.files import checked_environment, place_of, unused

FILE = Path("/p/tests/test_train.py")


@pytest.mark.parametrize(
    ("node", "folder"),
    [
        ("test_loss", "test_loss"),
        ("test_loss[bf16-2]", "test_loss-bf16-2"),
        ("TestModel::test_loss", "TestModel.test_loss"),
    ],
)
def test_plain_names_stay_as_they_are(node: str, folder: str) -> None:
    place = place_of(FILE, node)
    assert place.folder == Path("/p/tests/goldens/test_train") / folder
    assert place.path("loss", "series") == place.folder / "loss.json"
    assert place.path("accuracy", "table", "cuda-sm90") == place.folder / "accuracy@cuda-sm90.csv"


TEXTS = st.text(min_size=1, max_size=150)


@given(TEXTS, TEXTS)
def test_two_names_never_share_a_file_and_every_one_is_found(one: str, other: str) -> None:
    place = place_of(FILE, "test_loss")
    first, second = (place.path(name, "series") for name in (one, other))
    assert (first == second) == (one == other)
    assert first.parent == place.folder
    assert len(first.name) <= 120
    assert PathFilter(DEFAULT_GLOBS)(str(first.relative_to("/p")))


@given(TEXTS, TEXTS)
def test_two_tests_never_share_a_folder(one: str, other: str) -> None:
    folders = [place_of(FILE, f"test_x[{text}]").folder for text in (one, other)]
    assert (folders[0] == folders[1]) == (one == other)
    assert all(folder.parent == Path("/p/tests/goldens/test_train") for folder in folders)


@pytest.mark.parametrize("name", ["loss.samples", "manifest", "goldens.lock", "../x", "a/b", ".hidden", "con", "a@b"])
def test_names_that_mean_something_else_end_with_a_hash(name: str) -> None:
    path = place_of(FILE, "test_x").path(name, "series")
    assert path.stem.rpartition("-")[2].isalnum()
    assert "@" not in path.name
    assert path.parent == place_of(FILE, "test_x").folder


def test_tensors_lie_three_folders_below_the_goldens_as_every_captured_case() -> None:
    place = place_of(FILE, "test_x[a b]")
    path = place.path("logits", "bundle", "cuda").relative_to("/p")
    assert path.parts[:3] == ("tests", "goldens", "test_train")
    assert path.parts[4].startswith("logits@cuda-")
    assert capture_root(path.as_posix()) == "tests/goldens"


def test_a_central_folder_keeps_the_folders_of_tests() -> None:
    place = place_of(FILE, "test_x", Path("/p/goldens"), Path("/p"))
    assert place.folder == Path("/p/goldens/tests/test_train/test_x")


def test_the_closest_environment_counts(tmp_path: Path) -> None:
    place = place_of(tmp_path / "test_a.py", "test_x")
    place.folder.mkdir(parents=True)

    def closest(environment: str) -> str | None:
        found = place.closest("loss", "series", environment)
        return found.name if found else None

    assert closest("cuda-sm90") is None
    (place.folder / "loss@cuda-sm80.json").touch()
    assert closest("cuda-sm90") is None, "another environment's is never taken"
    (place.folder / "loss.json").touch()
    assert (closest("cuda-sm90"), closest(""), closest("cpu")) == ("loss.json",) * 3
    (place.folder / "loss@cuda.json").touch()
    assert (closest("cuda-sm90"), closest("cuda"), closest("")) == ("loss@cuda.json", "loss@cuda.json", "loss.json")
    (place.folder / "loss@cuda-sm90.json").touch()
    assert closest("cuda-sm90-h100") == "loss@cuda-sm90.json"


@pytest.mark.parametrize("name", ["a b", "-cuda", "cuda-", "a@b", "a/b", "é"])
def test_an_environment_is_words_joined_by_dashes(name: str) -> None:
    with pytest.raises(UsageError, match="words joined by dashes"):
        checked_environment(name)


def test_what_nobody_asked_for_is_unused_in_every_environment(tmp_path: Path) -> None:
    ran, skipped = place_of(tmp_path / "test_a.py", "test_x"), place_of(tmp_path / "test_a.py", "test_skipped")
    old = place_of(tmp_path / "test_a.py", "test_old")
    for place in (ran, skipped, old):
        for name in ("loss.json", "loss@cuda.json", "loss.samples.json", "gone.csv", "gone@tpu.csv"):
            place.folder.mkdir(parents=True, exist_ok=True)
            (place.folder / name).touch()
    for name in ("logits-0123", "logits@cuda-4567", "old-89ab"):
        (ran.folder / name).mkdir()
    asked = {ran.path("loss", "series"), ran.folder / "logits@cuda-4567"}
    found = [path.relative_to(ran.file).as_posix() for path in unused([ran], asked, {skipped.folder})]
    assert found == ["test_old", "test_x/gone.csv", "test_x/gone@tpu.csv", "test_x/old-89ab"]
