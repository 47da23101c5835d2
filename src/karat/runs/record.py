"""The artifact manifest: what a CI job knows of itself, for whoever finds its files later."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
from msgspec import structs

from karat.compare.change import Change
from karat.compare.gate.result import Judging
from karat.compare.gate.table import like_golden
from karat.compare.pairs import Pair, compare
from karat.config import Config
from karat.findings import UNVERIFIED, CannotVerify, ExitCode, Finding, Severity, UsageError
from karat.goldens import formats
from karat.goldens.paths import PathFilter
from karat.goldens.provenance import LockEntry, Provenance, place_of, read_lock, write_lock
from karat.goldens.shapes import Golden, Reading, Series, Table
from karat.runs.curves import (
    accepted_incomplete,
    completed,
    last_step,
    matching,
    mixed_samples,
    new_golden,
    renaming,
    said_by_runs,
    settings_like,
    shortened,
    up_to,
)
from karat.runs.read import read_run
from karat.runs.record_report import Recorded, metric_rows, run_row, told
from karat.runs.repeats import (
    Combine,
    Repeat,
    Samples,
    distinct,
    fingerprint,
    read_samples,
    render_samples,
    samples_of,
    samples_path,
)
from karat.runs.settings import RecordSettings
from karat.system.ci import facts
from karat.system.files import write_bytes
from karat.system.git import find_root, only_writer
from karat.system.hashes import sha256_hex

SCHEMA = "karat.artifact/1"

_FIELDS = ("platform", "image", "job", "job_id")
"""What an identity may say that has a field of its own."""


def parse_identity(words: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE words as a mapping."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier() or not value:
            raise UsageError(
                f"--identity: expected KEY=VALUE, found {word!r}",
                next_command="karat record --help",
            )
        if found.get(key, value) != value:
            raise UsageError(
                f"--identity: expected {key} once, found {found[key]!r} and {value!r}",
                next_command="karat record --help",
            )
        found[key] = value
    return found


def told_by_ci(environment: Mapping[str, str]) -> dict[str, Any]:
    """What CI's variables say of this job."""
    said = facts(environment)
    names = {
        "run_id": "run",
        "job": "job",
        "job_id": "job_id",
        "commit": "commit",
        "image": "image",
    }
    known: dict[str, Any] = {field: said[name] for field, name in names.items() if name in said}
    attempt = said.get("attempt", "")
    # Buildkite counts from 0.
    if attempt.isdecimal() and int(attempt):
        known["attempt"] = int(attempt)
    return known


def manifest(environment: Mapping[str, str], identity: Mapping[str, str]) -> bytes:
    """The manifest of the job that this process runs in."""
    known = {"schema": SCHEMA, **told_by_ci(environment)}
    for field in _FIELDS:
        if field in identity:
            known[field] = identity[field]
    known["identity"] = {key: v for key, v in sorted(identity.items()) if key not in _FIELDS}
    return msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n"


# DOC-HERE lock_line: The line of goldens.lock.json that says where a recorded golden came from.

SOURCE = "record"
_SHARED = tuple(Provenance.__struct_fields__)


class LockLine(msgspec.Struct, frozen=True, kw_only=True):
    """One golden's place in the lock of its group."""

    file: Path
    path: str
    """The golden, relative to the lock's folder."""
    entries: Mapping[str, LockEntry]

    def knows(self, data: bytes, origin: Provenance) -> bool:
        """Whether nothing is to be said about these bytes that the lock does not say."""
        entry = self.entries.get(self.path)
        if entry is None:
            return not self.entries and origin.accepted is None
        accepted = bool(entry.accepted or any(one.accepted for one in entry.metrics.values()))
        told = origin.accepted is None or accepted
        return told and entry.sha256 == sha256_hex(data)

    def note(self, data: bytes, origin: Provenance, metrics: Sequence[str]) -> bool:
        """Write the line for a golden with these bytes; with metrics, only theirs is new."""
        if not self.entries and origin.accepted is None:
            return False  # no refresh has begun a lock here, and there is nothing to own up to
        digest = sha256_hex(data)
        shared = {name: getattr(origin, name) for name in _SHARED}
        entry = LockEntry(**shared, sha256=digest)
        old = self.entries.get(self.path)
        if metrics:
            base = {name: getattr(old, name) for name in _SHARED} if old else {"source": "unknown"}
            earlier = dict(old.metrics) if old else {}
            entry = LockEntry(
                **base, sha256=digest, metrics={**earlier, **dict.fromkeys(metrics, origin)}
            )
        return write_lock(self.file, {**self.entries, self.path: entry})


