"""Transfers from a forge that misbehaves: what arrives, what is asked for again, what is said."""

from __future__ import annotations

import logging
import random
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from factories.desks import BIG, GOLDEN, Desk
from factories.faults import Faults
from factories.forge import Forge
from factories.http_host import Host, Request, Response
from karat.sources.github import GitHub
from karat.sources.source import Artifact


@pytest.fixture
def desk(forge: Forge, tmp_path: Path) -> Desk:
    return Desk(forge, tmp_path)


@pytest.mark.slow
def test_small_archives_come_whole(desk: Desk) -> None:
    made = desk.add("a", {"golden.json": GOLDEN, "log.txt": b"x"})
    fetched = desk.only()
    assert desk.contents["a"] == {"golden.json": GOLDEN}
    assert fetched.received == len(made.body)


@pytest.mark.slow
def test_of_large_archives_only_the_wanted_bytes_come(desk: Desk) -> None:
    desk.add("a", {"one.json": GOLDEN, "model.bin": BIG, "two.json": GOLDEN})
    fetched = desk.only()
    assert desk.contents["a"] == {"one.json": GOLDEN, "two.json": GOLDEN}
    assert fetched.received < 20_000
    assert sum(request.sent for request in desk.forge.seen(host="blob")) < 20_000
    ranges = [request.range or "" for request in desk.forge.seen(host="blob")]
    assert not [text for text in ranges if text.startswith("bytes=-")], "Azure ignores those"
    # The store was found once; later ranges went there directly.
    assert len(desk.forge.seen(r"/zip$", host="api")) == 1


@pytest.mark.slow
def test_most_of_a_large_archive_comes_whole_and_verified(desk: Desk) -> None:
    made = desk.add("a", {"big.json": BIG, "golden.json": GOLDEN})
    fetched = desk.only()
    assert desk.contents["a"]["big.json"] == BIG
    assert len(made.body) <= fetched.received < len(made.body) + 20_000


@pytest.mark.slow
def test_a_server_without_ranges_is_asked_once(desk: Desk) -> None:
    made = desk.add("a", {"golden.json": GOLDEN, "model.bin": BIG})
    desk.forge.faults.no_ranges()
    fetched = desk.only()
    assert desk.contents["a"] == {"golden.json": GOLDEN}
    assert fetched.received == len(made.body)
    assert len(desk.forge.seen(host="blob")) == 1


@pytest.mark.slow
def test_a_directory_larger_than_the_first_look(desk: Desk) -> None:
    members = {f"logs/{'x' * 100}/{i}.txt": b"" for i in range(500)}
    desk.add("a", {**members, "model.bin": BIG, "golden.json": GOLDEN})
    fetched = desk.only()
    assert desk.contents["a"] == {"golden.json": GOLDEN}
    assert fetched.received < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("said", [600_000, 100_000_000, None, 3 << 20])
def test_a_wrong_size_does_no_harm(desk: Desk, said: int | None) -> None:
    desk.add("a", {"golden.json": GOLDEN, "model.bin": BIG})
    fetched = desk.only(change=lambda a: msgspec.structs.replace(a, size=said))
    assert not fetched.findings
    assert desk.contents["a"] == {"golden.json": GOLDEN}
    assert fetched.received < (1 << 19) + 50_000


@pytest.mark.parametrize("said", [None, 10_000_000])
def test_a_wrong_size_of_a_small_archive_does_no_harm(desk: Desk, said: int | None) -> None:
    made = desk.add("a", {"golden.json": GOLDEN})
    fetched = desk.only(change=lambda a: msgspec.structs.replace(a, size=said))
    assert not fetched.findings
    assert fetched.received == len(made.body)


@pytest.mark.slow
@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_download_goes_on_where_it_ended(desk: Desk, reset: bool) -> None:  # noqa: FBT001
    made = desk.add("a", {"big.json": BIG})
    desk.forge.faults.cut(r"a\.zip", after=700_000, reset=reset, times=2, skip=1)
    fetched = desk.only()
    assert desk.contents["a"]["big.json"] == BIG
    resumed = [r for r in desk.forge.seen(host="blob") if "if-range" in r.headers]
    assert resumed
    assert fetched.received < len(made.body) + 20_000 + (600_000 if reset else 0)


