"""Artifacts in a bucket, against a real S3-speaking server."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.backends import get_backend

from factories.archives import zipped
from factories.s3 import S3, SECRET
from karat.findings import CannotVerify, Severity, UsageError
from karat.sources.bucket import Bucket, open_bucket
from karat.sources.cache import TAIL
from karat.sources.folder import Folder
from karat.sources.source import Artifact, Fetched, Source
from karat.system.archives import Limits


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3:
    """The server, with credentials for it, an empty cache, and nothing else in the environment."""
    monkeypatch.setenv("KARAT_CACHE_DIR", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.faults.clear()
    server.requests.clear()
    return server


def everything(_: str) -> bool:
    return True


def fetched(
    url: str, wanted: Callable[[str], bool] = everything, limits: Limits | None = None
) -> tuple[dict[str, Fetched], dict[str, dict[str, bytes]]]:
    """What came of each artifact, and the content of its files."""
    bucket = Bucket(url, limits=limits)
    try:
        found = {one.artifact.id: one for one in bucket.fetch(bucket.listing().artifacts, wanted)}
        contents = {key: {name: path.read_bytes() for name, path in one.members.items()} for key, one in found.items()}
    finally:
        bucket.close()
    return found, contents


def kinds(one: Fetched) -> list[tuple[str, Severity]]:
    assert all(finding.next for finding in one.findings), "every failure ends with a command"
    return [(finding.kind, finding.severity) for finding in one.findings]


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that no compression makes smaller."""
    return random.Random(seed).randbytes(size)


@pytest.mark.slow
def test_loose_objects_and_archives(s3: S3) -> None:
    name = s3.bucket(
        {
            "runs/7/logs-gpt/golden.json": b"{}",
            "runs/7/logs-gpt/deep/er ü+%20.csv": b"a,b",
            "runs/7/reports/r.zip": zipped({"x/acc.csv": b"1", "other.log": b"2"}),
            "runs/7/top.json": b"[]",
            "runs/77/no.json": b"",
        }
    )
    bucket = Bucket(f"s3://{name}/runs/7/")
    assert isinstance(bucket, Source)
    listing = bucket.listing()
    assert (listing.source, listing.origin) == ("s3", f"s3://{name}/runs/7")
    assert [one.name for one in listing.artifacts] == [".", "logs-gpt", "reports/r.zip"]
    assert all(one.created for one in listing.artifacts)
    bucket.close()
    found, contents = fetched(f"s3://{name}/runs/7", lambda path: not path.endswith(".log"))
    assert contents == {
        "./": {"top.json": b"[]"},
        "logs-gpt/": {"golden.json": b"{}", "deep/er ü+%20.csv": b"a,b"},
        "reports/r.zip": {"x/acc.csv": b"1"},
    }
    assert found["logs-gpt/"].received == 5
    assert not any(one.findings for one in found.values())


@pytest.mark.slow
def test_more_keys_than_one_page(s3: S3) -> None:
    name = s3.bucket({})
    backend = get_backend("s3")["123456789012"]["aws"]
    for number in range(2500):
        backend.put_object(name, f"run/a{number % 50:02}/{number:04}.json", b"%d" % number)
    asked: list[str] = []

    def wanted(path: str) -> bool:
        asked.append(path)
        return path.startswith("00")

    found, contents = fetched(f"s3://{name}/run", wanted)
    assert len(s3.requests) - len(s3.fetches()) == 3
    assert len(found) == 50
    assert len(asked) == 2500
    assert contents["a07/"] == {"0007.json": b"7", "0057.json": b"57"}


@pytest.mark.slow
def test_of_a_large_archive_only_the_wanted_bytes_are_read(s3: S3) -> None:
    body = zipped(
        {
            "checkpoint.bin": noise(3_000_000),
            "golden.json": noise(5000, 2),
            "other.bin": noise(1_000_000, 3),
            "second.json": noise(4000, 4),
        }
    )
    name = s3.bucket({"big.zip": body})
    found, contents = fetched(f"s3://{name}", lambda path: path.endswith(".json"))
    assert contents["big.zip"] == {"golden.json": noise(5000, 2), "second.json": noise(4000, 4)}
    assert found["big.zip"].received == sum(request.sent for request in s3.fetches())
    assert found["big.zip"].received < 80_000 + 9000
    assert all(request.range for request in s3.fetches())
    assert len(s3.fetches()) == 2  # second.json lies within the end that is read first


