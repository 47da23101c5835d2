"""Transfers: the wanted files of a forge's artifacts, fetched side by side.

Of a large archive only the end is asked for first: there stands what it holds, and then the wanted members' bytes alone are
fetched. If that is most of it, or the server knows no ranges, the whole archive comes, and is verified against its digest
where the server gives one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from karat.findings import CannotVerify
from karat.net.client import Client, Refused, Token, error_text
from karat.net.transport import shown
from karat.sources.cache import SMALL, TAIL, Cache, Changed, Shelf
from karat.sources.source import Artifact, Fetched, Notice, Obtained, Progress, TransferProgress, Wanted, fetch_one
from karat.system.archives import DAMAGE, Limits, Unusable, find_directory
from karat.system.hashes import sha256_file
from karat.system.pool import in_parallel, worker_count
from karat.system.secrets import Secret

if TYPE_CHECKING:
    import httpx

_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18}|\*)")
_A_STEP = 1 << 15  # fewer new bytes than this are no progress, or a hostile server could go on for ever
_LEEWAY = 64 << 20
_BY_STATUS = {401: "artifact-forbidden", 403: "artifact-forbidden", 404: "artifact-missing", 410: "artifact-expired"}


class ArtifactRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One artifact to fetch: where it is, and what it is kept under."""

    artifact: Artifact
    url: str
    key: tuple[str, ...]
    look: str | None = None  # The command that shows the artifact as it is.
    remake: str | None = None  # The command that makes it anew.
    newer: str | None = None
    """The command that finds one that has not expired, where a run that old cannot be run again."""
    elsewhere: bool = False
    """It lies at an address of its own, where nobody needs a token: what is forbidden there is not there.

    And only the server's validator tells versions apart; a forge gives each identifier once.
    """


