"""Lint: files as they stand → what must not be committed so. The quick half of an audit: each file alone, without git's history.

A golden is read and judged as `karat diff` judges a new one, and its lines are best in one style. A lock must be one. In any other file that was named, only merge-conflict markers are looked for.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from karat.audits.audit import goldens_of
from karat.compare.pairs import GoldenPair, compare_many
from karat.findings import CannotVerify, Finding, Severity, fail, warn
from karat.goldens import formats, text_file
from karat.goldens.paths import PathFilter, identity_of
from karat.goldens.provenance import NAME, decode_lock, encode_lock
from karat.report.words import count, severity_counts
from karat.system import git
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN, TooLong, read_plain
from karat.system.forks import chunks_of, helpers_for, spread

if TYPE_CHECKING:
    from karat.diffs.diff import DiffOptions

_LINE_END = re.compile(rb"\r?\n\Z")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


class LintReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with the files, gravest first."""

    goldens: tuple[str, ...]
    others: int = 0  # Files that are no goldens: searched for merge-conflict markers only.
    findings: tuple[Finding, ...] = ()

    def headline(self) -> str:
        others = f" and {count(self.others, 'other file')}" if self.others else ""
        found = severity_counts(self.findings) or "nothing to object to"
        return f"{count(len(self.goldens), 'golden')}{others}: {found}"


def lint(root: Path, named: Sequence[str], options: DiffOptions) -> LintReport:
    """These files, seen from the root; without any, all goldens of the tree and their locks."""
    if named:
        is_golden = PathFilter(options.globs, options.exclude)
        paths = [path for path in dict.fromkeys(named) if is_golden(path)]
        others = [path for path in dict.fromkeys(named) if not is_golden(path)]
    else:
        files, paths = goldens_of(root, options, repository=git.find_root(root) == root)
        others = sorted(path for path in files if path.rpartition("/")[2] == NAME)
        if not paths:
            said = f"expected goldens in {root}, found none that match {', '.join(options.globs)}"
            nothing = fail("nothing-compared", said, next="karat config --show-origin")
            return LintReport(goldens=(), findings=(nothing,))
    chunks, helpers = chunks_of(paths), helpers_for(len(paths), options.jobs)
    work = nullcontext(lambda number: [f for path in chunks[number] for f in _of_golden(root, path, options)])
    found = [f for part in spread(len(chunks), lambda: work, list[Finding], helpers=helpers) for f in part]
    found += [finding for path in others for finding in _of_other(root, path)]
    advised = [f if f.next else replace(f, next=Command("git", "log", "--oneline", "--", f.path)) for f in found]
    advised.sort(key=lambda f: (f.severity.rank, f.kind, f.path, f.metric or ""))
    return LintReport(goldens=tuple(paths), others=len(others), findings=tuple(advised))


def _read(root: Path, path: str) -> bytes | Finding:
    try:
        return read_plain(root / path, GOLDEN, follow=False)
    except TooLong as error:
        return formats.too_long(error.size, path)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or error
        look = Command("ls", "-l", os.path.relpath(root / path))
        return fail("cannot-read", f"expected to read it, but: {why}", path=path, next=look)


def _of_golden(root: Path, path: str, options: DiffOptions) -> Iterator[Finding]:
    data = _read(root, path)
    if isinstance(data, Finding):
        yield data
        return
    reading = formats.read(data, path)
    pair = GoldenPair(path=path, old=None, new=reading, identity=identity_of(path, options.cases), same_bytes=False)
    (change,) = compare_many([pair], options.rules, status=options.status)
    shape = reading.golden.shape if reading.golden else "*"
    for finding in change.findings:
        if finding.kind in {"not-finite", "empty"} and finding.metric and finding.severity is Severity.WARN:
            rule = options.rules.gate_rule_for(finding.metric, path, shape)
            # What is not there is compared with nothing, and that passes.
            if rule.mode not in {"info", "off"} and not rule.origin.startswith("default"):
                said = f"{finding.message}; karat check gates this metric ({rule.origin})"
                finding = replace(finding, severity=Severity.FAIL, message=said)  # noqa: PLW2901
        if finding.kind != "new-golden":
            yield finding
    if reading.golden is not None and (odd := _odd_line(data, is_json=(reading.format or "").endswith("-json"))):
        line, what = odd
        said = f"line {line} {what}; the lines of one file are best alike"
        yield warn("mixed-style", said, path=path, where=f"line {line}", numbers={"line": line})


def _odd_line(data: bytes, *, is_json: bool) -> tuple[int, str] | None:
    """The first line that is not in the style of the others, and why; JSON is indented by as much as its first inner line."""
    lines = data.splitlines(keepends=True)
    ending = _LINE_END.search(lines[0]) if lines else None
    unit, depth = None, 0
    for number, line in enumerate(lines, 1):
        end = _LINE_END.search(line)
        if end and ending and end[0] != ending[0]:
            return number, "ends unlike the first"
        text = line.strip()
        if not text or not is_json:
            continue
        bare = _STRING.sub(b"", text)
        before = len(line) - len(line.lstrip(b" \t"))
        closed = len(bare) - len(bare.lstrip(b"}]"))
        unit = before if unit is None and depth else unit
        if unit is not None and before != unit * max(depth - closed, 0):
            return number, f"begins with {count(before, 'blank')}, and {unit * max(depth - closed, 0)} were expected"
        depth += sum(map(bare.count, (b"{", b"["))) - sum(map(bare.count, (b"}", b"]")))
    return None


def _of_other(root: Path, path: str) -> Iterator[Finding]:
    data = _read(root, path)
    if isinstance(data, Finding):
        if path.rpartition("/")[2] == NAME or data.kind == "cannot-read":
            yield data
        return
    found = text_file.check(data)
    if found is not None and found.kind == "conflict-markers":
        yield replace(found, path=path, message=found.message.removeprefix("expected a golden, "))
    elif path.rpartition("/")[2] == NAME:
        try:
            if encode_lock(decode_lock(data, Path(path))) != data:
                said = "the lines are not sorted as karat writes them, so that branches conflict; the next refresh sorts them"
                yield warn("mixed-style", said, path=path)
        except CannotVerify as error:
            yield fail("unreadable", str(error), path=path, next=error.next_command)
