"""A download: bytes of one artifact, or ranges of it, brought to its shelf.

Bytes are appended to a file as they come. After a cut, in this process or an earlier one, only the
rest is asked for, on condition that the artifact is still the same version.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from karat.net.client import Client, error_text
from karat.sources.cache import Shelf
from karat.sources.source import TransferProgress
from karat.system.archives import Unusable
from karat.system.secrets import Secret

if TYPE_CHECKING:
    import httpx

_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)")
_A_STEP = 1 << 15  # fewer new bytes than this are no progress, or a hostile server could go on for ever


class ArtifactAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where an artifact is, and whether that address ever means other bytes."""

    url: str
    lasting: bool  # An identifier that is given once; otherwise only the server's validator tells versions apart.


class Cut(Unusable):
    """The body broke off again and again; what came of it stays, for the next time."""


class Changed(Exception):  # noqa: N818 - a state of the artifact
    """The artifact is not the one whose first bytes are here."""


class Download:
    """One artifact on its way to a shelf."""

    def __init__(
        self, client: Client, shelf: Shelf, address: ArtifactAddress, watch: TransferProgress, *, most: int
    ) -> None:
        self._client, self._shelf, self._address, self._watch, self._most = client, shelf, address, watch, most
        self._place: Secret | None = None
        self._all_here = False
        self.total: int | None = None  # the true size of the archive, once a range was answered

    def still_the_same(self) -> bool:
        """Whether what lies on the shelf is what a request would bring; asked without fetching it."""
        validator = self._shelf.record.validator
        if self._address.lasting:
            return True
        if not validator:
            return False
        key = "If-None-Match" if validator.startswith('"') else "If-Modified-Since"
        with self._client.open(self._address.url, {key: validator}) as response:
            return response.status_code == 304

    def probe(self, start: int, end: int) -> bool:
        """Asks for one range; True if the server gives ranges; `total` is then known.

        A server that only sends the whole has then sent it, so that nothing was asked in vain.
        """
        headers = {"Range": f"bytes={start}-{end - 1}"}
        with self._client.open(self._address.url, headers) as response:
            _, _, self.total = _content_range(response)
            if response.status_code == 206 and self.total is not None:
                self._place = self._client.redirected(response)
                self._shelf.belongs_to(_validator(response))
                end = min(end, self.total)
                self._attempt(response, self._shelf.part(start, end), start, end)
            elif response.status_code == 200:
                self.total = None
                self._start_over(response, self._shelf.part(0, None))
        return self.total is not None

    def byte_range(self, start: int, end: int) -> Path:
        """The bytes from `start` up to `end`, as a file of their own."""
        path = self._shelf.part(start, end)
        self._complete(path, start, end)
        return path

    def whole(self) -> Path:
        """All bytes, as far as the server has them."""
        path = self._shelf.part(0, None)
        if not self._all_here:
            self._complete(path, 0, None)
        return path

    def _complete(self, path: Path, start: int, end: int | None) -> None:
        failures, best = 0, _size(path)
        while True:
            trouble = self._bring(path, start, end)
            have = _size(path)
            if trouble is None and (end is None or have == end - start):
                return
            failures = 0 if have - best >= _A_STEP else failures + 1
            best = max(best, have)
            if failures >= self._client.retry.attempts:
                raise Cut(
                    "transfer-failed",
                    f"expected a download that ends, found it cut after {have:,} bytes "
                    f"{self._client.retry.attempts} times ({trouble or 'too few bytes'})",
                )
            self._client.pause(max(failures, 1))

    def _bring(self, path: Path, start: int, end: int | None) -> str | None:
        """One request for what is still missing; what went wrong, if the body did not end well."""
        have, validator = _size(path), self._shelf.record.validator
        if have and (not (self._address.lasting or validator) or (end is not None and have > end - start)):
            path.unlink()  # it may not be gone on from
            have = 0
        if end is not None and have == end - start:
            return None
        headers = {}
        if end is not None or have:
            headers = {"Range": f"bytes={start + have}-{'' if end is None else end - 1}"}
            headers |= {"If-Range": validator} if validator else {}
        with self._client.open(self._address.url, headers, at=self._place) as response:
            if response.status_code == 206:
                ours, theirs = self._shelf.record.validator, _validator(response)
                if ours and theirs and ours != theirs:
                    raise Changed
                return self._attempt(response, path, start, end)
            if response.status_code == 416:
                _, _, total = _content_range(response)
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


def _content_range(response: httpx.Response) -> tuple[int | None, int | None, int | None]:
    """First byte, last byte and whole size, where the server says them."""
    found = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", "").strip())
    if not found:
        return None, None, None
    first, last, total = (int(text) if text and text != "*" else None for text in found.groups())
    return first, last, total


Span = tuple[int, int]  # A range of bytes: its start, and the first place after it.

# A neighbour this close costs less to fetch along than another request would.
_GAP = 1 << 16
_MOST_SPANS = 8


class RangeFile(io.RawIOBase):
    """A file of `size` bytes; what is missing is brought when it is read."""

    def __init__(self, size: int, bring: Callable[[int, int], Path]) -> None:
        self._size, self._bring = size, bring
        self._position = 0
        self._here: list[tuple[int, int, BinaryIO]] = []

    def add(self, start: int, end: int) -> None:
        """Brings one range now."""
        if end > start:
            self._here.append((start, end, self._bring(start, end).open("rb")))

    def close(self) -> None:
        for _, _, file in self._here:
            file.close()
        self._here.clear()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a place before the start of the file")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fills the buffer as far as the file goes: readers of archives count on whole reads."""
        end = min(self._position + len(buffer), self._size)
        wanted = max(0, end - self._position)
        filled = 0
        while filled < wanted:
            piece = self._read_some(self._position, end)
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
            self._position += len(piece)
        return filled

    def _read_some(self, start: int, end: int) -> bytes:
        for first, last, file in self._here:
            if first <= start < last:
                file.seek(start - first)
                piece = file.read(min(end, last) - start)
                if not piece:
                    raise EOFError("a range is shorter than it was")
                return piece
        following = min((first for first, _, _ in self._here if first > start), default=end)
        self.add(start, min(end, following))
        return self._read_some(start, end)


def merge_spans(spans: Iterable[Span], *, gap: int = _GAP, most: int = _MOST_SPANS) -> list[Span]:
    """Stretches that cover all spans: near neighbours become one, and there are at most `most`."""
    joined: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined if len(joined) <= most else merge_spans(joined, gap=max(1, gap * 2), most=most)


def span_bytes(spans: Iterable[Span]) -> int:
    """How many bytes the ranges hold."""
    return sum(end - start for start, end in spans)
