"""The artifact manifest: what a CI job knows of itself, for whoever finds its files later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from karat.findings import UsageError

SCHEMA = "karat.artifact/1"

# Field → the variables that tell it, GitHub's first. Only these are read; tokens are not among them.
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "run_id": ("GITHUB_RUN_ID", "CI_PIPELINE_ID"),
    "attempt": ("GITHUB_RUN_ATTEMPT",),
    "job": ("GITHUB_JOB", "CI_JOB_NAME"),
    "job_id": ("CI_JOB_ID",),
    "commit": ("GITHUB_SHA", "CI_COMMIT_SHA"),
    "image": ("CI_JOB_IMAGE",),
}
_FIELDS = ("platform", "image", "job", "job_id")
"""What an identity may say that has a field of its own."""


def parse_identity(words: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE words as a mapping."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier() or not value:
            raise UsageError(
                f"--identity: expected KEY=VALUE, found {word!r}",
                next_command="karat record --help",
            )
        if found.get(key, value) != value:
            raise UsageError(
                f"--identity: expected {key} once, found {found[key]!r} and {value!r}",
                next_command="karat record --help",
            )
        found[key] = value
    return found


def told_by_ci(environment: Mapping[str, str]) -> dict[str, Any]:
    """What CI's variables say of this job."""
    known: dict[str, Any] = {}
    for field, variables in _VARIABLES.items():
        told = next((environment[name] for name in variables if environment.get(name)), None)
        if told is not None:
            known[field] = told
    if "attempt" in known:
        told = known.pop("attempt")
        known |= {"attempt": int(told)} if told.isdecimal() else {}
    return known


def manifest(environment: Mapping[str, str], identity: Mapping[str, str]) -> bytes:
    """The manifest of the job that this process runs in."""
    known = {"schema": SCHEMA, **told_by_ci(environment)}
    for field in _FIELDS:
        if field in identity:
            known[field] = identity[field]
    known["identity"] = {key: v for key, v in sorted(identity.items()) if key not in _FIELDS}
    return msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n"