@pytest.mark.slow
def test_nothing_wanted_costs_one_request(s3: S3) -> None:
    name = s3.bucket({"big.zip": zipped({"checkpoint.bin": noise(1_000_000)})})
    _, contents = fetched(f"s3://{name}", lambda _: False)
    assert contents == {"big.zip": {}}
    assert len(s3.fetches()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 2_000_000])
def test_what_is_mostly_wanted_is_read_once(s3: S3, size: int) -> None:
    body = zipped({"a.bin": noise(size), "b.bin": noise(size // 10, 5)})
    name = s3.bucket({"all.zip": body})
    found, contents = fetched(f"s3://{name}")
    assert contents["all.zip"]["a.bin"] == noise(size)
    assert len(body) <= found["all.zip"].received <= len(body) + TAIL


@pytest.mark.slow
@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_is_gone_on_from(s3: S3, reset: bool) -> None:  # noqa: FBT001 - a parameter of the test
    name = s3.bucket({"a/x.bin": noise(2_000_000)})
    s3.faults.cut(r"x\.bin", after=700_000, reset=reset, host=None, times=2)
    found, contents = fetched(f"s3://{name}")
    assert contents["a/"]["x.bin"] == noise(2_000_000)
    assert found["a/"].received == 2_000_000
    assert len(s3.fetches()) >= 3


@pytest.mark.slow
def test_trouble_that_passes(s3: S3) -> None:
    name = s3.bucket({"a/x.json": b"1"})
    s3.faults.server_error("list-type", status=503)
    s3.faults.server_error(r"x\.json", status=500)
    assert fetched(f"s3://{name}")[1] == {"a/": {"x.json": b"1"}}


@pytest.mark.slow
def test_one_artifact_that_fails_does_not_cost_the_others(s3: S3) -> None:
    objects = {"a/x.json": b"1", "b/x.json": b"2", "c/x.json": b"3", "d.zip": b"<html>", "e/": b""}
    name = s3.bucket(objects)
    s3.faults.forbidden(r"/b/", message="no")
    s3.faults.forbidden(r"/c/", status=404, message="no")
    found, contents = fetched(f"s3://{name}")
    assert contents["a/"] == {"x.json": b"1"}
    assert kinds(found["b/"]) == [("artifact-forbidden", Severity.FAIL)]
    assert kinds(found["c/"]) == [("artifact-missing", Severity.FAIL)]
    assert kinds(found["d.zip"]) == [("artifact-not-zip", Severity.FAIL)]
    assert found["b/"].findings[0].next == f"aws s3 ls s3://{name}/"


@pytest.mark.slow
def test_an_object_that_changes_between_listing_and_reading(s3: S3) -> None:
    name = s3.bucket({"a/x.json": b"1", "b/x.json": b"2"})
    bucket = Bucket(f"s3://{name}")
    artifacts = bucket.listing().artifacts
    s3.replace(name, "a/x.json", b"9")
    s3.delete(name, "b/x.json")
    found = list(bucket.fetch(artifacts, everything))
    bucket.close()
    assert [kinds(one) for one in found] == [[("artifact-missing", Severity.FAIL)]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("anonymous", [True, False])
def test_a_bucket_that_is_not_there(
    s3: S3,
    monkeypatch: pytest.MonkeyPatch,
    anonymous: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    if anonymous:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CannotVerify, match=r"found HTTP 404 \(NoSuchBucket\)") as raised:
        Bucket("s3://no-such-bucket/x y").listing()
    assert raised.value.next_command == "aws s3 ls s3://no-such-bucket/'x y/'"
    assert ("without credentials" in str(raised.value)) is anonymous
    assert s3.requests


@pytest.mark.slow
def test_nobody_listens(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(CannotVerify, match="no answer from the server") as raised:
        Bucket("s3://any-bucket/x").listing()
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    assert not s3.requests


LISTING = "from karat.sources.bucket import Bucket; Bucket('s3://bucket/x').listing()"


@pytest.mark.slow
def test_a_silent_server_does_not_keep_an_interrupted_listing(s3: S3) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)  # a process that never asks is a failure, not a wait
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {**os.environ, **s3.environment, "AWS_ENDPOINT_URL": endpoint}
        command = [sys.executable, "-c", LISTING]
        with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as process:
            connection, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(timeout=30) == -signal.SIGINT
            finally:
                process.kill()
                connection.close()


def test_without_credentials_nothing_is_signed(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    name = s3.bucket({"a/x.json": b"1"}, public=True)
    assert fetched(f"s3://{name}")[1] == {"a/": {"x.json": b"1"}}
    assert all("authorization" in request.headers for request in s3.requests)
    s3.requests.clear()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert fetched(f"s3://{name}")[1] == {"a/": {"x.json": b"1"}}
    assert s3.requests
    assert not any("authorization" in request.headers for request in s3.requests)


@pytest.mark.slow
def test_nothing_below_the_prefix(s3: S3) -> None:
    name = s3.bucket({"runs/7": b"an object, not a folder", "runs/8/": b"", "runs/9/x": b""})
    for prefix in ("runs/7", "runs/8", "nowhere"):
        assert Bucket(f"s3://{name}/{prefix}").listing().artifacts == ()


@pytest.mark.slow
def test_markers_of_folders_are_no_files(s3: S3) -> None:
    name = s3.bucket({"a/": b"", "a/deep/": b"", "a/deep/x": b"1", "a/empty": b""})
    _, contents = fetched(f"s3://{name}")
    assert contents["a/"].keys() == {"deep/x", "empty"}


@pytest.mark.slow
def test_names_that_are_no_paths(s3: S3) -> None:
    name = s3.bucket({"a/\x01x": b"1"})
    with pytest.raises(CannotVerify, match="no plain path"):
        Bucket(f"s3://{name}").listing()


@pytest.mark.slow
def test_too_much_is_refused_before_it_is_read(s3: S3) -> None:
    name = s3.bucket({"a/x": noise(2000), "b/x": noise(900), "b/y": noise(900)})
    found, _ = fetched(f"s3://{name}", limits=Limits(member=1000, total=1500))
    assert kinds(found["a/"]) == kinds(found["b/"]) == [("archive-refused", Severity.FAIL)]
    assert not s3.fetches()


def test_an_artifact_that_is_not_there(s3: S3) -> None:
    bucket = Bucket(f"s3://{s3.bucket({})}")
    (one,) = bucket.fetch([Artifact(id="x/", name="x")], everything)
    assert kinds(one) == [("artifact-missing", Severity.FAIL)]
    bucket.close()


@pytest.mark.slow
def test_progress_counts_every_byte(s3: S3) -> None:
    name = s3.bucket({"a/x": noise(2000), "a/y": noise(3000), "b.zip": zipped({"z": b"1"})})
    told: dict[str, int] = {}
    ended: list[str] = []

    totals: dict[str, int | None] = {}

    class Watching:
        def begin(self, artifact: Artifact, total: int | None) -> None:
            totals[artifact.name] = total
            told[artifact.name] = 0

        def advance(self, artifact: Artifact, received: int) -> None:
            told[artifact.name] += received

        def end(self, artifact: Artifact) -> None:
            ended.append(artifact.name)

    bucket = Bucket(f"s3://{name}")
    found = list(bucket.fetch(bucket.listing().artifacts, everything, Watching()))
    bucket.close()
    assert told == totals == {one.artifact.name: one.received for one in found}
    assert told["a"] == 5000
    assert sorted(ended) == ["a", "b.zip"]


@pytest.mark.slow
def test_what_arrived_once_is_not_fetched_again(s3: S3) -> None:
    big = {"golden.json": b"{}", "checkpoint.bin": noise(1_000_000)}
    name = s3.bucket({"a/x": b"1", "a/y": b"2", "b.zip": zipped(big)})
    first = fetched(f"s3://{name}", lambda path: path in {"x", "golden.json"})[1]
    s3.requests.clear()
    found, again = fetched(f"s3://{name}", lambda path: path in {"x", "golden.json"})
    assert again == first == {"a/": {"x": b"1"}, "b.zip": {"golden.json": b"{}"}}
    assert not s3.fetches()
    assert all(one.received == 0 for one in found.values())
    _, more = fetched(f"s3://{name}", lambda path: path != "checkpoint.bin")
    assert more["a/"] == {"x": b"1", "y": b"2"}
    assert [request.path.rpartition("/")[2] for request in s3.fetches()] == ["y"]


@pytest.mark.slow
def test_what_has_changed_is_fetched_again(s3: S3) -> None:
    name = s3.bucket({"a/x": b"1", "b.zip": zipped({"z": b"1"})})
    fetched(f"s3://{name}")
    s3.replace(name, "a/x", b"2")
    s3.replace(name, "b.zip", zipped({"z": b"2"}))
    assert fetched(f"s3://{name}")[1] == {"a/": {"x": b"2"}, "b.zip": {"z": b"2"}}


@pytest.mark.slow
def test_half_an_archive_is_gone_on_from_by_the_next_run(s3: S3) -> None:
    body = zipped({"a.bin": noise(2_000_000)})
    name = s3.bucket({"big.zip": body})
    s3.faults.cut(r"big\.zip", after=300_000, host=None, times=None)
    s3.faults.server_error(r"big\.zip", status=404, skip=3, times=None)
    found, _ = fetched(f"s3://{name}")
    assert kinds(found["big.zip"]) == [("artifact-missing", Severity.FAIL)]
    before = found["big.zip"].received
    assert 300_000 < before < len(body)
    s3.faults.clear()
    found, contents = fetched(f"s3://{name}")
    assert contents["big.zip"]["a.bin"] == noise(2_000_000)
    assert before + found["big.zip"].received == len(body) + TAIL


@pytest.mark.slow
def test_a_damaged_cache_is_noticed(s3: S3, tmp_path: Path) -> None:
    body = zipped({"golden.json": noise(90_000), "checkpoint.bin": noise(1_000_000)})
    name = s3.bucket({"a/x": b"1", "b.zip": body})
    first = fetched(f"s3://{name}", lambda path: path != "checkpoint.bin")[1]
    for path in (tmp_path / "cache").rglob("*.member"):
        path.write_bytes(b"other")
    assert fetched(f"s3://{name}", lambda path: path != "checkpoint.bin")[1] == first
    for path in (tmp_path / "cache").rglob("record"):
        path.unlink()
        (path.parent / f"{len(body) - TAIL}-{len(body)}.part").write_bytes(bytes(TAIL))
    assert fetched(f"s3://{name}", lambda path: path != "checkpoint.bin")[1] == first


@pytest.mark.slow
def test_a_cache_that_cannot_be_used_costs_nothing_else(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KARAT_CACHE_DIR", str(tmp_path / "file"))
    name = s3.bucket({"a/x": b"1"})
    assert fetched(f"s3://{name}")[1] == {"a/": {"x": b"1"}}


def test_files_by_url(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "x").write_bytes(b"1")
    source = open_bucket(f"{tmp_path.as_uri()}/a%20b")
    assert isinstance(source, Folder)
    assert [one.name for one in source.listing().artifacts] == ["."]
    with pytest.raises(UsageError, match="file:///PATH"):
        open_bucket("file://elsewhere/x")


def test_without_obstore(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UsageError, match="not installed") as raised:
        Bucket("s3://bucket/x").listing()
    assert raised.value.next_command == "pip install 'karat[bucket]'"
    assert not s3.requests


def test_half_of_the_credentials(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(UsageError, match="expected the environment to say") as raised:
        Bucket("s3://bucket/x").listing()
    assert SECRET not in str(raised.value)
    assert not s3.requests


def test_other_stores_open_without_a_network(s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    google: Any = Bucket("gs://bucket/x")._store
    assert (google.prefix, google.config["skip_signature"]) == ("x", "true")
    with pytest.raises(UsageError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        Bucket("az://container/x")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "someone")
    azure: Any = Bucket("az://container/x")._store
    assert (azure.prefix, azure.config["container_name"]) == ("x", "container")
    assert not s3.requests
