"""A registry on loopback: Debian's docker-registry, and images that are pushed to it without any engine.

An image is written as bytes: a shared layer with busybox, and one small layer with the files of that night. Forty of
them are pushed in a second or two, which no engine's build and push could do.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Self

import httpx

from conftest import missing

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_APPLETS = (
    "sh",
    "sleep",
    "cat",
    "echo",
    "env",
    "true",
    "false",
    "awk",
    "sed",
    "ls",
    "mkdir",
    "cp",
    "rm",
    "kill",
    "head",
    "tail",
    "grep",
    "test",
    "touch",
    "expr",
    "date",
    "id",
    "pwd",
    "wc",
    "ps",
)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def packed(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    """A layer as a tar archive; every file may be run."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as archive:
        folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return held.getvalue()


@cache
def busybox() -> bytes:
    """A layer with a static busybox and a few of its names."""
    program = shutil.which("busybox") or missing("busybox (apt install busybox-static)")
    return packed(
        {"bin/busybox": Path(program).read_bytes(), "tmp/.keep": b""}, {f"bin/{name}": "busybox" for name in _APPLETS}
    )


@dataclass(frozen=True, kw_only=True)
class Image:
    """What is in an image."""

    layers: tuple[bytes, ...] = ()
    """Tar archives, beside busybox."""
    labels: Mapping[str, str] = field(default_factory=dict)
    env: tuple[str, ...] = ("PATH=/bin",)
    bare: bool = False
    """Without busybox: nothing in it can be run."""

    @property
    def stack(self) -> tuple[bytes, ...]:
        return self.layers if self.bare else (busybox(), *self.layers)

    def config(self) -> bytes:
        return json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Env": list(self.env), "Labels": dict(self.labels), "Cmd": ["sh"]},
                "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in self.stack]},
            }
        ).encode()


@cache
def _squeezed(layer: bytes) -> bytes:
    return gzip.compress(layer, 1, mtime=0)


class Registry:
    """Debian's docker-registry on a free port of loopback, with a storage folder of its own."""

    def __init__(self, folder: Path, *, htpasswd: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._program = shutil.which("docker-registry") or missing("docker-registry (apt install docker-registry)")
        self.port = _free_port()
        self._settings = folder / "registry.json"
        auth = {}
        if htpasswd:
            (folder / "htpasswd").write_text(htpasswd)
            auth = {"auth": {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}}
        # JSON is YAML.
        self._settings.write_text(
            json.dumps(
                {
                    "version": "0.1",
                    "log": {"level": "error"},
                    "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}, "delete": {"enabled": True}},
                    "http": {"addr": f"127.0.0.1:{self.port}"},
                    **auth,
                }
            )
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.login: tuple[str, str] | None = None
        """What pushes of the test itself are signed with."""
        self._there: set[tuple[str, str]] = set()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def __enter__(self) -> Self:
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, "serve", str(self._settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # It takes every REGISTRY_… for a setting, podman's REGISTRY_AUTH_FILE as well.
                env={k: v for k, v in os.environ.items() if not k.startswith("REGISTRY_")},
            )
        for _ in range(500):
            if self._process.poll() is not None:
                break
            try:
                httpx.get(f"{self.url}/v2/")
            except httpx.TransportError:
                time.sleep(0.02)
            else:
                return self
        said = (self.folder / "log").read_text()
        self.__exit__()
        raise RuntimeError(f"docker-registry did not start: {said}")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, auth=self.login, timeout=30)

    def push(self, repository: str, tag: str, image: Image) -> str:
        """The manifest's digest."""
        with self.client() as client:
            config = image.config()
            self._blob(client, repository, config)
            layers = []
            for layer in image.stack:
                squeezed = _squeezed(layer)
                self._blob(client, repository, squeezed)
                layers.append(_described(LAYER, squeezed))
            manifest = {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _described(CONFIG, config),
                "layers": layers,
            }
            return self._manifest(client, repository, tag, manifest)

    def push_index(self, repository: str, tag: str, image: Image) -> str:
        """The digest of a list of manifests, of which one is for this machine."""
        others = Image(bare=True, labels=dict.fromkeys(image.labels, "another machine's"))
        pushed = {"s390x": others, "amd64": image}
        entries = []
        with self.client() as client:
            for architecture, each in pushed.items():
                inner = self.push(repository, f"{tag}-{architecture}", each)
                answer = client.get(f"/v2/{repository}/manifests/{inner}", headers={"Accept": MANIFEST})
                platform = {"os": "linux", "architecture": architecture}
                entries.append({**_described(MANIFEST, answer.content), "platform": platform})
            index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
            return self._manifest(client, repository, tag, index)

    def delete_blob(self, repository: str, digest: str) -> None:
        """An image that is there, and cannot be pulled."""
        with self.client() as client:
            client.delete(f"/v2/{repository}/blobs/{digest}").raise_for_status()

    def _blob(self, client: httpx.Client, repository: str, content: bytes) -> None:
        digest = digest_of(content)
        if (repository, digest) in self._there:
            return
        started = client.post(f"/v2/{repository}/blobs/uploads/")
        started.raise_for_status()
        where = httpx.URL(started.headers["location"]).copy_merge_params({"digest": digest})
        client.put(where, content=content).raise_for_status()
        self._there.add((repository, digest))

    def _manifest(self, client: httpx.Client, repository: str, tag: str, manifest: Mapping[str, object]) -> str:
        content = json.dumps(manifest).encode()
        answer = client.put(
            f"/v2/{repository}/manifests/{tag}", content=content, headers={"Content-Type": str(manifest["mediaType"])}
        )
        answer.raise_for_status()
        return digest_of(content)


def _described(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
