"""A package index on loopback: a simple API as JSON or HTML, wheels and source archives made on the spot."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Self

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
_BACKEND = """
import os, zipfile
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    {body}
"""


def wheel(
    name: str, version: str, modules: Mapping[str, str], requires: Sequence[str] = (), scripts: str = ""
) -> bytes:
    """A pure wheel; `modules` are files by their paths."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        **modules,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if scripts:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}\n"
    rows = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}"
        for path, text in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made.getvalue()


def unbuildable(name: str, version: str) -> bytes:
    """A source archive whose own build backend fails; it needs nothing from any index."""
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": _BACKEND.format(body="raise RuntimeError('this does not build')"),
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


@dataclass(kw_only=True)
class Listed:
    """One file that the index lists."""

    filename: str
    data: bytes = b""
    attributes: dict[str, Any] = field(default_factory=dict)
    """`requires-python`, `yanked`, `upload-time` as the API has them."""


class PackageIndex:
    """A simple API; a context manager that listens while it is open."""

    def __init__(self, *, html: bool = False, password: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.html, self.password, self.tls = html, password, tls
        self.projects: dict[str, list[Listed]] = {}
        self.answers: list[int | str] = []
        """Statuses, or addresses to redirect to, that come first."""
        self.asked: list[tuple[str, str]] = []
        """Paths with their Authorization."""
        self._server = _Server(self)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def add(self, name: str, version: str, text: str = "", *, requires: Sequence[str] = (), **attributes: Any) -> None:
        """A release with one pure wheel, whose module prints or defines what is said."""
        data = wheel(name, version, {f"{name}.py": text}, requires)
        said = {key.replace("_", "-"): value for key, value in attributes.items()}
        self.file(name, f"{name}-{version}-py3-none-any.whl", data, **said)

    def file(self, name: str, filename: str, data: bytes = b"", **attributes: Any) -> None:
        """Any file."""
        said = {key.replace("_", "-"): value for key, value in attributes.items()}
        self.projects.setdefault(name, []).append(Listed(filename=filename, data=data, attributes=said))

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self._server.server_address[1]}/simple"

    @property
    def with_password(self) -> str:
        return self.url.replace("http://", f"http://user:{self.password}@")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path."""
        first, _, name = path.strip("/").partition("/")
        if self.password and authorization != _basic(self.password):
            return 401, "text/plain", b""
        if first == "simple" and name in self.projects:
            return 200, *self.listing(name)
        data = self.bytes_of(name) if first == "files" else None
        if data is not None:
            return 200, "application/octet-stream", data
        return 404, "text/plain", b""

    def listing(self, name: str) -> tuple[str, bytes]:
        """Content type and body of a project's page."""
        files = self.projects[name]
        if self.html:
            return "text/html; charset=utf-8", "".join(map(_anchor, files)).encode()
        listed = [
            {
                "filename": f.filename,
                "url": f"/files/{f.filename}",
                "hashes": {"sha256": hashlib.sha256(f.data).hexdigest()},
                **f.attributes,
            }
            for f in files
        ]
        body = {"meta": {"api-version": "1.1"}, "name": name, "files": listed, "versions": []}
        return JSON_TYPE, json.dumps(body).encode()

    def bytes_of(self, filename: str) -> bytes | None:
        found = [f.data for files in self.projects.values() for f in files if f.filename == filename]
        return found[0] if found else None


def _anchor(file: Listed) -> str:
    said = "".join(
        f' data-{key}="{"" if value is True else escape(str(value))}"'
        for key, value in file.attributes.items()
        if value is not False
    )
    return (
        f'<a href="/files/{file.filename}#sha256={hashlib.sha256(file.data).hexdigest()}"{said}>{file.filename}</a>\n'
    )


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, index: PackageIndex) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.index = index


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.index.asked.append((self.path, self.headers.get("Authorization", "")))
        if self.server.index.answers:
            answer = self.server.index.answers.pop(0)
            moved = isinstance(answer, str)
            self._send(302 if moved else int(answer), "text/plain", b"", str(answer) if moved else "")
        else:
            self._send(*self.server.index.answer(self.path, self.headers.get("Authorization", "")))

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, status: int, kind: str, body: bytes, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"user:{password}".encode()).decode()
