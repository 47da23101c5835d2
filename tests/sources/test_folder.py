"""Artifacts on this disk."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from factories.archives import zipped
from karat.findings import Severity, UsageError
from karat.sources.folder import Folder
from karat.sources.source import Artifact, Fetched, Source


def everything(_: str) -> bool:
    return True


def fill(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def fetched(folder: Folder, wanted: Callable[[str], bool] = everything) -> dict[str, Fetched]:
    return {one.artifact.id: one for one in folder.fetch(folder.listing().artifacts, wanted)}


def kinds(one: Fetched) -> list[tuple[str, Severity]]:
    assert all(finding.next for finding in one.findings), "every failure ends with a command"
    return [(finding.kind, finding.severity) for finding in one.findings]


def test_a_downloaded_run(tmp_path: Path) -> None:
    root = fill(
        tmp_path / "mein Lauf",
        {
            "logs-gpt/golden.json": b"{}",
            "logs-gpt/deep/er.csv": b"a,b",
            "reports/r.zip": zipped({"x/acc.csv": b"1", "other.log": b"2"}),
            "loose.json": b"[]",
        },
    )
    folder = Folder(root)
    assert isinstance(folder, Source)
    listing = folder.listing()
    assert [artifact.name for artifact in listing.artifacts] == [".", "logs-gpt", "reports/r.zip"]
    assert (listing.runs, listing.jobs, listing.findings) == ((), (), ())
    found = fetched(folder, lambda name: not name.endswith(".log"))
    assert {key: dict(one.members).keys() for key, one in found.items()} == {
        "./": {"loose.json"},
        "logs-gpt/": {"golden.json", "deep/er.csv"},
        "reports/r.zip": {"x/acc.csv"},
    }
    assert found["reports/r.zip"].members["x/acc.csv"].read_bytes() == b"1"
    assert found["logs-gpt/"].members["deep/er.csv"].read_bytes() == b"a,b"
    assert all(one.received == 0 and not one.findings for one in found.values())
    folder.close()
    assert (root / "logs-gpt/golden.json").exists()


def test_closing_deletes_only_what_was_unpacked(tmp_path: Path) -> None:
    fill(tmp_path, {"a.zip": zipped({"x": b"1"}), "b": b"2"})
    folder = Folder(tmp_path)
    found = fetched(folder)
    unpacked, loose = found["a.zip"].members["x"], found["./"].members["b"]
    assert unpacked.exists()
    folder.close()
    folder.close()
    assert not unpacked.exists()
    assert loose.read_bytes() == b"2"


@pytest.mark.parametrize("name", ["nothing", "b.json", "b.json/below", "pipe"])
def test_what_is_no_folder_is_wrong_usage(tmp_path: Path, name: str) -> None:
    fill(tmp_path, {"b.json": b"2"})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="expected a folder at"):
        Folder(tmp_path / name).listing()


def test_an_empty_folder_has_no_artifacts(tmp_path: Path) -> None:
    (tmp_path / "empty" / "within").mkdir(parents=True)
    listing = Folder(tmp_path).listing()
    assert (listing.artifacts, listing.findings) == ((), ())


def test_links_that_leave_are_refused_if_wanted(tmp_path: Path) -> None:
    fill(tmp_path, {"outside.json": b"secret", "root/a/ok.json": b"1", "root/b/ok.json": b"2"})
    root = tmp_path / "root"
    (root / "a" / "out.json").symlink_to(tmp_path / "outside.json")
    (root / "a" / "up.json").symlink_to("../../outside.json")
    (root / "b" / "in.json").symlink_to("ok.json")
    found = fetched(Folder(root))
    assert kinds(found["a/"]) == [("archive-refused", Severity.FAIL)]
    assert not found["a/"].members
    assert "leaves the folder" in found["a/"].findings[0].message
    assert found["b/"].members["in.json"].read_bytes() == b"2"
    only_ok = fetched(Folder(root), lambda name: name == "ok.json")
    assert only_ok["a/"].members.keys() == {"ok.json"}
    assert not only_ok["a/"].findings


def test_a_file_that_becomes_a_link_after_the_listing_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, {"outside.json": b"secret", "root/a/x.json": b"1"})
    folder = Folder(tmp_path / "root")
    artifacts = folder.listing().artifacts
    (tmp_path / "root/a/x.json").unlink()
    (tmp_path / "root/a/x.json").symlink_to(tmp_path / "outside.json")
    (one,) = folder.fetch(artifacts, everything)
    assert kinds(one) == [("archive-refused", Severity.FAIL)]


def test_a_file_that_becomes_a_pipe_after_the_listing_is_refused(tmp_path: Path) -> None:
    root = fill(tmp_path, {"a/x.json": b"1"})
    folder = Folder(root)
    artifacts = folder.listing().artifacts
    (root / "a/x.json").unlink()
    os.mkfifo(root / "a/x.json")
    (one,) = folder.fetch(artifacts, everything)
    assert kinds(one) == [("archive-refused", Severity.FAIL)]


def test_folders_behind_links_are_named_and_not_entered(tmp_path: Path) -> None:
    root = fill(tmp_path / "root", {"a/x.json": b"1"})
    (root / "loop").symlink_to(root)
    (root / "a" / "etc").symlink_to("/etc")
    listing = Folder(root).listing()
    assert [artifact.name for artifact in listing.artifacts] == ["a"]
    said = {(finding.kind, finding.severity, finding.path) for finding in listing.findings}
    warned = ("archive-refused", Severity.WARN)
    assert said == {(*warned, "loop"), (*warned, "a/etc")}


def test_pipes_and_sockets_are_never_opened(tmp_path: Path) -> None:
    root = fill(tmp_path / "r", {"a/x.json": b"1"})
    os.mkfifo(root / "a" / "pipe.json")
    (root / "a" / "link.json").symlink_to("pipe.json")
    found = fetched(Folder(root), lambda name: name in {"pipe.json", "link.json"})
    assert kinds(found["a/"]) == [("archive-refused", Severity.FAIL)]
    os.mkfifo(root / "z.zip")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(root / "s"))
        found = fetched(Folder(root), lambda name: name not in {"pipe.json", "link.json"})
    for key in ("z.zip", "./"):
        assert kinds(found[key]) == [("archive-refused", Severity.FAIL)]
    assert found["a/"].members.keys() == {"x.json"}


def test_links_to_nowhere_and_in_circles(tmp_path: Path) -> None:
    root = fill(tmp_path, {"a/x.json": b"1"})
    (root / "a" / "gone.json").symlink_to("nowhere.json")
    (root / "a" / "circle.json").symlink_to("circle.json")
    for name in ("gone.json", "circle.json"):
        found = fetched(Folder(root), lambda wanted, name=name: wanted == name)  # type: ignore[misc]
        assert kinds(found["a/"]) == [("cannot-read", Severity.FAIL)]


@contextmanager
def nobody() -> Iterator[None]:
    """Root may read everything; for a while, this process is not root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.slow
