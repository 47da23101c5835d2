"""Files by pattern: hashed, or brought back; within limits, and not through links that lead elsewhere."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.engines.files import CollectedFiles, glob_files, hash_files


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def area(tmp_path: Path) -> Path:
    for name in ("a.so", "lib/b.so", "lib/deep/er/c.so", "lib/d.txt", ".hidden/e.so"):
        write(tmp_path / "area" / name, name)
    write(tmp_path / "outside" / "f.so", "f")
    return tmp_path / "area"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.so", ["a.so"]),
        ("*.so", ["a.so"]),
        ("./lib/*", ["lib/b.so", "lib/d.txt", "lib/deep"]),
        ("**/*.so", [".hidden/e.so", "a.so", "lib/b.so", "lib/deep/er/c.so"]),
        ("lib/**/?.so", ["lib/b.so", "lib/deep/er/c.so"]),
        ("lib/**/er/**/*.so", ["lib/deep/er/c.so"]),
        ("l[ijk]b/b.so", ["lib/b.so"]),
        ("nothing/*.so", []),
        ("a.so/*", []),
        ("", []),
    ],
)
def test_patterns(area: Path, pattern: str, expected: list[str]) -> None:
    assert [str(path.relative_to(area)) for path in glob_files(area, pattern)] == expected


@pytest.mark.slow
@given(st.text("ab/*?.[]!", max_size=12))
def test_no_pattern_is_too_odd(pattern: str) -> None:
    here = Path(__file__).parent
    found = list(glob_files(here, pattern if not pattern.startswith("/") else pattern[1:]))
    assert len(found) == len(set(found))


def test_a_link_in_a_circle_ends(area: Path) -> None:
    for number in range(3):
        (area / "lib" / f"loop{number}").symlink_to(area)
    assert len(list(glob_files(area, "**/*.so"))) == 4


def test_a_folder_behind_a_link_is_entered_where_it_is_named(area: Path) -> None:
    # As bazel's convenience links: what was built is not in the area at all.
    (area / "bazel-bin").symlink_to(area.parent / "outside")
    assert hash_files(area, ["bazel-bin/*.so"]) == {"bazel-bin/f.so": digest("f")}
    assert "bazel-bin/f.so" not in hash_files(area, ["**/*.so"])


def test_hashes_have_names_as_seen_from_the_area_or_absolute_ones(area: Path) -> None:
    outside = area.parent / "outside" / "f.so"
    assert hash_files(area, ["lib/*.so", str(outside), "lib/b.so"]) == {
        "lib/b.so": digest("lib/b.so"),
        str(outside): digest("f"),
    }


def test_a_link_that_leads_out_is_hashed_as_a_link(area: Path) -> None:
    (area / "in.so").symlink_to("a.so")
    (area / "out.so").symlink_to(area.parent / "outside" / "f.so")
    hashes = hash_files(area, ["*.so"])
    assert hashes["in.so"] == hashes["a.so"]
    assert hashes["out.so"] == digest(f"link to {area.parent}/outside/f.so")


def test_what_never_ends_is_not_hashed(area: Path) -> None:
    os.mkfifo(area / "pipe.so")
    assert set(hash_files(area, ["*.so"])) == {"a.so"}


def test_files_come_back_with_their_names(area: Path) -> None:
    found = CollectedFiles()
    found.add(area, ["lib/*", "a.so", "a.so"])
    assert found.files == {"lib/b.so": b"lib/b.so", "lib/d.txt": b"lib/d.txt", "a.so": b"a.so"}
    assert found.notes == []


def test_nothing_comes_back_from_elsewhere(area: Path) -> None:
    (area / "link.txt").symlink_to("/etc/passwd")
    (area / "folder").symlink_to(area.parent / "outside")
    found = CollectedFiles()
    found.add(area, ["*.txt", "folder/*", "../outside/*", "/etc/passwd"])
    assert found.files == {}
    assert len(found.notes) == 4
    assert all("points outside its folder" in note for note in found.notes)


def test_a_link_within_is_followed(area: Path) -> None:
    (area / "latest.txt").symlink_to("lib/d.txt")
    found = CollectedFiles()
    found.add(area, ["latest.txt"])
    assert found.files == {"latest.txt": b"lib/d.txt"}


def test_pipes_and_broken_links_do_not_stop_the_others(area: Path) -> None:
    os.mkfifo(area / "1.txt")
    (area / "2.txt").symlink_to("1.txt")
    (area / "3.txt").symlink_to("nowhere")
    write(area / "4.txt", "4")
    found = CollectedFiles()
    found.add(area, ["*.txt"])
    assert found.files == {"4.txt": b"4"}


def test_what_is_too_large_is_left_out_whole_and_said(area: Path) -> None:
    write(area / "small", "12345")
    write(area / "large", "12345678901")
    write(area / "zmore", "1234567")
    found = CollectedFiles(largest=10, total=11)
    found.add(area, ["large", "small", "zmore"])
    assert found.files == {"small": b"12345"}
    assert found.notes == [
        "large: 11 bytes exceed the limit of 10 for one file; left out",
        "zmore: 7 bytes exceed what is left of the 11 for one run; left out",
    ]


@pytest.mark.slow
def test_many_times_any_folder_is_looked_at_once_each(tmp_path: Path) -> None:
    # Each `**` more used to multiply the work by the depth of the tree.
    deep = write(tmp_path.joinpath(*"abcdefghijklmnopqrst") / "x.so")
    assert list(glob_files(tmp_path, "**/" * 20 + "*.so")) == [deep]


def test_of_very_many_files_that_stay_behind_a_few_are_named(area: Path) -> None:
    for number in range(100):
        (area / f"{number:03}.out").symlink_to("/etc/passwd")
    found = CollectedFiles()
    found.add(area, ["*.out"])
    assert len(found.notes) == 21
    assert found.notes[0] == "000.out: points outside its folder; left out"
    assert found.notes[-1] == "80 more were left out"


def test_a_pattern_that_names_nothing_possible_matches_nothing(area: Path) -> None:
    assert list(glob_files(area, "a\0/*")) == []
