"""Every golden commit of a repository, replayed against its parent: what would karat have said?

Tabulates verdicts, findings by kind, time and crashes. Then it plants faults into a sample of the goldens that stood in the
history, and counts how many are caught; a golden that was only rewritten, or moved by as little as the last digit, is
planted, too, and must not fail. Exit 1: karat crashed, missed the harm that a generated commit names, or failed one that
names none.

Run: python benchmarks/golden_history.py CLONE [--preset megatron-lm]    a clone of Megatron-LM, PyTorch or alike
     python benchmarks/golden_history.py --generate 40 --preset pytorch-dynamo    a history made for the purpose
     python benchmarks/golden_history.py --pairs ../shared/data    before/after pairs as commits
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

import karat
from karat.config import load

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from factories import golden_histories, wrong_goldens

PRESETS = ("megatron-lm", "pytorch-dynamo")
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@dataclass
class Replayed:
    """What came of a history."""

    commits: int = 0
    files: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    """`KIND SEVERITY` → how many."""
    seconds: list[float] = field(default_factory=list)
    slowest: str = ""
    crashes: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Commits with a `fail`, and the kinds."""
    harm: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    false_alarms: list[str] = field(default_factory=list)
    """Of a generated history, whose commits say what is wrong with them."""
    healthy: list[tuple[str, str]] = field(default_factory=list)
    """(commit, path) of goldens without a `fail`, to plant faults into."""


@dataclass
class Planted:
    """What came of one kind of fault."""

    planted: int = 0
    fails: int = 0
    warns: int = 0
    missed: list[str] = field(default_factory=list)


def git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True).stdout


def golden_commits(clone: Path, preset: str) -> list[tuple[str, str, str]]:
    """(parent, commit, message) of everything that ever touched a golden, oldest first."""
    paths = [f":(glob){glob}" for glob in load(clone, preset=preset).paths]
    out = git(clone, "log", "--no-merges", "--reverse", "--format=%P%x00%H%x00%B%x01", "--", *paths)
    found = []
    for entry in out.decode("utf-8", "replace").split("\x01"):
        if "\0" in entry:
            parents, commit, message = entry.strip("\n").split("\0")
            found.append((parents.split(" ")[0] or EMPTY_TREE, commit, message))
    return found


def presets_of(clone: Path) -> list[str]:
    return [preset for preset in PRESETS if golden_commits(clone, preset)]


def replay(clone: Path, preset: str, most: int | None) -> Replayed:
    """Every golden commit against its parent, the newest ones where only so many are asked for."""
    done = Replayed()
    generated = b"\nHarm: " in git(clone, "log", "--format=%B")
    for parent, commit, message in golden_commits(clone, preset)[-(most or 0) :]:
        begin = time.perf_counter()
        try:
            result = karat.diff(parent, commit, cwd=clone, preset=preset)
        except Exception:  # noqa: BLE001 - a crash is a row of the table
            done.crashes.append(f"{commit[:12]}: {traceback.format_exc().strip().splitlines()[-1]}")
            continue
        spent = time.perf_counter() - begin
        if spent > max(done.seconds, default=0.0):
            done.slowest = commit[:12]
        done.seconds.append(spent)
        done.commits += 1
        done.files += len(result.changes)
        done.verdicts.update(change.verdict.value for change in result.changes)
        done.findings.update(f"{f.kind} {f.severity.value}" for f in result.all_findings())
        fails = {c.path: [f.kind for f in c.findings if f.severity == "fail"] for c in result.changes}
        if kinds := sorted({kind for found in fails.values() for kind in found}):
            done.failed.append(f"{commit[:12]} {message.splitlines()[0][:60]}: {', '.join(kinds)}")
        done.healthy += [
            (commit, c.path)
            for c in result.changes
            if not fails[c.path] and c.verdict in {"same", "noise", "drift", "new"} and c.shape in {"series", "table"}
        ]
        if generated:
            harm = dict(line.split(" ")[1:][::-1] for line in message.splitlines() if line.startswith("Harm: "))
            done.harm.update(harm.values())
            done.missed += [f"{commit[:12]} {kind}: {path}" for path, kind in harm.items() if not fails.get(path)]
            done.false_alarms += [
                f"{commit[:12]} {path}: {', '.join(found)}"
                for path, found in fails.items()
                if found and path not in harm
            ]
    return done


Fault = Callable[[bytes, np.random.Generator], bytes]
"""The bytes of a golden with a fault in them; any error says that it cannot have this one."""


def training(fault: wrong_goldens.Fault) -> Fault:
    """A fault of a golden with a loss."""

    def planted(data: bytes, rng: np.random.Generator) -> bytes:
        golden = json.loads(data)
        losses = golden[wrong_goldens.LOSS]["values"].values()
        assert len(losses) >= MANY
        assert all(isinstance(loss, float) for loss in losses)
        return fault(golden, rng).encode()

    return planted


def table(change: Fault) -> Fault:
    """A fault of a table."""

    def planted(data: bytes, rng: np.random.Generator) -> bytes:
        assert b"{" not in data
        return change(data, rng)

    return planted