def test_the_next_command_shows_what_is_wrong(tmp_path: Path) -> None:
    """It is run as it stands, whatever the names."""
    root = fill(tmp_path / "a b", {"it's/x": b"1", "bad 'one'.zip": zipped({"x": b"1"})[:40]})
    (root / "it's" / "link").symlink_to(tmp_path)
    (root / "it's" / "out.json").symlink_to("/etc/hostname")
    (root / "new\nline").mkdir()
    os.mkfifo(root / "new\nline" / "pipe")
    folder = Folder(root)
    found = [*folder.listing().findings]
    found += [finding for one in fetched(folder).values() for finding in one.findings]
    shown = {}
    for finding in found:
        done = subprocess.run(shlex.split(finding.next or "false"), capture_output=True, text=True, check=False)
        shown[finding.path] = done.stdout + done.stderr
    assert "link" in shown["it's/link"]
    assert "out.json" in shown["it's"]
    assert "BadZipFile" in shown["bad 'one'.zip"]
    assert "pipe" in shown["new\nline"]


def test_what_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as place:
        root = fill(Path(place), {"a/x.json": b"1", "b/y.json": b"2", "c.zip": zipped({"z": b""})})
        root.chmod(0o755)
        for name in ("a/x.json", "b", "c.zip"):
            (root / name).chmod(0)
        folder = Folder(root)
        with nobody():
            listing = folder.listing()
            found = list(folder.fetch(listing.artifacts, everything))
        (root / "b").chmod(0o700)
    assert [(finding.kind, finding.path) for finding in listing.findings] == [("cannot-read", "b/")]
    assert [one.artifact.id for one in found] == ["a/", "c.zip"]
    assert all(kinds(one) == [("cannot-read", Severity.FAIL)] for one in found)


