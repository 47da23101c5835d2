"""Advice: the exact command to run next, for every finding of a replay that has none yet."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from msgspec import structs

from karat.bundles.capture_roots import require_root
from karat.bundles.places import Place
from karat.findings import Finding, Severity
from karat.replay.options import Function, Options
from karat.replay.outcome import Replayed

_KEPT = "replayed"


def advised(case: Replayed, bundle: str, options: Options) -> Replayed:
    """The case with `next` filled in on what failed."""
    findings = tuple(_advised(finding, case, bundle, options) for finding in case.findings)
    return structs.replace(case, findings=findings)


def require_beginning(place: Place, options: Options) -> None:
    """UsageError where the capture directory begins further down than the bundle that was given."""
    require_root(place, lambda roots: _again(roots[0], options))


def _advised(finding: Finding, case: Replayed, bundle: str, options: Options) -> Finding:
    if finding.next or finding.severity is not Severity.FAIL:
        return finding
    if finding.kind == "bundle-damaged":
        return replace(finding, next=shlex.join(["karat", "verify", bundle, *_store(options)]))
    return replace(finding, next=shlex.join(_alone(case, bundle, options)))


def _alone(case: Replayed, bundle: str, options: Options) -> list[str]:
    """The case by itself, with everything it was given and left kept for a look."""
    return [*_again(bundle, options), "--only", case.path, "--keep", _KEPT]


def _again(bundle: str, options: Options) -> list[str]:
    how = "--run" if isinstance(options.runner, Function) else "--command"
    return [
        *("karat", "replay", bundle, how, str(options.runner)),
        *_store(options),
        *_judging(options),
    ]


def _store(options: Options) -> list[str]:
    return ["--store", options.store] if options.store else []


def _judging(options: Options) -> Iterator[str]:
    judging = options.judging
    said = {"--framework": judging.framework, "--rtol": judging.rtol, "--atol": judging.atol}
    for option, value in said.items():
        if value is not None:
            yield from (option, str(value))
    if not judging.verify:
        yield "--no-verify"
