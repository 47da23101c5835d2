"""A desk: a source with a forge and a cache."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from factories.clocks import Clock
from factories.forge import Forge
from factories.forge_github import GitHubArtifact
from karat.net.client import Retry
from karat.sources.github import GitHub
from karat.sources.source import Artifact, Fetched

BIG = random.Random(1).randbytes(2 << 20)
GOLDEN = b'{"lm loss": {"1": 10.9}}' * 40


class Desk:
    """A forge with one run, and sources that look at it."""

    def __init__(self, forge: Forge, folder: Path) -> None:
        self.forge = forge
        self.run = forge.github.run("owner/name", run_id=123)
        self.clock = Clock()
        self.env = {
            "GITHUB_API_URL": forge.github_url,
            "GITHUB_TOKEN": forge.github.token,
            "KARAT_CACHE_DIR": str(folder / "cache"),
        }

    def add(self, name: str, members: Mapping[str, bytes], **more: Any) -> GitHubArtifact:
        return self.run.artifact(name, members, **more)

    def source(self, **more: Any) -> GitHub:
        retry = Retry(sleep=self.clock.sleep)
        return GitHub("owner/name", run_id=123, env=self.env, **{"retry": retry, **more})

    def fetch(
        self,
        wanted: Callable[[str], bool] = lambda name: name.endswith(".json"),
        change: Callable[[Artifact], Artifact] = lambda artifact: artifact,
        progress: Any = None,
    ) -> dict[str, Fetched]:
        source = self.source()
        artifacts = [change(artifact) for artifact in source.listing().artifacts]
        found = {f.artifact.name: f for f in source.fetch(artifacts, wanted, progress)}
        # Before closing: the caller reads members while the source is open.
        contents = {n: {m: p.read_bytes() for m, p in f.members.items()} for n, f in found.items()}
        self.contents = contents
        source.close()
        return found

    def only(self, **more: Any) -> Fetched:
        (fetched,) = self.fetch(**more).values()
        return fetched

    def kind(self, **more: Any) -> str:
        (finding,) = self.only(**more).findings
        assert finding.severity == "fail"
        assert finding.path
        assert (finding.next or "").split()[0] in {"gh", "karat"}
        return finding.kind
