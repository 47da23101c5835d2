"""Readers of what servers answer, and of repositories."""

from __future__ import annotations

import json
import re
import ssl
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import cache
from hashlib import sha1, sha256
from pathlib import Path

from factories.forge import Forge
from factories.http_host import Host, Request, Response
from factories.repositories import Repository
from fuzz.reader import Reader, reader, text_of
from karat.findings import KaratError
from karat.hunts.settings import RepositorySettings
from karat.hunts.timelines.git_mirror import Mirror
from karat.hunts.timelines.packages import releases
from karat.hunts.timelines.timeline import Workspace
from karat.net import package_index
from karat.net.client import Retry
from karat.net.registry import Registry, challenge_of, parse, stored_login
from karat.policy.approvals import reviews
from karat.policy.approvals.forges import GitHubReviews, GitLabReviews, ReviewForge
from karat.policy.approvals.request import Options
from karat.sources.github import GitHub
from karat.sources.gitlab import GitLab
from karat.system.git import TreeComparison, history, tree_paths


class _Answers:
    """A host on loopback that answers each path with a section of the input: `=== /path TYPE` and a body."""

    def __init__(self) -> None:
        from factories.faults import Faults

        # Each client reads all certificates there are, for a host that has none.
        ssl.create_default_context = cache(ssl.create_default_context)  # type: ignore[assignment]
        self.sections: dict[str, tuple[str, bytes]] = {}
        self.log: list[Request] = []
        self.host = Host("api", self._answer, Faults(), self.log).start()

    def _answer(self, request: Request) -> Response:
        kind, body = self.sections.get(request.path, ("", b""))
        if not kind:
            return Response(status=404, headers={"Content-Type": "application/json"}, body=b"{}")
        headers = {"Content-Type": kind}
        if kind.startswith("application/vnd.oci"):
            headers["Docker-Content-Digest"] = f"sha256:{sha256(body).hexdigest()}"
        return Response(headers=headers, body=b"" if request.method == "HEAD" else body)

    def serve(self, data: bytes) -> None:
        self.log.clear()
        self.sections.clear()
        for part in re.split(rb"(?m)^=== ", data)[1:]:
            head, _, body = part.partition(b"\n")
            path, _, kind = head.decode("ascii", "replace").partition(" ")
            self.sections[path] = (kind if re.fullmatch(r"[a-z+./0-9-]+", kind) else "application/json", body)


def _section(path: str, body: bytes, kind: str = "application/json") -> bytes:
    return b"=== %s %s\n%s\n" % (path.encode(), kind.encode(), body)


_AT_ONCE = Retry(attempts=1, connect_attempts=1, first_wait=0.0, limit_wait=0.0, sleep=lambda _: None)


def _recorded(ask: Callable[[str, Retry], object], build: Callable[[Forge], object]) -> bytes:
    """What a real conversation with a forge was answered with."""
    with Forge() as forge:
        build(forge)
        sections: dict[str, bytes] = {}
        plain = forge._answer

        def noted(request: Request) -> Response:
            response = plain(request)
            if response.status == 200:
                sections[request.path] = bytes(response.body)
            return response

        forge.api._answer = noted
        ask(forge.api.url, _AT_ONCE)
    return b"".join(_section(path, body) for path, body in sections.items())


def _conversation(ask: Callable[[str, Retry], object], build: Callable[[Forge], object]) -> Reader:
    seed = _recorded(ask, build)
    answers = _Answers()

    def read(data: bytes) -> None:
        answers.serve(data)
        ask(answers.host.url, _AT_ONCE)

    return Reader((seed,), read)


def _env(url: str, folder: Path) -> dict[str, str]:
    with_gitlab = f"{url}/api/v4"
    return {
        "GITHUB_API_URL": url, "GITHUB_TOKEN": "ghs_ForgeTokenForTests0123456789abcdef", "CI_API_V4_URL": with_gitlab,
        "GITLAB_TOKEN": "glpat-ForgeTokenForTests01", "KARAT_CACHE_DIR": str(folder / "cache"),
    }  # fmt: skip


