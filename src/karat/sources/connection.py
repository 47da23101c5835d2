"""A connection to one forge: the client, the cache and the transfers that belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from karat.sources.archive import Limits
from karat.sources.cache import Cache
from karat.sources.client import Advice, Client
from karat.sources.crew import crew_size, in_parallel
from karat.sources.download import Address
from karat.sources.listing import Artifact, Fetched, Progress
from karat.sources.patience import Patience
from karat.sources.tokens import Token
from karat.sources.transfer import Errand, Transfer
from karat.sources.unusable import Unusable

Notice = Callable[[str], None]


class Connection:
    """What GitHub and GitLab have in common."""

    def __init__(  # noqa: PLR0913 - every part can be replaced by a test
        self,
        root: str,
        token: Token | None,
        env: Mapping[str, str],
        *,
        headers: Mapping[str, str],
        patience: Patience | None = None,
        limits: Limits | None = None,
        notice: Notice | None = None,
        advice: Advice | None = None,
    ) -> None:
        self.workers = crew_size(env)
        self._cache = Cache(env, notice=notice)
        self.client = Client(
            root,
            token,
            headers=headers,
            patience=patience,
            answers=self._cache.answers,
            connections=self.workers,
            notice=notice,
            advice=advice,
        )
        self._transfer = Transfer(self.client, self._cache, workers=self.workers, limits=limits)

    def gather(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Runs questions side by side; the first that fails ends it."""
        for _ in in_parallel(tasks, self.workers, stop=self.client.stop):
            pass

    def fetch(
        self,
        artifacts: Sequence[Artifact],
        errand: Callable[[Artifact], Errand],
        wanted: Callable[[str], bool],
        progress: Progress | None,
    ) -> Iterator[Fetched]:
        """One `Fetched` per artifact; those that are gone first, as they take no time."""
        gone = {a.id for a in artifacts if a.expired and a.url is None}
        for artifact in (a for a in artifacts if a.id in gone):
            expired = Unusable(
                "artifact-expired", "expected it on the server, found that it has expired there"
            )
            finding = expired.finding(artifact.name, errand(artifact).remake)
            yield Fetched(artifact=artifact, findings=(finding,))
        errands = [
            errand_elsewhere(artifact) if artifact.url is not None else errand(artifact)
            for artifact in artifacts
            if artifact.id not in gone
        ]
        yield from self._transfer.run(errands, wanted, progress)

    def close(self) -> None:
        """Lets go of connections and files."""
        self.client.close()
        self._cache.close()


def errand_elsewhere(artifact: Artifact) -> Errand:
    """An artifact at an address of its own; the client knows that the token does not go there."""
    url = artifact.url or ""
    return Errand(artifact=artifact, address=Address(url=url, lasting=False), key=("url", url))
