"""Object storage as artifact downloads meet it: signed URLs, no other credentials, ranges.

It behaves as Azure's does: a request with an Authorization header is refused although its signature
is good, and a suffix range (`bytes=-500`) is ignored, so that the whole blob comes with status 200.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import quote, unquote, urlencode

from factories.faults import Faults
from factories.http_host import Host, Request, Response

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_SECRET = b"only the blob host knows"


@dataclass(frozen=True, kw_only=True)
class Blob:
    """Bytes under a path."""

    body: bytes
    etag: str
    modified: float
    filename: str


class BlobHost:
    """The second host of a forge, on a port of its own."""

    def __init__(self, faults: Faults, log: list[Request]) -> None:
        self.signature_seconds = 600.0
        self._blobs: dict[str, Blob] = {}
        self.host = Host("blob", self.answer, faults, log)

    def put(self, path: str, body: bytes, *, filename: str, modified: float) -> None:
        etag = f'"0x{hashlib.sha256(body).hexdigest()[:15].upper()}"'
        self._blobs[path] = Blob(body=body, etag=etag, modified=modified, filename=filename)

    def signed_url(self, path: str) -> str:
        """A URL that anyone may use for `signature_seconds`."""
        until = f"{time.time() + self.signature_seconds:.3f}"
        query = urlencode({"sv": "2025-11-05", "sp": "r", "se": until, "sig": _sign(path, until)})
        return f"{self.host.url}{quote(path)}?{query}"

    def answer(self, request: Request) -> Response:
        if request.headers.keys() & {"authorization", "private-token", "job-token"}:
            return _refused("AuthenticationFailed", "Only one way of authentication is allowed.")
        path = unquote(request.path)
        query = request.query
        until = query.get("se", "")
        if not hmac.compare_digest(query.get("sig", ""), _sign(path, until)):
            return _refused("AuthenticationFailed", "Signature did not match.")
        if float(until) < time.time():
            return _refused("AuthenticationFailed", "Signature not valid in the given time frame.")
        if request.method not in {"GET", "HEAD"}:
            return _refused("AuthorizationPermissionMismatch", "Only reading is allowed.")
        blob = self._blobs.get(path)
        if blob is None:
            return _refused("BlobNotFound", "The specified blob does not exist.", status=404)
        return serve(request, blob)


class PublicBucket:
    """Object storage that anyone may read and nobody may list, as S3 behaves: what is not there is forbidden."""

    def __init__(self, faults: Faults, log: list[Request]) -> None:
        self._blobs: dict[str, Blob] = {}
        self.host = Host("bucket", self.answer, faults, log)

    def put(self, path: str, body: bytes) -> None:
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        self._blobs[path] = Blob(body=body, etag=etag, modified=1_767_225_600.0, filename=path.rpartition("/")[2])

    def answer(self, request: Request) -> Response:
        if "authorization" in request.headers:
            return _refused("InvalidRequest", "The authorization mechanism is not supported.", status=400)
        blob = self._blobs.get(unquote(request.path))
        return serve(request, blob) if blob else _refused("AccessDenied", "Access Denied")


def serve(request: Request, blob: Blob) -> Response:
    """The blob, or the part that was asked for."""
    match = request.headers.get("if-match")
    if match not in {None, "*", blob.etag}:
        return _refused("ConditionNotMet", "The condition is not met.", status=412)
    headers = {
        "content-type": "application/zip",
        "etag": blob.etag,
        "last-modified": formatdate(blob.modified, usegmt=True),
        "accept-ranges": "bytes",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(blob.filename)}",
    }
    size = len(blob.body)
    wanted = _RANGE.fullmatch(request.range or "")
    unchanged = request.headers.get("if-range") in {None, blob.etag, headers["last-modified"]}
    if wanted is None or not unchanged:
        return Response(headers=headers, body=blob.body)
    start, end = int(wanted[1]), min(int(wanted[2] or size), size - 1)
    if start > end:
        refused = _refused("InvalidRange", "The range is not satisfiable.", status=416)
        refused.headers["content-range"] = f"bytes */{size}"
        return refused
    headers["content-range"] = f"bytes {start}-{end}/{size}"
    return Response(status=206, headers=headers, body=memoryview(blob.body)[start : end + 1])


def _sign(path: str, until: str) -> str:
    digest = hmac.new(_SECRET, f"{path}\n{until}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _refused(code: str, message: str, *, status: int = 403) -> Response:
    page = f"<?xml version='1.0' encoding='utf-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    headers = {"content-type": "application/xml", "x-ms-error-code": code}
    return Response(status=status, headers=headers, body=page.encode())
