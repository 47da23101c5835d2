from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import missing
from karat.captures.session import CaptureDirectory, capture_directory, prepare
from karat.findings import UsageError

KARAT, GOLDEN = "KARAT_CAPTURE_DIR", "GOLDEN_ARTIFACTS_DIR"


@pytest.mark.parametrize(
    ("option", "environ", "path", "origin"),
    [
        ("o", {KARAT: "k", GOLDEN: "g"}, "o", "--karat-capture"),
        (None, {KARAT: "k", GOLDEN: "g"}, "k", KARAT),
        (None, {GOLDEN: "g"}, "g", GOLDEN),
        ("", {KARAT: "", GOLDEN: "g"}, "g", GOLDEN),
        ("/abs/x/../y", {}, "/abs/y", "--karat-capture"),
    ],
)
def test_the_option_wins_then_karats_variable_then_the_suites(
    option: str | None, environ: dict[str, str], path: str, origin: str
) -> None:
    found = capture_directory(option, environ, Path("/base"))
    assert found is not None
    assert (found.path, found.origin) == (Path("/base") / path, origin)


@pytest.mark.parametrize("environ", [{}, {KARAT: "", GOLDEN: ""}])
def test_unset_and_empty_are_off(environ: dict[str, str]) -> None:
    assert capture_directory(None, environ, Path("/base")) is None
    assert capture_directory("", environ, Path("/base")) is None


def place(path: Path) -> CaptureDirectory:
    return CaptureDirectory(path=path, origin="--karat-capture")


def test_a_directory_is_made_and_left_clean(tmp_path: Path) -> None:
    prepare(place(tmp_path / "a" / "b"))
    assert [p.name for p in (tmp_path / "a" / "b").iterdir()] == [".karat"]
    assert list((tmp_path / "a" / "b" / ".karat").iterdir()) == []


def test_a_link_to_a_directory_will_do(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    prepare(place(tmp_path / "link"))
    assert (tmp_path / "real" / ".karat").is_dir()


def refused(path: Path, advice: str = "ls -ld ") -> str:
    with pytest.raises(UsageError) as caught:
        prepare(place(path))
    assert caught.value.next_command.startswith(advice)
    return str(caught.value)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    said = refused(tmp_path / "file")
    assert said.startswith("--karat-capture: expected a directory that can be written to at ")
    assert said.endswith("but: Not a directory")
    assert refused(tmp_path / "file" / "below").endswith("but: Not a directory")


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert str(tmp_path / "link") in refused(tmp_path / "link")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        missing("the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_says_so_before_any_test_runs(small_disk: Path) -> None:
    (small_disk / ".karat").mkdir()
    (small_disk / "filler").write_bytes(b"\0" * (60 << 10))
    assert refused(small_disk, f"df -h {small_disk}").endswith("No space left on device")
    assert list((small_disk / ".karat").iterdir()) == []


def test_a_read_only_disk_says_so(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert refused(small_disk / "captures").endswith("Read-only file system")
