"""Transfers: the wanted files of a forge's artifacts, fetched side by side.

Of a large archive only the end is asked for first: there stands what it holds, and then the wanted members' bytes alone are
fetched. If that is most of it, or the server knows no ranges, the whole archive comes, and is verified against its digest
where the server gives one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
from msgspec import structs

from karat.findings import CannotVerify
from karat.net.addresses import shown
from karat.net.client import Advice, Client, Refused
from karat.net.retry import Retry
from karat.net.tokens import Token
from karat.sources.cache import Cache, Shelf
from karat.sources.download import ArtifactAddress, Changed, Cut, Download, RangeFile, merge_spans, span_bytes
from karat.sources.source import Artifact, Fetched, Notice, Obtained, Progress, TransferProgress, Wanted, fetch_one
from karat.system.archives import DAMAGE, Archive, Limits, Member, Unusable, find_directory
from karat.system.hashes import sha256_file
from karat.system.pool import in_parallel, worker_count

_TAIL = 1 << 13
_SMALL = 1 << 19  # an archive of up to this many bytes is fetched whole: another round trip would take longer
_MOST = 0.7  # a plan that needs more than this part of an archive may as well have the whole
_LEEWAY = 64 << 20
_BY_STATUS = {401: "artifact-forbidden", 403: "artifact-forbidden", 404: "artifact-missing", 410: "artifact-expired"}


class ArtifactRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One artifact to fetch: where it is, and what it is kept under."""

    artifact: Artifact
    address: ArtifactAddress
    key: tuple[str, ...]
    look: str | None = None  # The command that shows the artifact as it is.
    remake: str | None = None  # The command that makes it anew.
    newer: str | None = None
    """The command that finds one that has not expired, where a run that old cannot be run again."""
    elsewhere: bool = False
    """It lies at an address of its own, where nobody needs a token: what is forbidden there is not there."""
    missing_means: str = "artifact-missing"
    """What it is called if the server does not know it: GitLab forgets what has expired."""


