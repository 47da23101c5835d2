"""Telling: what push, pull, ls, pin and gc did, in lines for a person and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from karat.findings import ExitCode, Finding
from karat.report.json import encode, finding_json
from karat.report.words import count
from karat.store.backends.lifecycle import Applied
from karat.store.gc import GcResult
from karat.store.listing import ListedReference, StoreListing
from karat.store.pins import Pin
from karat.store.pull import Pulled
from karat.store.push import Pushed

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def document(
    schema: str, result: msgspec.Struct | None, findings: Sequence[Finding], code: ExitCode
) -> bytes:
    """A report as JSON; without a result where there is none."""
    told: dict[str, Any] = {
        "schema": schema,
        "exit_code": int(code),
        "result": None if result is None else msgspec.to_builtins(result),
        "findings": [finding_json(finding) for finding in findings],
    }
    return encode(told)


def size(number: int) -> str:
    """Bytes, as people count them."""
    amount, unit = float(number), 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{number:,} bytes" if unit == 0 else f"{amount:.3g} {_UNITS[unit]}"


def push_lines(told: Pushed, applied: Applied | None) -> Iterator[str]:
    """What was sent, and what was there."""
    verb = "would push" if told.dry_run else "pushed"
    yield f"{verb} {told.name} to {told.store}"
    yield f"  sha256:{told.digest}"
    yield f"  {count(told.cases, 'case')}, {count(told.files, 'file')}, {size(told.size)}"
    yield f"  new: {count(told.new_objects, 'object')}, {size(told.new_bytes)}"
    yield f"  there already: {count(told.reused_objects, 'object')}, {size(told.reused_bytes)}"
    if told.repaired:
        yield f"  replaced, since they were damaged: {count(told.repaired, 'object')}"
    if told.freshened:
        yield f"  made young again for the bucket's rule: {count(told.freshened, 'object')}"
    if told.pinned:
        yield f"  pinned: {told.pinned}"
    elif told.expires:
        yield f"  kept until {told.expires[:10]}"
    if applied is not None:
        done = "written" if applied.changed else "as it was"
        yield (
            f"  rule {applied.id} of the bucket, {count(applied.days, 'day')}: {done}; "
            f"{count(applied.others, 'other rule')} untouched"
        )


def pull_lines(told: Pulled) -> Iterator[str]:
    """What is where now."""
    verb = "is in" if told.already else "pulled to"
    yield f"{told.name or 'snapshot'} {verb} {told.target}"
    yield f"  sha256:{told.digest}" + (f" of {told.date[:19]}Z" if told.date else "")
    yield f"  {count(told.cases, 'case')}, {count(told.files, 'file')}, {size(told.size)}; every byte verified"
    if not told.already:
        yield f"  fetched {size(told.fetched_bytes)}"


def ls_lines(told: StoreListing) -> Iterator[str]:
    """A line per reference, or per case."""
    if not told.references:
        yield f"no references in {told.store}"
    width = max((len(one.name) for one in told.references), default=0)
    for one in told.references:
        yield _ls_line(one, width)
    for case in told.cases or ():
        yield f"  {case.path}  {count(case.files, 'file')}, {size(case.size)}"


def _ls_line(one: ListedReference, width: int) -> str:
    counts = f"{count(one.cases, 'case')}, {size(one.size)}" if one.cases else "pinned only"
    more = f", {one.entries:,} in all" if one.entries > 1 else ""
    until = f"pinned: {one.pinned}" if one.pinned else f"until {one.expires[:10]}"
    when = f"{one.date[:19]}Z" if one.date else "-" * 20
    return f"{one.name:<{width}}  {when}  sha256:{one.digest[:12]}  {counts}  {until}{more}"


def pin_lines(told: Sequence[Pin], reason: str | None, *, removed: bool) -> Iterator[str]:
    """What is pinned now, or not any more."""
    for one in told:
        if removed:
            yield f"unpinned sha256:{one.digest}; karat gc forgets it once its references expire"
        else:
            before = (
                "" if one.reason == reason else " (it was pinned before, and keeps that reason)"
            )
            yield f"pinned sha256:{one.digest} on {one.date[:10]}: {one.reason}{before}"


def gc_lines(told: GcResult) -> Iterator[str]:
    """What went, what stayed, and why."""
    would = "would forget" if told.dry_run else "forgot"
    gone = [one for one in told.references if not one.kept]
    for one in gone:
        yield f"{would} {one.name} of {one.date[:19]}Z, sha256:{one.digest[:12]}: {one.because}"
    for one in told.references:
        if one.kept and (told.dry_run or one.why != "live"):
            yield f"kept {one.name} of {one.date[:19]}Z, sha256:{one.digest[:12]}: {one.because}"
    for tally in told.objects:
        verb = ("would delete" if told.dry_run else "deleted") if tally.deleted else "kept"
        yield f"{verb} {count(tally.objects, 'object')}, {size(tally.size)}: {tally.because}"
    if told.leases:
        yield f"spared what {count(told.leases, 'push')} at work may need".replace(
            "pushs", "pushes"
        )
    if told.freshened:
        yield f"made {count(told.freshened, 'object')} young again for the bucket's rule"
    if told.abandoned:
        yield f"cleared {count(told.abandoned, 'leftover')} of killed processes"
    kept = len(told.references) - len(gone)
    verb = "would free" if told.dry_run else "freed"
    yield f"{count(kept, 'reference')} kept, {len(gone):,} gone; {verb} {size(told.freed)} in {told.store}"