class Forge(ABC):
    """What GitHub and GitLab have in common: a client with its cache, and artifacts fetched side by side."""

    def __init__(
        self,
        root: str,
        token: Token | None,
        env: Mapping[str, str],
        *,
        limits: Limits | None = None,
        notice: Notice | None = None,
        **rest: Any,
    ) -> None:
        """`rest` is the client's: headers, retry and advice."""
        self._workers = worker_count(env)
        self._limits = limits or Limits()
        self._cache = Cache(env, notice=notice)
        self._client = Client(
            root, token, answers=self._cache.answers, connections=self._workers, notice=notice, **rest
        )

    def fetch(
        self, artifacts: Sequence[Artifact], wanted: Wanted, progress: Progress | None = None
    ) -> Iterator[Fetched]:
        """The wanted files of each artifact, in the order they arrive; those that are gone first, as they take no time."""
        requests = []
        for artifact in artifacts:
            if artifact.url is not None:
                # The client knows that the token does not go there.
                remake = self._request(structs.replace(artifact, id=artifact.job_id or artifact.id)).remake
                key = ("url", artifact.url)
                requests.append(
                    ArtifactRequest(artifact=artifact, url=artifact.url, key=key, remake=remake, elsewhere=True)
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
        self._client.close()
        self._cache.close()

    @abstractmethod
    def _request(self, artifact: Artifact) -> ArtifactRequest:
        """Where the artifact is, and what it is kept under."""

    def _no_such(self, error: Refused, what: str, look: str) -> CannotVerify:
        """That a server says no, in words of what was asked for where it knows no such thing."""
        if error.status not in {404, 422}:
            return error
        said = f"expected {what}, found that there is none, or {self._client.unseen} (HTTP {error.status})"
        return CannotVerify(said, next_command=look)

    def _gather(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Asks questions side by side; the first that fails ends it."""
        for _ in in_parallel(tasks, self._workers, stop=self._client.stop):
            pass

    def _fetched(self, request: ArtifactRequest, wanted: Wanted, progress: Progress | None) -> Fetched:
        def obtain(watch: TransferProgress) -> Obtained:
            try:
                with self._cache.shelf(*request.key) as shelf:
                    fetch = _Fetch(self._client, shelf, request, self._limits, watch)
                    here = fetch.from_shelf(wanted)
                    return shelf.filled_by(partial(fetch.from_server, wanted)) if here is None else here
            except CannotVerify as error:
                status = error.status if isinstance(error, Refused) else None
                kind = _BY_STATUS.get(status or 0, "transfer-failed")
                said = self._client.scrub(str(error))
                if request.elsewhere and kind in {"artifact-forbidden", "artifact-missing"}:
                    kind = "artifact-missing"
                    said = (
                        f"expected it at {shown(request.url)}, found nothing there that anyone may read (HTTP {status})"
                    )
                raise Unusable(kind, said, next_command=error.advice) from None

        def then(problem: Unusable) -> str:
            if problem.kind == "artifact-expired" and request.newer:
                return request.newer
            # What the server has like this, it will have like this the next time.
            if problem.kind in {"artifact-expired", "artifact-missing", *DAMAGE} and request.remake:
                return request.remake
            return problem.next_command or request.look or self._client.advice.again

        return fetch_one(request.artifact, progress, obtain, then)


class _Fetch:
    """One artifact, from its shelf or its server.

    Bytes are appended to files as they come. After a cut, in this process or an earlier one, only the rest is asked for, on
    condition that the artifact is still the same version.
    """

    def __init__(
        self, client: Client, shelf: Shelf, request: ArtifactRequest, limits: Limits, watch: TransferProgress
    ) -> None:
        self._client, self._shelf, self._request, self._limits, self._watch = client, shelf, request, limits, watch
        # A server that names a size means it, give or take how it counts.
        said = request.artifact.size
        self._most = limits.archive if said is None else 2 * max(0, said) + _LEEWAY
        self._place: Secret | None = None
        self._all_here = False

    def from_shelf(self, wanted: Wanted) -> Obtained | None:
        """What an earlier run left, if it is all that is wanted and still the same."""
        validator = self._shelf.record.validator
        if self._shelf.record.names is not None and self._request.elsewhere:
            same = False
            if validator:  # asked without fetching it
                key = "If-None-Match" if validator.startswith('"') else "If-Modified-Since"
                with self._client.open(self._request.url, {key: validator}) as response:
                    same = response.status_code == 304
            if not same:
                self._shelf.forget()
        return self._shelf.complete(wanted)

    def from_server(self, wanted: Wanted) -> Obtained:
        """The wanted members by ranges where that saves bytes, else out of the whole archive."""
        self._all_here = False
        said = self._request.artifact.size
        total = None  # The archive's size by the server that has it; it stays None if it is small, or sent whole.
        if said is None or said > SMALL:
            total = self._probe(0, SMALL) if said is None else self._probe(max(0, said - TAIL), said)
            if said is not None and total is not None and said > total > SMALL:
                # The API knows another size than the store; some count what is unpacked.
                total = self._probe(total - TAIL, total)
        if total is not None and total > SMALL:
            found = self._shelf.unpack_ranges(total, self._byte_range, self._limits, wanted, self._watch)
            if found is not None:
                return found
        self._watch.begin(total or said)
        whole = self._byte_range(0, total if total and total <= SMALL else None)
        # The whole archive must be what the server's digest says.
        kind, _, expected = (self._request.artifact.digest or "").partition(":")
        if kind == "sha256" and expected.lower() != (found_digest := sha256_file(whole)):
            with whole.open("rb") as file:
                find_directory(file)  # a page, or half an archive, has a name of its own
            raise Unusable("artifact-corrupt", f"expected bytes with sha256 {expected}, found {found_digest}")
        return self._shelf.unpack_file(whole, self._limits, wanted)

    def _probe(self, start: int, end: int) -> int | None:
        """Asks for one range; the true size of the archive, if the server gives ranges.

        A server that only sends the whole has then sent it, so that nothing was asked in vain.
        """
        headers = {"Range": f"bytes={start}-{end - 1}"}
        with self._client.open(self._request.url, headers) as response:
            _, total = _content_range(response)
            if response.status_code == 200:
                self._start_over(response, self._shelf.part(0, None))
                return None
            if response.status_code == 206 and total is not None:
                self._place = self._client.redirected(response)
                self._shelf.belongs_to(_validator(response))
                end = min(end, total)
                self._attempt(response, self._shelf.part(start, end), start, end)
        return total

    def _byte_range(self, start: int, end: int | None) -> Path:
        """The bytes from `start` up to `end`, or as far as the server has them, as a file of their own."""
        path = self._shelf.part(start, end)
        if end is None and self._all_here:
            return path
        failures, best = 0, _size(path)
        while True:
            trouble = self._bring(path, start, end)
            have = _size(path)
            if trouble is None and (end is None or have == end - start):
                return path
            failures = 0 if have - best >= _A_STEP else failures + 1
            best = max(best, have)
            if failures >= self._client.retry.attempts:
                raise Unusable(
                    "transfer-failed",
                    f"expected a download that ends, found it cut after {have:,} bytes "
                    f"{self._client.retry.attempts} times ({trouble or 'too few bytes'})",
                )
            self._client.pause(max(failures, 1))

    def _bring(self, path: Path, start: int, end: int | None) -> str | None:
        """One request for what is still missing; what went wrong, if the body did not end well."""
        have, validator = _size(path), self._shelf.record.validator
        if have and ((self._request.elsewhere and not validator) or (end is not None and have > end - start)):
            path.unlink()  # it may not be gone on from
            have = 0
        if end is not None and have == end - start:
            return None
        headers = {}
        if end is not None or have:
            headers = {"Range": f"bytes={start + have}-{'' if end is None else end - 1}"}
            headers |= {"If-Range": validator} if validator else {}
        with self._client.open(self._request.url, headers, at=self._place) as response:
            if response.status_code == 206:
                ours, theirs = self._shelf.record.validator, _validator(response)
                if ours and theirs and ours != theirs:
                    raise Changed
                return self._attempt(response, path, start, end)
            if response.status_code == 416:
                _, total = _content_range(response)
                if end is None and total is not None and total == _size(path):
                    return None
                path.unlink(missing_ok=True)
                return "a range that the server does not have"
            if end is not None:
                raise Changed
            return self._start_over(response, path)

    def _start_over(self, response: httpx.Response, path: Path) -> str | None:
        self._shelf.belongs_to(_validator(response))
        path.unlink(missing_ok=True)
        length = response.headers.get("content-length", "")
        self._watch.begin(int(length) if length.isdigit() else None)
        trouble = self._attempt(response, path, 0, None)
        self._all_here = trouble is None
        return trouble

    def _attempt(self, response: httpx.Response, path: Path, start: int, end: int | None) -> str | None:
        """Takes what comes of a body; what went wrong, if it did not end well."""
        import httpx

        try:
            have = _size(path)
            if response.status_code == 206 and _content_range(response)[0] != start + have:
                return "another range than the one asked for"
            room = (self._most if end is None else end - start) - have
            with path.open("ab", buffering=0) as file:
                for piece in response.iter_raw():
                    file.write(piece[:room])
                    room -= len(piece)
                    self._watch.advance(len(piece))
                    self._client.check_stopped()
                    if room < 0:
                        if end is None:
                            said = f"expected a download of at most {self._most:,} bytes, found that it goes on"
                            raise Unusable("archive-refused", said)
                        break
        except httpx.RequestError as error:
            return self._client.scrub(error_text(error))
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _validator(response: httpx.Response) -> str:
    """What tells this version from others, if anything does; weak ETags do not."""
    etag: str = response.headers.get("etag", "")
    found = etag if etag.startswith('"') else response.headers.get("last-modified", "")
    return found if found.isascii() else ""  # what cannot be sent back is no use


def _content_range(response: httpx.Response) -> tuple[int | None, int | None]:
    """The first byte and the whole size, where the server says them."""
    found = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", "").strip())
    first, total = found.groups() if found else (None, None)
    return int(first) if first else None, int(total) if total and total != "*" else None