def lock_line(golden: Path, globs: Sequence[str], exclude: Sequence[str]) -> LockLine | None:
    """Where the lock would speak of this golden; None outside a repository or the golden paths."""
    target = golden.resolve()
    folder = next(parent for parent in target.parents if parent.is_dir())
    try:
        root = find_root(folder)
    except CannotVerify:  # no git here: then there is no lock that a refresh would have made
        root = None
    if root is None:
        return None
    path = target.relative_to(root.resolve()).as_posix()
    if not PathFilter(globs, exclude).covers(path):
        return None
    lock, name = place_of(path, globs)
    return LockLine(file=root / lock, path=name, entries=read_lock(root / lock))


def origin_of(environment: Mapping[str, str], *, accepted: bool, date: str | None) -> Provenance:
    """What this process knows of where a golden comes from."""
    told = told_by_ci(environment)
    return Provenance(
        source=SOURCE,
        run=told.get("run_id"),
        attempt=told.get("attempt"),
        commit=told.get("commit"),
        job=told.get("job"),
        image=told.get("image"),
        date=date,
        accepted="--accept-incomplete" if accepted else None,
    )


# DOC-HERE placing: Placing: a recorded golden, its samples and its line in the lock, onto the disk.
#
# Samples first, the golden then, the lock last, each file whole or not at all. Whoever is killed in
# between finds on the next try what stands already, and does the rest.


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written, and for whom."""

    golden: Path
    data: bytes
    old: bytes | None
    """What stands there now; None: nothing."""
    samples: Samples | None
    line: LockLine | None
    origin: Provenance
    metrics: Sequence[str]
    """The metrics that were taken, where it was not all of them."""

    def write(self) -> tuple[str, bool]:
        """What became of the golden's file, and whether the lock has a new line."""
        if self.samples is not None:
            _put(samples_path(self.golden), render_samples(self.samples))
        same = self.data == self.old
        if not same:
            _put(self.golden, self.data)
        elif self.line is None or self.line.knows(self.data, self.origin):
            return "unchanged", False
        noted = self.line is not None and self.line.note(self.data, self.origin, self.metrics)
        return ("unchanged" if same else "written"), noted


def bytes_of(path: Path) -> bytes | None:
    """The bytes of a golden; None where there is none yet."""
    if path.is_symlink():  # asked before anything is written, the samples too
        raise UsageError(
            f"expected a plain file at {path}, found a symbolic link; record what it points at",
            next_command=f"readlink -f {quote(str(path))}",
        )
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotVerify(
            f"expected to read the golden {path}, but: {error.strerror}",
            next_command=f"ls -ld {quote(str(path))}",
        ) from error


def _put(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {path}, but: {error.strerror or error}",
            next_command=f"ls -ld {quote(str(path.parent))}",
        ) from error


# DOC-HERE recording: One golden and what is to become of it: runs read, judged, and written unless something objects.

_TAKEN = "; the new one is taken without a comparison"


@contextmanager
def alone(golden: Path, *, dry_run: bool) -> Iterator[None]:
    """Keeps other karat processes from recording here: samples and lock are read, then written."""
    folder = next(parent for parent in golden.resolve().parents if parent.is_dir())
    try:
        root = None if dry_run else find_root(folder)
    except CannotVerify:  # no git here
        root = None
    with only_writer(root) if root is not None else nullcontext():
        yield


