"""Listing images: which exist, and by which digest they are run; nothing is pulled."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from karat.findings import CannotVerify, Finding, Severity, UsageError
from karat.hunt import registry_login
from karat.hunt.container_engine import ContainerEngine, inspect
from karat.hunt.image_reference import Reference
from karat.hunt.registry import Registry
from karat.hunt.settings import ContainerSettings

_ASKING = 16
_SHOWN = 5
_EDIT = "edit hunt.toml"


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """An image as it was found, or not."""

    reference: Reference
    """With its tag."""
    run: str = ""
    """What is run: by digest, or by the engine's own id. Empty: there is none."""
    digest: str = ""
    unknown: CannotVerify | None = None
    """Why it could not be said whether it exists; it is tried by its tag then."""


def open_registry(
    own: ContainerSettings, references: Sequence[Reference], engine: ContainerEngine
) -> Registry | None:
    """The registry of the images; None for those that only the engine can have."""
    first = references[0]
    if any(reference.host != first.host for reference in references):
        raise UsageError(
            f"containers.image: expected one registry, found several in {own.image!r}",
            next_command=_EDIT,
        )
    if first.is_local:
        return None
    login = (
        registry_login.from_variable(own.username, own.password_env, os.environ)
        if own.password_env
        else registry_login.stored(first, os.environ)
    )
    # A password of one's own is what was refused then, not the engine's login.
    advice = (
        f"export {own.password_env}=…" if own.password_env else f"{engine.name} login {first.host}"
    )
    return Registry(first, login, insecure=own.insecure, advice=advice)


def list_images(
    references: Mapping[str, Reference], engine: ContainerEngine, registry: Registry | None
) -> dict[str, Listed]:
    """Each image, asked of the registry or of the engine, many at once."""
    if registry is not None:
        registry.check()

    def asked(reference: Reference) -> Listed:
        return _local(reference, engine) if registry is None else _remote(reference, registry)

    threads = ThreadPoolExecutor(_ASKING, thread_name_prefix="karat-registry")
    try:
        found = dict(zip(references, threads.map(asked, references.values()), strict=True))
    finally:
        # Whoever presses Ctrl-C does not wait for a server that has fallen silent.
        threads.shutdown(wait=False, cancel_futures=True)
    _check(list(found.values()))
    return found


def findings(listed: Iterable[Listed]) -> Iterator[Finding]:
    """Images that are missing, and those of which nothing could be said."""
    images = list(listed)
    missing = [one.reference.text for one in images if not one.run]
    if missing:
        yield Finding(
            kind="points-missing",
            severity=Severity.INFO,
            message=f"{len(missing)} of {len(images)} images do not exist: {_some(missing)}",
            numbers={"missing": len(missing), "points": len(images)},
        )
    unknown = [one for one in images if one.unknown]
    if unknown:
        yield Finding(
            kind="transfer-failed",
            severity=Severity.WARN,
            message=f"whether {len(unknown)} of {len(images)} images exist could not be said "
            f"({unknown[0].unknown}): {_some([one.reference.text for one in unknown])}; they are tried all the same",
            numbers={"unknown": len(unknown), "points": len(images)},
            next="karat hunt resume",
        )


def _remote(reference: Reference, registry: Registry) -> Listed:
    try:
        digest = registry.digest(reference)
    except CannotVerify as error:
        return Listed(reference=reference, run=reference.text, unknown=error)
    if digest is None:
        return Listed(reference=reference)
    # Not the tag: it may move while the hunt is under way.
    exact = msgspec.structs.replace(reference, tag="", digest=digest).text
    return Listed(reference=reference, run=exact, digest=digest)


def _local(reference: Reference, engine: ContainerEngine) -> Listed:
    image = str((inspect(engine, reference.text) or {}).get("Id", "")).removeprefix("sha256:")
    if not image:
        return Listed(reference=reference)
    return Listed(reference=reference, run=f"sha256:{image}", digest=f"sha256:{image}")


def _check(images: Sequence[Listed]) -> None:
    """Refuses what is no timeline: nothing there, or nothing known."""
    unknown = [one for one in images if one.unknown]
    if len(unknown) == len(images) and (why := unknown[0].unknown):
        raise CannotVerify(
            f"expected the registry to say which images exist, found for all {len(images)}: {why}",
            next_command=why.next_command,
        )
    if not any(one.run for one in images):
        names = _some([one.reference.text for one in images])
        raise UsageError(
            f"containers.image: expected images, found none of {len(images)}: {names}",
            next_command=_EDIT,
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
