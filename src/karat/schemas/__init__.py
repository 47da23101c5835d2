"""The published JSON schemas: generated where a struct is written as it is, and a file here where it is not.

A field's docstring is its description. A struct that leaves out defaults requires only what has none; any other is
written whole, so all of it is required.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module, resources
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from karat.findings import Finding

_Limit: TypeAlias = Mapping[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class PublishedSchema(msgspec.Struct, frozen=True):
    """What the structs of a document do not say of it."""

    name: str
    description: str = ""  # By default that it is what the command of the title came to.
    title: str = ""  # By default the command that the name says: `karat policy gate` of `karat.policy-gate/1`.
    limits: Mapping[str, Mapping[str, Any]] = {}
    """What holds for a field, as `field` or `Struct.field`, that its type does not say."""
    signed: Sequence[str] = ()  # Fields whose whole numbers count nothing and may be below zero; `*` for all.
    optional: Sequence[str] = ()  # Keys of `also`, and `Struct.field`s, that not every document has.
    never_null: Sequence[str] = ()  # `Struct.field`s that are left out where they are None.
    also: Mapping[str, Mapping[str, Any]] = {}  # Keys that stand beside the fields of the outermost struct.
    open: Sequence[str] = ()  # Structs that may have further keys; `*` for all.


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
_RATES = ("confidence", "rate", "rate_bound", "rate_expected")


def _report(name: str, description: str = "", **more: Any) -> PublishedSchema:
    """A report's: its exit code stands beside the fields of the struct, and its findings are as in every other."""
    also, limits = {**_EXIT_CODE, **more.pop("also", {})}, {**_FINDING, **more.pop("limits", {})}
    return PublishedSchema(name, description, also=also, limits=limits, **more)


