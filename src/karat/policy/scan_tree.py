"""One scan: paths → files → facts → op tests → findings."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date

import msgspec

from karat.findings import Finding, Severity
from karat.policy.exemptions import Exemptions
from karat.policy.scan_class_findings import ClassFindings
from karat.policy.scan_files import Found, find
from karat.policy.scan_importers import Importers
from karat.policy.scan_judging import Judge, Judged, Rules, unbound
from karat.policy.scan_kin import Kin
from karat.policy.scan_modules import Modules
from karat.policy.scan_names import Class, Names
from karat.policy.scan_report import OpTestRow, ScanReport, ordered
from karat.policy.scan_shapes import Flag
from karat.policy.scan_shelf import Shelf
from karat.policy.scan_wording import finding
from karat.policy.scan_workers import look, no_collection
from karat.policy.scan_world import OpTestClass, World


class ScanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to scan."""

    base_classes: tuple[str, ...] = ()
    """More names of base classes that make an op test."""
    exclude: tuple[str, ...] = ()
    jobs: int | None = None
    exemptions: Exemptions | None = None
    today: date = date.min
    fail_on: tuple[str, ...] = ("fail",)


Progress = Callable[[int, int], None]


def scan(
    paths: Sequence[str], options: ScanOptions | None = None, *, progress: Progress | None = None
) -> ScanReport:
    """Read every Python file below the paths, and say which op tests check no gradient."""
    with no_collection():
        return _scan(paths, options or ScanOptions(), progress)


def _scan(paths: Sequence[str], options: ScanOptions, progress: Progress | None) -> ScanReport:
    begin = time.perf_counter()
    found = find(paths, options.exclude)
    shown = [path for path, _ in found.files]
    glances = look(shown, roots=options.base_classes, jobs=options.jobs, progress=progress)
    modules = Modules([*found.files, *found.links])
    importers = Importers(glances, modules)
    kin = Kin(importers, options.base_classes)
    shelf = Shelf(glances, importers, kin)
    mattering = shelf.that_matter()
    world = World(Names(modules, shelf.facts), kin, options.base_classes)
    tests = list(world.op_tests(mattering))
    rows, findings = _judge(world, tests, options)
    for path in shelf.parsed:
        findings += _stray_flags(world, path)
    findings += unbound(world, world.unbound)
    findings += [*found.findings, *shelf.problems(), *_nothing(found, rows, tests)]
    if options.exemptions is not None:
        findings += options.exemptions.findings
    return ScanReport(
        paths=tuple(paths), files=len(found.files), parsed=len(shelf.parsed), left_out=found.left_out,
        excluded=found.excluded, op_tests=tuple(rows), findings=ordered(findings), fail_on=options.fail_on,
        seconds=time.perf_counter() - begin,
    )  # fmt: skip


def _judge(
    world: World, tests: Sequence[OpTestClass], options: ScanOptions
) -> tuple[list[OpTestRow], list[Finding]]:
    judge = Judge(world, Rules(options.exemptions, options.today))
    each = ClassFindings(options.exemptions, options.today)
    rows: list[OpTestRow] = []
    findings: list[Finding] = []
    told: dict[tuple[str, int], Judged] = {}
    for test in tests:
        judged = judge.judge(test)
        rows.append(judged.row)
        findings += judged.findings
        key = (test.cls.path, test.cls.index)
        # Of all that a factory makes of a class, one that is not checked says the most about it.
        if key not in told or judged.row.state == "unchecked":
            told[key] = judged
    for (path, index), judged in told.items():
        findings += each.of(path, world.names.facts(path).classes[index], judged)
    return rows, findings


def _stray_flags(world: World, path: str) -> Iterator[Finding]:
    """Flags that are set on a class from outside: `TestX.exist_check_grad = True`."""
    for flag in world.names.facts(path).flags:
        if _on_op_test(world, path, flag):
            yield finding("flag-by-hand", Severity.FAIL, path, flag.line, flag.owner,
                          f"{flag.name} of {flag.owner} is set to {flag.value} by hand; only a comparison may")  # fmt: skip


def _on_op_test(world: World, path: str, flag: Flag) -> bool:
    if not flag.owner:
        return True
    targets = world.names.resolve(path, flag.scope, flag.owner)
    return any(not isinstance(t, Class) or world.lineage.is_op_test(t) for t in targets)


def _nothing(
    found: Found, rows: Sequence[OpTestRow], tests: Sequence[OpTestClass]
) -> Iterator[Finding]:
    """A path without any op test verifies nothing."""
    holding = {row.path for row in rows} | {test.cls.path for test in tests}
    for path, files in found.by_path.items():
        if holding.isdisjoint(files):
            said = (
                f"{len(files):,} Python files, and no class of theirs is an op test"
                if files
                else "no Python file"
            )
            yield Finding(
                kind="nothing-compared", severity=Severity.FAIL, path=path,
                message=f"expected op tests below {path}, found {said}",
                next=f"karat policy scan {shlex.quote(path)} --base-class NAME",
            )  # fmt: skip
