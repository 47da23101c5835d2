"""Transfers: the wanted files of many artifacts, fetched side by side.

Of a large archive only the end is asked for first: there stands what it holds, and then the wanted
members' bytes alone are fetched. If that is most of it, or the server knows no ranges, the whole
archive comes, and is verified against its digest where the server gives one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from karat.findings import CannotVerify
from karat.sources.archive import Archive, Limits, Member, find_directory
from karat.sources.cache import Cache
from karat.sources.client import Client, Refused
from karat.sources.crew import in_parallel
from karat.sources.download import Address, Changed, Cut, Download
from karat.sources.listing import Artifact, Fetched, Progress
from karat.sources.ranges import Stretches, coalesced, weight
from karat.sources.shelf import Kept, Shelf, file_sha256
from karat.sources.unusable import Unusable

_TAIL = 1 << 13
_SMALL = 1 << 19
"""An archive of up to this many bytes is fetched whole: another round trip would take longer."""
_MOST = 0.7
"""A plan that needs more than this part of an archive may as well have the whole."""
_LEEWAY = 64 << 20
_DAMAGE = {"artifact-corrupt", "artifact-truncated", "artifact-not-zip"}
_BY_STATUS = {
    401: "artifact-forbidden",
    403: "artifact-forbidden",
    404: "artifact-missing",
    410: "artifact-expired",
}

Wanted = Callable[[str], bool]


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """One artifact to fetch: where it is, and what it is kept under."""

    artifact: Artifact
    address: Address
    key: tuple[str, ...]
    look: str | None = None
    """The command that shows the artifact as it is."""
    remake: str | None = None
    """The command that makes it anew."""
    missing_means: str = "artifact-missing"
    """What it is called if the server does not know it: GitLab forgets what has expired."""


class Transfer:
    """Fetches errands through one client into one cache."""

    def __init__(
        self, client: Client, cache: Cache, *, workers: int, limits: Limits | None = None
    ) -> None:
        self._client = client
        self._cache = cache
        self._workers = workers
        self._limits = limits or Limits()

    def run(
        self, errands: Sequence[Errand], wanted: Wanted, progress: Progress | None
    ) -> Iterator[Fetched]:
        """One `Fetched` per errand, as they arrive."""

        def task(errand: Errand) -> Callable[[], Fetched]:
            return lambda: self._fetched(errand, wanted, progress)

        return in_parallel(
            [task(errand) for errand in errands], self._workers, stop=self._client.stop
        )

    def _fetched(self, errand: Errand, wanted: Wanted, progress: Progress | None) -> Fetched:
        artifact = errand.artifact
        watch = _Watch(artifact, progress)
        try:
            names, members = self._obtain(errand, wanted, watch)
        except Unusable as error:
            problem = error
        except CannotVerify as error:
            problem = self._problem(errand, error)
        except OSError as error:
            problem = Unusable(
                "transfer-failed",
                f"expected room on this disk for what arrives, found {error.strerror or error}",
                next_command="df -h",
            )
        else:
            return Fetched(artifact=artifact, names=names, members=members, received=watch.received)
        finally:
            watch.end()
        finding = problem.finding(artifact.name, self._next(errand, problem))
        return Fetched(artifact=artifact, findings=(finding,), received=watch.received)

    def _problem(self, errand: Errand, error: CannotVerify) -> Unusable:
        """An answer, or the lack of one, as a kind of finding."""
        status = error.status if isinstance(error, Refused) else None
        kind = _BY_STATUS.get(status or 0, "transfer-failed")
        if status == 404:
            kind = errand.missing_means
        return Unusable(kind, self._client.scrub(str(error)), next_command=error.next_command)

    def _next(self, errand: Errand, problem: Unusable) -> str:
        if problem.kind in {"artifact-expired", "artifact-missing"} and errand.remake:
            return errand.remake
        return problem.next_command or errand.look or self._client.advice.again

    def _obtain(
        self, errand: Errand, wanted: Wanted, watch: _Watch
    ) -> tuple[tuple[str, ...], dict[str, Path]]:
        try:
            with self._cache.shelf(*errand.key, called_off=self._client.check_stopped) as shelf:
                return self._onto(shelf, errand, wanted, watch)
        except OSError:
            pass
        # A full or broken cache must not cost the work; there may be room elsewhere.
        with self._cache.temporary_shelf() as shelf:
            return self._onto(shelf, errand, wanted, watch)

    def _onto(
        self, shelf: Shelf, errand: Errand, wanted: Wanted, watch: _Watch
    ) -> tuple[tuple[str, ...], dict[str, Path]]:
        """Names and wanted members; what an earlier process left is doubted before the server is."""
        fetch = _Fetch(self._client, shelf, errand, self._limits, watch)
        if (found := fetch.from_shelf(wanted)) is not None:
            return found
        leftovers = any(shelf.folder.iterdir())
        try:
            return fetch.from_server(wanted)
        except Cut:
            raise
        except Unusable as error:
            if not leftovers or error.kind not in _DAMAGE:
                shelf.forget()
                raise
        except Changed:
            pass
        shelf.forget()
        fetch = _Fetch(self._client, shelf, errand, self._limits, watch)
        try:
            return fetch.from_server(wanted)
        except Changed:
            raise Unusable(
                "transfer-failed", "expected one version of it, found another at every request"
            ) from None


class _Watch:
    """Tells whoever watches of one transfer; begins once, and ends if it began."""

    def __init__(self, artifact: Artifact, progress: Progress | None) -> None:
        self._artifact = artifact
        self._progress = progress
        self._begun = False
        self.received = 0

    def begin(self, total: int | None) -> None:
        if self._progress and not self._begun:
            self._progress.begin(self._artifact, total)
            self._progress.advance(self._artifact, self.received)
        self._begun = True

    def advance(self, count: int) -> None:
        self.received += count
        if self._progress and self._begun:
            self._progress.advance(self._artifact, count)

    def end(self) -> None:
        if self._progress and self._begun:
            self._progress.end(self._artifact)


class _Fetch:
    """One artifact, from its shelf or its server."""

    def __init__(
        self, client: Client, shelf: Shelf, errand: Errand, limits: Limits, watch: _Watch
    ) -> None:
        self._shelf = shelf
        self._errand = errand
        self._limits = limits
        self._watch = watch
        most = _most_bytes(errand.artifact.size, limits)
        self._download = Download(client, shelf, errand.address, watch, most=most)

    def from_shelf(self, wanted: Wanted) -> tuple[tuple[str, ...], dict[str, Path]] | None:
        """What an earlier run left, if it is all that is wanted and still the same."""
        record = self._shelf.record
        if record.names is None:
            return None
        if not self._download.still_the_same():
            self._shelf.forget()
            return None
        chosen = [name for name in record.names if wanted(name)]
        found = {name: self._shelf.find(record.members.get(name)) for name in chosen}
        here = {name: path for name, path in found.items() if path is not None}
        if len(here) == len(chosen):
            return record.names, here
        archive = self._shelf.find(record.archive)
        return self._unpacked(archive, wanted) if archive else None

    def from_server(self, wanted: Wanted) -> tuple[tuple[str, ...], dict[str, Path]]:
        """The wanted members by ranges where that saves bytes, else out of the whole archive."""
        total = self._true_size()
        if total is not None and total > _SMALL:
            found = self._by_ranges(total, wanted)
            if found is not None:
                return found
        self._watch.begin(total or self._errand.artifact.size)
        small = total is not None and 0 < total <= _SMALL
        whole = self._download.stretch(0, total or 0) if small else self._download.whole()
        return self._unpacked(self._verified(whole), wanted)

    def _true_size(self) -> int | None:
        """The archive's size by the server that has it; None if it is small, or sent whole."""
        said = self._errand.artifact.size
        if said is not None and said <= _SMALL:
            return None
        span = (0, _SMALL) if said is None else (max(0, said - _TAIL), said)
        if not self._download.probe(*span):
            return None
        total = self._download.total
        if said is not None and total is not None and said > total > _SMALL:
            # The API knows another size than the store; some count what is unpacked.
            self._download.probe(max(0, total - _TAIL), total)
        return self._download.total

    def _by_ranges(
        self, total: int, wanted: Wanted
    ) -> tuple[tuple[str, ...], dict[str, Path]] | None:
        """The wanted members by their own bytes; None if that would be most of the archive."""
        with closing(Stretches(total, self._download.stretch)) as remote:
            remote.add(max(0, total - _TAIL), total)
            archive = Archive(cast("BinaryIO", remote), self._limits)
            chosen = archive.wanted(wanted)
            here = self._here(chosen)
            spans = coalesced((m.start, m.end) for m in chosen if m.name not in here)
            if weight(spans) > _MOST * total:
                return None
            self._watch.begin(self._watch.received + weight(spans))
            for span in spans:
                remote.add(*span)
            members = self._kept(archive, chosen, here)
        self._shelf.drop_parts()
        return archive.names, members

    def _verified(self, path: Path) -> Path:
        """The whole archive, if it is what the server's digest says."""
        found = file_sha256(path)
        kind, _, expected = (self._errand.artifact.digest or "").partition(":")
        if kind == "sha256" and expected.lower() != found:
            with path.open("rb") as file:
                find_directory(file)  # a page, or half an archive, has a name of its own
            raise Unusable(
                "artifact-corrupt", f"expected bytes with sha256 {expected}, found {found}"
            )
        kept = self._shelf.keep_archive(path, found)
        self._shelf.drop_parts()
        return kept

    def _unpacked(self, path: Path, wanted: Wanted) -> tuple[tuple[str, ...], dict[str, Path]]:
        with path.open("rb") as file:
            archive = Archive(file, self._limits)
            chosen = archive.wanted(wanted)
            return archive.names, self._kept(archive, chosen, self._here(chosen))

    def _here(self, chosen: Sequence[Member]) -> dict[str, Kept]:
        """Those that an earlier run has left on the shelf, and that are whole."""
        kept = self._shelf.record.members
        return {
            m.name: kept[m.name]
            for m in chosen
            if m.name in kept and self._shelf.find(kept[m.name]) is not None
        }

    def _kept(
        self, archive: Archive, chosen: Sequence[Member], here: dict[str, Kept]
    ) -> dict[str, Path]:
        """The wanted members on the shelf, unpacked where they are not there yet."""
        members = dict(here)
        try:
            for member in chosen:
                if member.name not in here:
                    fill = partial(archive.extract, member)
                    members[member.name] = self._shelf.keep_member(member.name, fill)
        finally:
            # Also when it is called off half-way: what is unpacked need not be fetched again.
            record = self._shelf.record
            every = {**record.members, **members}
            self._shelf.note(msgspec.structs.replace(record, names=archive.names, members=every))
        return {name: self._shelf.folder / kept.file for name, kept in members.items()}


def _most_bytes(said: int | None, limits: Limits) -> int:
    """How long a body may grow: a server that names a size means it, give or take how it counts."""
    return limits.archive if said is None else 2 * max(0, said) + _LEEWAY
