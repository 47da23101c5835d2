"""Servers that lie, or go on for ever: none costs the disk, another artifact, or the whole refresh."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from factories.clocks import Clock
from factories.faults import Faults
from factories.http_host import Host, Request, Response
from karat.findings import CannotVerify, UsageError
from karat.net.client import Answers, Client, Token
from karat.net.forges import github_token
from karat.sources.github import GitHub
from karat.sources.source import Artifact, Fetched
from karat.system.archives import Limits
from karat.system.secrets import Secret

TOKEN = Token(secret=Secret("ghp_Planted0123456789"), header="Authorization", found_in="GITHUB_TOKEN")
Answer = Callable[[Request], Response]


def packed(size: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("golden.json", b"{}" * 100)
        archive.writestr("model.bin", random.Random(1).randbytes(size))
    return out.getvalue()


BIG = packed(2 << 20)


def part(request: Request, **headers: str) -> Response:
    """The range that was asked for."""
    start, _, end = (request.range or "bytes=0-").removeprefix("bytes=").partition("-")
    first, last = int(start), min(int(end or len(BIG)), len(BIG) - 1)
    headers["content-range"] = f"bytes {first}-{last}/{len(BIG)}"
    return Response(status=206, headers=headers, body=BIG[first : last + 1])


class Place:
    """A host that answers as a test says, and an artifact on it."""

    def __init__(self, folder: Path) -> None:
        self.answer: Answer = lambda _: Response(status=404)
        self.log: list[Request] = []
        self.host = Host("blob", self._answer, Faults(), self.log).start()
        self.cache = folder / "cache"

    def _answer(self, request: Request) -> Response:
        return self.answer(request)

    def fetch(self, size: int | None, limits: Limits | None = None) -> Fetched:
        env = {
            "GITHUB_API_URL": "http://127.0.0.1:9",
            "GITHUB_TOKEN": "ghp_Planted0123456789",
            "KARAT_CACHE_DIR": str(self.cache),
        }
        source = GitHub("o/n", run_id=1, env=env, retry=Clock().retry(), limits=limits)
        artifact = Artifact(id="1", name="a", size=size, url=f"{self.host.url}/a.zip")
        (fetched,) = source.fetch([artifact], lambda name: name.endswith(".json"))
        self.contents = {name: path.read_bytes() for name, path in fetched.members.items()}
        source.close()
        return fetched

    def pages(self, answers: Answers | None = None) -> list[dict[str, object]]:
        """What an API says that answers like that."""
        retry = Clock().retry()
        with closing(Client(self.host.url, TOKEN, retry=retry, answers=answers)) as client:
            return list(client.pages("/x", dict))

    def trouble(self) -> str:
        """What is said of an API that answers like that."""
        with pytest.raises(CannotVerify) as caught:
            self.pages()
        return str(caught.value)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.host.stop()


@pytest.mark.slow
def test_a_body_that_outgrows_every_size_is_refused_and_not_kept(place: Place) -> None:
    place.answer = lambda _: Response(body=BIG)
    fetched = place.fetch(None, Limits(archive=1_000_000))
    (finding,) = fetched.findings
    assert finding.kind == "archive-refused"
    assert "at most 1,000,000 bytes" in finding.message
    assert not list(place.cache.rglob("*.part"))
    assert not place.fetch(None).findings


@pytest.mark.slow
def test_a_body_that_outgrows_its_announced_size_is_refused(place: Place) -> None:
    place.answer = lambda _: Response(body=bytes((64 << 20) + 4000))
    (finding,) = place.fetch(1000).findings
    assert finding.kind == "archive-refused"
    assert f"{(64 << 20) + 2000:,} bytes" in finding.message


@pytest.mark.slow
def test_of_a_range_no_more_is_kept_than_was_asked_for(place: Place) -> None:
    """The server knows where to begin, and never where to end."""

    def answer(request: Request) -> Response:
        response = part(request, etag='"1"')
        start = int((request.range or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        response.body = BIG[start:] + bytes(1 << 20)
        return response

    place.answer = answer
    fetched = place.fetch(len(BIG))
    assert not fetched.findings
    assert place.contents == {"golden.json": b"{}" * 100}
    assert len(place.log) == 2


@pytest.mark.slow
def test_a_longer_part_than_can_be_is_thrown_away(place: Place) -> None:
    place.answer = lambda request: part(request, etag='"1"') if len(place.log) == 1 else Response(status=404)
    place.fetch(len(BIG))
    (tail,) = place.cache.rglob("*.part")
    tail.write_bytes(tail.read_bytes() + b"more")
    place.answer = lambda request: part(request, etag='"1"')
    assert not place.fetch(len(BIG)).findings
    assert place.contents == {"golden.json": b"{}" * 100}


def test_a_range_that_was_not_asked_for_is_not_taken(place: Place) -> None:
    def answer(_: Request) -> Response:
        headers = {"content-range": f"bytes 0-99/{len(BIG)}", "etag": '"1"'}
        return Response(status=206, headers=headers, body=BIG[:100])

    place.answer = answer
    (finding,) = place.fetch(len(BIG)).findings
    assert finding.kind == "transfer-failed"
    assert "another range than the one asked for" in finding.message


@pytest.mark.slow
def test_another_version_in_the_middle_is_begun_anew(place: Place) -> None:
    """The server ignores If-Range, and the file was replaced after the first cut."""
    old, new = packed(300_000), packed(300_001)

    def answer(request: Request) -> Response:
        if len(place.log) == 1:
            return Response(body=old, headers={"etag": '"old"'}, cut_after=100_000)
        if request.range is None:
            return Response(body=new, headers={"etag": '"new"'})
        start = int(request.range.removeprefix("bytes=").partition("-")[0])
        span = f"bytes {start}-{len(new) - 1}/{len(new)}"
        headers = {"etag": '"new"', "content-range": span}
        return Response(status=206, headers=headers, body=new[start:])

    place.answer = answer
    assert not place.fetch(len(old)).findings
    assert [request.range for request in place.log] == [None, "bytes=100000-", None]


@pytest.mark.slow
@pytest.mark.parametrize(("extra", "requests"), [(b"", 1), (b"more", 2)])
def test_a_download_that_was_complete_already(place: Place, extra: bytes, requests: int) -> None:
    """Killed before it was unpacked: all of it is here, or more than there is."""
    whole = packed(300_000)
    place.answer = lambda _: Response(body=whole, headers={"etag": '"1"'}, cut_after=100_000)
    place.fetch(len(whole))
    (part_file,) = place.cache.rglob("*.part")
    part_file.write_bytes(whole + extra)
    place.log.clear()

    def answer(request: Request) -> Response:
        if request.range is None:
            return Response(body=whole, headers={"etag": '"1"'})
        return Response(status=416, headers={"content-range": f"bytes */{len(whole)}"})

    place.answer = answer
    assert not place.fetch(len(whole)).findings
    assert len(place.log) == requests


def test_cuts_that_come_later_and_sooner_are_no_progress(place: Place) -> None:
    """A server without ranges begins anew each time; what was had before is no new byte."""
    whole = packed(300_000)

    def answer(_: Request) -> Response:
        turn = len(place.log)
        cut = None if turn > 40 else 100_000 if turn % 2 else 10
        return Response(body=whole, cut_after=cut)

    place.answer = answer
    (finding,) = place.fetch(len(whole)).findings
    assert finding.kind == "transfer-failed"


@pytest.mark.slow
def test_a_validator_that_cannot_be_sent_back_is_none(place: Place, tmp_path: Path) -> None:
    place.answer = lambda request: part(request, etag='"é"')
    for _ in range(2):
        assert not place.fetch(len(BIG)).findings
    place.answer = lambda _: Response(body=b"{}", headers={"etag": '"é"'})
    for _ in range(2):
        answers = Answers(tmp_path, b"salt")
        assert place.pages(answers) == [{}]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["http://[", "http://xn--/", "http://a..b/", f"http://{'a' * 300}/"])
def test_addresses_that_are_none(place: Place, where: str) -> None:
    place.answer = lambda _: Response(body=b"{}", headers={"link": f'<{where}>; rel="next"'})
    assert "on the same server" in place.trouble()
    place.answer = lambda _: Response(status=302, headers={"location": where})
    assert "expected" in place.trouble()
    (finding,) = place.fetch(1000).findings
    assert finding.kind == "transfer-failed"


def test_json_nested_without_end(place: Place) -> None:
    place.answer = lambda _: Response(body=b'{"a":' + b"[" * 100_000)
    assert "nested too deeply" in place.trouble()


def test_a_broken_header_is_not_repeated(place: Place) -> None:
    signed = "http://127.0.0.1/?sig=SECRET\0"
    place.answer = lambda _: Response(status=302, headers={"location": signed})
    assert "SECRET" not in place.trouble()


@pytest.mark.parametrize("status", [401, 403])
def test_whoever_gets_no_token_is_not_said_to_refuse_it(place: Place, status: int) -> None:
    place.answer = lambda _: Response(status=status)
    (finding,) = place.fetch(1000).findings
    assert finding.kind == "artifact-missing", "nobody needs a token there, so no other one helps"
    assert f"nothing there that anyone may read (HTTP {status})" in finding.message
    assert (finding.next or "").startswith("gh run rerun")
    said = place.trouble()
    assert "GITHUB_TOKEN" in said


@pytest.mark.parametrize(
    ("name", "value", "words", "next_command"),
    [
        ("HTTPS_PROXY", "foo://user:hunter2@x", "HTTPS_PROXY", "env |"),
        ("ALL_PROXY", "socks5://user:hunter2@x:1", "socks", "pip install"),
        ("SSL_CERT_FILE", "/nowhere/hunter2", "SSL_CERT_FILE", "unset SSL_CERT_FILE"),
    ],
)
def test_an_environment_that_cannot_be_used_is_wrong_usage(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str, next_command: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as caught:
        place.pages()
    assert words in str(caught.value)
    assert caught.value.next_command.startswith(next_command)
    assert "hunter2" not in f"{caught.value} {caught.value.__context__}"


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\tb", "a b", "tökén"])
def test_a_token_that_would_end_its_header_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="GITHUB_TOKEN") as caught:
        github_token({"GITHUB_TOKEN": text})
    assert text not in str(caught.value)
