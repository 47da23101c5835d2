"""Kills: every command that writes is killed at random moments, alone and beside another; nothing is lost. `make soak-kills`.

A victim is a folder with something to lose. After a kill, `check` says whether all that was there is there, whole; then the
command runs once more, and `done` says whether it has done its work.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from factories.archives import zipped
from factories.captured import capture_many
from factories.commands import karat_here
from factories.hunts import stepped, values_hunt
from factories.repositories import Repository, curves, golden_path, golden_text
from karat.bundles.places import open_place
from karat.bundles.verify import verify_place
from karat.findings import CannotVerify
from karat.goldens.provenance import read_lock
from karat.hunts.journal import Journal
from karat.runs.repeats import read_samples

OLD, NEW = golden_text(curves(1)), golden_text(curves(2))
CASES = 12
SUITE = f"""
import numpy as np, pytest

@pytest.mark.parametrize("n", range({CASES}))
def test_case(golden, n):
    x = np.full(300_000, n, np.float32)
    golden.check(actual=x * 2, expected=x * 2, inputs=x)
"""


class Victim(ABC):
    """A command, what it may lose, and what it is for."""

    words: Sequence[str]
    refused = frozenset({0})
    """Exit codes of a second writer: some commands refuse to work beside another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env: Mapping[str, str] = {"KARAT_STORE": str(folder / "store"), "KARAT_CACHE_DIR": str(folder / "cache")}
        self.cwd = folder
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """What is there before anything runs."""

    @abstractmethod
    def reset(self) -> None:
        """As it was, so that there is work to do."""

    @abstractmethod
    def check(self) -> None:
        """After a kill: nothing is lost or half there."""

    @abstractmethod
    def done(self) -> None:
        """After a whole run: the work is done."""

    def start(self) -> subprocess.Popen[bytes]:
        env = {**{k: v for k, v in os.environ.items() if k != "CI"}, **self.env}
        words = [sys.executable, "-m", "karat", *self.words, "-q"]
        return subprocess.Popen(words, cwd=self.cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def run(self, *words: str) -> str:
        """Another command of karat's, which must succeed."""
        done = karat_here(*words, cwd=self.cwd, **self.env)
        assert done.code == 0, (words, done.out, done.err)
        return done.out


class Refresh(Victim):
    words: Sequence[str] = ("refresh", "--source", "folder", "results", "--scope", "all")

    def begin(self) -> None:
        self.tree = Repository(self.folder / "tree")
        self.cwd = self.tree.root
        self.paths = [golden_path(f"case{i:02}") for i in range(CASES)]
        for path in self.paths:
            self.tree.write(path, OLD)
        self.tree.write("karat.toml", 'preset = "megatron-lm"\n')
        self.tree.write(".gitignore", "results\n")
        self.tree.commit()
        for i in range(CASES):
            told = {"schema": "karat.artifact/1", "run_id": 7, "identity": {"model": "gpt", "case": f"case{i:02}"}}
            members = {"golden_values_dev_dgx_h100.json": NEW, "karat-manifest.json": json.dumps(told)}
            self.tree.write(f"results/logs-case{i:02}-7-0a.zip", zipped(members))

    def reset(self) -> None:
        self.tree.git("checkout", "--quiet", "--", ".")
        self.tree.git("clean", "-fdq")

    def texts(self) -> list[str]:
        return [(self.cwd / path).read_text(encoding="utf-8") for path in self.paths]

    def lock(self) -> Path:
        return self.cwd / "tests/functional_tests/test_cases/goldens.lock.json"

    def check(self) -> None:
        assert set(self.texts()) <= {OLD, NEW}
        if self.lock().exists():
            assert set(read_lock(self.lock())) <= {path.split("test_cases/")[1] for path in self.paths}
        listed = self.tree.git("status", "--porcelain", "-z", "-uall").split("\0")
        assert {line[3:] for line in listed if line} <= {*self.paths, str(self.lock().relative_to(self.cwd))}

    def done(self) -> None:
        assert set(self.texts()) == {NEW}
        assert len(read_lock(self.lock())) == CASES


class Stage(Refresh):
    """Nothing of the work tree changes; what is staged is what stands there."""

    words: Sequence[str] = ("stage", "--force", "--reason", "kills")

    def begin(self) -> None:
        super().begin()
        self.run("refresh", "--source", "folder", "results", "--scope", "all", "-q")

    def reset(self) -> None:
        self.tree.git("reset", "--quiet")

    def check(self) -> None:
        assert set(self.texts()) == {NEW}
        assert set(self.staged()) <= {*self.paths, str(self.lock().relative_to(self.cwd))}
        read_lock(self.lock())

    def staged(self) -> list[str]:
        return [name for name in self.tree.git("diff", "--cached", "--name-only", "-z").split("\0") if name]

    def done(self) -> None:
        assert {*self.staged()} == {*self.paths, str(self.lock().relative_to(self.cwd))}
        assert self.tree.git("diff", "--name-only").strip() == ""


class Record(Victim):
    words: Sequence[str] = ("record", "run.jsonl", "again.jsonl", "-o", "golden.json", "--accept-incomplete")

    def begin(self) -> None:
        self.tree = Repository(self.folder / "tree")
        self.cwd = self.tree.root
        for name, seed in (("old", 1), ("run", 2), ("again", 3)):
            rows = [{"step": i + 1, "loss": float(v)} for i, v in enumerate(curves(seed, steps=2000)["lm loss"])]
            self.tree.write(f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.run("record", "old.jsonl", "again.jsonl", "-o", "golden.json", "-q")
        self.tree.commit()
        self.old = self.golden()
        self.run(*self.words, "-q")
        self.new = self.golden()
        assert self.old != self.new

    def golden(self) -> bytes:
        return (self.cwd / "golden.json").read_bytes()

    def reset(self) -> None:
        self.tree.git("checkout", "--quiet", "--", ".")
        self.tree.git("clean", "-fdq")

    def check(self) -> None:
        assert self.golden() in {self.old, self.new}
        assert {"old.jsonl", "again.jsonl"} <= self.sampled() <= {"old.jsonl", "again.jsonl", "run.jsonl"}

    def sampled(self) -> set[str]:
        return {run.name for run in read_samples(self.cwd / "golden.samples.json").runs}

    def done(self) -> None:
        assert self.golden() == self.new
        assert self.sampled() == {"old.jsonl", "again.jsonl", "run.jsonl"}


class Capture(Victim):
    """What was captured before stays until it is replaced, and every case is whole."""

    refused = frozenset({0, 1, 2, 3})

    def begin(self) -> None:
        (self.folder / "test_kills.py").write_text(SUITE, encoding="utf-8")
        self.reset()
        first = self.start()
        assert not first.communicate()[1]
        assert first.returncode == 0
        self.kept = self.folder / "kept"
        shutil.copytree(self.folder / "captures", self.kept)

    def reset(self) -> None:
        if (self.folder / "kept").exists():
            shutil.rmtree(self.folder / "captures")
            shutil.copytree(self.kept, self.folder / "captures")

    def start(self) -> subprocess.Popen[bytes]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CI", "KARAT_", "PYTEST_"))}
        words = ["-p", "no:cacheprovider", "-q", "--karat-capture=captures", "--karat-raw", "test_kills.py"]
        words = [sys.executable, "-m", "pytest", *words]
        return subprocess.Popen(words, cwd=self.cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def check(self) -> None:
        found = verify_place(open_place(self.folder / "captures"))
        assert (found.cases, found.findings) == (CASES, ())

    def done(self) -> None:
        self.check()


class Pack(Victim):
    words: Sequence[str] = ("pack", "captures", "-o", "packed")
    refused = frozenset({0, 2})

    def begin(self) -> None:
        capture_many(self.folder / "captures", 6)
        self.out, self.aside = self.folder / "packed", self.folder / "aside"

    def reset(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)

    def check(self) -> None:
        """A whole pack, or one that does not look like it; put aside, since a pack goes into an empty folder."""
        shutil.rmtree(self.aside, ignore_errors=True)
        if (self.out / "SHA256SUMS").is_file():
            self.run("verify", "packed")
            self.out.rename(self.aside)
        elif any((self.out / "cases").glob("*")):
            self.reset()

    def done(self) -> None:
        if self.out.exists():
            self.check()
        assert len(list((self.aside / "cases").rglob("*.zip"))) == 12


class Push(Victim):
    words: Sequence[str] = ("push", "two", "models/nightly")

    def begin(self) -> None:
        capture_many(self.folder / "one", 1)
        capture_many(self.folder / "two", 6)
        self.made = 0

    def reset(self) -> None:
        # A store of its own, with something in it that must stay.
        self.made += 1
        self.env = {**self.env, "KARAT_STORE": str(self.folder / f"store{self.made}")}
        self.run("push", "one", "models/other", "-q")

    def check(self) -> None:
        self.run("verify", "store:models/other")

    def done(self) -> None:
        self.run("verify", "store:models/nightly")
        self.run("verify", self.env["KARAT_STORE"])


class Pull(Push):
    words: Sequence[str] = ("pull", "models/nightly", "here", "--replace")
    refused = frozenset({0, 1, 2, 3})

    def begin(self) -> None:
        super().begin()
        super().reset()
        self.run("push", "two", "models/nightly", "-q")

    def reset(self) -> None:
        self.run("pull", "models/other", "here", "--replace", "-q")

    def check(self) -> None:
        self.run("verify", "here")
        count = len(list((self.folder / "here").rglob("manifest.json")))
        assert count in {2, 12}, "the old cases or the new ones"

    def done(self) -> None:
        self.check()
        assert len(list((self.folder / "here").rglob("manifest.json"))) == 12


class Collect(Push):
    """What a name needs stays, whatever else goes."""

    words: Sequence[str] = ("gc", "--grace", "0")
    refused = frozenset({0, 3, 1})

    def reset(self) -> None:
        super().reset()
        self.run("push", "two", "models/nightly", "-q")
        # Its objects are nobody's: the name is taken away, as an expired one is.
        store = Path(self.env["KARAT_STORE"])
        for path in store.rglob("*"):
            if path.is_file() and "nightly" in str(path.relative_to(store)):
                path.unlink()

    def done(self) -> None:
        self.check()
        self.run("verify", self.env["KARAT_STORE"])
        assert "models/nightly" not in self.run("ls")


class Hunt(Victim):
    """What the journal has, it keeps; and the answer is the same."""

    words: Sequence[str] = ("hunt", "resume")
    refused = frozenset({0, 1, 2})

    def begin(self) -> None:
        self.levels = stepped(10, (5, 80.0))
        self.made = 0
        self.reset()
        assert karat_here("hunt", "run", "-q", cwd=self.cwd).code == 1
        self.expected = self.culprits()

    def reset(self) -> None:
        self.made += 1
        self.cwd = self.folder / f"hunt{self.made}"
        values_hunt(self.cwd, self.levels)
        self.before: list[tuple[str, int]] = []
        self.words = ("hunt", "run")

    def culprits(self) -> list[tuple[str, str]]:
        document = json.loads(karat_here("hunt", "resume", "--json", "-", cwd=self.cwd).out)
        return [(c["change"]["old"]["id"], c["change"]["new"]["id"]) for c in document["culprits"]]

    def attempts(self) -> list[tuple[str, int]]:
        path = self.cwd / ".karat/hunt/hunt.hunt"
        try:
            with Journal(path) as journal:
                return [(e.point, e.number) for e in journal.attempts()]
        except CannotVerify:  # not begun yet
            return []

    def check(self) -> None:
        after = self.attempts()
        assert after[: len(self.before)] == self.before
        assert len(set(after)) == len(after)
        self.before = after
        self.words = ("hunt", "resume") if after else ("hunt", "run", "--fresh")

    def done(self) -> None:
        assert self.attempts()[: len(self.before)] == self.before
        assert self.culprits() == self.expected


VICTIMS: dict[str, type[Victim]] = {
    "refresh": Refresh, "record": Record, "stage": Stage, "capture": Capture, "pack": Pack, "push": Push, "pull": Pull, "gc": Collect,
    "hunt": Hunt,
}  # fmt: skip
GOOD = {"hunt": 1}
"""Exit codes of a run that did its work, where that is not 0: a hunt that found something."""


def kill_often(name: str, kills: int, seed: int) -> int:
    """Kills one command so often while it works, every other time beside a second one; how often that came off."""
    rng = random.Random(f"{seed} {name}")
    with tempfile.TemporaryDirectory(prefix=f"karat-kills-{name}-") as folder:
        victim = VICTIMS[name](Path(folder))
        good = GOOD.get(name, 0)
        victim.reset()
        took = _whole(victim, good)
        amid = tries = 0
        while amid < kills and tries < 3 * kills:
            tries += 1
            victim.reset()
            working = [victim.start() for _ in range(1 + tries % 2)]
            time.sleep(rng.uniform(0.3, 1.0) * took)
            in_time = working[0].poll() is None
            amid += in_time
            working[0].kill()
            for process in working:
                said = process.communicate()[1]
                assert b"Traceback" not in said, said.decode()
            # Whoever was not killed has done its work, or says that another is at it.
            for process in working[1 if in_time else 0 :]:
                assert process.returncode in {good, *victim.refused}, (process.returncode, said)
            victim.check()
            took = min(1.5 * took, _whole(victim, good))  # another process may have had the processor
            victim.done()
        return amid


def both_at_once(name: str) -> None:
    """Two writers that nobody kills: one of them, or both, do the work."""
    with tempfile.TemporaryDirectory(prefix=f"karat-kills-{name}-") as folder:
        victim = VICTIMS[name](Path(folder))
        victim.reset()
        working = [victim.start() for _ in range(2)]
        said = [process.communicate()[1] for process in working]
        codes = sorted(process.returncode for process in working)
        good = GOOD.get(name, 0)
        assert good in codes, (codes, said)
        assert set(codes) <= {good, *victim.refused}, (codes, said)
        assert not any(b"Traceback" in one for one in said), said
        victim.check()
        victim.done()


def _whole(victim: Victim, good: int) -> float:
    begun = time.monotonic()
    process = victim.start()
    said = process.communicate()[1]
    assert process.returncode == good, (process.returncode, said.decode())
    return time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(prog="kills", description="Kill every command that writes, and see what is lost.")
    parser.add_argument("--kills", type=int, default=300, help="in all")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--only", action="append", choices=sorted(VICTIMS))
    said = parser.parse_args()
    names = said.only or list(VICTIMS)
    failed = 0
    for place, name in enumerate(names):
        kills = said.kills // len(names) + (place < said.kills % len(names))
        begun = time.monotonic()
        try:
            both_at_once(name)
            amid = kill_often(name, kills, said.seed)
            told = "nothing lost"
            if amid < kills:
                failed += 1
                told = f"only {amid} while it worked"
        except AssertionError as error:
            failed += 1
            told = f"LOST: {error}; again: PYTHONPATH=tests python -m faults.kills --only {name} --kills {kills} --seed {said.seed}"
        sys.stdout.write(f"{name:8} {kills:4} kills, {told}, {time.monotonic() - begun:.0f} s\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
