"""Push, pull and gc against a real S3-speaking server, with faults injected and the client killed.

Cut connections, 503s, answers that get lost, silence, and kill −9 at random seeded moments: nothing is lost,
and nothing is half-visible.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from factories.captured import capture, capture_many, identity
from factories.s3_proxy import KINDS, S3Proxy
from factories.stores import case, cases, contents, files_below, pulled, pushed
from karat.findings import CannotVerify
from karat.store import references
from karat.store.backends import Backend, open_backend
from karat.store.gc import GcOptions, collect
from karat.store.pull import PullOptions, pull
from karat.store.verify import verify_store

QUICK = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=2), "max_backoff": timedelta(milliseconds=20), "base": 2},
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as ever, but without long waits in between."""
    monkeypatch.setattr("karat.net.buckets._RETRY", QUICK)
    monkeypatch.setattr("karat.store.backends.bucket._FIRST_WAIT", 0.002)
    monkeypatch.setattr("karat.store.backends.bucket._LONGEST_WAIT", 0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_whatever_befalls_the_network_all_is_done_and_whole(s3: S3Proxy, tmp_path: Path) -> None:
    for seed in range(3):
        backend = open_backend(f"s3://{s3.bucket()}/store")
        s3.trouble(0.15, seed)
        first = pushed(backend, cases(5))
        pushed(backend, cases(5, changed=2), pin="why")
        assert pulled(backend, "models/nightly", tmp_path / f"{seed}") == contents(cases(5, changed=2))
        backend.put("expiring/sha256/00/" + "0" * 64, b"orphan")
        assert collect(backend, GcOptions(grace=0)).freed >= 6
        pull(backend, first.digest, tmp_path / f"{seed}-old", PullOptions())
        s3.trouble(0.0, 0)
        told = verify_store(backend)
        assert (told.findings, told.orphans) == ((), 0)
        assert files_below(tmp_path / f"{seed}-old") == contents(cases(5))
        # An answer that got lost is no second reference.
        assert len(references.entries(backend)) == 2
        assert list(backend.list("pushes/")) == list(backend.list("gc/")) == []
    assert set(s3.struck) == set(KINDS), "every kind of fault must have struck"


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_gone_is_no_answer_and_nothing_is_visible(
    s3: S3Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("karat.store.backends.bucket._ATTEMPTS", 2)
    backend = open_backend(f"s3://{s3.bucket()}/store")
    pushed(backend, cases(1), "models/old")
    for at in (1, 6, 14, 25):
        s3.requests.clear()

        def fate(at: int = at) -> str | None:
            return "refused" if len(s3.requests) >= at else None

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(s3, "fate", fate)
            with pytest.raises(CannotVerify, match=r"HTTP 503|no answer"):
                pushed(backend, cases(4))
        assert [entry.name for entry in references.entries(backend)] == ["models/old"]
        assert verify_store(backend).findings == ()
    pushed(backend, cases(4))
    assert pulled(backend, "models/nightly", tmp_path / "out") == contents(cases(4))


class Client:
    """karat in processes of its own, which can be killed."""

    def __init__(self, s3: S3Proxy, url: str, cwd: Path) -> None:
        self.s3, self.cwd = s3, cwd
        self.env = {**{k: v for k, v in os.environ.items() if k != "CI"}, **s3.environment, "KARAT_STORE": url}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "karat", *words, "-q"],
            cwd=self.cwd,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str) -> None:
        """To its end, and well."""
        process = self.start(*words)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()

    def kill_amid(self, requests: int, *words: str) -> bool:
        """Kill −9 once the server has seen so many requests; False if it was done before."""
        self.s3.requests.clear()
        process = self.start(*words)
        self.s3.alarm = (requests, process.kill)  # it takes a while to start
        process.communicate(timeout=120)
        self.s3.alarm = None
        return process.returncode == -9

    def count(self, *words: str) -> int:
        """How many requests it takes."""
        self.s3.requests.clear()
        self.run(*words)
        return len(self.s3.requests)


