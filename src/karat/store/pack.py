"""Packing: the cases of capture directories as zips that any machine can verify.

Every case becomes a zip of its own, in parallel; each is read back and verified as a consumer would before
anything is published. The combined zip takes the packed members over as they lie, so bytes are compressed
once, and its bytes depend on the cases alone: not on order, umask, clock, time zone or number of jobs.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec

from karat.bundles.cases import cases
from karat.bundles.places import BadPlace, open_place
from karat.bundles.verifying import verify_case
from karat.findings import ExitCode, Finding, Severity, UsageError, exit_code
from karat.store.pack_case import Combined, Packing, Part, Source, pack_case
from karat.store.pack_output import Output, Workshop, workshop
from karat.store.pack_survey import Candidate, Survey, survey
from karat.store.zip_writer import Compression, checked_level
from karat.tensors.tensor import Damaged

Progress = Callable[[int, int], None]


class PackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    output: str
    combined: str | None
    """The file name of the combined zip; None for none."""
    cases: bool = True
    """Whether zips of single cases are kept."""
    compression: Compression = "stored"
    level: int | None = None
    keep_going: bool = False
    replace: bool = False
    require_program: bool = False
    jobs: int = 0
    """0: as many as there are cores."""


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """What packing came to."""

    directories: tuple[str, ...]
    output: str
    state: str
    """`written`; `refused`: something failed, and OUT is as it was."""
    outputs: tuple[Output, ...]
    found: int
    """Cases there were."""
    packed: int
    """Cases in the zips."""
    tensors: int
    size: int
    """Bytes of the files of all packed cases."""
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> ExitCode:
        """As findings say."""
        return exit_code(self.findings)


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One case, packed or refused."""

    candidate: Candidate
    file: Path
    part: Part | None
    findings: tuple[Finding, ...]


def pack(
    directories: Sequence[str], options: PackOptions, progress: Progress | None = None
) -> Packed:
    """Packs everything that capture directories hold, or says what stands in the way."""
    checked_level(options.compression, options.level)
    _check_apart(directories, options.output)
    found = survey(directories, require_program=options.require_program)
    try:
        if not found.found and not found.findings:
            return _told(directories, options, found, [], [_nothing(directories)])
        with workshop(Path(options.output), replace=options.replace) as work:
            # Although something may have failed already: what else is wrong is told now, not one
            # error a run.
            outcomes, combined = _pack_all(work, found, options, progress)
            findings = [*found.findings, *(f for o in outcomes for f in o.findings)]
            parts = [o.part.output for o in outcomes if o.part is not None]
            outputs = [output for output in (*parts, combined) if output is not None]
            if outputs and (options.keep_going or not _fails(findings)):
                work.publish(outputs, replace=options.replace)
            else:
                outputs = []
        return _told(directories, options, found, outcomes, findings, outputs)
    finally:
        found.close()


def _pack_all(
    work: Workshop, found: Survey, options: PackOptions, progress: Progress | None
) -> tuple[list[_Outcome], Output | None]:
    """Every case, in order; and all of them in one, if that is wanted."""
    folder = work.folder / "cases" if options.cases else work.scratch
    outcomes, done = [], 0
    total = sum(candidate.size for candidate in found.candidates)
    with contextlib.ExitStack() as stack:
        combined = None
        if options.combined is not None:
            combined = Combined(stack.enter_context((work.folder / options.combined).open("x+b")))
        for outcome in _each(found.candidates, options, folder):
            if combined is not None and outcome.part is not None:
                combined.take(outcome.part, outcome.file)
            if outcome.part is None or not options.cases:
                outcome.file.unlink(missing_ok=True)
            outcomes.append(outcome)
            done += outcome.candidate.size
            if progress is not None:
                progress(done, total)
        if combined is None or not any(outcome.part for outcome in outcomes):
            return outcomes, None
        return outcomes, combined.close(str(options.combined))


def _each(
    candidates: Sequence[Candidate], options: PackOptions, folder: Path
) -> Iterator[_Outcome]:
    """Packed and verified, in the order of the candidates, several at a time."""
    pool = ThreadPoolExecutor(options.jobs or os.cpu_count() or 1)
    try:
        yield from pool.map(lambda one: _pack_one(one, options, folder), candidates)
    finally:
        pool.shutdown(cancel_futures=True)


def _pack_one(candidate: Candidate, options: PackOptions, folder: Path) -> _Outcome:
    file = folder / f"{candidate.path}.zip"
    part: Part | None = None
    try:
        how = Packing(compression=options.compression, level=options.level, keep=options.cases)
        part = pack_case(_source(candidate), file, how)
        findings = _read_back(file, candidate)
    except Damaged as damage:
        findings = (_damaged(candidate, str(damage)),)
    if _fails(findings):
        part = None
    return _Outcome(candidate=candidate, file=file, part=part, findings=findings)


def _source(candidate: Candidate) -> Source:
    path, case = candidate.path, candidate.case
    files = tuple((f"{path}/{name}", case.extent(name)) for name in candidate.files)
    return Source(path=path, seal=case.manifest.sha256, files=files)


def _read_back(file: Path, candidate: Candidate) -> tuple[Finding, ...]:
    """What a consumer's `karat verify` says of the case, about its directory rather than the zip."""
    try:
        place = open_place(file)
    except BadPlace as bad:
        return (_damaged(candidate, str(bad)),)
    try:
        found = tuple(finding for case in cases(place) for finding in verify_case(case))
    finally:
        place.close()
    where = candidate.root
    advice = f"karat verify {shlex.quote(where)}"
    return tuple(
        replace(finding, path=candidate.path, where=where, next=advice) for finding in found
    )


def _check_apart(directories: Sequence[str], output: str) -> None:
    out = Path(output).resolve()
    for directory in directories:
        if out.is_relative_to(Path(directory).resolve()):
            raise UsageError(
                f"-o {output}: expected a folder outside of what is packed, found one in {directory}",
                next_command="karat pack --help",
            )


def _told(
    directories: Sequence[str],
    options: PackOptions,
    found: Survey,
    outcomes: Sequence[_Outcome],
    findings: Sequence[Finding],
    outputs: Sequence[Output] = (),
) -> Packed:
    packed = [o for o in outcomes if o.part is not None] if outputs else []
    return Packed(
        directories=tuple(directories),
        output=options.output,
        state="written" if outputs else "refused",
        outputs=tuple(sorted(outputs, key=lambda output: output.path)),
        found=found.found,
        packed=len(packed),
        tensors=sum(len(o.candidate.case.manifest.tensors) for o in packed),
        size=sum(o.candidate.size for o in packed),
        findings=tuple(findings),
    )


def _nothing(directories: Sequence[str]) -> Finding:
    where = ", ".join(directories)
    return Finding(
        kind="nothing-compared",
        severity=Severity.FAIL,
        message=f"expected captured cases in {where}, found none; there is nothing to pack",
        path=directories[0],
        next=f"pytest --karat-capture {shlex.quote(directories[0])}",
    )


def _damaged(candidate: Candidate, said: str) -> Finding:
    return Finding(
        kind="bundle-damaged",
        severity=Severity.FAIL,
        message=f"{candidate.path}: {said}",
        path=candidate.path,
        where=candidate.root,
        next=f"karat verify {shlex.quote(candidate.root)}",
    )


def _fails(findings: Sequence[Finding]) -> bool:
    return any(finding.severity is Severity.FAIL for finding in findings)