def without_a_row(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.splitlines(keepends=True)
    rows = [i for i, line in enumerate(lines) if i and b"," in line]
    del lines[rows[rng.integers(len(rows))]]
    return b"".join(lines)


def rewritten(data: bytes, _: np.random.Generator) -> bytes:
    return json.dumps(json.loads(data), indent=2).encode() if b"{" in data else data.replace(b"\n", b"\r\n")


MANY = 20
"""Losses that a golden needs, or a shift by a step is nothing to speak of."""
FAULTS: dict[str, Fault] = {
    **{name: training(fault) for name, fault in wrong_goldens.TRAINING.items()},
    "table empty": table(lambda _data, _: b""),
    "table cut off": table(lambda data, _: data[: data.index(b",", len(data) // 2)]),
    "row gone": table(without_a_row),
    "status worse": table(lambda data, _: data.replace(b",pass,", b",fail_accuracy,", 1)),
}
HARMLESS: dict[str, Fault] = {"another honest run": training(wrong_goldens.noise), "another layout": rewritten}


def plant(clone: Path, preset: str, healthy: list[tuple[str, str]], size: int, seed: int) -> dict[str, Planted]:
    """Each kind of fault in each golden of a sample."""
    rng = np.random.default_rng(seed)
    latest = list({path: (commit, path) for commit, path in healthy}.values())
    chosen = [latest[i] for i in rng.permutation(len(latest))[:size]]
    goldens = {path: git(clone, "show", f"{commit}:{path}") for commit, path in chosen}
    pairs: dict[str, dict[str, tuple[bytes, bytes]]] = {}
    for name, fault in (FAULTS | HARMLESS).items():
        pairs[name] = {}
        for path, data in goldens.items():
            with suppress(ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
                pairs[name][path] = data, fault(data, rng)
    return {name: _planted(found, preset) for name, found in pairs.items()}


def _planted(pairs: dict[str, tuple[bytes, bytes]], preset: str) -> Planted:
    done = Planted()
    with tempfile.TemporaryDirectory() as name:
        for path, (old, new) in pairs.items():
            if new != old:
                done.planted += 1
                for side, data in (("old", old), ("new", new)):
                    file = Path(name, side, path)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(data)
        if done.planted:
            for change in karat.diff("old", "new", cwd=name, preset=preset).changes:
                severity = change.severity.value if change.severity else ""
                done.fails += severity == "fail"
                done.warns += severity == "warn"
                if severity != "fail":
                    done.missed.append(change.path)
    return done


def shown(done: Replayed, planted: dict[str, Planted]) -> Iterator[str]:
    seconds = sorted(done.seconds) or [0.0]
    yield f"{done.commits:,} golden commits, {done.files:,} changed goldens, {len(done.crashes)} crashes"
    yield f"{sum(seconds):.1f} s; median {1e3 * seconds[len(seconds) // 2]:.0f} ms, longest {1e3 * seconds[-1]:.0f} ms ({done.slowest})"
    yield "verdicts   " + ", ".join(f"{n:,} {name}" for name, n in done.verdicts.most_common())
    yield "findings"
    yield from (f"  {n:7,}  {name}" for name, n in done.findings.most_common())
    yield from (f"crash  {line}" for line in done.crashes)
    yield f"{len(done.failed)} commits with a fail"
    yield from (f"  {line}" for line in done.failed[:40])
    if done.harm:
        caught = sum(done.harm.values()) - len(done.missed)
        yield f"harm named by commits: {caught} of {sum(done.harm.values())} caught, {len(done.false_alarms)} false alarms"
        yield from (f"  missed  {line}" for line in done.missed)
        yield from (f"  false alarm  {line}" for line in done.false_alarms)
    for title, names in (("planted faults", FAULTS), ("planted, and harmless", HARMLESS)):
        yield f"{title:32} planted     fail     warn"
        for name in names:
            if (found := planted.get(name)) and found.planted:
                yield f"  {name:30} {found.planted:7}  {found.fails:7}  {found.warns:7}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, nargs="?")
    parser.add_argument("--preset", choices=PRESETS, help="by default, whichever has goldens there")
    parser.add_argument("--generate", type=int, metavar="REFRESHES", help="make a history of so many refreshes")
    parser.add_argument("--pairs", type=Path, metavar="FOLDER", help="make a history of the pairs under FOLDER")
    parser.add_argument("--commits", type=int, metavar="N", help="only the newest N golden commits")
    parser.add_argument("--sample", type=int, default=50, help="goldens to plant faults into")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="F", help="write the tables as JSON, too")
    options = parser.parse_args()
    if [options.clone, options.generate, options.pairs].count(None) != 2:
        parser.error("expected one of CLONE, --generate and --pairs")
    wrong = False
    report = {}
    with tempfile.TemporaryDirectory() as name:
        clone = options.clone or Path(name, "clone")
        if options.pairs:
            golden_histories.of_pairs(clone, options.pairs)
        elif options.generate:
            golden_histories.write(clone, options.preset or PRESETS[0], options.generate, options.seed)
        presets = [options.preset] if options.preset else presets_of(clone)
        if not presets:
            parser.error(f"expected goldens of {' or '.join(PRESETS)} in {clone}, found none; pass --preset")
        for preset in presets:
            done = replay(clone, preset, options.commits)
            planted = plant(clone, preset, done.healthy, options.sample, options.seed)
            print(f"\n{preset}", *shown(done, planted), sep="\n")
            report[preset] = {**msgspec.to_builtins(done), "planted": msgspec.to_builtins(planted)}
            wrong |= bool(done.crashes or done.missed or done.false_alarms or not done.commits)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
