"""References: names for snapshots; one entry per push, never changed; the newest is the one that is meant.

Each has a link, whose name says what the entry is: one that is gone, or another in its place, is noticed, and no older
one passes for the newest. A push writes the entry first, and who forgets one deletes the link first.

    models/nightly                    the newest
    models/nightly@2026-11-14         the newest of that UTC day; also …T02 or …T02:05
    models/nightly@sha256:3f1a…       this very snapshot, under that name
    sha256:3f1a…                      under any name, by 12 digits or more

Dates are by the store's clock, so that machines with wrong ones agree on what is newest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, UsageError, suggest
from karat.store.backends import Absent, Backend, StoreProblem
from karat.store.objects import EXPIRING, KEPT, key_of, seal, unreadable, unsealed
from karat.system import signatures
from karat.system.ci import facts
from karat.system.command import Command
from karat.system.foreign.limits import TEXT, read_plain
from karat.system.hashes import is_sha256, sha256_hex
from karat.system.pool import in_parallel

SCHEMA = "karat.reference/1"
PREFIX, LINKS = "refs/", "links/"
SIGNERS = "KARAT_SIGNERS"
NAMESPACE = "karat-store"  # Of signatures; one for another purpose does not count here.
_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,99}(?:/[a-z0-9][a-z0-9._+-]{0,99}){0,7}")
_DIGEST = re.compile("sha256:([0-9a-f]{12,64})")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d(?::?\d\d(?::?\d\d)?)?Z?)?")
_ENTRY = re.compile(r"(\d{8}T\d{6}\.\d{6}Z)-([0-9a-f]{12})(\.json|-[0-9a-f]{64})")
_STAMP = "%Y%m%dT%H%M%S.%fZ"


class SnapshotReference(msgspec.Struct, frozen=True, kw_only=True):
    """One push under a name."""

    schema: str = SCHEMA
    name: str
    digest: str  # sha256 of the snapshot.
    date: str  # UTC, ISO 8601.
    expires: str  # From when on `karat gc` may forget it, unless it is pinned or locked.
    keep: int | None = None  # Days, where the push said so; else the store's retention counted.
    cases: int
    files: int
    size: int
    karat: str
    ci: Mapping[str, str] = msgspec.field(default_factory=dict)
    signature: str | msgspec.UnsetType = msgspec.UNSET  # By an SSH key, of all the rest; see `signed_bytes`.


class ReferenceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What the key of a reference says of it."""

    key: str
    name: str
    date: datetime
    start: str  # The first 12 digits of the digest.
    link: str = ""  # Its key, which ends with the sha256 of the entry; older karats wrote none.
    lost: bool = False  # Only the link is there.


class ReferenceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A reference as a person writes it."""

    name: str | None
    moment: str | None = None
    digest: str | None = None


def parse(word: str) -> ReferenceQuery:
    """The parts of a reference; `UsageError` for what is none."""
    name, at, rest = word.partition("@")
    found = _DIGEST.fullmatch(rest if at else word)
    if not at and found:
        return ReferenceQuery(name=None, digest=found[1])
    check_name(name, word)
    if found or not at:
        return ReferenceQuery(name=name, digest=found[1] if found else None)
    if not _MOMENT.fullmatch(rest):
        said = f"expected NAME, NAME@2026-11-14, NAME@sha256:… or sha256:… (12 digits or more), found {word!r}"
        raise UsageError(said, next_command="karat ls")
    return ReferenceQuery(name=name, moment=re.sub("[-:Z]", "", rest))


def check_name(name: str, where: str | None = None) -> None:
    """A name's parts are lower case, so that no file system takes two for one."""
    if _NAME.fullmatch(name) and not any(part.endswith(".json") for part in name.split("/")):
        return
    lower = name.lower()
    hint = f"; did you mean {lower!r}?" if lower != name and _NAME.fullmatch(lower) else ""
    said = f"expected a name such as models/nightly (a-z, 0-9, . _ + -, up to 8 parts), found {where or name!r}{hint}"
    raise UsageError(said, next_command="karat ls")