_STRUCTS: dict[str, PublishedSchema] = {
    "policy.journal:Record": PublishedSchema(
        "karat.evidence/1",
        "What a worker of a test run leaves about gradients: JSON Lines, one record each; the first is began, the last"
        " ended. Keys that hold their default are left out.",
        "A line of a journal of evidence",
        signed=("*",),
    ),
    "policy.approvals.reviews:SignOffList": PublishedSchema(
        "karat.sign-off/1",
        "Changes that approvers have read, to be signed with `ssh-keygen -Y sign -n karat-policy`; as TOML.",
        "A sign-off",
        limits={"digest": _SHA256, "change": {"enum": ["added", "changed", "removed"]}},
        open=("*",),
    ),
    "captures.records:CaptureClaim": PublishedSchema(
        "karat.claim/1",
        "Who captures one identity in a session: DIR/.karat/SESSION/claims/HASH.json.",
        "a claim of a capture session",
        optional=("CaptureClaim.run",),
        open=("*",),
    ),
    "refreshes.identity:ArtifactManifest": PublishedSchema(
        "karat.artifact/1",
        "What an artifact says of itself: it wins over every name. All but the schema is optional.",
        "karat-manifest.json",
        limits={"attempt": {"minimum": 1}},
        signed=("run_id", "job_id"),
        open=("*",),
    ),
    "bundles.manifest:Manifest": PublishedSchema(
        "karat.bundle/2",
        "Inputs, expected outputs and program of one test, and how to know that they still are what was captured. An"
        " infinite number is written as null.",
        "manifest.json of a captured case",
        limits={
            "sha256": _SHA256,
            "digest": {"pattern": "^(blake3|sha256):[0-9a-f]{64}$"},
            "inputs": _VALUE,
            "Manifest.expected": _VALUE,
            "shape": {"items": _COUNT},
            "TensorRecord.file": _TENSOR_FILES,
            "headers": {"propertyNames": _TENSOR_FILES, "additionalProperties": {"type": "string", **_SHA256}},
        },
        signed=("max_ulp",),
    ),
    "bundles.index:Index": PublishedSchema(
        "karat.index/1",
        "What a packed zip holds. There is one way to write it: an indent of one space, keys in this order, a final newline.",
        "index.json",
        limits={"sha256": _SHA256},
    ),
    "store.snapshot:Snapshot": PublishedSchema(
        "karat.snapshot/2",
        "Every case of a push, file by file, and the objects that hold them. Its own sha256 is the digest that consumers pin.",
        "a snapshot of a store",
        limits={"digest": {"pattern": "^((blake3:)?[0-9a-f]{64})?$"}},
        never_null=("SnapshotFile.pack", "SnapshotFile.tail"),
    ),
    "store.references:SnapshotReference": PublishedSchema(
        "karat.reference/1",
        "One push under a name: refs/NAME/DATE-DIGEST.json.",
        "a reference of a store",
        also={"sha256": {"type": "string", **_SHA256}},
        limits=_STORE,
        optional=("SnapshotReference.signature",),
        signed=("keep",),
    ),
    # Reports: the struct, with what stands beside its fields.
    "store.pack:Packed": _report(
        "karat.pack/1", limits={**_STORE, "directories": _AT_LEAST_ONE, "state": {"enum": ["refused", "written"]}}
    ),
    "store.verify:VerifyReport": _report(
        "karat.verify/1",
        also={"zips": _COUNT, "cases": _COUNT, "tensors": _COUNT, "size": _COUNT},
        limits={"seconds": {"minimum": 0}, "targets": _AT_LEAST_ONE},
    ),
    "runs.record:Recorded": _report(
        "karat.record/1",
        "What recording a golden came to. Relative differences are (old - new) / old. A number that JSON cannot hold is null.",
        limits={
            "verdict": _VERDICT,
            "shape": {"enum": ["series", "table", "document"]},
            "state": {"enum": ["written", "unchanged", "would-write", "refused"]},
            "Recorded.runs": _AT_LEAST_ONE,
        },
        signed=("first_diff_step", "first_step", "last_step"),
    ),
    "runs.tolerance:Tolerances": _report(
        "karat.tolerance/1",
        "Rules recommended from repeated runs of one test, with their false-alarm rates per checked run.",
        also={"rate_shown": {"type": "boolean"}, "runs_needed": _COUNT, "toml": {"type": "string"}},
        limits={
            **{name: {"minimum": 0} for name in ("atol", "rtol", "observed")},
            **dict.fromkeys(_RATES, _SHARE),
            "check": {"enum": ["approx", "exact", "median"]},
            "Tolerances.runs": {"minItems": 2},
        },
    ),
    "reviews.report:ReviewReport": _report("karat.review/1", limits={"states": {"additionalProperties": _COUNT}}),
    "reviews.review:Decision": _report("karat.decision/1", title="karat accept and karat reject"),
    "audits.audit:AuditReport": _report("karat.audit/1"),
    "audits.lint:LintReport": _report("karat.lint/1"),
    "ops.audit:OpsReport": _report("karat.ops/1", title="karat ops audit", signed=("element", "input", "output")),
    "setups.layouts:Start": PublishedSchema(
        "karat.init/1",
        "The goldens that a repository was found to have, and the karat.toml for them.",
        also={"exit_code": {"enum": [0]}, "written": {"type": "boolean"}},
    ),
    "setups.checkup:Checkup": _report("karat.doctor/1"),
    "policy.gate.decision:GateReport": _report("karat.policy-gate/1", signed=("line", "ran", "total")),
    "policy.coverage:Coverage": _report(
        "karat.policy-coverage/1",
        "Which gradients have evidence: op × dtype × device × mode × order.",
        limits={"states": {"additionalProperties": _COUNT, "minProperties": 8, "maxProperties": 8}},
    ),
    "policy.scan.scanner:ScanReport": _report("karat.policy-scan/1", limits={"paths": _AT_LEAST_ONE}),
    "policy.approvals.check:Approvals": _report(
        "karat.policy-approvals/1",
        "The waivers that a range of commits adds or makes laxer, and who approved them.",
        limits={
            "base": _COMMIT,
            "head": _COMMIT,
            "digest": _SHA256,
            "rule": {"enum": ["gradient", "float64", "tolerance", "determinism", "weak", "baseline", "policy"]},
        },
    ),
    "hunts.model:HuntReport": PublishedSchema(
        "karat.hunt/1",
        also=_EXIT_CODE,
        optional=("exit_code", "Span.between", "Analysis.noise", "Analysis.notes", "Analysis.outliers"),
        open=("*",),
        signed=("*",),
    ),
    "hunts.hunt:HuntPlan": PublishedSchema(
        "karat.hunt-plan/1", title="karat hunt run --dry-run", signed=("*",), also={"exit_code": {"enum": [0]}}
    ),
    "hunts.hunt:Tried": PublishedSchema("karat.hunt-try/1", title="karat hunt try", signed=("*",), also=_EXIT_CODE),
    "hunts.report.terminal:ShownPoint": PublishedSchema(
        "karat.hunt-point/1",
        title="karat hunt show",
        optional=("ShownAttempt.log",),
        signed=("*",),
        also={"exit_code": {"enum": [0]}},
    ),
}
"""Struct → the file or report that it is written as."""

_RESULTS: dict[str, PublishedSchema] = {
    **{
        f"store.{home}": PublishedSchema(f"karat.{home.partition(':')[0]}/1", limits=_STORE)
        for home in ("push:Pushed", "pull:Pulled", "gc:GcResult")
    },
    "store.inventory:StoreListing": PublishedSchema("karat.ls/1", limits=_STORE),
    "store.pins:Pinned": PublishedSchema(
        "karat.pin/1", limits={**_STORE, "reason": {"minLength": 1}, "Pin.schema": {"enum": ["karat.pinned/1"]}}
    ),
}
"""Struct → the report of which it is the `result`; null where there is none."""