class Forge(ABC):
    """What GitHub and GitLab have in common: a client with its cache, and artifacts fetched side by side."""

    def __init__(  # noqa: PLR0913 - every part can be replaced by a test
        self,
        root: str,
        token: Token | None,
        env: Mapping[str, str],
        *,
        headers: Mapping[str, str],
        retry: Retry | None = None,
        limits: Limits | None = None,
        notice: Notice | None = None,
        advice: Advice | None = None,
    ) -> None:
        self._workers = worker_count(env)
        self._limits = limits or Limits()
        self._cache = Cache(env, notice=notice)
        self._client = Client(
            root,
            token,
            headers=headers,
            retry=retry,
            answers=self._cache.answers,
            connections=self._workers,
            notice=notice,
            advice=advice,
        )

    def fetch(
        self, artifacts: Sequence[Artifact], wanted: Wanted, progress: Progress | None = None
    ) -> Iterator[Fetched]:
        """The wanted files of each artifact, in the order they arrive; those that are gone first, as they take no time."""
        requests = []
        for artifact in artifacts:
            if artifact.url is not None:
                # At an address of its own; the client knows that the token does not go there.
                address = ArtifactAddress(url=artifact.url, lasting=False)
                of_job = self._request(structs.replace(artifact, id=artifact.job_id or artifact.id))
                requests.append(
                    ArtifactRequest(
                        artifact=artifact,
                        address=address,
                        key=("url", artifact.url),
                        remake=of_job.remake,
                        elsewhere=True,
                    )
                )
            elif artifact.expired:
                expired = Unusable("artifact-expired", "expected it on the server, found that it has expired there")
                request = self._request(artifact)
                finding = expired.finding(artifact.name, request.newer or request.remake)
                yield Fetched(artifact=artifact, findings=(finding,))
            else:
                requests.append(self._request(artifact))
        tasks = [partial(self._fetched, request, wanted, progress) for request in requests]
        yield from in_parallel(tasks, self._workers, stop=self._client.stop)

    def close(self) -> None:
        """Closes connections and files."""
        self._client.close()
        self._cache.close()

    @abstractmethod
    def _request(self, artifact: Artifact) -> ArtifactRequest:
        """Where the artifact is, and what it is kept under."""

    def _no_such(self, error: Refused, what: str, look: str) -> CannotVerify:
        """That a server says no, in words of what was asked for where it knows no such thing."""
        if error.status not in {404, 422}:
            return error
        token = self._client.token
        seen = f"the token from {token.found_in} may not see it" if token else "it needs a token"
        said = f"expected {what}, found that there is none, or {seen} (HTTP {error.status})"
        return CannotVerify(said, next_command=look)

    def _gather(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Asks questions side by side; the first that fails ends it."""
        for _ in in_parallel(tasks, self._workers, stop=self._client.stop):
            pass

    def _fetched(self, request: ArtifactRequest, wanted: Wanted, progress: Progress | None) -> Fetched:
        def obtain(watch: TransferProgress) -> Obtained:
            try:
                return self._cache.with_shelf(
                    request.key,
                    lambda shelf: self._onto(shelf, request, wanted, watch),
                    called_off=self._client.check_stopped,
                )
            except CannotVerify as error:
                status = error.status if isinstance(error, Refused) else None
                kind = _BY_STATUS.get(status or 0, "transfer-failed")
                said = self._client.scrub(str(error))
                if status == 404 or (request.elsewhere and kind == "artifact-forbidden"):
                    kind = request.missing_means
                if request.elsewhere and kind == "artifact-missing":
                    said = f"expected it at {shown(request.address.url)}, found nothing there that anyone may read (HTTP {status})"
                raise Unusable(kind, said, next_command=error.advice) from None

        def then(problem: Unusable) -> str:
            if problem.kind == "artifact-expired" and request.newer:
                return request.newer
            # What the server has like this, it will have like this the next time.
            if problem.kind in {"artifact-expired", "artifact-missing", *DAMAGE} and request.remake:
                return request.remake
            return problem.next_command or request.look or self._client.advice.again

        return fetch_one(request.artifact, progress, obtain, then)

    def _onto(self, shelf: Shelf, request: ArtifactRequest, wanted: Wanted, watch: TransferProgress) -> Obtained:
        """Names and wanted members; what an earlier process left is doubted before the server is."""
        fetch = _ArtifactFetch(self._client, shelf, request, self._limits, watch)
        if (found := fetch.from_shelf(wanted)) is not None:
            return found
        leftovers = any(shelf.folder.iterdir())
        try:
            return fetch.from_server(wanted)
        except Cut:
            raise
        except Unusable as error:
            if error.kind not in DAMAGE or not (leftovers or fetch.denied):
                shelf.forget()
                raise
        except Changed:
            pass
        shelf.forget()
        fetch = _ArtifactFetch(self._client, shelf, request, self._limits, watch)
        try:
            return fetch.from_server(wanted)
        except Changed:
            raise Unusable("transfer-failed", "expected one version of it, found another at every request") from None


class _ArtifactFetch:
    """One artifact, from its shelf or its server."""

    def __init__(
        self, client: Client, shelf: Shelf, request: ArtifactRequest, limits: Limits, watch: TransferProgress
    ) -> None:
        self._shelf, self._request, self._limits, self._watch = shelf, request, limits, watch
        self.denied = False  # by the server's digest: whoever is between may have changed the bytes
        # A server that names a size means it, give or take how it counts.
        said = request.artifact.size
        most = limits.archive if said is None else 2 * max(0, said) + _LEEWAY
        self._download = Download(client, shelf, request.address, watch, most=most)

    def from_shelf(self, wanted: Wanted) -> Obtained | None:
        """What an earlier run left, if it is all that is wanted and still the same."""
        if self._shelf.record.names is None:
            return None
        if not self._download.still_the_same():
            self._shelf.forget()
            return None
        if (found := self._shelf.complete(wanted)) is not None:
            return found
        archive = self._shelf.find(self._shelf.record.archive)
        return self._unpacked(archive, wanted) if archive else None

    def from_server(self, wanted: Wanted) -> Obtained:
        """The wanted members by ranges where that saves bytes, else out of the whole archive."""
        total = self._true_size()
        if total is not None and total > _SMALL and (some := self._by_ranges(total, wanted)) is not None:
            return some
        self._watch.begin(total or self._request.artifact.size)
        small = total is not None and 0 < total <= _SMALL
        whole = self._download.byte_range(0, total or 0) if small else self._download.whole()
        # The whole archive must be what the server's digest says.
        found = sha256_file(whole)
        kind, _, expected = (self._request.artifact.digest or "").partition(":")
        if kind == "sha256" and expected.lower() != found:
            self.denied = True
            with whole.open("rb") as file:
                find_directory(file)  # a page, or half an archive, has a name of its own
            raise Unusable("artifact-corrupt", f"expected bytes with sha256 {expected}, found {found}")
        kept = self._shelf.keep_archive(whole, found)
        self._shelf.drop_parts()
        return self._unpacked(kept, wanted)

    def _true_size(self) -> int | None:
        """The archive's size by the server that has it; None if it is small, or sent whole."""
        said = self._request.artifact.size
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

    def _by_ranges(self, total: int, wanted: Wanted) -> Obtained | None:
        """The wanted members by their own bytes; None if that would be most of the archive."""
        with closing(RangeFile(total, self._download.byte_range)) as remote:
            remote.add(max(0, total - _TAIL), total)

            def bring(missing: list[Member]) -> bool:
                spans = merge_spans((member.start, member.end) for member in missing)
                if span_bytes(spans) > _MOST * total:
                    return False
                self._watch.begin(self._watch.received + span_bytes(spans))
                for span in spans:
                    remote.add(*span)
                return True

            archive = Archive(cast("BinaryIO", remote), self._limits)
            found = self._shelf.unpack(archive, wanted, bring)
        if found is not None:
            self._shelf.drop_parts()
        return found

    def _unpacked(self, path: Path, wanted: Wanted) -> Obtained:
        with path.open("rb") as file:
            found = self._shelf.unpack(Archive(file, self._limits), wanted)
        assert found is not None, "nothing was to be brought"  # noqa: S101
        return found