@pytest.fixture
def store(s3: S3Proxy) -> Backend:
    return open_backend(f"s3://{s3.bucket()}/golden")


@pytest.fixture
def client(s3: S3Proxy, store: Backend, tmp_path: Path) -> Client:
    return Client(s3, store.url, tmp_path)


@pytest.mark.slow
def test_pushes_killed_at_random_moments(s3: S3Proxy, store: Backend, client: Client, tmp_path: Path) -> None:
    capture_many(tmp_path / "captures", 4)
    whole = client.count("push", "captures", "models/counted")
    dice, killed = random.Random(4), 0
    for i in range(8):
        # Something new each time, so that there is something to send.
        capture(tmp_path / "captures", identity(f"test_new[{i}]"), program=dice.randbytes(200_000))
        before = {entry.key for entry in references.entries(store)}
        killed += client.kill_amid(dice.randrange(2, whole), "push", "captures", "models/nightly")
        assert len({entry.key for entry in references.entries(store)} - before) <= 1
        assert verify_store(store).findings == ()
    assert killed >= 5, "the moments were not random enough to prove anything"
    there = {one.key for one in store.list("expiring/")}
    s3.requests.clear()
    client.run("push", "captures", "models/nightly")
    sent = {path.split("?")[0] for method, path, _ in s3.requests if method == "PUT"}
    assert not {path for path in sent if path.partition("/golden/")[2] in there}
    client.run("pull", "models/nightly", "out")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "captures")


@pytest.mark.slow
def test_pulls_killed_at_random_moments(store: Backend, client: Client, tmp_path: Path) -> None:
    some = cases(12)
    pushed(store, some)
    whole = client.count("pull", "models/nightly", "counted")
    dice, killed = random.Random(5), 0
    for _ in range(6):
        killed += client.kill_amid(dice.randrange(3, whole), "pull", "models/nightly", "out")
        if (tmp_path / "out").exists():
            break
    assert killed >= 2
    rest = client.count("pull", "models/nightly", "out")
    assert rest <= whole
    assert files_below(tmp_path / "out") == contents(some)
    assert not list(tmp_path.glob(".karat-pull-*"))


@pytest.mark.slow
def test_collections_killed_at_random_moments(store: Backend, client: Client, tmp_path: Path) -> None:
    dice, killed = random.Random(6), 0
    pushed(store, cases(3), "models/kept", pin="why")
    for i in range(6):
        for number in range(3):
            key = random.Random(f"{i} {number}").randbytes(32).hex()
            store.put(f"expiring/sha256/{key[:2]}/{key}", b"nobody needs this")
        gone = pushed(store, [case(50 + i)], "models/nightly")
        references.forget(store, references.entries(store, "models/nightly"))
        killed += client.kill_amid(dice.randrange(3, 25), "gc", "--grace", "0")
        lost = [finding for finding in verify_store(store).findings if "expected it to be there" in finding.message]
        assert lost == [], gone
    assert killed >= 3
    # The marker of a killed collector stops nobody: its process is known to be no more.
    client.run("gc", "--grace", "0")
    told = verify_store(store)
    assert (told.findings, told.orphans, len(references.entries(store))) == ((), 0, 1)
    assert list(store.list("gc/")) == []
    assert pulled(store, "models/kept", tmp_path / "out") == contents(cases(3))


@pytest.mark.slow
def test_pushes_and_collections_at_once(store: Backend, client: Client, tmp_path: Path) -> None:
    capture_many(tmp_path / "captures", 3)
    client.run("push", "captures", "models/a")
    for i in range(2):
        references.forget(store, references.entries(store))  # all is garbage now
        capture(tmp_path / "captures", identity(f"test_new[{i}]"))
        words = [("push", "captures", "models/a"), ("push", "captures", "models/b"), ("gc", "--grace", "0")]
        running = [client.start(*one) for one in words]
        for process in running:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said.decode()
        names = {entry.name for entry in references.entries(store)}
        assert names == {"models/a", "models/b"}
        assert verify_store(store).findings == ()
    assert pulled(store, "models/b", tmp_path / "out") == files_below(tmp_path / "captures")