@pytest.mark.slow
def test_a_cut_range_goes_on_where_it_ended(desk: Desk) -> None:
    wanted = random.Random(2).randbytes(300_000)
    desk.add("a", {"golden.json": wanted, "model.bin": BIG})
    desk.forge.faults.cut(r"a\.zip", after=1000, times=1)
    desk.forge.faults.cut(r"a\.zip", after=100_000, times=1, skip=1)
    fetched = desk.only()
    assert desk.contents["a"] == {"golden.json": wanted}
    assert fetched.received < 330_000


@pytest.mark.slow
def test_many_cuts_are_borne_as_long_as_something_comes(desk: Desk) -> None:
    desk.add("a", {"big.json": BIG})
    desk.forge.faults.cut(r"a\.zip", after=150_000, times=None)
    assert not desk.only().findings
    assert desk.contents["a"]["big.json"] == BIG


@pytest.mark.slow
def test_a_download_that_never_gets_on_fails_and_what_came_is_kept(desk: Desk) -> None:
    made = desk.add("a", {"big.json": BIG}, digest=False)
    desk.forge.faults.no_ranges()
    desk.forge.faults.cut(r"a\.zip", after=1_500_000, times=None)
    assert desk.kind() == "transfer-failed"
    desk.forge.faults.clear()
    before = len(desk.forge.requests)
    fetched = desk.only()
    assert desk.contents["a"]["big.json"] == BIG
    assert fetched.received < len(made.body) - 1_400_000
    assert any(r.range and r.range.endswith("-") for r in desk.forge.requests[before:])


@pytest.mark.slow
def test_a_trickle_is_no_progress(desk: Desk) -> None:
    desk.add("a", {"big.json": BIG})
    desk.forge.faults.cut(r"a\.zip", after=10, times=None)
    assert desk.kind() == "transfer-failed"
    assert len(desk.forge.requests) < 30


@pytest.mark.slow
def test_an_expired_signature_is_asked_for_anew(desk: Desk) -> None:
    desk.add("a", {"golden.json": GOLDEN, "model.bin": BIG})
    desk.forge.faults.stale_signature(r"a\.zip", skip=1)
    assert not desk.only().findings
    assert len(desk.forge.seen(r"/zip$", host="api")) == 2


def test_a_signature_that_was_too_old_at_once(desk: Desk) -> None:
    desk.add("a", {"golden.json": GOLDEN})
    desk.forge.faults.stale_signature(r"a\.zip")
    assert not desk.only().findings


def test_passing_trouble_is_waited_for(desk: Desk) -> None:
    desk.add("a", {"golden.json": GOLDEN})
    desk.forge.faults.server_error(r"/zip$", times=2)
    desk.forge.faults.server_error(r"a\.zip", status=503, times=1)
    assert not desk.only().findings
    assert len(desk.clock.waits) == 3


