"""What of a recorded structure is no tensor, and therefore out of a command's reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from karat.bundles.manifest import Manifest
from karat.findings import Finding, Severity


def plain_values(structure: Any) -> Iterator[Any]:
    """Numbers, text and the like in a recorded structure; None says nothing, and is left out."""
    if not isinstance(structure, dict):
        if structure is not None:
            yield structure
        return
    kind = next(iter(structure), "")
    inner = structure[kind] if kind else ()
    if kind in {"tensor", "scalar"}:
        return
    if "fields" in structure:
        for _, value in structure["fields"]:
            yield from plain_values(value)
    elif kind.endswith("dict"):
        for _, value in inner:
            yield from plain_values(value)
    elif kind in {"tuple", "list", "set", "frozenset"}:
        for value in inner:
            yield from plain_values(value)
    else:
        yield structure


def values_outside_tensors(manifest: Manifest) -> Iterator[Finding]:
    """What a command was not given as a file, or could not give back as one."""
    inputs = sum(1 for _ in plain_values(manifest.inputs))
    expected = sum(1 for _ in plain_values(manifest.expected))
    if inputs:
        yield Finding(
            kind="plain-values",
            severity=Severity.INFO,
            message=f"{inputs} of the inputs are no tensors; the command finds them in {{manifest}}, under inputs",
        )
    if expected:
        yield Finding(
            kind="plain-values",
            severity=Severity.INFO,
            message=f"{expected} of the expected values are no tensors, which a command cannot give back; they were not compared",
        )
