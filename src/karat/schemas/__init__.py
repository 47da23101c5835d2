"""The published JSON schemas: generated where a struct is written as it is, and a file here where it is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from karat.findings import Finding
from karat.report.schema import PublishedSchema, schema_of

_Limit: TypeAlias = Mapping[str, Any]
_SHARE: _Limit = {"minimum": 0, "maximum": 1}
_AT_LEAST_ONE: _Limit = {"minItems": 1}
_COMMIT: _Limit = {"pattern": "^[0-9a-f]{40}([0-9a-f]{24})?$"}
_SHA256: _Limit = {"pattern": "^[0-9a-f]{64}$"}
_TIME: _Limit = {"pattern": r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z)?$"}
_VERDICT: _Limit = {"enum": ["unreadable", "incomplete", "removed", "break", "drift", "new", "noise", "same"]}
_EXIT_CODE: Mapping[str, _Limit] = {"exit_code": {"enum": [0, 1, 3]}}
_COUNT: _Limit = {"type": "integer", "minimum": 0}
_KIND: _Limit = {"pattern": "^[a-z]+(-[a-z]+)*$"}
_FINDING: Mapping[str, _Limit] = {"Finding.kind": _KIND, "Finding.message": {"minLength": 1}}
_STORE: Mapping[str, _Limit] = {"digest": _SHA256, "sha256": _SHA256, "date": _TIME, "expires": _TIME, **_FINDING}

_VALUE: _Limit = {
    "description": "A nested value: null, booleans, text and integers up to 2^53 stand as themselves, everything else"
    " is an object whose first key says what it is; see docs/bundles.md.",
    "type": ["null", "boolean", "integer", "string", "object"],
    "minProperties": 1,
}
_TENSOR_FILES: _Limit = {"enum": ["inputs.safetensors", "expected.safetensors"]}
_RATES = ("confidence", "rate", "rate_bound", "rate_expected", "rate_model", "rate_new_golden")

_STRUCTS: dict[str, PublishedSchema] = {
    "policy.journal:Record": PublishedSchema(
        name="karat.evidence/1",
        title="A line of a journal of evidence",
        description="What a worker of a test run leaves about gradients: JSON Lines, one record each; the first is"
        " began, the last ended. Keys that hold their default are left out.",
        signed=("*",),
    ),
    "policy.approvals.reviews:SignOffList": PublishedSchema(
        name="karat.sign-off/1",
        title="A sign-off",
        description="Changes that approvers have read, to be signed with `ssh-keygen -Y sign -n karat-policy`; as TOML"
        " or JSON.",
        limits={"digest": _SHA256, "change": {"enum": ["added", "changed"]}},
        open=("*",),
    ),
    "captures.records:CaptureClaim": PublishedSchema(
        name="karat.claim/1",
        title="a claim of a capture session",
        description="Who captures one identity in a session: DIR/.karat/SESSION/claims/HASH.json.",
        optional=("CaptureClaim.run",),
        open=("*",),
    ),
    "refreshes.identity:ArtifactManifest": PublishedSchema(
        name="karat.artifact/1",
        title="karat-manifest.json",
        description="What an artifact says of itself: it wins over every name. All but the schema is optional.",
        limits={"attempt": {"minimum": 1}},
        signed=("run_id", "job_id"),
        open=("*",),
    ),
    "bundles.manifest:Manifest": PublishedSchema(
        name="karat.bundle/1",
        title="manifest.json of a captured case",
        description="Inputs, expected outputs and program of one test, and how to know that they still are what was"
        " captured. An infinite number is written as null.",
        limits={
            "sha256": _SHA256,
            "inputs": _VALUE,
            "Manifest.expected": _VALUE,
            "shape": {"items": _COUNT},
            "TensorRecord.file": _TENSOR_FILES,
            "headers": {"propertyNames": _TENSOR_FILES, "additionalProperties": {"type": "string", **_SHA256}},
        },
        signed=("max_ulp",),
    ),
    "bundles.index:Index": PublishedSchema(
        name="karat.index/1",
        title="index.json",
        description="What a packed zip holds. There is one way to write it: an indent of one space, keys in this"
        " order, a final newline.",
        limits={"sha256": _SHA256},
    ),
    "store.snapshot:Snapshot": PublishedSchema(
        name="karat.snapshot/1",
        title="a snapshot of a store",
        description="Every case of a push, file by file, and the objects that hold them. Its own sha256 is the"
        " digest that consumers pin.",
        limits={"sha256": _SHA256},
        never_null=("SnapshotFile.pack",),
    ),
    "store.references:SnapshotReference": PublishedSchema(
        name="karat.reference/1",
        title="a reference of a store",
        description="One push under a name: refs/NAME/DATE-DIGEST.json.",
        also={"sha256": {"type": "string", **_SHA256}},
        limits=_STORE,
        optional=("SnapshotReference.signature",),
        signed=("keep",),
    ),
    # Reports: the struct, with what stands beside its fields.
    "store.packs.pack:Packed": PublishedSchema(
        name="karat.pack/1",
        description="What packing captured cases came to.",
        also=_EXIT_CODE,
        limits={**_STORE, "directories": _AT_LEAST_ONE, "state": {"enum": ["refused", "written"]}},
    ),
    "store.verify:VerifyReport": PublishedSchema(
        name="karat.verify/1",
        description="What verifying folders, zips and stores came to.",
        also={**_EXIT_CODE, "zips": _COUNT, "cases": _COUNT, "tensors": _COUNT, "size": _COUNT},
        limits={**_FINDING, "seconds": {"minimum": 0}, "targets": _AT_LEAST_ONE},
    ),
    "runs.record:Recorded": PublishedSchema(
        name="karat.record/1",
        description="What recording a golden came to. Relative differences are (old - new) / old. A number that JSON"
        " cannot hold is null.",
        limits={
            **_FINDING,
            "combine": {"enum": ["first", "mean", "median"]},
            "verdict": _VERDICT,
            "shape": {"enum": ["series", "table", "document"]},
            "state": {"enum": ["written", "unchanged", "would-write", "refused"]},
            "Recorded.runs": _AT_LEAST_ONE,
        },
        signed=("first_diff_step", "first_step", "last_step"),
    ),
    "runs.tolerance:Tolerances": PublishedSchema(
        name="karat.tolerance/1",
        description="Rules recommended from repeated runs of one test, with their false-alarm rates per checked run.",
        also={"rate_shown": {"type": "boolean"}, "runs_needed": _COUNT, "toml": {"type": "string"}},
        limits={
            **_FINDING,
            **{name: {"minimum": 0} for name in ("atol", "rtol", "observed")},
            **dict.fromkeys(_RATES, _SHARE),
            "check": {"enum": ["approx", "exact", "median"]},
            "Tolerances.runs": {"minItems": 2},
        },
    ),
    "audits.audit:AuditReport": PublishedSchema(
        name="karat.audit/1",
        description="What is wrong with the goldens of a tree as it stands, gravest first.",
        also=_EXIT_CODE,
        limits=_FINDING,
    ),
    "ops.audit:OpsReport": PublishedSchema(
        name="karat.ops/1",
        title="karat ops audit",
        description="What an audit of a framework's operators came to: operator × column, and each fault's script.",
        also=_EXIT_CODE,
        limits=_FINDING,
        signed=("element", "input", "output"),
    ),
    "policy.gate.decision:GateReport": PublishedSchema(
        name="karat.policy-gate/1",
        description="Evidence of test runs held against the rule and its exemptions.",
        also=_EXIT_CODE,
        limits=_FINDING,
        signed=("line", "ran", "total"),
    ),
    "policy.coverage:Coverage": PublishedSchema(
        name="karat.policy-coverage/1",
        title="karat policy coverage",
        description="Which gradients have evidence: op × dtype × device × mode × order.",
        also=_EXIT_CODE,
        limits={**_FINDING, "states": {"additionalProperties": _COUNT, "minProperties": 8, "maxProperties": 8}},
    ),
    "policy.approvals.check:Approvals": PublishedSchema(
        name="karat.policy-approvals/1",
        title="karat policy approvals",
        description="The waivers that a range of commits adds or makes laxer, and who approved them.",
        also=_EXIT_CODE,
        limits={
            **_FINDING,
            "base": _COMMIT,
            "head": _COMMIT,
            "digest": _SHA256,
            "rule": {"enum": ["gradient", "float64", "tolerance", "determinism", "weak", "baseline", "policy"]},
            "WaiverSummary.kind": {
                "enum": [
                    "skip",
                    "flag",
                    "tolerance",
                    "step",
                    "bound",
                    "own-gradients",
                    "no-grad",
                    "laws",
                    "reference",
                    "uncollected",
                    "check",
                    "function",
                    "base",
                    "exemption",
                    "baseline",
                    "setting",
                ]
            },
        },
    ),
    "hunts.model:HuntReport": PublishedSchema(
        name="karat.hunt/1",
        description="Everything a hunt found.",
        optional=("Span.between", "Analysis.noise", "Analysis.notes", "Analysis.outliers"),
        open=("*",),
        signed=("*",),
    ),
    "hunts.hunt:HuntPlan": PublishedSchema(
        name="karat.hunt-plan/1", title="karat hunt run --dry-run", description="What a hunt would do.", signed=("*",)
    ),
    "hunts.report.terminal:Status": PublishedSchema(
        name="karat.hunt-status/1", title="karat hunt status", description="How far a hunt is.", signed=("*",)
    ),
    "hunts.hunt:Tried": PublishedSchema(
        name="karat.hunt-try/1",
        title="karat hunt try",
        description="One point of a hunt, or two, run by hand.",
        signed=("*",),
    ),
    "hunts.report.terminal:ShownPoint": PublishedSchema(
        name="karat.hunt-point/1",
        title="karat hunt show",
        description="One point of a hunt.",
        optional=("ShownAttempt.log",),
        signed=("*",),
    ),
}
"""Struct → the file or report that it is written as."""

_RESULTS: dict[str, PublishedSchema] = {
    f"store.{home}": PublishedSchema(name=f"karat.{verb}/1", description=text, limits=limits)
    for verb, home, text, limits in (
        ("push", "push:Pushed", "What a push sent, or would send.", _STORE),
        ("pull", "pull:Pulled", "What a pull brought.", _STORE),
        ("ls", "inventory:StoreListing", "What a store holds.", _STORE),
        ("gc", "gc:GcResult", "What a collection deleted or would delete, and why.", _STORE),
        (
            "pin",
            "pins:Pinned",
            "What is pinned now, or not any more.",
            {**_STORE, "reason": {"minLength": 1}, "Pin.schema": {"enum": ["karat.pinned/1"]}},
        ),
    )
}
"""Struct → the report of which it is the `result`; null where there is none."""

_BY_NAME: dict[str, PublishedSchema] = {
    "store.pins:Locked": PublishedSchema(
        name="karat.bundle-lock/1",
        title="bundles.lock.json",
        description="Which snapshot each name stands for here; one sorted line per name.",
        limits=_STORE,
    ),
    "goldens.provenance:LockEntry": PublishedSchema(
        name="karat.lock/1",
        title="goldens.lock.json",
        description="Where each golden came from: one sorted line per golden, by path relative to this file's folder.",
        limits={"sha256": _SHA256, "attempt": {"minimum": 1}},
    ),
}
"""Struct → the file that has one for every name, and its schema beside them."""

_HOMES = {about.name: home for home, about in {**_STRUCTS, **_RESULTS, **_BY_NAME}.items()}


def names() -> list[str]:
    """Every published schema, as `karat.diff/1`."""
    files = (Path(file.name) for file in resources.files(__name__).iterdir())
    return sorted([*_HOMES, *("/".join(file.stem.rsplit(".", 1)) for file in files if file.suffix == ".json")])


def schema(name: str) -> dict[str, Any]:
    """A published schema; one that does not exist is a KeyError."""
    if home := _HOMES.get(name):
        module, _, struct = home.partition(":")
        kind = getattr(import_module(f"karat.{module}"), struct)
        if home in _STRUCTS:
            return schema_of(kind, _STRUCTS[home])
        if home in _BY_NAME:
            made = schema_of(dict[str, kind], _BY_NAME[home])  # type: ignore[valid-type]
            (by_name,) = made.pop("oneOf")
            return {**made, **by_name, "properties": {"schema": {"const": name}}, "required": ["schema"]}
        fields = [
            ("schema", str),
            ("exit_code", Literal[0, 1, 3]),
            ("result", kind | None),
            ("findings", list[Finding]),
        ]
        return schema_of(msgspec.defstruct("StoreReport", fields), _RESULTS[home])
    if name not in names():
        raise KeyError(name)
    file = resources.files(__name__).joinpath(f"{name.replace('/', '.')}.json")
    return dict(json.loads(file.read_text(encoding="utf-8")))
