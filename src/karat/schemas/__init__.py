"""The published JSON schemas: generated where a struct is written as it is, and a file here where it is not."""

from __future__ import annotations

import json
from importlib import import_module, resources
from typing import Any

from karat.report.schema import Document, schema_of

_COUNT = {"minimum": 0}
_SHA256 = {"pattern": "^[0-9a-f]{64}$"}

_GENERATED: dict[str, tuple[str, Document]] = {
    about.name: (home, about)
    for home, about in {
        "policy.journal:Record": Document(
            name="karat.evidence/1",
            title="A line of a journal of evidence",
            description="What a worker of a test run leaves about gradients: JSON Lines, one record each; the first is"
            " began, the last ended. Keys that hold their default are left out.",
        ),
        "captures.records:Claim": Document(
            name="karat.claim/1",
            title="a claim of a capture session",
            description="Who captures one identity in a session: DIR/.karat/SESSION/claims/HASH.json.",
            limits={"pid": _COUNT},
            optional=("Claim.run",),
            open=("*",),
        ),
        "bundles.index:Index": Document(
            name="karat.index/1",
            title="index.json",
            description="What a packed zip holds. There is one way to write it: an indent of one space, keys in this"
            " order, a final newline.",
            limits={"sha256": _SHA256, "size": _COUNT},
        ),
        "store.snapshot:Snapshot": Document(
            name="karat.snapshot/1",
            title="a snapshot of a store",
            description="Every case of a push, file by file, and the objects that hold them. Its own sha256 is the"
            " digest that consumers pin.",
            limits={"sha256": _SHA256, "size": _COUNT, "offset": _COUNT, "pack": _COUNT},
            never_null=("SnapshotFile.pack",),
        ),
        "hunts.model:HuntReport": Document(
            name="karat.hunt/1",
            title="karat hunt",
            description="Everything a hunt found.",
            optional=("Span.between", "Analysis.noise", "Analysis.notes", "Analysis.outliers"),
            open=("*",),
        ),
        "hunts.plan:HuntPlan": Document(
            name="karat.hunt-plan/1",
            title="karat hunt run --dry-run",
            description="What a hunt would do.",
        ),
        "hunts.report.terminal:Status": Document(
            name="karat.hunt-status/1",
            title="karat hunt status",
            description="How far a hunt is.",
        ),
        "hunts.report.terminal:ShownPoint": Document(
            name="karat.hunt-point/1",
            title="karat hunt show",
            description="One point of a hunt.",
            optional=("ShownAttempt.log",),
        ),
    }.items()
}


def names() -> list[str]:
    """Every published schema, as `karat.diff/1`."""
    files = (file.name for file in resources.files(__name__).iterdir())
    stems = [name.removesuffix(".json") for name in files if name.endswith(".json")]
    return sorted([*_GENERATED, *("/".join(stem.rsplit(".", 1)) for stem in stems)])


def schema(name: str) -> dict[str, Any]:
    """A published schema; one that does not exist is a KeyError."""
    if name in _GENERATED:
        home, about = _GENERATED[name]
        module, _, kind = home.partition(":")
        return schema_of(getattr(import_module(f"karat.{module}"), kind), about)
    if name not in names():
        raise KeyError(name)
    file = resources.files(__name__).joinpath(f"{name.replace('/', '.')}.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
