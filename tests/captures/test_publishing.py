from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from karat.captures.session import Occupied, SameSession, publish


def staged(root: Path, session: str, text: str = "new") -> Path:
    folder = root / ".karat" / "staging" / text
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(f'{{"session": "{session}", "more": 1}}')
    (folder / "data").write_text(text)
    return folder


def test_a_case_moves_into_place_whole(tmp_path: Path) -> None:
    folder = staged(tmp_path, "a")
    publish(folder, tmp_path / "s" / "f" / "c", "a")
    assert (tmp_path / "s" / "f" / "c" / "data").read_text() == "new"
    assert not folder.exists()


def test_an_earlier_sessions_case_makes_room(tmp_path: Path) -> None:
    target = tmp_path / "s" / "f" / "c"
    publish(staged(tmp_path, "a", "old"), target, "a")
    (target / "extra").write_text("only the old case had it")
    publish(staged(tmp_path, "b"), target, "b")
    assert sorted(p.name for p in target.iterdir()) == ["data", "manifest.json"]
    assert (target / "data").read_text() == "new"
    assert list((tmp_path / ".karat" / "staging").iterdir()) == []


def test_a_damaged_case_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "c"
    target.mkdir()
    (target / "manifest.json").write_text('{"session": "a')
    publish(staged(tmp_path, "a"), target, "a")
    assert (target / "data").read_text() == "new"


def test_the_same_sessions_case_stays(tmp_path: Path) -> None:
    target = tmp_path / "c"
    publish(staged(tmp_path, "a", "first"), target, "a")
    with pytest.raises(SameSession):
        publish(staged(tmp_path, "a", "second"), target, "a")
    assert (target / "data").read_text() == "first"


def test_sessions_that_publish_one_case_at_the_same_time_all_succeed(tmp_path: Path) -> None:
    target = tmp_path / "s" / "f" / "c"

    def publish_often(name: str) -> None:
        for number in range(60):
            root = tmp_path / f"{name}{number}"
            root.mkdir()
            publish(staged(root, root.name), target, root.name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish_often, "abcd"))
    assert sorted(path.name for path in target.iterdir()) == ["data", "manifest.json"]
    assert [path.name for path in target.parent.iterdir()] == ["c"]
    assert [path for path in tmp_path.glob("*/*") if "staged" in path.name] == []


def test_what_is_no_case_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    folder = staged(tmp_path, "a")
    for name in ("file", "folder", "link"):
        with pytest.raises(Occupied, match="expected a case or nothing at"):
            publish(folder, tmp_path / name, "a")
    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "link").is_symlink()
    assert (folder / "data").is_file()
