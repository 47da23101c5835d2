"""What verifying found: for people as lines, for programs as schema karat.verify/1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from karat.findings import ExitCode, Finding, exit_code
from karat.report.plain import encode, finding_json
from karat.report.words import count
from karat.store.pack_report import size, told as finding_lines
from karat.store.verify_target import Verified

SCHEMA = "karat.verify/1"


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Every target of one command."""

    targets: tuple[Verified, ...]
    seconds: float

    @property
    def findings(self) -> Sequence[Finding]:
        """Of all targets."""
        return [finding for target in self.targets for finding in target.findings]

    @property
    def exit_code(self) -> ExitCode:
        """As findings say."""
        return exit_code(self.findings)


def document(told: Verification) -> bytes:
    """The JSON text of a report."""
    return encode(
        {
            "schema": SCHEMA,
            "exit_code": int(told.exit_code),
            "seconds": round(told.seconds, 3),
            **_totals(told),
            "targets": [_target(target) for target in told.targets],
        }
    )


def _totals(told: Verification) -> dict[str, int]:
    names = ("zips", "cases", "tensors", "size")
    return {name: sum(getattr(target, name) for target in told.targets) for name in names}


def _target(target: Verified) -> dict[str, object]:
    plain = msgspec.to_builtins(msgspec.structs.replace(target, findings=()))
    return {**plain, "findings": [finding_json(finding) for finding in target.findings]}


def lines(told: Verification) -> Iterator[str]:
    """The report for people: a line per problem, then the counts."""
    for target in told.targets:
        yield from finding_lines((f, _in(target.target, f.message)) for f in target.findings)
    for target in told.targets if len(told.targets) > 1 else ():
        yield f"{target.target}: {_counted(target.zips, target.cases, target.tensors, target.size)}"
    for target in told.targets:
        if target.orphans:
            objects = f"{count(target.orphans, 'object')} ({size(target.orphan_size)})"
            yield f"{target.target}: no reference needs {objects}, which `karat gc` takes once old enough"
    totals = _totals(told)
    words = {
        ExitCode.OK: "verified",
        ExitCode.FAIL: "damaged:",
        ExitCode.CANNOT_VERIFY: "not verified:",
    }
    counted = _counted(totals["zips"], totals["cases"], totals["tensors"], totals["size"])
    yield f"{words[told.exit_code]} {counted} in {told.seconds:.1f} s"


def _in(target: str, message: str) -> str:
    return message if message.startswith(target) else f"{target}: {message}"


def _counted(zips: int, cases: int, tensors: int, n: int) -> str:
    packed = f"{count(zips, 'zip')}: " if zips else ""
    return f"{packed}{count(cases, 'case')}, {count(tensors, 'tensor')}, {size(n)}"
