"""Packing: the cases of capture directories as zips that any machine can verify.

Every case becomes a zip of its own, several at a time; each byte is held against the case's manifest as it is
packed, and nothing is published before all have been. The combined zip takes the packed members over as they
lie, so bytes are read and compressed once, and its bytes depend on the cases alone: not on order, umask,
clock, time zone or number of jobs.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from karat.bundles.places import BadPlace, open_place
from karat.findings import ExitCode, Finding, Severity, UsageError, exit_code, fail
from karat.report.json import encode, finding_json
from karat.report.words import byte_size, count
from karat.store.packs.output import PackedFile, StagedOutput, staged_output
from karat.store.packs.survey import PackCandidate, Survey, survey
from karat.store.packs.zips import (
    CombinedZip,
    Compression,
    PackedCase,
    PackTarget,
    ZipOptions,
    checked_level,
    pack_case,
    stored_size,
)
from karat.system.command import Command
from karat.system.processes import available_cores
from karat.tensors.tensor import Damaged

Progress = Callable[[int, int], None]
SCHEMA = "karat.pack/1"
_SHOWN = 20
_AHEAD = 64  # cases that may be packed and not yet be in the combined zip


class PackOptions(msgspec.Struct, frozen=True, kw_only=True):
    output: str
    combined: str | None  # The file name of the combined zip; None for none.
    cases: bool = True  # Whether zips of single cases are kept.
    compression: Compression = "stored"
    level: int | None = None
    keep_going: bool = False
    replace: bool = False
    again: str = "karat pack --help"  # The command that would replace what stands in OUT.
    require_program: bool = False
    jobs: int = 0  # 0: as many as there are cores.


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    directories: tuple[str, ...]
    output: str
    state: str = "refused"  # `written`; `refused`: something failed, and OUT is as it was.
    outputs: tuple[PackedFile, ...] = ()
    found: int  # Cases there were.
    packed: int = 0  # Cases in the zips.
    tensors: int = 0
    size: int = 0  # Bytes of the files of all packed cases.
    findings: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        return exit_code(self.findings)


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    candidate: PackCandidate
    target: PackTarget
    part: PackedCase | None
    findings: tuple[Finding, ...]


def pack(directories: Sequence[str], options: PackOptions, progress: Progress | None = None) -> Packed:
    """Pack everything that capture directories hold, or say why not."""
    checked_level(options.compression, options.level)
    if "" in {options.output, *directories}:  # Path("") is this folder; nobody who wrote "$CAPTURES" meant that
        said = "expected a folder, found an empty word"
        raise UsageError(said, next_command="karat pack --help")
    out = Path(options.output).resolve()
    for directory in directories:
        if out.is_relative_to(Path(directory).resolve()):
            said = f"-o {options.output}: expected a folder outside of what is packed, found one in {directory}"
            raise UsageError(said, next_command="karat pack --help")
    with contextlib.closing(survey(directories, require_program=options.require_program)) as found:
        refused = Packed(directories=tuple(directories), output=options.output, found=found.found)
        if not found.found and not found.findings:
            said = f"expected captured cases in {', '.join(directories)}, found none; there is nothing to pack"
            then = str(Command("pytest", f"--karat-capture={directories[0]}"))
            nothing = fail("nothing-compared", said, path=directories[0], next=then)
            return msgspec.structs.replace(refused, findings=(nothing,))
        with staged_output(Path(options.output), replace=options.replace, again=options.again) as work:
            # Also if something has failed already: all errors are reported at once, not one per run.
            outcomes, combined = _pack_all(work, found, options, progress)
            findings = [*found.findings, *(f for o in outcomes for f in o.findings)]
            parts = [o.part.output for o in outcomes if o.part is not None]
            outputs = [output for output in (*parts, combined) if output is not None]
            failed = any(finding.severity is Severity.FAIL for finding in findings)
            if not outputs or (failed and not options.keep_going):
                return msgspec.structs.replace(refused, findings=tuple(findings))
            work.publish(outputs, replace=options.replace)
        packed = [outcome.candidate for outcome in outcomes if outcome.part is not None]
        return msgspec.structs.replace(
            refused,
            state="written",
            outputs=tuple(sorted(outputs, key=lambda output: output.path)),
            packed=len(packed),
            tensors=sum(len(candidate.case.manifest.tensors) for candidate in packed),
            size=sum(candidate.size for candidate in packed),
            findings=tuple(findings),
        )


def _pack_all(
    work: StagedOutput, found: Survey, options: PackOptions, progress: Progress | None
) -> tuple[list[_Outcome], PackedFile | None]:
    """Every case, in order; and all of them in one, if that is wanted."""
    total, done = sum(candidate.size for candidate in found.candidates), 0
    lock, stopped = threading.Lock(), threading.Event()

    def count_bytes(packed: int) -> None:
        """Also stops whoever counts once packing was stopped, however large the case."""
        nonlocal done
        with lock:
            if stopped.is_set():
                raise InterruptedError("packing was stopped")
            done += packed
            if progress is not None:
                progress(done, total)

    packing = ZipOptions(compression=options.compression, level=options.level, count=count_bytes)
    outcomes = []
    with contextlib.ExitStack() as stack:
        combined = None
        if options.combined is not None:
            combined = CombinedZip(work.folder / options.combined)
            stack.callback(combined.close)
        todo = zip(found.candidates, _targets(work, found, options), strict=True)
        pool = ThreadPoolExecutor(options.jobs or available_cores())
        stack.callback(pool.shutdown, cancel_futures=True)
        stack.callback(stopped.set)
        for outcome in _each(todo, packing, pool):
            if combined is not None and outcome.part is not None:
                combined.take(outcome.part, outcome.target.file)
            if outcome.target.use == "scratch" or (outcome.target.use == "case" and not outcome.part):
                outcome.target.file.unlink(missing_ok=True)
            outcomes.append(outcome)
        output = combined.finish() if combined is not None else None
        if output is not None:
            _check_opens(work.folder / output.path, options.compression)
        return outcomes, output


def _check_opens(zipped: Path, compression: Compression) -> None:
    """Readers refuse what unpacks to far more than its size; whoever packs it should know first."""
    if compression == "stored":
        return
    try:
        open_place(zipped).close()
    except BadPlace as bad:
        said = f"--compression {compression}: expected a zip that readers open; {bad}"
        raise UsageError(said, next_command="karat pack --help  # stored opens always") from bad


def _targets(work: StagedOutput, found: Survey, options: PackOptions) -> Iterator[PackTarget]:
    """Where each case is to be packed.

    Without compression, a case's position in the combined zip is known beforehand: without zips of single cases it is
    written right there.
    """
    start = 0
    for candidate in found.candidates:
        name = f"{candidate.path}.zip"
        if options.cases or options.combined is None:
            yield PackTarget(file=work.folder / "cases" / name, use="case")
        elif options.compression != "stored":
            yield PackTarget(file=work.scratch / name, use="scratch")
        else:
            yield PackTarget(file=work.folder / options.combined, use="combined", start=start)
            sizes = candidate.case.files
            start += sum(stored_size(f"{candidate.path}/{file}", sizes[file]) for file in candidate.files)


def _each(
    todo: Iterable[tuple[PackCandidate, PackTarget]], packing: ZipOptions, pool: ThreadPoolExecutor
) -> Iterator[_Outcome]:
    """Packed and verified cases, in order; only a few wait to be taken."""
    waiting: deque[Future[_Outcome]] = deque()
    for candidate, target in todo:
        waiting.append(pool.submit(_pack_one, candidate, target, packing))
        if len(waiting) > _AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _pack_one(candidate: PackCandidate, target: PackTarget, packing: ZipOptions) -> _Outcome:
    try:
        part = pack_case(candidate, target, packing)
        wrong = part.wrong
        if part.output is not None:
            _check_opens(target.file, packing.compression)
    except Damaged as damage:
        part, wrong = None, (str(damage),)
    path, root = candidate.path, candidate.root
    named = (said if said.startswith(path) else f"{path}: {said}" for said in wrong)
    then = str(Command("karat", "verify", root))
    findings = tuple(fail("bundle-damaged", said, path=path, where=root, next=then) for said in named)
    return _Outcome(candidate=candidate, target=target, part=None if wrong else part, findings=findings)


def document(packed: Packed) -> bytes:
    data = msgspec.to_builtins(msgspec.structs.replace(packed, findings=()))
    data["findings"] = [finding_json(finding) for finding in packed.findings]
    return encode({"schema": SCHEMA, "exit_code": int(packed.exit_code), **data})


def lines(packed: Packed) -> Iterator[str]:
    yield from grouped_lines((finding, finding.message) for finding in packed.findings)
    if packed.state != "written":
        yield f"nothing packed: {packed.output} is as it was"
        return
    single = [output.size for output in packed.outputs if output.path.startswith("cases/")]
    for output in packed.outputs:
        if not output.path.startswith("cases/"):
            yield f"{packed.output}/{output.path}  {byte_size(output.size)}  sha256:{output.sha256}"
    if single:
        yield f"{packed.output}/cases/  {count(len(single), 'zip')}  {byte_size(sum(single))}"
    left = f" of {packed.found:,}" if packed.found != packed.packed else ""
    yield (
        f"packed {packed.packed:,}{left} {'case' if packed.found == 1 else 'cases'}, "
        f"{count(packed.tensors, 'tensor')}, {byte_size(packed.size)}"
    )


def grouped_lines(findings: Iterable[tuple[Finding, str]]) -> Iterator[str]:
    """Findings and their messages as lines, worst first; of many that are alike, the first few."""
    kinds: dict[tuple[Severity, str], list[str]] = {}
    for finding, message in sorted(findings, key=lambda pair: pair[0].severity.rank):
        kinds.setdefault((finding.severity, finding.kind), []).append(message)
    for (severity, kind), messages in kinds.items():
        yield from (f"{severity.value:4}  {kind}: {message}" for message in messages[:_SHOWN])
        if len(messages) > _SHOWN:
            yield f"{severity.value:4}  {kind}: {len(messages) - _SHOWN:,} more; --json F has all"