def entries(backend: Backend, name: str | None = None) -> list[ReferenceEntry]:
    """Every reference, or those of one name, oldest first."""

    def listed(prefix: str) -> dict[str, ReferenceEntry]:
        found = [_entry(one.key) for one in backend.list(f"{prefix}{name}/" if name else prefix)]
        return {one.key: one for one in found if one is not None and name in {None, one.name}}

    links, found = listed(LINKS), listed(PREFIX)
    for key, entry in links.items():
        if key in found:
            found[key] = entry
        elif backend.head(entry.link) is not None:  # else a collector took both meanwhile
            found[key] = msgspec.structs.replace(entry, lost=True)
    return sorted(found.values(), key=lambda one: (one.date, one.key))


def forget(backend: Backend, gone: Iterable[ReferenceEntry]) -> None:
    """Delete references, each after its link."""
    gone = tuple(gone)
    backend.delete([entry.link for entry in gone if entry.link])
    backend.delete([entry.key for entry in gone])


def unrecognised(backend: Backend) -> list[str]:
    """Keys among the references that are none; a collector must not guess what they mean."""
    return [one.key for prefix in (PREFIX, LINKS) for one in backend.list(prefix) if _entry(one.key) is None]


def read(backend: Backend, entry: ReferenceEntry) -> SnapshotReference:
    """What an entry says, held against its own key."""
    what = f"a reference ({SCHEMA})"
    try:
        data = backend.get(entry.key)
    except Absent:
        found_link = f", but {entry.link}; push again, name another date, or delete the link to forget it"
        raise unreadable(backend, entry.key, what, "nothing" + (found_link if entry.link else "")) from None
    found = unsealed(backend, entry.key, data, SnapshotReference, what)
    if not entry.link.endswith(sha256_hex(data)[: len(entry.link)]):
        raise unreadable(backend, entry.key, what, f"not the one that was pushed, by {entry.link}")
    try:
        dated = all(parse_date(text).tzinfo is not None for text in (found.date, found.expires))
    except ValueError:
        dated = False
    if found.schema != SCHEMA or not is_sha256(found.digest) or not dated:
        raise unreadable(backend, entry.key, what, "something else")
    if key_for(found) != entry.key:
        raise unreadable(backend, entry.key, what, f"the one of {key_for(found)}")
    return found


def read_each(
    backend: Backend, chosen: Sequence[ReferenceEntry], workers: int
) -> tuple[list[SnapshotReference], list[CannotVerify]]:
    """What several entries say, in their order; one that cannot be read does not hide the others."""

    def numbered(number: int, entry: ReferenceEntry) -> tuple[int, SnapshotReference | CannotVerify]:
        try:
            return number, read(backend, entry)
        except CannotVerify as error:
            return number, error

    tasks = [partial(numbered, i, entry) for i, entry in enumerate(chosen)]
    found = [one for _, one in sorted(in_parallel(tasks, workers), key=itemgetter(0))]
    errors = [one for one in found if isinstance(one, CannotVerify)]
    return [one for one in found if isinstance(one, SnapshotReference)], errors


def resolve(backend: Backend, word: str) -> SnapshotReference:
    """The reference that is meant; `reference-missing` if there is none."""
    wanted = parse(word)
    known = entries(backend, wanted.name)
    if wanted.digest is not None:
        alike = (entry for entry in known if entry.start == wanted.digest[:12] and not entry.lost)
        found = [(entry, read(backend, entry).digest) for entry in alike]
        digests = {digest for _, digest in found if digest.startswith(wanted.digest)}
        if len(digests) > 1:
            said = f"expected {word} to be one snapshot, found {len(digests)}: {', '.join(sorted(digests))}"
            raise UsageError(said, next_command="karat ls")
        fitting = [entry for entry, digest in found if digest in digests]
    else:
        fitting = [e for e in known if e.date.strftime(_STAMP).startswith(wanted.moment or "")]
    if fitting:
        return read(backend, fitting[-1])
    if (
        wanted.digest is not None
        and len(wanted.digest) == 64
        and any(backend.head(key_of(wanted.digest, area)) for area in (KEPT, EXPIRING))
    ):
        # Its references are gone, and a lock or a pin still names it.
        return nameless(wanted.digest, wanted.name or "")
    if known and wanted.name:
        there = f"{len(known)} of that name, the newest of {format_date(known[-1].date)[:19]}Z"
        command = Command("karat", "ls", wanted.name, "--store", backend.url)
    else:
        names = sorted({entry.name for entry in entries(backend)})
        there = f"no such reference{suggest(wanted.name or '', names)}" if names else "a store without references"
        command = Command("karat", "ls", "--store", backend.url)
    said = f"expected {word} in {backend.url}, found {there}"
    raise StoreProblem("reference-missing", said, next_command=command, path=word)


