"""manifest.json: what one captured case is, and how to know that it still is.

A manifest seals itself: `sha256`, its last field, is over the very bytes of the file with the 64 digits taken out, so
that a changed tolerance is noticed as surely as a changed tensor, and anyone can check it without knowing how JSON is
written. It names every file of its case. The path of a case ends with a hash over its whole identity; the readable
part is for people and may be the same for two cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from karat.system.hashes import sha256, sha256_hex
from karat.system.names import DEVICE
from karat.tensors.comparison import Comparison, Statistics
from karat.tensors.tensor import Damaged

SCHEMA = "karat.bundle/2"
FORMAT_1 = "karat.bundle/1"  # What karat wrote before; its digests are sha256.
NAME = "manifest.json"
Role = Literal["input", "expected"]
_SEAL = re.compile(rb'"sha256": "([0-9a-f]{64})"\n\}\n\Z')
LONGEST = 120  # Bytes of one component; file systems take 255, archives and paths on Windows less in sum.
_HASH = 16
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=,@-]+")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The full tuple of a case; a name that drops a part is a collision waiting to happen."""

    suite: str
    flow: str
    test: str  # The full node id, parameters and all.
    subtest: str = ""

    @property
    def label(self) -> str:
        """As messages name it."""
        subtest = f" ({self.subtest})" if self.subtest else ""
        return f"{self.test}{subtest} [{self.suite}/{self.flow}]"


class TensorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str  # Its key in the safetensors file, unique in the case: `input/0`, `expected/logits`.
    role: Role
    dtype: str  # float32, bfloat16, float8_e4m3fn, int4, complex128, <M8[ns], …
    shape: tuple[int, ...]
    file: str
    digest: str  # Over dtype, shape and bytes, as `blake3:…`: `karat.tensors.digests`.
    nbytes: int
    statistics: Statistics
    framework: str = "numpy"  # numpy, numpy-scalar, torch or jax.
    device: str = "cpu"
    big_endian: bool = False  # The array was big-endian; its bytes here are not.
    strides: tuple[int, ...] | None = None  # In elements; None for C order, and for views with gaps.
    raw: str | None = None  # The same bytes without a header, where asked for: `raw/input.0.bin`.


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the case whose bytes mean nothing to karat: a program."""

    file: str
    digest: str  # Over its bytes: `blake3:…`.
    size: int
    name: str  # As the test called it.


class Comparator(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How actual was compared with expected before anything was written."""

    name: Literal["karat", "caller"]
    """`caller`: the test compared by its own means and says that it passed; weaker evidence."""
    rtol: float | None = None  # As given; None where each dtype's own tolerance holds.
    atol: float | None = None
    integers: bool = False  # Whether rtol and atol hold for integers as well, which are exact otherwise.
    equal_nan: bool = False
    check_dtype: bool = True
    note: str | None = None
    results: tuple[Comparison, ...] = ()


class Environment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    platform: str
    machine: str
    python: str
    device: str = "cpu"
    packages: Mapping[str, str] = msgspec.field(default_factory=dict)
    image: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    ci: Mapping[str, str] = msgspec.field(default_factory=dict)  # provider, run, attempt, job, url: what there is.


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    karat: str  # The version that wrote it.
    identity: Identity
    path: str  # The case's folder below the root, made from the identity: suite/flow/case.
    inputs: Any  # The structure of the inputs, `karat.bundles.structure`'s JSON form.
    expected: Any
    tensors: tuple[TensorRecord, ...]
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """safetensors file → sha256 of its header; with the tensors' own hashes, no byte of it is left out."""
    program: FileRecord | None
    comparator: Comparator
    vacuous: tuple[str, ...] | None = None
    """Wrong outputs that would have passed as well, by the names of `bundles.compare.CONTROLS`; None if none was tried."""
    seeds: Mapping[str, int | str]
    environment: Environment
    session: str  # Identifies the test session; the same for all workers and shards of one CI run.
    created: str  # UTC, ISO 8601, to the second.
    sha256: str = ""  # Over the bytes of this file without these 64 digits.


def seal(manifest: Manifest) -> Manifest:
    bare = msgspec.structs.replace(manifest, sha256="")
    return msgspec.structs.replace(bare, sha256=sha256_hex(encode(bare)))


def encode(manifest: Manifest) -> bytes:
    """The bytes of manifest.json: indented, keys in the order above, a final newline."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def read(data: bytes, name: str = NAME) -> Manifest:
    """The manifest of a file, of either format; `Damaged` if it is none, is of a newer karat, or its seal is broken."""
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{name}: expected a manifest in JSON, found none: {error}"[:300]) from None
    if schema not in {SCHEMA, FORMAT_1}:
        raise Damaged(f"{name}: expected a manifest of the schema {SCHEMA} or {FORMAT_1}, found {schema[:80]!r}")
    if not is_sealed(data):
        raise Damaged(f"{name}: expected the manifest as it was sealed, found it changed")
    try:
        if schema == SCHEMA:
            return msgspec.json.decode(data, type=Manifest)
        content = msgspec.json.decode(data)
        for record in (*content["tensors"], content["program"]):
            if record is not None:
                record["digest"] = f"sha256:{record.pop('sha256')}"
        return msgspec.convert(content, Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{name}: expected a manifest of {schema}: {error}"[:300]) from None


def is_sealed(data: bytes) -> bool:
    """Whether a manifest is as it was sealed; whether it makes sense is another matter."""
    found = _SEAL.search(data)
    return found is not None and sha256_hex(data[: found.start(1)] + data[found.end(1) :]).encode() == found[1]


class _Schema(msgspec.Struct):
    schema: str


@lru_cache(16)
def case_path(identity: Identity) -> str:
    """suite/flow/leaf: below the root, `/`-separated, ASCII; the leaf ends with a hash of the whole identity."""
    whole = sha256(b"karat.identity/1")
    for part in (identity.suite, identity.flow, identity.test, identity.subtest):
        data = part.encode("utf-8", "surrogatepass")
        whole.update(b"\0%d\0" % len(data))
        whole.update(data)
    test = identity.test + (f"-{identity.subtest}" if identity.subtest else "")
    leaf = f"{safe_name(test, LONGEST - _HASH - 1)}-{whole.hexdigest()[:_HASH]}"
    return "/".join((safe_name(identity.suite), safe_name(identity.flow), leaf))


def safe_name(text: str, longest: int = LONGEST) -> str:
    """A name that every file system accepts; two texts may share one."""
    name = _UNSAFE.sub("_", text).rstrip(".")
    # What starts with a dot is hidden, with a dash an option, with = or @ something to many a shell or tool.
    # A zip has its index beside the suites.
    if not name or name[0] in ".-+=,@" or DEVICE.match(name) or name.lower() == "index.json":
        name = f"_{name}"
    if len(name) <= longest:
        return name
    # Parameters stand at the end, the file at the start: both tell a person which test it is.
    head = longest // 3
    return f"{name[:head]}~{name[-(longest - head - 1) :]}".rstrip(".")
