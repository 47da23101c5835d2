from __future__ import annotations

from collections.abc import Iterator

import pytest

from factories.client_servers import TOKEN, Servers, answer
from factories.clocks import Clock
from factories.http_host import Response
from karat.findings import CannotVerify
from karat.net.client import Client, Refused, Retry, Stopped, Unanswered


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


def test_a_bad_token_is_named_not_shown(servers: Servers, client: Client) -> None:
    servers.put("/x", Response(status=401))
    with pytest.raises(Refused, match="the token from GITHUB_TOKEN") as caught:
        client.get("/x", dict)
    assert caught.value.status == 401
    assert len(servers.log) == 1


@pytest.mark.slow
def test_forbidden_is_not_tried_again(servers: Servers, client: Client, clock: Clock) -> None:
    servers.put("/x", Response(status=403, body=b'{"message": "Resource not accessible"}'))
    with pytest.raises(Refused, match="403"):
        client.get("/x", dict)
    assert (len(servers.log), clock.waits) == (1, [])


@pytest.mark.slow
@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_passing_trouble_passes(servers: Servers, client: Client, clock: Clock, status: int) -> None:
    servers.put("/x", Response(status=status), Response(status=status), answer(7))
    assert client.get("/x", int) == 7
    assert len(clock.waits) == 2
    assert clock.waits[0] < clock.waits[1] * 2


@pytest.mark.slow
def test_lasting_trouble_is_told(servers: Servers, client: Client, clock: Clock) -> None:
    servers.put("/x", Response(status=502))
    with pytest.raises(Unanswered, match=r"/x, found HTTP 502"):
        client.get("/x", int)
    assert (len(servers.log), len(clock.waits)) == (5, 4)


@pytest.mark.slow
def test_a_cut_answer_is_asked_for_again(servers: Servers, client: Client) -> None:
    servers.put("/x", Response(body=b"[1, 2, 3]", cut_after=4, reset=True), answer([1, 2, 3]))
    assert client.get("/x", list[int]) == [1, 2, 3]


@pytest.mark.slow
def test_no_server_is_told_after_a_while(servers: Servers, clock: Clock) -> None:
    url = servers.api.url
    servers.api.stop()
    client = Client(url, TOKEN, retry=clock.retry(attempts=3))
    with pytest.raises(Unanswered, match="refused"):
        client.get("/x", int)
    assert len(clock.waits) == 2
    client.close()


@pytest.mark.slow
def test_retry_after_is_honoured_and_told_once(servers: Servers, clock: Clock) -> None:
    notices: list[str] = []
    client = Client(servers.api.url, TOKEN, retry=clock.retry(), notice=notices.append)
    servers.put("/x", Response(status=429, headers={"retry-after": "42"}), answer(1))
    assert client.get("/x", int) == 1
    assert clock.waits == [42.0]
    assert notices == ["127.0.0.1: rate limit reached; waiting 42 s"]
    client.close()


def test_a_limit_is_waited_for_until_it_resets(servers: Servers, client: Client, clock: Clock) -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(clock.now) + 30)}
    servers.put("/x", Response(status=403, headers=headers), answer(1))
    assert client.get("/x", int) == 1
    assert clock.waits == [31.0]


def test_a_limit_in_words_only_is_a_limit(servers: Servers, client: Client, clock: Clock) -> None:
    words = b'{"message": "You have exceeded a secondary rate limit."}'
    servers.put("/x", Response(status=403, body=words), answer(1))
    assert client.get("/x", int) == 1
    assert clock.waits == [60.0]


@pytest.mark.slow
@pytest.mark.parametrize("words", [b"Corporate policy", b"the limit of your rate plan"])
def test_other_words_are_no_limit(servers: Servers, client: Client, clock: Clock, words: bytes) -> None:
    servers.put("/x", Response(status=403, body=words), answer(1))
    with pytest.raises(Refused):
        client.get("/x", int)
    assert clock.waits == []


@pytest.mark.slow
def test_several_at_one_limit_hear_of_it_once_and_wait_for_the_longest(servers: Servers) -> None:
    """As if at one instant: the clock stands still."""
    waits: list[float] = []
    notices: list[str] = []
    retry = Retry(sleep=waits.append, clock=lambda: 1_800_000_000.0)
    client = Client(servers.api.url, TOKEN, retry=retry, notice=notices.append)
    limits = [Response(status=429, headers={"retry-after": after}) for after in ("50", "50", "5")]
    servers.put("/x", *limits, answer(1))
    assert client.get("/x", int) == 1
    assert waits == [50.0, 50.0, 50.0]
    assert notices == ["127.0.0.1: rate limit reached; waiting 50 s"]
    client.close()


def test_a_limit_too_far_away_is_told_with_its_time(servers: Servers, client: Client, clock: Clock) -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(clock.now) + 3600)}
    servers.put("/x", Response(status=403, headers=headers))
    with pytest.raises(Unanswered, match=r"within 15 minutes, found that it does at 2027-01-15 09:00 UTC"):
        client.get("/x", int)
    assert clock.waits == []


@pytest.mark.slow
def test_a_stopped_client_wakes_up_and_sends_nothing(servers: Servers) -> None:
    client = Client(servers.api.url, TOKEN)
    servers.put("/x", Response(status=429, headers={"retry-after": "600"}))
    client._notice = lambda _: client.stop()
    with pytest.raises(Stopped):
        client.get("/x", int)
    with pytest.raises(Stopped):
        client.get("/x", int)
    assert len(servers.log) == 1
    client.close()


def test_a_huge_answer_is_not_read_to_its_end(
    servers: Servers, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("karat.net.client._LARGEST_JSON", 1000)
    servers.put("/x", Response(body=b"[" + b"1," * 5000 + b"1]"))
    with pytest.raises(CannotVerify, match="more than 1,000 bytes"):
        client.get("/x", list[int])
