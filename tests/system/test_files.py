from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from factories.editors import STYLES, editing
from factories.repositories import Repository
from karat.findings import CannotVerify, UsageError
from karat.system import files
from karat.system.files import Displaced, bytes_of, exchange, settled, swap_bytes, sync_all, take_away, write_bytes


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


@pytest.mark.parametrize(("seen", "now"), [(b"old", b"typed"), (b"old", None), (None, b"typed")])
def test_a_file_that_was_saved_since_it_was_read_is_left_alone(
    tmp_path: Path, seen: bytes | None, now: bytes | None
) -> None:
    path = tmp_path / "golden.json"
    if now is not None:
        path.write_bytes(now)
    with pytest.raises(CannotVerify, match="saved meanwhile"):
        swap_bytes(path, b"new", seen)
    assert bytes_of(path) == now
    assert [file.name for file in tmp_path.iterdir()] == ["golden.json"] * (now is not None)


@pytest.mark.parametrize("seen", [b"old", None])
@pytest.mark.parametrize("system", ["this one", "another"])
def test_a_file_that_is_as_it_was_read_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bytes | None, system: str
) -> None:
    if system == "another":
        monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())  # a system without renameat2
    path, workshop = tmp_path / "golden.json", tmp_path / "workshop"
    workshop.mkdir()
    if seen is not None:
        path.write_bytes(seen)
    assert swap_bytes(path, b"new", seen, workshop=workshop) is None
    assert path.read_bytes() == b"new"
    assert list(workshop.iterdir()) == []


def test_what_is_typed_into_a_file_that_is_open_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    path.write_bytes(b"old")
    with path.open("r+b") as file:

        def finish() -> None:
            file.write(b"typed")
            file.close()

        saving = threading.Timer(0.05, finish)
        saving.start()
        displaced = swap_bytes(path, b"new", b"old")
    saving.join()
    assert displaced is not None
    assert displaced.data == displaced.file.read_bytes() == b"typed"
    assert path.read_bytes() == b"new"


def test_a_file_that_stays_open_is_kept_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.system.files._PATIENCE", 0.02)
    path = tmp_path / "golden.json"
    path.write_bytes(b"old")
    with path.open("r+b") as file:
        displaced = swap_bytes(path, b"new", b"old")
        file.write(b"typed")
    assert displaced is not None
    assert displaced.data is None
    assert displaced.file.read_bytes() == b"typed"


def test_who_only_reads_a_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    path.write_bytes(b"old")
    with path.open("rb"):
        assert settled(path) == b"old"
        assert take_away(path, tmp_path) == Displaced(next(tmp_path.iterdir()), b"old")
    assert take_away(path, tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_an_editor_beside_a_writer_loses_no_save(repository: Repository, style: str) -> None:
    path, there = repository.write("golden.json", "NUMBER\n"), set()
    written = displaced = 0
    with editing(path, style, times=1000, pause=0.0005, pattern="NUMBER typed\n") as editor:
        while editor.is_saving:
            there.add(seen := bytes_of(path))
            try:
                found = swap_bytes(path, b"%d\n" % written, seen)
            except CannotVerify:
                continue
            written += 1
            if found is not None:
                displaced += 1
                there.add(found.data)
        _, lost = editor.lost(repository)
    assert min(written, displaced) > 0
    assert [text for text in lost if text.encode() not in there] == []


@pytest.mark.parametrize("waits", [True, False])
def test_files_that_are_synced_together_are_each_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    paths = [tmp_path, *(tmp_path / str(n) for n in range(30))]
    for path in paths[1:]:
        path.write_bytes(b"x")
    monkeypatch.setitem(files._waits, tmp_path.stat().st_dev, waits)
    seen: list[object] = []
    monkeypatch.setattr(files, "sync_folder", seen.append)
    sync_all(paths)
    assert sorted(map(str, seen)) == sorted(map(str, paths))


@pytest.mark.parametrize("waits", [True, False])
def test_one_of_them_that_cannot_be_synced_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    monkeypatch.setitem(files._waits, tmp_path.stat().st_dev, waits)
    with pytest.raises(FileNotFoundError, match="lost"):
        sync_all([tmp_path, tmp_path / "lost", tmp_path, tmp_path])
    sync_all([tmp_path, tmp_path])
