from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from factories.captured import capture, capture_many, identity
from factories.packed import NAME, packed, tree
from karat.bundles.layout import SUMS
from karat.findings import CannotVerify, UsageError
from karat.store.pack import Packed, PackOptions, pack, read_sums
from karat.store.verify import verify_target


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return capture_many(tmp_path / "captures", 2)


def test_directories_must_be_apart(tmp_path: Path, root: Path) -> None:
    for roots in ((root, root), (root, root / "models"), (root / "models", root)):
        with pytest.raises(UsageError, match="apart from each other"):
            packed(tmp_path, *roots)
    with pytest.raises(UsageError, match="outside of what is packed"):
        packed(tmp_path, root, out="captures/out")
    with pytest.raises(UsageError, match="found nothing there"):
        packed(tmp_path, tmp_path / "nowhere")
    packed(tmp_path, root)
    with pytest.raises(UsageError, match="expected a capture directory, found a zip"):
        packed(tmp_path, tmp_path / "out" / NAME, out="again")
    with pytest.raises(UsageError, match="found a folder that `karat pack` filled"):
        packed(tmp_path, tmp_path / "out", out="again")
    for words, out in (([""], "x"), ([str(root)], "")):
        with pytest.raises(UsageError, match="found an empty word"):
            pack(words, PackOptions(output=out, combined=NAME))


def test_a_pack_with_a_case_fewer_and_right_in_itself_is_not_what_the_sums_say(tmp_path: Path, root: Path) -> None:
    packed(tmp_path, root)
    shutil.rmtree(next((root / "models").iterdir()))
    packed(tmp_path, root, out="fewer")
    assert not verify_target(str(tmp_path / "fewer")).findings
    shutil.copy(tmp_path / "fewer" / NAME, tmp_path / "out" / NAME)
    assert not verify_target(str(tmp_path / "out" / NAME)).findings, "nobody but the sums can tell"
    told = verify_target(str(tmp_path / "out"))
    assert [(f.kind, f.path) for f in told.findings] == [("bundle-damaged", NAME)]


def test_interrupted_amid_its_renames_it_leaves_nothing(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, left = Path.rename, [2]

    def interrupted(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            packed(tmp_path, root)
    assert left[0] < 0, "it has renamed back"
    assert not (tmp_path / "out").exists()


def test_what_stands_in_the_way_is_left_alone(tmp_path: Path, root: Path) -> None:
    packed(tmp_path, root)
    before = tree(tmp_path / "out")
    with pytest.raises(UsageError, match="expected an empty or new folder, found SHA256SUMS in it"):
        packed(tmp_path, root, combined="other.zip")
    assert tree(tmp_path / "out") == before


def test_two_packs_at_once_into_one_folder(tmp_path: Path, root: Path) -> None:
    results: list[Packed | UsageError] = []

    def one() -> None:
        try:
            results.append(packed(tmp_path, root))
        except UsageError as error:
            results.append(error)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = [one for one in results if isinstance(one, Packed)]
    assert len(results) == 4
    assert [one.state for one in written] == ["written"], "one wins, the others say so"
    sums = read_sums((tmp_path / "out" / SUMS).read_bytes())
    assert all(sha256((tmp_path / "out" / p).read_bytes()).hexdigest() == d for d, p in sums)
    assert not list((tmp_path / "out").glob(".karat-pack-*"))


def test_a_killed_pack_s_leftovers_are_cleared_away(tmp_path: Path, root: Path) -> None:
    left = tmp_path / "out" / ".karat-pack-0123" / "new"
    left.mkdir(parents=True)
    (left / "half.zip").write_bytes(b"PK")
    assert packed(tmp_path, root).exit_code == 0
    assert not left.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount a small disk")
def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    import numpy as np

    root, disk = tmp_path / "captures", tmp_path / "disk"
    capture(root, identity(), expected=np.zeros(1 << 20, np.float64))
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine mounts no tmpfs")
    try:
        with pytest.raises(CannotVerify, match="No space left on device; nothing was") as caught:
            packed(tmp_path, root, out="disk/out")
        assert list(disk.iterdir()) == []
        assert caught.value.next_command == f"df -h {disk}", "which is there"
        assert packed(tmp_path, root, out="disk/out", compression="deflate").exit_code == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_without_zstandard_it_says_how_to_install_it(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UsageError, match="needs zstandard, which is not installed") as caught:
        packed(tmp_path, root, compression="zstd")
    assert caught.value.next_command == "pip install 'karat[zstd]'"
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_made(tmp_path: Path, root: Path) -> None:
    (tmp_path / "out").write_text("a file", encoding="utf-8")
    with pytest.raises(CannotVerify, match="expected to write into"):
        packed(tmp_path, root)