@pytest.mark.slow
def test_lasting_trouble_is_a_finding(desk: Desk) -> None:
    desk.add("a", {"golden.json": GOLDEN})
    desk.forge.faults.server_error(r"/zip$", times=None)
    assert desk.kind() == "transfer-failed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (410, "artifact-expired"),
        (403, "artifact-forbidden"),
        (401, "artifact-forbidden"),
        (404, "artifact-missing"),
        (418, "transfer-failed"),
    ],
)
def test_each_refusal_is_a_finding_of_its_own(desk: Desk, status: int, kind: str) -> None:
    desk.add("a", {"golden.json": GOLDEN})
    desk.forge.faults.forbidden(r"/zip$", status=status, message="no")
    assert desk.kind() == kind
    assert len(desk.forge.seen(r"/zip$")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("digest", [True, False])
def test_what_is_no_archive_is_told_apart(desk: Desk, digest: bool) -> None:  # noqa: FBT001
    for name in ("page", "half", "sound"):
        desk.add(name, {"golden.json": GOLDEN}, digest=digest)
    desk.forge.faults.html(r"page\.zip")
    desk.forge.faults.truncate(r"half\.zip", keep=60)
    found = desk.fetch()
    kinds = {name: [f.kind for f in fetched.findings] for name, fetched in found.items()}
    assert kinds == {"page": ["artifact-not-zip"], "half": ["artifact-truncated"], "sound": []}


def test_other_bytes_than_the_digest_says_are_corrupt(desk: Desk) -> None:
    desk.add("a", {"golden.json": GOLDEN})
    wrong = f"sha256:{'0' * 64}"
    assert desk.kind(change=lambda a: msgspec.structs.replace(a, digest=wrong)) == "artifact-corrupt"


def test_a_hostile_archive_is_refused_and_the_others_come(desk: Desk) -> None:
    desk.add("evil", {"../../golden.json": GOLDEN})
    desk.add("good", {"golden.json": GOLDEN})
    found = desk.fetch()
    assert [f.kind for f in found["evil"].findings] == ["archive-refused"]
    assert not found["evil"].members
    assert desk.contents["good"] == {"golden.json": GOLDEN}


class Bars:
    """Counts what a progress bar would show."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, int | None]] = []
        self._lock = threading.Lock()

    def begin(self, artifact: Artifact, total: int | None) -> None:
        self._add("begin", artifact, total)

    def advance(self, artifact: Artifact, received: int) -> None:
        self._add("advance", artifact, received)

    def end(self, artifact: Artifact) -> None:
        self._add("end", artifact, None)

    def _add(self, word: str, artifact: Artifact, number: int | None) -> None:
        with self._lock:
            self.events.append((word, artifact.name, number))


@pytest.mark.slow
def test_progress_begins_advances_and_ends(desk: Desk) -> None:
    desk.add("small", {"golden.json": GOLDEN})
    desk.add("ranged", {"golden.json": GOLDEN, "model.bin": BIG})
    desk.add("whole", {"big.json": BIG})
    desk.add("bad", {"golden.json": GOLDEN})
    desk.forge.faults.forbidden(r"bad\.zip")
    bars = Bars()
    found = desk.fetch(progress=bars)
    for name in ("small", "ranged", "whole"):
        events = [(word, number) for word, who, number in bars.events if who == name]
        assert [word for word, _ in events if word != "advance"] == ["begin", "end"]
        assert (events[0][0], events[-1][0]) == ("begin", "end")
        advanced = sum(number or 0 for word, number in events if word == "advance")
        assert advanced == found[name].received
        assert events[0][1] is not None
        assert events[0][1] <= advanced


def test_downloads_run_side_by_side(tmp_path: Path) -> None:
    """Each answer waits until four requests are there: one after the other would never end."""
    together = threading.Barrier(4, timeout=20)

    def answer(_: Request) -> Response:
        together.wait()
        return Response(body=b"not a zip")

    host = Host("blob", answer, Faults(), []).start()
    env = {"KARAT_CACHE_DIR": str(tmp_path), "KARAT_JOBS": "4", "GITHUB_TOKEN": "t"}
    source = GitHub("owner/name", run_id=1, env=env)
    artifacts = [Artifact(id=str(i), name=str(i), size=9, url=f"{host.url}/{i}.zip") for i in range(8)]
    found = list(source.fetch(artifacts, lambda _: True))
    assert {f.findings[0].kind for f in found} == {"artifact-not-zip"}
    assert len(found) == 8
    source.close()
    host.stop()


def packed(members: Mapping[str, bytes]) -> bytes:
    import io

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


class Store:
    """A plain web server with one archive, as people keep artifacts of their own on."""

    def __init__(self, *, etag: bool = True) -> None:
        self.body = b""
        self.version = 0
        self.etag = etag
        self.log: list[Request] = []
        self.host = Host("blob", self._answer, Faults(), self.log).start()

    def put(self, members: Mapping[str, bytes]) -> None:
        self.body = packed(members)
        self.version += 1

    def _answer(self, request: Request) -> Response:
        tag = {"etag": f'"{self.version}"'} if self.etag else {}
        if self.etag and request.headers.get("if-none-match") == tag["etag"]:
            return Response(status=304, headers=tag)
        return Response(body=self.body, headers=tag)


@pytest.mark.slow
@pytest.mark.parametrize("etag", [True, False])
def test_an_artifact_elsewhere_is_fetched_without_the_token(
    desk: Desk,
    etag: bool,  # noqa: FBT001
) -> None:
    store = Store(etag=etag)
    artifact = Artifact(id="x", name="own", url=f"{store.host.url}/own.zip?key=value")
    for content in (b"1", b"1", b"2"):
        if store.body == b"" or content == b"2":
            store.put({"golden.json": content})
        source = desk.source()
        (fetched,) = source.fetch([artifact], lambda _: True)
        assert fetched.members["golden.json"].read_bytes() == content
        source.close()
    assert not [r for r in store.log if "authorization" in r.headers]
    statuses = [request.status for request in store.log]
    assert statuses == ([200, 304, 200, 200] if etag else [200, 200, 200])
    store.host.stop()


class Fickle(Store):
    """Knows ranges, ignores If-Range, and cuts every body; another version at the second request."""

    def _answer(self, request: Request) -> Response:
        if len(self.log) == 2:
            self.put({"golden.json": random.Random(9).randbytes(len(BIG))})
        start, _, end = (request.range or "bytes=0-").removeprefix("bytes=").partition("-")
        first, last = int(start), min(int(end or len(self.body)), len(self.body) - 1)
        headers = {"etag": f'"{self.version}"', "content-range": f"bytes {first}-{last}/{len(self.body)}"}
        piece = self.body[first : last + 1]
        return Response(status=206, headers=headers, body=piece, cut_after=400_000)


@pytest.mark.slow
def test_two_versions_are_never_mixed(desk: Desk) -> None:
    store = Fickle()
    store.put({"golden.json": BIG})
    artifact = Artifact(id="x", name="own", url=f"{store.host.url}/own.zip")
    source = desk.source()
    (fetched,) = source.fetch([artifact], lambda _: True)
    assert not fetched.findings
    expected = random.Random(9).randbytes(len(BIG))
    assert fetched.members["golden.json"].read_bytes() == expected
    source.close()
    store.host.stop()


@pytest.mark.slow
def test_an_artifact_at_the_api_itself_is_fetched_with_the_token(desk: Desk) -> None:
    made = desk.add("a", {"golden.json": GOLDEN})
    url = f"{desk.forge.github_url}/repos/owner/name/actions/artifacts/{made.id}/zip"
    fetched = desk.only(change=lambda a: msgspec.structs.replace(a, url=url))
    assert not fetched.findings
    assert not [r for r in desk.forge.seen(host="blob") if "authorization" in r.headers]


@pytest.mark.slow
def test_neither_token_nor_signature_is_in_anything_left_behind(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("fine", "forbidden", "page", "gone"):
        desk.add(name, {"golden.json": GOLDEN, "model.bin": BIG})
    desk.add("expired", {"golden.json": GOLDEN}, expired=True)
    desk.forge.faults.forbidden(r"forbidden\.zip", message=desk.forge.github.token)
    desk.forge.faults.html(r"page\.zip")
    desk.forge.faults.cut(r"gone\.zip", after=10, times=None)
    found = desk.fetch()
    assert len([fetched for fetched in found.values() if fetched.findings]) == 4
    signatures = {request.query["sig"] for request in desk.forge.seen(host="blob")}
    secrets = {desk.forge.github.token, "sig=", *signatures}
    assert len(secrets) > 3
    text = f"{found!r} {caplog.text}"
    assert not [secret for secret in secrets if secret in text]
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not [secret for secret in secrets if secret.encode() in kept]
    assert not [r for r in desk.forge.seen(host="blob") if "authorization" in r.headers]