def test_a_file_that_vanishes_after_the_listing_cannot_be_read(tmp_path: Path) -> None:
    root = fill(tmp_path, {"a/x.json": b"1", "b.zip": zipped({"y": b"2"})})
    folder = Folder(root)
    artifacts = folder.listing().artifacts
    (root / "a/x.json").unlink()
    (root / "b.zip").unlink()
    for one in folder.fetch(artifacts, everything):
        assert kinds(one) == [("cannot-read", Severity.FAIL)]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"<html>", "artifact-not-zip"),
        (b"", "artifact-truncated"),
        (zipped({"a": b"1" * 5000})[:60], "artifact-truncated"),
        (zipped({"../a": b"1"}), "archive-refused"),
        (zipped({"a": b"1", "A": b"2"}), "archive-refused"),
        (zipped({"a": b"plain text"}, compress=False).replace(b"plain", b"plein"), "artifact-corrupt"),
    ],
)
def test_archives_from_strangers(tmp_path: Path, content: bytes, kind: str) -> None:
    fill(tmp_path, {"good/x.json": b"1", "bad.zip": content})
    folder = Folder(tmp_path)
    found = fetched(folder)
    folder.close()
    assert kinds(found["bad.zip"]) == [(kind, Severity.FAIL)]
    assert not found["bad.zip"].members
    assert found["good/"].members.keys() == {"x.json"}


def test_names_that_are_no_text(tmp_path: Path) -> None:
    root = fill(tmp_path / "r", {"a/x.json": b"1"})
    os.close(os.open(os.fsencode(root) + b"/a/\xff.json", os.O_CREAT | os.O_WRONLY))
    (root / "a" / "new\nline.json").write_bytes(b"")
    found = fetched(Folder(root))
    assert kinds(found["a/"]) == [("archive-refused", Severity.FAIL)]
    asked: list[str] = []

    def wanted(name: str) -> bool:
        asked.append(name)
        return False

    fetched(Folder(root), wanted)
    assert len(asked) == 3
    assert all(name.encode() for name in asked)
    assert fetched(Folder(root), lambda name: name == "x.json")["a/"].members.keys() == {"x.json"}


def test_an_artifact_that_is_not_there(tmp_path: Path) -> None:
    (one,) = Folder(tmp_path).fetch([Artifact(id="x/", name="x")], everything)
    assert kinds(one) == [("artifact-missing", Severity.FAIL)]


def test_progress_is_told(tmp_path: Path) -> None:
    root = fill(tmp_path, {"a/x.json": b"1", "b.zip": b"junk"})
    told: list[tuple[str, str]] = []

    class Watching:
        def begin(self, artifact: Artifact, total: int | None) -> None:
            told.append(("begin", artifact.name))
            assert total is None

        def advance(self, artifact: Artifact, received: int) -> None:
            told.append((f"{received}", artifact.name))

        def end(self, artifact: Artifact) -> None:
            told.append(("end", artifact.name))

    folder = Folder(root)
    assert len(list(folder.fetch(folder.listing().artifacts, everything, Watching()))) == 2
    assert told == [("begin", "a"), ("end", "a"), ("begin", "b.zip"), ("end", "b.zip")]