def nameless(digest: str, name: str = "", date: str = "") -> SnapshotReference:
    return SnapshotReference(name=name, digest=digest, date=date, expires="", cases=0, files=0, size=0, karat="")


def signed_bytes(reference: SnapshotReference) -> bytes:
    """What the signature is of: all that the reference says, with its date, so that an old one cannot be shown as new.

    What was decoded is encoded again: no other member of the file can stand in for a signed one. A member that is
    added some day is left out where it has its default, so that the signatures of today hold.
    """
    return msgspec.json.encode(msgspec.structs.replace(reference, signature=msgspec.UNSET))


def check_signed(backend: Backend, reference: SnapshotReference, signers: Path | None = None) -> tuple[str, ...]:
    """Who signed the reference, by the names that the file `signers` has for their key; `not-signed` if nobody did.

    By default it is the file that KARAT_SIGNERS names; where it names none, no signature is asked for.
    """
    named = os.environ.get(SIGNERS)
    signers = signers or (Path(named) if named else None)
    if signers is None:
        return ()
    try:
        allowed = read_plain(signers, TEXT)
    except OSError as error:
        said = f"expected the keys that may sign in {signers}, but: {error.strerror or error}; {SIGNERS} names another file"
        raise UsageError(said, next_command=Command("ls", "-l", str(signers))) from error
    word = f"{reference.name or 'any name'}@sha256:{reference.digest[:12]}"
    if not reference.expires:
        found: tuple[str, ...] | str = "no reference any more that could have one"
    elif isinstance(reference.signature, msgspec.UnsetType):
        found = "none"
    else:
        found = signatures.verify(signed_bytes(reference), reference.signature.encode(), allowed, NAMESPACE)
    if not isinstance(found, str):
        return found
    said = f"{word} of {backend.url}: expected a signature by a key of {signers}, found: {found}"
    then = Command("karat", "push", "PLACE", reference.name or "NAME", "--sign", "KEY", "--store", backend.url)
    raise StoreProblem("not-signed", said, next_command=then, path=word)


def write(backend: Backend, reference: SnapshotReference, key: Path | None = None) -> SnapshotReference:
    """Add an entry that is newer than all others of its name, signed if there is a key; this makes a push visible."""
    moment = parse_date(reference.date)
    others = entries(backend, reference.name)
    while True:
        if others and others[-1].date >= moment:
            moment = others[-1].date + timedelta(microseconds=1)
        dated = msgspec.structs.replace(reference, date=format_date(moment))
        if key is not None:
            made = signatures.sign(signed_bytes(dated), key, NAMESPACE)
            dated = msgspec.structs.replace(dated, signature=made)
        entry, data = key_for(dated), seal(dated)
        # The answer may get lost after the server has written it: then it is there, and ours.
        if backend.put(entry, data) or backend.get(entry) == data:
            backend.put(f"{LINKS}{entry.removeprefix(PREFIX).removesuffix('.json')}-{sha256_hex(data)}", b"")
            return dated
        moment += timedelta(microseconds=1)


def key_for(reference: SnapshotReference) -> str:
    """Where a reference lies; its key says the same as itself."""
    moment = parse_date(reference.date).astimezone(UTC)
    return f"{PREFIX}{reference.name}/{moment.strftime(_STAMP)}-{reference.digest[:12]}.json"


def format_date(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_date(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _entry(key: str) -> ReferenceEntry | None:
    kind, _, rest = key.partition("/")
    name, _, file = rest.rpartition("/")
    match = _ENTRY.fullmatch(file)
    if match is None or not _NAME.fullmatch(name) or (match[3] == ".json") != (f"{kind}/" == PREFIX):
        return None
    try:
        date = datetime.strptime(match[1], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
    entry = f"{PREFIX}{name}/{match[1]}-{match[2]}.json"
    return ReferenceEntry(key=entry, name=name, date=date, start=match[2], link=key if key != entry else "")


def ci_of(environment: Mapping[str, str]) -> dict[str, str]:
    """What CI says about this run; tokens stay where they are."""
    known = facts(environment)
    return {k: known[k] for k in ("repository", "run", "attempt", "job", "commit") if k in known}
