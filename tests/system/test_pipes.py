"""Pipes: whatever stands in the place of a file, no command waits for it to be written."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.commands import Outcome, karat_here
from factories.repositories import Repository
from karat.system.foreign.limits import GOLDEN, TooLong, read_plain

CURVE = '{"loss": {"1": 1.0, "2": 2.0, "3": 3.0}}\n'
RUN = "".join(f'{{"step": {n}, "loss": {n}.5}}\n' for n in range(1, 6))


class Waited(BaseException):
    """Nothing in karat catches it."""


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    def enough(*_: object) -> None:
        raise Waited

    before = signal.signal(signal.SIGALRM, enough)
    signal.alarm(15)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def tree(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "tree")
    made.write("goldens/a.json", CURVE)
    made.commit()
    for path in ("one/a.json", "one/p.json", "two/a.json"):
        made.write(path, CURVE)
    made.write("run.jsonl", RUN)
    made.write("again.jsonl", RUN.replace(".5", ".6"))
    return made


GOLDEN_WORDS = [
    ("check", "one/a.json", "--golden", "goldens/a.json"),
    ("check", "one"),
    ("diff",),
    ("record", "one/a.json", "-o", "goldens/a.json"),
    ("tolerance", "--golden", "goldens/a.json"),
    ("changes", "--golden", "goldens/a.json"),
    ("refresh", "--source", "folder", "one", "--scope", "all"),
    ("refresh", "--reset"),
]
ELSEWHERE = [
    ("two/p.json", ("diff", "one", "two")),
    ("two/p.json", ("diff", "HEAD:goldens", "two")),
    ("two/p.json", ("check", "two", "--golden", "one")),
    ("p.json", ("diff", "one/a.json", "p.json")),
    ("p", ("check", "p", "--golden", "one/a.json")),
    ("p", ("record", "p", "-o", "new.json")),
    ("p", ("changes", "p")),
    ("p", ("verify", "p")),
    ("p", ("replay", "p", "--run", "a:b")),
    ("p", ("policy", "scan", "p")),
    ("exemptions.toml", ("policy", "gate")),
    ("policy-baseline.json", ("policy", "gate")),
    ("hunt.toml", ("hunt", "run")),
    ("p", ("hunt", "report", "p")),
    ("karat.toml", ("diff",)),
    ("goldens.lock.json", ("record", "one/a.json", "-o", "goldens/b.json")),
    ("goldens.lock.json", ("refresh", "--source", "folder", "one", "--scope", "all")),
    ("new.samples.json", ("record", "run.jsonl", "again.jsonl", "-o", "new.json")),
    ("p", ("pull", "models/x", "here", "--lock", "p")),
]


def said_once(done: Outcome, path: str) -> None:
    """One finding or error that names the file."""
    said = done.out + done.err
    assert done.code in {1, 2, 3}, said
    assert Path(path).name in said
    assert "Traceback" not in said


@pytest.mark.parametrize("words", GOLDEN_WORDS, ids=" ".join)
def test_in_the_place_of_a_golden(tree: Repository, words: tuple[str, ...]) -> None:
    (tree.root / "goldens/a.json").unlink()
    os.mkfifo(tree.root / "goldens/a.json")
    said_once(karat_here(*words, cwd=tree.root), "goldens/a.json")


@pytest.mark.parametrize(("path", "words"), ELSEWHERE, ids=[f"{p} {' '.join(w)}" for p, w in ELSEWHERE])
def test_in_the_place_of_another_file(tree: Repository, path: str, words: tuple[str, ...]) -> None:
    os.mkfifo(tree.root / path)
    said_once(karat_here(*words, cwd=tree.root, KARAT_STORE=str(tree.root / "store")), path)


def test_a_socket_and_a_device_are_findings_too(tree: Repository) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tree.root / "two/s.json"))
        (tree.root / "two/d.json").symlink_to("/dev/zero")
        done = karat_here("diff", "one", "two", cwd=tree.root)
    assert [line for line in done.out.splitlines() if line.startswith("fail cannot-read  ")] == [
        "fail cannot-read  d.json",
        "fail cannot-read  s.json",
    ]


def test_a_pipe_of_the_shell_is_read_as_stdin_is(tree: Repository) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"".join(b"%d\n" % n for n in range(20)))
    os.close(writing)
    done = karat_here("changes", f"/dev/fd/{reading}", cwd=tree.root)
    os.close(reading)
    assert "1 series" in done.out


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GOLDEN.variable, "1")
    path = tmp_path / "a.json"
    path.write_bytes(b"1" * (1 << 20))
    assert len(read_plain(path, GOLDEN)) == 1 << 20
    with path.open("ab") as file:
        file.write(b"1")
    with pytest.raises(TooLong, match="KARAT_MAX_GOLDEN_MB changes the limit") as raised:
        read_plain(path, GOLDEN)
    assert raised.value.size == (1 << 20) + 1
