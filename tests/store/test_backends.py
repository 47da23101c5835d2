"""What every kind of backend promises."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from factories.ends import ends
from factories.s3_proxy import S3Proxy
from factories.stores import cases, pushed
from karat.findings import CannotVerify, UsageError
from karat.store import references
from karat.store.backends import (
    BUILT_IN,
    Absent,
    Backend,
    StoreProblem,
    create_store,
    is_store,
    open_backend,
    open_store,
    store_url,
)
from karat.store.backends.folder import FolderBackend
from karat.store.place import open_snapshot
from karat.store.verify import verify_store


@pytest.mark.slow
def test_what_was_put_is_there_and_only_once(backend: Backend) -> None:
    assert backend.put("a/b/c", b"first")
    assert not backend.put("a/b/c", b"second")
    assert backend.get("a/b/c") == b"first"
    assert backend.put("a/b/c", b"third", replace=True)
    assert backend.get("a/b/c") == b"third"
    found = backend.head("a/b/c")
    assert found is not None
    assert (found.key, found.size) == ("a/b/c", 5)


def test_nothing_is_absent_and_not_an_error(backend: Backend) -> None:
    backend.put("a/b", b"")
    assert backend.get("a/b") == b""
    assert backend.head("a/c") is None
    assert backend.head("a/b/c") is None
    with pytest.raises(Absent):
        backend.get("a/c")
    with pytest.raises(Absent):
        backend.copy("a/c", "a/d")
    backend.delete(["a/c"])
    assert list(backend.list("nothing/")) == []


@pytest.mark.slow
def test_listing_copying_deleting(backend: Backend) -> None:
    keys = [f"x/{i:02}/{i}" for i in range(40)]
    for key in keys:
        backend.put(key, key.encode())
    backend.put("y/0", b"other")
    assert sorted(one.key for one in backend.list("x/")) == sorted(keys)
    assert [one.key for one in backend.list("x/07/")] == ["x/07/7"]
    backend.copy("y/0", "z/deep/0")
    backend.copy("y/0", "z/deep/0")
    assert backend.get("z/deep/0") == b"other"
    backend.delete(keys)
    assert list(backend.list("x/")) == []
    assert backend.get("y/0") == b"other"


def test_touching_makes_young_and_loses_nothing(backend: Backend) -> None:
    backend.put("expiring/1", b"data")
    before = backend.head("expiring/1")
    backend.touch("expiring/1")
    after = backend.head("expiring/1")
    assert before is not None
    assert after is not None
    assert after.modified >= before.modified
    assert backend.get("expiring/1") == b"data"
    assert list(backend.list("touching/")) == []


def test_of_many_who_create_one_wins(backend: Backend) -> None:
    won: list[int] = []
    start = threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        if backend.put("race", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=create, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert backend.get("race") == b"%d" % won[0]


def test_a_folder_leaves_no_half_made_files(tmp_path: Path) -> None:
    backend = FolderBackend(tmp_path)
    backend.put("a", b"1")
    backend.put("a", b"2")
    backend.put("a", b"3", replace=True)
    backend.copy("a", "b")
    backend.copy("b", "a")
    assert list((tmp_path / ".staging").iterdir()) == []


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "refs").write_text("a file where a folder should be")
    with pytest.raises(CannotVerify, match="expected to write refs/a of the store in"):
        FolderBackend(tmp_path).put("refs/a", b"1")
    with pytest.raises(UsageError, match="expected a folder for the store"):
        FolderBackend(tmp_path / "refs")


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "file/below"])
def test_what_can_be_no_folder_is_wrong_usage(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="expected a folder for the store at"):
        open_backend(str(tmp_path / name))


def test_a_folder_is_named_without_detours(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    assert open_backend(f"{tmp_path}/none/../store").url == str(tmp_path / "store")
    assert open_backend(f"{tmp_path}/link/store").url == str(tmp_path / "link" / "store")
    assert open_backend(f"{tmp_path}/link/../store").url == str(tmp_path / "real" / "store")


def test_no_bucket_is_no_answer(s3: S3Proxy) -> None:
    backend = open_backend("s3://there-is-none/x")
    with pytest.raises(CannotVerify, match=r"HTTP 404 \(NoSuchBucket\)") as caught:
        backend.get("a")
    assert caught.value.next_command == "aws s3 ls s3://there-is-none/x/"
    with pytest.raises(CannotVerify, match="NoSuchBucket"):
        backend.put("a", b"")
    assert s3.requests


def test_errors_hold_no_secret(s3: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.store.backends.bucket._ATTEMPTS", 2)
    monkeypatch.setattr("karat.store.backends.bucket._FIRST_WAIT", 0.01)
    monkeypatch.setattr("karat.net.buckets._RETRY", {"max_retries": 0})
    backend = open_backend(f"s3://{s3.bucket()}/x")
    s3.trouble(1.0, 3)
    monkeypatch.setattr("factories.s3_proxy.KINDS", ("refused", "reset"))
    with pytest.raises(CannotVerify) as caught:
        backend.put("key", b"data", replace=True)
    assert "127.0.0.1" not in str(caught.value)
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)


def test_which_store_is_meant() -> None:
    everything = {"KARAT_STORE": "from-env", "XDG_DATA_HOME": "/data"}
    assert store_url("said", "configured", everything) == "said"
    assert store_url(None, "configured", everything) == "from-env"
    assert store_url(None, "configured", {}) == "configured"
    assert store_url(None, None, {"XDG_DATA_HOME": "/data"}) == "/data/karat/store"
    home = str(Path.home() / ".local/share/karat/store")
    assert store_url(None, None, {"XDG_DATA_HOME": "not/absolute"}) == home


def test_a_store_is_known_by_its_mark(backend: Backend) -> None:
    assert not is_store(backend)
    with pytest.raises(StoreProblem, match="nothing was ever pushed there") as caught:
        open_store(backend.url)
    assert caught.value.exit_code == 3
    backend.put("karat-store.json", b'{"schema":"karat.store/1"}\n')
    assert is_store(open_store(backend.url))
    create_store(backend)
    create_store(backend)
    assert is_store(open_store(backend.url))
    assert backend.get("karat-store.json") == b'{"schema":"karat.store/2"}\n'
    backend.put("karat-store.json", b'{"schema": "karat.store/3"}', replace=True)
    with pytest.raises(CannotVerify, match=r"expected karat\.store/2"):
        is_store(backend)


def test_unknown_kinds_are_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"found s4://.*s3"):
        open_backend("s4://bucket/x")


def test_built_in_kinds_are_registered_like_a_third_party_s() -> None:
    from importlib.metadata import entry_points

    registered = {point.name: point.value for point in entry_points(group="karat.stores")}
    assert registered == {k: v for k, v in BUILT_IN.items() if k != "file"}


@pytest.mark.parametrize("kind", ["pipe", "device", "link"])
@pytest.mark.parametrize("area", ["expiring/", "refs/", "pins/"])
def test_what_is_no_plain_file_is_named_and_nobody_waits_for_it(
    folder: Backend, tmp_path: Path, kind: str, area: str
) -> None:
    pushed(folder, cases(1), pin="why" if area == "pins/" else None)
    digest = references.resolve(folder, "models/nightly").digest
    keys = [one.key for one in folder.list(area)]
    for key in keys:
        path = folder.local(key)
        assert path is not None
        whole = tmp_path / key.replace("/", "-")
        path.rename(whole)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero" if kind == "device" else whole)
    with ends():
        findings = verify_store(folder).findings
        assert {finding.kind for finding in findings} <= {"cannot-read", "bundle-damaged"}
        assert all(any(key in finding.message for finding in findings) for key in keys)
        word = f"sha256:{digest}" if area == "pins/" else "models/nightly"
        with pytest.raises(CannotVerify, match="no plain file"):
            open_snapshot(folder, word, "")
        if area == "expiring/":
            assert pushed(folder, cases(1)).repaired == len(keys)
            assert verify_store(folder).findings == ()
