"""Reports: what push, pull, ls, pin, gc and verify did, as lines for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from karat.findings import ExitCode, Finding
from karat.report.json import encode, finding_json
from karat.report.words import byte_size, count
from karat.store.backends.lifecycle import Applied
from karat.store.gc import GcResult
from karat.store.inventory import StoreListing
from karat.store.pins import Pinned
from karat.store.pull import Pulled
from karat.store.push import Pushed


def document(schema: str, result: msgspec.Struct | None, findings: Sequence[Finding], code: ExitCode) -> bytes:
    """A report as JSON; without a result where there is none."""
    told = None if result is None else msgspec.to_builtins(result)
    found = [finding_json(finding) for finding in findings]
    return encode({"schema": schema, "exit_code": int(code), "result": told, "findings": found})


def push_lines(pushed: Pushed, applied: Applied | None) -> Iterator[str]:
    verb = "would push" if pushed.dry_run else "pushed"
    yield f"{verb} {pushed.name} to {pushed.store}"
    yield f"  sha256:{pushed.digest}"
    yield f"  {count(pushed.cases, 'case')}, {count(pushed.files, 'file')}, {byte_size(pushed.size)}"
    yield f"  new: {count(pushed.new_objects, 'object')}, {byte_size(pushed.new_bytes)}"
    yield f"  there already: {count(pushed.reused_objects, 'object')}, {byte_size(pushed.reused_bytes)}"
    if pushed.signed:
        yield "  signed"
    if pushed.repaired:
        yield f"  replaced, since they were damaged: {count(pushed.repaired, 'object')}"
    if pushed.freshened:
        yield f"  renewed for the bucket's rule: {count(pushed.freshened, 'object')}"
    if pushed.pinned:
        yield f"  pinned: {pushed.pinned}"
    elif pushed.expires:
        yield f"  kept until {pushed.expires[:10]}"
    if applied is not None:
        done = "written" if applied.changed else "as it was"
        yield (
            f"  rule {applied.id} of the bucket, {count(applied.days, 'day')}: {done}; "
            f"{count(applied.others, 'other rule')} untouched"
        )


def pull_lines(pulled: Pulled) -> Iterator[str]:
    verb = "is in" if pulled.already else "pulled to"
    yield f"{pulled.name or 'snapshot'} {verb} {pulled.target}"
    yield f"  sha256:{pulled.digest}" + (f" of {pulled.date[:19]}Z" if pulled.date else "")
    yield f"  {count(pulled.cases, 'case')}, {count(pulled.files, 'file')}, {byte_size(pulled.size)}; every byte verified"
    if pulled.signed_by:
        yield f"  signed by {', '.join(pulled.signed_by)}"
    if not pulled.already:
        yield f"  fetched {byte_size(pulled.fetched_bytes)}"


def ls_lines(listing: StoreListing) -> Iterator[str]:
    """A line per reference, or per case."""
    if not listing.references:
        yield f"no references in {listing.store}"
    width = max((len(one.name) for one in listing.references), default=0)
    for one in listing.references:
        counts = f"{count(one.cases, 'case')}, {byte_size(one.size)}" if one.cases else "pinned only"
        more = f", {one.entries:,} in all" if one.entries > 1 else ""
        until = f"pinned: {one.pinned}" if one.pinned else f"until {one.expires[:10]}"
        when = f"{one.date[:19]}Z" if one.date else "-" * 20
        yield f"{one.name:<{width}}  {when}  sha256:{one.digest[:12]}  {counts}  {until}{more}"
    for case in listing.cases or ():
        yield f"  {case.path}  {count(case.files, 'file')}, {byte_size(case.size)}"


def pin_lines(pinned: Pinned, reason: str | None) -> Iterator[str]:
    for one in pinned.pins:
        if pinned.removed:
            yield f"unpinned sha256:{one.digest}; karat gc forgets it once its references expire"
        else:
            before = "" if one.reason == reason else " (it was pinned before, and keeps that reason)"
            yield f"pinned sha256:{one.digest} on {one.date[:10]}: {one.reason}{before}"


def gc_lines(result: GcResult) -> Iterator[str]:
    """What went, what stayed, and why."""
    would = "would forget" if result.dry_run else "forgot"
    gone = [one for one in result.references if not one.kept]
    for one in gone:
        yield f"{would} {one.name} of {one.date[:19]}Z, sha256:{one.digest[:12]}: {one.because}"
    for one in result.references:
        if one.kept and (result.dry_run or one.why != "live"):
            yield f"kept {one.name} of {one.date[:19]}Z, sha256:{one.digest[:12]}: {one.because}"
    for tally in result.objects:
        verb = ("would delete" if result.dry_run else "deleted") if tally.deleted else "kept"
        yield f"{verb} {count(tally.objects, 'object')}, {byte_size(tally.size)}: {tally.because}"
    if result.leases:
        pushes = "1 push" if result.leases == 1 else f"{result.leases:,} pushes"
        yield f"spared what {pushes} in progress may need"
    if result.freshened:
        yield f"renewed {count(result.freshened, 'object')} for the bucket's rule"
    if result.abandoned:
        yield f"cleared {count(result.abandoned, 'leftover')} of killed processes"
    kept = len(result.references) - len(gone)
    verb = "would free" if result.dry_run else "freed"
    yield f"{count(kept, 'reference')} kept, {len(gone):,} gone; {verb} {byte_size(result.freed)} in {result.store}"