class _Judged:
    """What the findings come to: taken, taken all the same, or refused."""

    def __init__(
        self, said: Sequence[Finding], compared: Sequence[Finding], *, nothing: bool, accept: bool
    ) -> None:
        found = [*said, *compared]
        objections = [f for f in found if f.condemns]
        # Nothing to take is no matter of being incomplete.
        hopeless = UNVERIFIED | {"empty"}
        self.nothing = nothing or any(
            f.severity is Severity.FAIL and f.kind in hopeless for f in said
        )
        self.refused = self.nothing or (bool(objections) and not accept)
        self.accepted = bool(objections) and not self.refused
        self.findings = [accepted_incomplete(objections), *found] if self.accepted else found

    @property
    def code(self) -> ExitCode:
        """What the findings deserve: 3 where all that objects is that nothing could be had."""
        if not self.refused:
            return ExitCode.OK
        failed = [f for f in self.findings if f.severity is Severity.FAIL]
        bare = all(f.kind in UNVERIFIED for f in failed)
        return ExitCode.CANNOT_VERIFY if bare else ExitCode.FAIL


class Job:
    """One golden and what is to become of it."""

    def __init__(
        self,
        golden: Path,
        config: Config,
        asked: dict[str, Any],
        metrics: tuple[str, ...],
        form: str | None,
    ) -> None:

        self.path = golden
        self.config = config
        self.settings = settings = structs.replace(config.record, **asked)
        # Of what is a golden already, only what the command line asks for is changed.
        self.of_golden = RecordSettings(**{"steps": settings.steps, **asked}) if asked else None
        self.metrics = metrics
        self.old_bytes = bytes_of(golden)
        self.old = self._read_old()
        # What stands keeps its format unless the command line says otherwise.
        known = self.old.format if self.old and self.old.golden is not None else None
        self.form = form or known or settings.format

    def _read_old(self) -> Reading | None:

        return None if self.old_bytes is None else formats.read(self.old_bytes, str(self.path))

    def run(
        self,
        actual: tuple[str, ...],
        combine: Combine,
        *,
        accept: bool,
        dry_run: bool,
        afresh: bool,
    ) -> tuple[Recorded, ExitCode]:
        """Read, judge, and write unless something objects."""
        repeats = [self._repeat(path) for path in distinct(actual)]
        old = self.old.golden if self.old else None
        said = said_by_runs(repeats, old, self.settings, self.metrics)
        new = new_golden(repeats, combine, old, self.metrics, self.form)
        change = self._change(new, said)
        judged = _Judged(said, self._objecting(change), nothing=new is None, accept=accept)
        samples = None if judged.refused else self._samples(repeats, afresh=afresh)
        if change is not None and samples is not None and len(samples.runs) > len(repeats):
            judged.findings += mixed_samples(change.verdict.value, len(samples.runs) - len(repeats))
        state, locked = "refused", False
        if new is not None and not judged.refused:
            state, locked = self._write(new, samples, accepted=judged.accepted, dry_run=dry_run)
        recorded = Recorded(
            golden=str(self.path),
            state=state,
            verdict=change.verdict.value if change else None,
            runs=tuple(map(run_row, repeats)),
            metrics=metric_rows(change.metrics if change else ()),
            findings=told(judged.findings, state),
            combine=combine if len(repeats) > 1 else None,
            accepted_incomplete=judged.accepted,
            lock=locked,
            samples=str(samples_path(self.path)) if samples else None,
            samples_runs=len(samples.runs) if samples else 0,
            next=self._next(state, judged, samples, locked=locked),
        )
        return recorded, judged.code

    def _objecting(self, change: Change | None) -> list[Finding]:
        """What the comparison says; that nothing could be compared is an objection to writing."""
        stands = bool(self.old_bytes and self.old_bytes.strip())
        return [
            replace(f, severity=Severity.FAIL, message=f.message.removesuffix(_TAKEN))
            if f.kind == "no-baseline" and stands
            else f
            for f in (change.findings if change else ())
        ]

    def _repeat(self, path: Path) -> Repeat:

        old = self.old.golden if self.old else None
        shape = old.shape if old else None
        if self.form == "table-csv":
            shape = "table"
        settings = settings_like(old, self.settings)
        plain = read_run(path, settings, shape=shape, of_golden=self.of_golden)
        reading = self._in_its_terms(path, plain)
        try:
            sha256 = fingerprint(path) if reading.golden is not None else ""
        except OSError as error:
            raise CannotVerify(
                f"expected to read {path} again, but: {error.strerror}",
                next_command=f"ls -ld {shlex.quote(str(path))}",
            ) from error
        return Repeat(path=str(path), reading=reading, sha256=sha256)

    def _in_its_terms(self, path: Path, reading: Reading) -> Reading:
        """A table as its golden would write it, as `karat check` has compared the two."""
        old = self.old.golden if self.old else None
        if not (isinstance(old, Table) and isinstance(reading.golden, Table) and path.is_file()):
            return reading
        if reading.golden.key == old.key and set(old.columns) <= set(reading.golden.columns):
            return reading
        judging = Judging(book=self.config.rule_book(), path=str(self.path))
        like = like_golden(path.read_bytes(), reading, old, judging, self.config.check.columns)
        if not isinstance(like.golden, Table):
            return reading
        rules = {name: judging.rule(name) for name in old.columns}
        tolerances = {name for name, rule in rules.items() if rule.tolerance}
        tolerances |= {rule.margin_column for rule in rules.values() if rule.margin_column}
        whole = completed(like.golden, old, tolerances)
        return structs.replace(like, golden=whole)

    def _change(self, new: Golden | None, findings: list[Finding]) -> Change | None:
        """The new golden against the old one."""
        if new is None:
            return None
        old, steps = self.old, self.settings.steps
        if old is not None and isinstance(old.golden, Series) and steps is not None:
            last = last_step(old.golden)
            if last is not None and last > steps:
                findings.append(shortened(steps, last))
                old = structs.replace(old, golden=up_to(old.golden, steps))
        pair = Pair(path=str(self.path), old=old, new=Reading(new))
        return compare(pair, self.config.rule_book(), status=self.config.status)

    def _samples(self, repeats: list[Repeat], *, afresh: bool) -> Samples | None:
        """All samples that are known now; None where one run alone says nothing of noise."""
        path = samples_path(self.path)
        if len(repeats) < 2 and not path.exists():
            return None
        return (Samples() if afresh else read_samples(path)).plus(samples_of(repeats))

    def _write(
        self, golden: Golden, samples: Samples | None, *, accepted: bool, dry_run: bool
    ) -> tuple[str, bool]:
        """What became of the golden's file, and whether the lock has a new line."""
        data = self._bytes(golden)
        if dry_run:
            return ("unchanged" if data == self.old_bytes else "would-write"), False
        return Placement(
            golden=self.path,
            data=data,
            old=self.old_bytes,
            samples=samples,
            # Read before anything is written: a lock with conflict markers stops all of it.
            line=lock_line(self.path, self.config.paths, self.config.exclude),
            origin=origin_of(os.environ, accepted=accepted, date=_today()),
            metrics=matching(golden, self.metrics),
        ).write()

    def _bytes(self, golden: Golden) -> bytes:

        like = self.old_bytes if self.old and self.old.format == self.form else None
        return formats.write(golden, like=like, format=self.form)

    def _next(
        self, state: str, judged: _Judged, samples: Samples | None, *, locked: bool
    ) -> str | None:
        name, words = shlex.quote(str(self.path)), sys.argv[1:]
        if state == "refused":
            return self._way_out(judged, words)
        if state == "would-write":
            return shlex.join(["karat", *(w for w in words if w != "--dry-run")])
        if samples is not None and len(samples.runs) > 1:
            return f"karat tolerance --golden {name}"
        line = lock_line(self.path, self.config.paths, self.config.exclude) if locked else None
        lock = f" {shlex.quote(os.path.relpath(line.file))}" if line else ""
        return f"git add {name}{lock}" if state == "written" else None

    def _way_out(self, judged: _Judged, words: Sequence[str]) -> str:
        failed = [f for f in judged.findings if f.severity is Severity.FAIL]
        advice = next((f.next for f in failed if f.next), None)
        if advice or judged.nothing:
            return advice or "karat record --help  # nothing could be taken: run the test again"
        forced = shlex.join(["karat", *words[:1], "--accept-incomplete", *words[1:]])
        by_name = renaming(judged.findings, self.form)
        return by_name or f"{forced}  # if it is meant; else run the test again"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
