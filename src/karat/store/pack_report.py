"""What packing did: for people as lines, for programs as schema karat.pack/1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from karat.findings import Finding, Severity
from karat.report.plain import encode, finding_json
from karat.report.words import count
from karat.store.pack import Packed

SCHEMA = "karat.pack/1"
_SHOWN = 20


def document(packed: Packed) -> bytes:
    """The JSON text of a report."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "exit_code": int(packed.exit_code),
        **msgspec.to_builtins(msgspec.structs.replace(packed, findings=())),
    }
    data["findings"] = [finding_json(finding) for finding in packed.findings]
    return encode(data)


def lines(packed: Packed) -> Iterator[str]:
    """The report for people."""
    yield from told((finding, finding.message) for finding in packed.findings)
    if packed.state != "written":
        yield f"nothing packed: {packed.output} is as it was"
        return
    for output in packed.outputs:
        if not output.path.startswith("cases/"):
            yield f"{packed.output}/{output.path}  {size(output.size)}  sha256:{output.sha256}"
    single = [output for output in packed.outputs if output.path.startswith("cases/")]
    if single:
        total = size(sum(output.size for output in single))
        yield f"{packed.output}/cases/  {count(len(single), 'zip')}  {total}"
    left = f" of {packed.found:,}" if packed.found != packed.packed else ""
    yield (
        f"packed {packed.packed:,}{left} {'case' if packed.found == 1 else 'cases'}, "
        f"{count(packed.tensors, 'tensor')}, {size(packed.size)}"
    )


def told(findings: Iterable[tuple[Finding, str]]) -> Iterator[str]:
    """Findings and their messages as lines, worst first; nobody reads thousands that are alike."""
    kinds: dict[tuple[Severity, str], list[str]] = {}
    for finding, message in sorted(findings, key=lambda pair: pair[0].severity.rank):
        kinds.setdefault((finding.severity, finding.kind), []).append(message)
    for (severity, kind), messages in kinds.items():
        yield from (f"{severity.value:4}  {kind}: {message}" for message in messages[:_SHOWN])
        if len(messages) > _SHOWN:
            yield f"{severity.value:4}  {kind}: {len(messages) - _SHOWN:,} more; --json F has all"


def size(n: int) -> str:
    """Bytes for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= scale:
            return f"{n / scale:.1f} {unit}"
    return f"{n} B"
