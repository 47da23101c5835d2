from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from karat.findings import UsageError
from karat.system.files import exchange, write_bytes


def test_a_new_file_has_the_bytes_and_the_usual_mode(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    write_bytes(tmp_path / "new.json", b"{}")
    assert (tmp_path / "new.json").read_bytes() == b"{}"
    assert (tmp_path / "new.json").stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_an_old_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "golden.json"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_bytes(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"1")
    write_bytes(tmp_path / "a", b"2")
    assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208 - names, hidden ones too


def test_a_reader_that_holds_the_old_file_is_not_disturbed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with path.open("rb") as held:
        write_bytes(path, b"new and longer")
        assert held.read() == b"old"


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"safe")
    link = tmp_path / "link"
    link.symlink_to(outside)
    with pytest.raises(UsageError, match="symbolic link"):
        write_bytes(link, b"new")
    assert outside.read_bytes() == b"safe"
    assert link.is_symlink()


def test_a_failure_leaves_the_old_state_and_no_temporary_file(tmp_path: Path) -> None:
    taken = tmp_path / "folder"
    taken.mkdir()
    (taken / "inside").write_bytes(b"x")
    with pytest.raises(OSError, match="folder"):
        write_bytes(taken, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_missing_folder_is_the_callers_error_to_word(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_bytes(tmp_path / "nowhere" / "a", b"")


def test_a_long_name_still_fits_a_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)
    write_bytes(path, b"1")
    assert path.read_bytes() == b"1"


def test_a_long_name_of_wide_characters_fits_too(tmp_path: Path) -> None:
    path = tmp_path / ("語" * 84)
    write_bytes(path, b"1")
    assert path.read_bytes() == b"1"


def test_a_workshop_from_which_nothing_can_be_moved_is_done_without(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")  # noqa: S108 - another disk is the point
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    workshop = elsewhere / f"karat-{os.getpid()}"
    workshop.mkdir()
    try:
        write_bytes(tmp_path / "a", b"1", workshop=workshop)
        assert list(workshop.iterdir()) == []
    finally:
        workshop.rmdir()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"1")]


def test_a_failure_leaves_nothing_in_the_workshop(tmp_path: Path) -> None:
    workshop = tmp_path / "workshop"
    workshop.mkdir()
    with pytest.raises(FileNotFoundError):
        write_bytes(tmp_path / "nowhere" / "a", b"1", workshop=workshop)
    assert list(workshop.iterdir()) == []


@pytest.mark.parametrize("system", ["this one", "another"])
def test_two_folders_exchange_their_names(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if system == "another":
        monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())  # a system without renameat2
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one/file").read_text() == "other"
    assert (tmp_path / "other/file").read_text() == "one"
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "gone")
    assert (tmp_path / "one/file").read_text() == "other"
