"""Where the values of both sides came from, as each side's own goldens.lock.json says.

A line of a lock speaks of one file; of a golden that was edited since it says nothing, and neither does karat.
Imported only for reports that tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from karat.diffs.result import Diff
from karat.diffs.sides import AnyFolder, Revision, Side, WorkTree
from karat.findings import CannotVerify, Finding, warn
from karat.goldens.provenance import LockEntry, decode_lock, lock_names, place_of, read_lock
from karat.report.words import count, few
from karat.system import git
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN

Locks = Mapping[str, Mapping[str, LockEntry]]  # Lock → name of a golden in it → its line.
Origins = dict[str, tuple[LockEntry | None, LockEntry | None]]

SOURCES = {"github": "GitHub workflow run", "gitlab": "GitLab pipeline"}
PLACES = {"folder": "a folder of results", "record": "`karat record`"} | dict.fromkeys(("s3", "gs", "az"), "a bucket")


def read_locks(side: Side, globs: Sequence[str]) -> tuple[Locks, list[Finding]]:
    """Every lock that a side has, and a finding for each that cannot be read."""
    locks, findings = {}, []
    for name in sorted(lock_names(globs)):
        try:
            locks[name] = _lock(side, name)
        except CannotVerify as error:
            said = f"{side.name}: {error}; where its values came from is left out"
            findings.append(warn("unreadable", said, path=name, next=error.next_command))
    return {name: lines for name, lines in locks.items() if lines}, findings


def _lock(side: Side, name: str) -> Mapping[str, LockEntry]:
    if isinstance(side, WorkTree | AnyFolder):
        return read_lock(side.root / name)
    if not isinstance(side, Revision):
        return {}
    with closing(git.Blobs(side.root)) as blobs:
        (data,) = blobs.read([f"{side.commit}:{name}"], GOLDEN.value())
    if isinstance(data, int):
        said = f"expected at most {GOLDEN.value():,} bytes in {name}, found {data:,}"
        raise CannotVerify(said, next_command=Command("git", "show", f"{side.name}:{name}"))
    return {} if data is None else decode_lock(data, Path(name))


def origins(
    locks: tuple[Locks, Locks], globs: Sequence[str], digests: Mapping[str, tuple[bytes | None, bytes | None]]
) -> Origins:
    """Golden → its line on the old side and on the new, of goldens that are still the file it speaks of.

    Of a golden that is gone, the new side's line says why that was accepted.
    """
    found: Origins = {}
    for path, (old, new) in digests.items():
        lock, name = place_of(path, globs)
        lines = (side.get(lock, {}).get(name) for side in locks)
        known = [
            line if line and (line.sha256 == digest.hex() if digest else line.accepted) else None
            for line, digest in zip(lines, (old, new), strict=True)
        ]
        if any(known):
            found[path] = known[0], known[1]
    return found


def place(source: str, run: str | None, name: Callable[[str], str] = str) -> str:
    """A run by name, or the kind of place that has no runs."""
    if run and source != "record":
        return f"{SOURCES.get(source, name(source))} {name(run)}"
    return PLACES.get(source, name(source))


def split_command(known: Iterable[tuple[LockEntry | None, LockEntry | None]] = ()) -> Command:
    """The question before every refresh: our code, or the packages? With the commits of both sides, where they are known."""
    sides = zip(*known, strict=True)
    commits = [{line.commit[:12] for line in side if line and line.commit} for side in sides]
    code = "..".join(min(one) for one in commits) if [len(one) for one in commits] == [1, 1] else "OLD..NEW"
    return Command("karat", "hunt", "split", "--code", code, "--packages", "OLD.txt..NEW.txt", "--", "CMD")


def runs(diff: Diff, side: int, name: Callable[[str], str] = str) -> Iterator[str]:
    """The runs that one side's values came from (0: old, 1: new), most goldens first; nothing if no lock knows any."""
    there = [c for c in diff.changes if (c.has_baseline if side == 0 else c.verdict != "removed")]
    lines = [diff.provenance[c.path][side] for c in there if c.path in diff.provenance]
    by_run: dict[str, list[LockEntry]] = {}
    for line in lines:
        if line is not None:
            by_run.setdefault(place(line.source, line.run, name), []).append(line)
    for run, known in sorted(by_run.items(), key=lambda item: (-len(item[1]), item[0])):
        days = sorted({line.date[:10] for line in known if line.date})
        about = [
            few(sorted({f"commit {name(line.commit[:12])}" for line in known if line.commit}), 2),
            few(sorted({name(line.image) for line in known if line.image}), 2),
            days[0] if len(days) == 1 else " to ".join((days[0], days[-1])) if days else "",
        ]
        yield f"{', '.join([run, *filter(None, about)])}: {count(len(known), 'golden')}"
    if by_run and (unknown := len(there) - sum(map(len, by_run.values()))):
        yield f"unknown, or edited since: {count(unknown, 'golden')}"
