"""Gathering: the cases of a place that are fit to be pushed; one that is not stops the push."""

from __future__ import annotations

from collections.abc import Callable

from karat.bundles.cases import cases, divide
from karat.bundles.places import Place
from karat.bundles.verifying import verify_place
from karat.findings import Finding, Severity
from karat.store.planning import CaseFiles

Progress = Callable[[int, int], None]


def objections(place: Place, progress: Progress | None = None) -> tuple[Finding, ...]:
    """Why a place must not be pushed: everything about it that fails."""
    verified = verify_place(place, progress)
    return tuple(one for one in verified.findings if one.severity is Severity.FAIL)


def gather(place: Place) -> list[CaseFiles]:
    """Every case with its files, under the path that its manifest says; what is no case's stays behind."""
    owned, _ = divide(place)
    return [
        CaseFiles(path=case.path, files={name: case.extent(name) for name in owned[case.folder]})
        for case in cases(place)
    ]
