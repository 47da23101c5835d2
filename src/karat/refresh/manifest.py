"""The manifest inside an artifact: what the job itself says about its files.

`karat record --manifest` writes one; any job can, it is a small JSON file. It wins over every name,
because it was written by whoever knew.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from karat.findings import Finding, Severity
from karat.refresh.identity import Identity

SCHEMA = "karat.artifact/1"
_LARGEST = 1_000_000


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_name": "schema"}):
    """What an artifact says of itself."""

    schema_name: str = SCHEMA
    run_id: str | int | None = None
    attempt: int | None = None
    job: str | None = None
    job_id: str | int | None = None
    conclusion: str | None = None
    commit: str | None = None
    platform: str | None = None
    image: str | None = None
    identity: Mapping[str, str] = msgspec.field(default_factory=dict)

    def as_identity(self) -> Identity:
        """The manifest's part of the identity."""
        told = {"run_id": self.run_id, "job_id": self.job_id, "platform": self.platform}
        plain = {name: str(value) for name, value in told.items() if value is not None}
        return {**plain, **self.identity}


def read_manifest(file: Path, artifact: str) -> Manifest | Finding:
    """The manifest in a file, or the finding that says why it is none."""
    try:
        if file.stat().st_size > _LARGEST:
            return _broken(artifact, f"found {file.stat().st_size:,} bytes")
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        return _broken(artifact, f"found: {error}")
    if manifest.schema_name != SCHEMA:
        return _broken(artifact, f"found {manifest.schema_name!r}")
    return manifest


def manifest_for(member: str, manifests: Mapping[str, Manifest]) -> Manifest | None:
    """The manifest that speaks for a file: the only one, or of several the nearest around it.

    None where several disagree, and none of them lies around the file.
    """
    told = list(manifests.values())
    if all(manifest == told[0] for manifest in told):
        return told[0] if told else Manifest()
    folder = member.rpartition("/")[0]
    while folder not in manifests and folder:
        folder = folder.rpartition("/")[0]
    return manifests.get(folder)


def _broken(artifact: str, found: str) -> Finding:
    return Finding(
        kind="identity-incomplete",
        severity=Severity.FAIL,
        path=artifact,
        message=f"expected {SCHEMA} in the manifest of artifact {artifact}, {found}; nothing was taken from it",
        next="karat schema karat.artifact/1",
    )