@reader("GitHub's runs")
def _github(folder: Path) -> Reader:
    def ask(url: str, retry: Retry) -> None:
        with closing(GitHub("owner/name", run_id=7, env=_env(url, folder), retry=retry)) as source:
            source.listing()

    def build(forge: Forge) -> None:
        run = forge.github.run("owner/name", run_id=7)
        run.job("gpt - dev", conclusion="failure", labels=["dgx-h100"])
        run.artifact("logs-gpt", {"golden.json": b"{}"})

    return _conversation(ask, build)


@reader("GitLab's pipelines")
def _gitlab(folder: Path) -> Reader:
    def ask(url: str, retry: Retry) -> None:
        with closing(GitLab("group/name", 7, env=_env(url, folder), retry=retry)) as source:
            source.listing()

    def build(forge: Forge) -> None:
        job = forge.gitlab.pipeline("group/name", pipeline_id=7).job("gpt", status="failed")
        job.artifact({"golden.json": b"{}"})

    return _conversation(ask, build)


def _reviews(kind: type[ReviewForge], build: Callable[[Forge], object]) -> Reader:
    def ask(url: str, retry: Retry) -> None:
        options = Options(base="main", env=_env(url, Path()), retry=retry)
        with closing(kind("octo/goldens", 12, options)) as forge:
            reviews.latest_reviews(forge.request())
            forge.email_of("ann")

    return _conversation(ask, build)


@reader("GitHub's reviews")
def _github_reviews(_: Path) -> Reader:
    def build(forge: Forge) -> None:
        pull = forge.github.pull("octo/goldens", 12, author="bob", head="a" * 40)
        pull.review("ann")
        pull.commit("a" * 40, "bob", message="x\n\nCo-authored-by: Cy <cy@example.org>")

    return _reviews(GitHubReviews, build)


@reader("GitLab's reviews")
def _gitlab_reviews(_: Path) -> Reader:
    def build(forge: Forge) -> None:
        merge = forge.gitlab.merge_request("octo/goldens", 12, author="bob", head="a" * 40)
        merge.approve("ann")
        merge.commit("a" * 40, "bob@example.org")

    return _reviews(GitLabReviews, build)


@reader("package index")
def _package_index(_: Path) -> Reader:
    listed = {"files": [
        {"filename": "wcwidth-0.2.5-py2.py3-none-any.whl", "url": "a", "requires-python": ">=3.6", "yanked": False,
         "upload-time": "2026-01-01T00:00:00Z"},
        {"filename": "wcwidth-0.2.6.tar.gz", "yanked": "broken", "upload-time": "2026-02-01T00:00:00.5Z"},
    ]}  # fmt: skip
    page = b'<html><a href="/f/wcwidth-0.2.5.tar.gz#sha256=a" data-requires-python="&gt;=3" data-yanked="">x</a></html>'
    answers = _Answers()
    package_index.RETRY = _AT_ONCE

    def read(data: bytes) -> None:
        answers.serve(data)
        address = package_index.IndexAddress(url=f"{answers.host.url}/simple", origin="test")
        releases("wcwidth", package_index.files(address, "wcwidth"), (3, 11))

    seeds = (
        _section("/simple/wcwidth/", json.dumps(listed).encode(), "application/vnd.pypi.simple.v1+json"),
        _section("/simple/wcwidth/", page, "text/html"),
    )
    return Reader(seeds, read)


