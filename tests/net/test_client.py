"""The client against a real server: what it sends where, what it waits for, what it says."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from factories.client_servers import PLANTED, TOKEN, Servers, answer
from factories.clocks import Clock
from factories.http_host import Request, Response
from karat.findings import CannotVerify
from karat.net.client import Answers, Client, Refused, Token
from karat.net.transport import redirect_target
from karat.system.secrets import Secret


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(servers: Servers, clock: Clock) -> Iterator[Client]:
    made = Client(servers.api.url, TOKEN, retry=clock.retry())
    yield made
    made.close()


def redirect(to: str, status: int = 302) -> Response:
    return Response(status=status, headers={"location": to})


def body(client: Client, url: str) -> bytes:
    with client.open(url) as response:
        return b"".join(response.iter_raw())


def said(error: BaseException) -> str:
    """Everything that could be printed of an exception."""
    chain = "".join(traceback.format_exception(error))
    return f"{chain} {error!r} {error.args!r} {vars(error)!r} {error.__context__!r} {error.__cause__!r}"


def test_the_token_goes_to_the_api(servers: Servers, client: Client) -> None:
    servers.put("/x", answer({"a": 1}))
    assert client.get("/x", dict) == {"a": 1}
    assert servers.log[0].headers["authorization"] == f"Bearer {PLANTED}"


@pytest.mark.slow
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_token_stays_behind_when_a_redirect_leaves_the_port(servers: Servers, client: Client, status: int) -> None:
    servers.put("/zip", redirect(f"{servers.other.url}/blob?sig=SIGNED", status))
    servers.put("/blob", Response(body=b"bytes"))
    assert body(client, client.url("/zip")) == b"bytes"
    first, second = servers.log
    assert (first.host, second.host) == ("api", "other")
    assert "authorization" in first.headers
    assert not [value for value in second.headers.values() if PLANTED in value]
    assert "authorization" not in second.headers


def test_another_name_of_the_same_host_is_another_origin(servers: Servers, client: Client) -> None:
    servers.put("/zip", redirect(f"http://localhost:{servers.api.port}/blob"))
    servers.put("/blob", Response(body=b"bytes"))
    assert body(client, client.url("/zip")) == b"bytes"
    assert "authorization" not in servers.log[1].headers


@pytest.mark.slow
def test_a_redirect_on_the_same_origin_keeps_the_token(servers: Servers, client: Client) -> None:
    servers.put("/old", redirect("/new"))
    servers.put("/new", answer(1))
    assert client.get("/old", int) == 1
    assert "authorization" in servers.log[1].headers


def test_a_chain_that_left_gets_no_token_on_its_way_back(servers: Servers, client: Client) -> None:
    servers.put("/zip", redirect(f"{servers.other.url}/away"))
    servers.put("/away", redirect(f"{servers.api.url}/back"))
    servers.put("/back", Response(body=b"bytes"))
    assert body(client, client.url("/zip")) == b"bytes"
    assert "authorization" not in servers.log[2].headers


def test_an_address_elsewhere_never_gets_the_token(servers: Servers, client: Client) -> None:
    servers.put("/away", redirect(f"{servers.api.url}/back"))
    servers.put("/back", Response(body=b"bytes"))
    assert body(client, f"{servers.other.url}/away") == b"bytes"
    assert not [request for request in servers.log if "authorization" in request.headers]


@pytest.mark.slow
def test_users_in_redirects_and_cookies_are_not_sent(servers: Servers, client: Client) -> None:
    host = servers.other.url.removeprefix("http://")
    first = redirect(f"http://user:password@{host}/blob")
    first.headers["set-cookie"] = "session=1; Path=/"
    servers.put("/zip", first)
    servers.put("/blob", Response(body=b"bytes", headers={"set-cookie": "b=1; Path=/"}))
    body(client, client.url("/zip"))
    body(client, client.url("/zip"))
    for request in servers.log:
        assert "cookie" not in request.headers
    assert "authorization" not in servers.log[1].headers


@pytest.mark.slow
def test_netrc_is_not_read(servers: Servers, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    servers.put("/blob", Response(body=b"bytes"))
    body(client, f"{servers.other.url}/blob")
    assert "authorization" not in servers.log[0].headers


def test_what_is_handed_on_does_not_carry_the_token(servers: Servers, client: Client) -> None:
    servers.put("/x", answer(1))
    with client.open(client.url("/x")) as response:
        assert servers.log[0].headers["authorization"] == f"Bearer {PLANTED}"
        assert PLANTED not in str(dict(response.request.headers))


def test_a_large_body_of_a_redirect_is_not_waited_for(servers: Servers, client: Client) -> None:
    headers = {"location": "/y", "content-length": str(1 << 30)}
    servers.put("/x", Response(status=302, headers=headers, cut_after=0))
    servers.put("/y", answer(1))
    assert client.get("/x", int) == 1
    assert [request.path for request in servers.log] == ["/x", "/y"]


def test_endless_redirects_end(servers: Servers, client: Client) -> None:
    servers.put("/a", redirect("/a"))
    with pytest.raises(CannotVerify, match="at most 5 redirects"):
        body(client, client.url("/a"))
    assert len(servers.log) == 6


@pytest.mark.parametrize(
    ("location", "allowed"),
    [
        ("https://other.example/x", True),
        ("/x", True),
        ("http://127.0.0.1:9/x", True),
        ("http://other.example/x?sig=SIGNED", False),
        ("http://api.example/x", False),
        ("ftp://other.example/x", False),
        ("file:///etc/passwd", False),
        ("https://other.example:port/x", False),
    ],
)
def test_redirects_do_not_leave_https(location: str, allowed: bool) -> None:  # noqa: FBT001
    here = httpx.URL("https://api.example/zip?sig=SIGNED")
    if allowed:
        assert redirect_target(here, location).host
    else:
        with pytest.raises(CannotVerify) as caught:
            redirect_target(here, location)
        assert "SIGNED" not in said(caught.value)


@pytest.mark.slow
def test_the_token_is_in_no_error_and_no_log(
    servers: Servers, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore", "httpcore.http11", "httpcore.connection"):
        caplog.set_level(logging.DEBUG, logger=name)
    echo = json.dumps({"you sent": f"Bearer {PLANTED}"}).encode()
    for status in (401, 403, 404, 418, 500):
        servers.put(f"/{status}", Response(status=status, body=echo))
    servers.put("/odd", Response(body=f"<html>{PLANTED}".encode()))
    servers.put("/shape", answer({PLANTED: 1}))
    servers.put("/zip", redirect(f"{servers.other.url}/gone?sig=SIGNED"))
    servers.put("/cut", Response(body=bytes(99), cut_after=5))
    texts = []
    for path in ("/401", "/403", "/404", "/418", "/500", "/odd", "/shape", "/cut"):
        with pytest.raises(CannotVerify) as caught:
            client.get(path, list[int])
        texts.append(said(caught.value))
    with pytest.raises(Refused) as refused:
        body(client, client.url("/zip"))
    texts += [said(refused.value), caplog.text, repr(client.token)]
    assert not [text for text in texts if PLANTED in text or "SIGNED" in text]


@pytest.mark.slow
def test_what_others_log_is_left_alone(servers: Servers, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    servers.put("/x", answer(1))
    client.get("/x", int)
    assert "HTTP Request" not in caplog.text
    httpx.get(f"{servers.api.url}/x")
    assert "HTTP Request" in caplog.text


def test_pages_are_chained_by_links(servers: Servers, client: Client) -> None:
    def page(request: Request) -> Response:
        number = int(request.query.get("page", "1"))
        link = f'<{servers.api.url}/p?page=1>; rel="first"'
        if number < 4:
            link += f', <{servers.api.url}/p?page={number + 1}>; rel="next"'
        return answer([number], link=link)

    servers.pages["/p"] = page
    assert list(client.pages("/p", list[int], per_page=1)) == [[1], [2], [3], [4]]


def test_a_next_page_elsewhere_is_refused(servers: Servers, client: Client) -> None:
    servers.put("/p", answer([1], link=f'<{servers.other.url}/p>; rel="next"'))
    with pytest.raises(CannotVerify, match="on the same server"):
        list(client.pages("/p", list[int]))
    assert {request.host for request in servers.log} == {"api"}


def test_pages_without_a_last_one_end(servers: Servers, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.net.client._PAGES", 7)

    def page(request: Request) -> Response:
        following = int(request.query.get("page", "1")) + 1
        link = f'<{servers.api.url}/x?page={following}>; rel="next"'
        return answer([], link=link) if following < 50 else answer([])

    servers.pages["/x"] = page
    with pytest.raises(CannotVerify, match="to have a last page"):
        list(client.pages("/x", list))
    assert len(servers.log) == 7


def test_pages_in_a_circle_end(servers: Servers, client: Client) -> None:
    servers.put("/p", answer([1], link='</p>; rel="next"'))
    with pytest.raises(CannotVerify, match="last page"):
        list(client.pages("/p", list[int]))


@pytest.mark.parametrize(
    ("content", "words"), [(b"<html>log in", "HTML page"), (b"", "truncated"), (b'{"a": "b"}', "Expected `array`")]
)
def test_what_is_no_json_of_an_api_is_told(servers: Servers, client: Client, content: bytes, words: str) -> None:
    servers.put("/x", Response(body=content))
    with pytest.raises(CannotVerify, match=words):
        client.get("/x", list[int])


@pytest.mark.slow
def test_answers_are_asked_for_once(servers: Servers, tmp_path: Path) -> None:
    def page(request: Request) -> Response:
        if request.headers.get("if-none-match") == '"one"':
            return Response(status=304, headers={"etag": '"one"'})
        return answer([1], etag='"one"', link='</q>; rel="next"')

    servers.pages["/p"] = page
    servers.put("/q", answer([2]))
    answers = Answers(tmp_path, b"salt")
    for _ in range(3):
        client = Client(servers.api.url, TOKEN, answers=answers)
        assert list(client.pages("/p", list[int])) == [[1], [2]]
        client.close()
    statuses = [request.status for request in servers.log if request.path == "/p"]
    assert statuses == [200, 304, 304]
    other = Token(secret=Secret("other"), header="Authorization", found_in="GH_TOKEN")
    client = Client(servers.api.url, other, answers=answers)
    list(client.pages("/p", list[int]))
    assert servers.log[-2].status == 200, "another token must not see what the first one saw"
    client.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    names = " ".join(str(path) for path in tmp_path.rglob("*"))
    assert PLANTED.encode() not in kept
    assert PLANTED not in names


@pytest.mark.slow
@pytest.mark.parametrize("stale", [400, 401, 403, 404, 410])
def test_where_the_bytes_were_is_tried_first_and_asked_again_when_it_expired(
    servers: Servers, client: Client, stale: int
) -> None:
    servers.put("/zip", redirect(f"{servers.other.url}/blob?sig=1"))
    servers.put("/blob", Response(body=b"a"), Response(body=b"b"), Response(status=stale), Response(body=b"c"))
    with client.open(client.url("/zip")) as response:
        place = client.redirected(response)
    with client.open(client.url("/zip"), at=place) as response:
        assert response.read() == b"b"
    with client.open(client.url("/zip"), at=place) as response:
        assert response.read() == b"c"
    hosts = [request.host for request in servers.log]
    assert hosts == ["api", "other", "other", "other", "api", "other"]