_BY_NAME: dict[str, PublishedSchema] = {
    "store.pins:Locked": PublishedSchema(
        "karat.bundle-lock/1",
        "Which snapshot each name stands for here; one sorted line per name.",
        "bundles.lock.json",
        limits=_STORE,
    ),
    "goldens.provenance:LockEntry": PublishedSchema(
        "karat.lock/1",
        "Where each golden came from: one sorted line per golden, by path relative to this file's folder.",
        "goldens.lock.json",
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


def schema_of(kind: Any, about: PublishedSchema) -> dict[str, Any]:
    """The schema of documents that are one `kind`, or one of several where it is a union."""
    (top,), components = msgspec.json.schema_components([kind])
    for struct in _structs(kind):
        if struct.__name__ in components:
            _complete(components[struct.__name__], struct, about)
    title = about.title or about.name.partition("/")[0].replace(".", " ").replace("-", " ")
    said = about.description or f"What `{title}` came to."
    whole = {"$schema": DIALECT, "$id": about.name, "title": title, "description": said}
    if isinstance(kind, type) and kind.__name__ in components:
        inner = components.pop(kind.__name__)
        also = {"schema": {"const": about.name}, **about.also}
        inner["properties"] = {**also, **inner["properties"], **also}
        inner["required"] = [key for key in dict.fromkeys([*also, *inner["required"]]) if key not in about.optional]
        whole |= {key: value for key, value in inner.items() if key not in {"title", "description"}}
    else:
        whole |= {"oneOf": top.get("anyOf", [top])}
    return whole | ({"$defs": components} if components else {})


def _complete(schema: dict[str, Any], struct: type, about: PublishedSchema) -> None:
    """What msgspec does not say: constants, docstrings, limits, and that nothing is left out or added."""
    fields = schema["properties"]
    config = getattr(struct, "__struct_config__", None)
    sparse = config is not None and config.omit_defaults
    for field, text in _docstrings(struct).items():
        if field in fields:
            fields[field].setdefault("description", text)
    for name, field in fields.items():
        if f"{struct.__name__}.{name}" in about.never_null:
            rest = [one for one in field.pop("anyOf", ()) if one != {"type": "null"}]
            field.update(rest[0] if len(rest) == 1 else {"anyOf": rest})
        field.pop("default", None)
        kinds = [field.get("type"), *(one.get("type") for one in field.get("anyOf", ()))]
        if "integer" in kinds and not {"*", name} & set(about.signed):
            _merge(field, {"minimum": 0})
        for key in (name, f"{struct.__name__}.{name}"):
            _merge(field, about.limits.get(key, {}))
    if sparse:
        written = set(schema.get("required", ()))
    else:
        written = {name for name in fields if f"{struct.__name__}.{name}" not in about.optional}
    schema["required"] = [name for name in fields if name in written]
    if not {"*", struct.__name__} & set(about.open):
        schema["additionalProperties"] = False


def _merge(schema: dict[str, Any], limit: Mapping[str, Any]) -> None:
    """Adds a limit; of a field that may be null, to what else it may be."""
    target = schema
    if "anyOf" in schema:
        target = next(one for one in schema["anyOf"] if one != {"type": "null"})
    target.update(limit)
    if "enum" in limit:
        target.pop("type", None)


def _structs(kind: Any) -> Iterable[type]:
    """Every struct and dataclass that a type holds, itself included."""
    seen: dict[type, None] = {}
    left = [msgspec.inspect.type_info(kind)]
    while left:
        info = left.pop()
        if isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
            if info.cls in seen:
                continue
            seen[info.cls] = None
            left += [field.type for field in info.fields]
        for part in ("types", "item_types"):
            left += getattr(info, part, ())
        for part in ("item_type", "key_type", "value_type"):
            if (inner := getattr(info, part, None)) is not None:
                left.append(inner)
    return seen


@cache
def _docstrings(struct: type) -> Mapping[str, str]:
    """Field → the text that stands behind or below it in the source."""
    found: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if cls.__module__.partition(".")[0] != "karat":
            continue
        try:
            source = inspect.getsource(cls)
        except OSError:
            continue  # made while running, or installed without its source: no descriptions
        (definition,) = ast.parse(textwrap.dedent(source)).body
        lines, written = definition.body if isinstance(definition, ast.ClassDef) else [], source.splitlines()
        for field, below in zip_longest(lines, lines[1:]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                beside = written[field.lineno - 1].partition("  # ")[2].partition("noqa")[0].strip()
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    beside = str(below.value.value)
                if beside:
                    found[field.target.id] = " ".join(beside.split())
    return found