@reader("registry")
def _registry(_: Path) -> Reader:
    answers = _Answers()
    kind = "application/vnd.oci.image.manifest.v1+json"
    blob = b'{"config": {"Labels": {"org.opencontainers.image.revision": "abc"}}}'
    digest = "sha256:" + sha256(blob + b"\n").hexdigest()
    body = json.dumps({"config": {"digest": digest, "size": len(blob)}, "manifests": []}).encode()
    seed = (
        _section("/v2/", b"{}")
        + _section("/v2/octo/jax/manifests/nightly", body, kind)
        + _section(f"/v2/octo/jax/blobs/{digest}", blob)
    )

    def read(data: bytes) -> None:
        answers.serve(data)
        # Under the digests that they have now.
        for path, (found, content) in list(answers.sections.items()):
            name = f"sha256:{sha256(content).hexdigest()}"
            answers.sections[f"/v2/octo/jax/manifests/{name}"] = answers.sections[f"/v2/octo/jax/blobs/{name}"] = (
                found,
                content,
            )
            answers.sections[path] = (found, content)
        reference = parse(f"127.0.0.1:{answers.host.port}/octo/jax:nightly")
        with closing(Registry(reference, None, pause=lambda _: None)) as registry:
            registry.check()
            if found_digest := registry.digest(reference):
                registry.labels(reference, found_digest)

    return Reader((seed,), read)


@reader("challenge and stored login of a registry")
def _login(folder: Path) -> Reader:
    seeds = (
        b'Bearer realm="https://auth.example.org/token",service="r",scope="repository:a:pull"', b'Basic realm="x", Bearer a=b',
        b'{"auths": {"ghcr.io": {"auth": "YTpi"}, "https://ghcr.io/v2/": {"identitytoken": "x"}}}',
    )  # fmt: skip
    reference = parse("ghcr.io/octo/jax:nightly")
    env = {"REGISTRY_AUTH_FILE": str(folder / "auth.json")}

    def read(data: bytes) -> None:
        challenge_of([data.decode("latin-1")])
        (folder / "auth.json").write_bytes(data)
        stored_login(reference.name, env)

    return Reader(seeds, read)


@reader("image reference")
def _image(_: Path) -> Reader:
    seeds = (
        b"ghcr.io/octo/jax:nightly-2026-01-01",
        b"localhost:5000/a/b@sha256:%s" % (b"a" * 64),
        b"ubuntu",
        b"a.b/c:d",
    )
    return Reader(seeds, text_of(parse))


@reader("git repository")
def _git(folder: Path) -> Reader:
    repository = Repository(folder / "repository")
    repository.write("golden.json", '{"a": 1}')
    base = repository.commit()
    repository.write("golden.json", '{"a": 2}')
    head = repository.commit()
    root = repository.root
    mirror = Mirror(RepositorySettings(name="x", url=str(root)), Workspace(root=folder, work=folder / "work", hunt="h"))
    mirror.path = root / ".git"

    def raw(kind: str, name: str) -> bytes:
        found = zlib.decompress((root / ".git/objects" / name[:2] / name[2:]).read_bytes())
        return f"{kind}\n".encode() + found.partition(b"\0")[2]

    tree = repository.git("rev-parse", "HEAD^{tree}").strip()

    def put(kind: bytes, data: bytes) -> str:
        whole = b"%s %d\0%s" % (kind, len(data), data)
        name = sha1(whole, usedforsecurity=False).hexdigest()
        path = root / ".git/objects" / name[:2] / name[2:]
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_bytes(zlib.compress(whole))
        return name

    def read(data: bytes) -> None:
        kind, _, body = data.partition(b"\n")
        name = put(b"tree" if kind == b"tree" else b"commit", body)
        if kind == b"tree":
            name = put(b"commit", b"tree %s\nparent %s\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n" % (name.encode(), base.encode()))  # fmt: skip
        (root / ".git/refs/heads/main").write_text(f"{name}\n")
        for ask in (
            lambda: tree_paths(root, name),
            lambda: TreeComparison(root, base, name).finish(),
            lambda: mirror.line(base, name),
            lambda: list(mirror.suspects(base, name)),
            lambda: list(history(root, "HEAD", "golden.json", follow=True)),
        ):
            try:
                ask()
            except KaratError:
                continue

    return Reader((raw("commit", head), raw("tree", tree)), read)
