"""Registries: what exists is found, what is missing is missing, and what cannot be said is neither."""

from __future__ import annotations

import base64
import copy
import json
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from factories.faults import Fault
from factories.guarded_registries import GIVEN, PASSWORD, USER, GuardedRegistry
from factories.registries import Image, Registry as RealRegistry, packed
from karat.findings import CannotVerify, UsageError
from karat.net.client import Token, basic_token
from karat.net.registry import (
    Authorizer,
    Challenge,
    ImageReference as Reference,
    Registry,
    challenge_of,
    parse,
    stored_login,
)
from karat.net.transport import Transport, is_private, redirect_target
from karat.system.hashes import sha256_hex

# `htpasswd -B` of USER and PASSWORD.
_HTPASSWD = f"{USER}:$2b$04$.9Q14zsQC2fho5.f3V4Cle1CTiMim9uvPe7.fbDxBYNa3Wt.aGdXi\n"
_LABELS = {"karat.commit.engine": "b" * 40}
pytestmark = pytest.mark.xdist_group("registry")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with RealRegistry(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture
def guarded() -> Iterator[GuardedRegistry]:
    with GuardedRegistry() as made:
        yield made


class Opened:
    """Registries that do not really wait, and are closed in the end."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.registries: list[Registry] = []

    def __call__(self, reference: Reference, login: Token | None = None) -> Registry:
        self.registries.append(Registry(reference, login, pause=self.waited.append))
        return self.registries[-1]


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened()
    yield made
    for registry in made.registries:
        registry.close()


def _login() -> Token:
    return basic_token(USER, PASSWORD, "$REGISTRY_PASSWORD")


def test_a_real_registry_tells_digests_labels_and_what_is_missing(real: RealRegistry, opened: Opened) -> None:
    image = Image(layers=(packed({"opt/night": b"1"}),), labels=_LABELS)
    digest = real.push("toy/nightly", "one", image)
    reference = parse(f"{real.host}/toy/nightly:one")
    registry = opened(reference)
    registry.check()
    assert registry.digest(reference) == digest
    assert registry.labels(reference, digest) == _LABELS
    assert registry.digest(parse(f"{real.host}/toy/nightly:two")) is None
    assert registry.digest(parse(f"{real.host}/toy/nobody:one")) is None


def test_of_an_image_for_several_platforms_the_list_is_what_is_run(real: RealRegistry, opened: Opened) -> None:
    digest = real.push_index("toy/many", "one", Image(labels=_LABELS))
    reference = parse(f"{real.host}/toy/many:one")
    registry = opened(reference)
    assert registry.digest(reference) == digest
    assert registry.labels(reference, digest) == _LABELS


def test_a_real_registry_takes_a_password_and_refuses_a_wrong_one(tmp_path: Path, opened: Opened) -> None:
    with RealRegistry(tmp_path, htpasswd=_HTPASSWD) as real:
        real.login = (USER, PASSWORD)
        digest = real.push("toy/nightly", "one", Image(bare=True))
        reference = parse(f"{real.host}/toy/nightly:one")
        assert opened(reference, _login()).digest(reference) == digest
        wrong = basic_token(USER, "ghp_PlantedButWrong", "$REGISTRY_PASSWORD")
        with pytest.raises(CannotVerify, match=r"with the login from \$REGISTRY_PASSWORD, found HTTP 401"):
            opened(reference, wrong).digest(reference)
        with pytest.raises(CannotVerify, match="without a login, found HTTP 401"):
            opened(reference).digest(reference)


def test_the_login_goes_to_the_realm_and_the_token_not_to_where_blobs_lie(
    guarded: GuardedRegistry, opened: Opened
) -> None:
    reference = parse(f"{guarded.host}/toy/nightly:here")
    registry = opened(reference, _login())
    assert registry.digest(reference) == guarded.digest
    assert registry.labels(reference, guarded.digest) == {"karat.commit.engine": "a" * 40}
    pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    assert guarded.signed("realm") == [f"Basic {pair}"]
    assert set(guarded.signed("api")) == {"", f"Bearer {GIVEN}"}
    assert guarded.signed("blob") == [""]
    asked = next(request for request in guarded.requests if request.host == "realm")
    assert asked.query == {"service": 'the "service"', "scope": "repository:toy/nightly:pull"}


def test_anybody_may_read_where_the_realm_gives_tokens_to_anybody(opened: Opened) -> None:
    with GuardedRegistry(anonymous=True) as guarded:
        reference = parse(f"{guarded.host}/toy/nightly:here")
        registry = opened(reference)
        registry.check()
        assert registry.digest(reference) == guarded.digest
        assert registry.digest(parse(f"{guarded.host}/toy/nightly:gone")) is None
        assert guarded.signed("realm") == [""]


def test_a_token_that_has_expired_is_replaced(guarded: GuardedRegistry, opened: Opened) -> None:
    reference = parse(f"{guarded.host}/toy/nightly:here")
    registry = opened(reference, _login())
    registry.digest(reference)
    realm = f'Bearer realm="{guarded.realm.url}/token"'
    guarded.faults.add(Fault(pattern="/manifests/", status=401, headers={"www-authenticate": realm}))
    # The realm gives the same token again, which was refused: nothing else is left to try.
    with pytest.raises(CannotVerify, match="found HTTP 401"):
        registry.digest(reference)
    assert len(guarded.signed("realm")) == 2
    assert registry.digest(reference) == guarded.digest


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_never_a_missing_image(guarded: GuardedRegistry, status: int, opened: Opened) -> None:
    guarded.faults.add(Fault(pattern="/manifests/", status=status, times=None))
    reference = parse(f"{guarded.host}/toy/nightly:gone")
    with pytest.raises(CannotVerify, match=f"found HTTP {status}"):
        opened(reference, _login()).digest(reference)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_trouble_that_passes_is_waited_for(guarded: GuardedRegistry, status: int, opened: Opened) -> None:
    guarded.faults.add(Fault(pattern="/manifests/", status=status, times=2))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    registry = opened(reference, _login())
    assert registry.digest(reference) == guarded.digest
    assert opened.waited == [1.0, 2.0]


def test_trouble_that_does_not_pass_says_nothing_of_the_image(guarded: GuardedRegistry, opened: Opened) -> None:
    guarded.faults.add(Fault(pattern="/manifests/", status=502, times=None))
    reference = parse(f"{guarded.host}/toy/nightly:gone")
    with pytest.raises(CannotVerify, match="found HTTP 502"):
        opened(reference, _login()).digest(reference)


def test_a_rate_limit_is_waited_for_as_long_as_the_server_says(guarded: GuardedRegistry, opened: Opened) -> None:
    limit = Fault(pattern="/manifests/", status=429, headers={"retry-after": "40"})
    guarded.faults.add(limit)
    reference = parse(f"{guarded.host}/toy/nightly:here")
    registry = opened(reference, _login())
    assert registry.digest(reference) == guarded.digest
    assert len(opened.waited) >= 1
    assert opened.waited[0] == pytest.approx(40, abs=5)


def test_a_real_registry_tells_its_tags(real: RealRegistry, opened: Opened) -> None:
    for number in range(5):
        real.push("toy/paged", f"night-{number}", Image(bare=True))
    reference = parse(f"{real.host}/toy/paged:x")
    assert opened(reference).tags(reference, page=2) == [f"night-{number}" for number in range(5)]
    assert opened(reference).tags(parse(f"{real.host}/toy/nobody:x")) == []


def test_pages_are_asked_with_a_token_and_after_a_rate_limit_and_only_of_the_registry(
    guarded: GuardedRegistry, opened: Opened
) -> None:
    guarded.faults.add(Fault(pattern="last=here", status=429, headers={"retry-after": "30"}))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    assert opened(reference, _login()).tags(reference, page=1) == ["gone", "here", "there"]
    assert opened.waited == [pytest.approx(30, abs=5)]
    assert guarded.signed("api")[-1] == f"Bearer {GIVEN}"


def test_a_rate_limit_of_hours_is_told_at_once(guarded: GuardedRegistry, opened: Opened) -> None:
    limit = Fault(pattern="/manifests/", status=429, headers={"retry-after": "7200"})
    guarded.faults.add(limit)
    reference = parse(f"{guarded.host}/toy/nightly:here")
    with pytest.raises(CannotVerify, match="within 5 minutes, found that it does at 2") as told:
        opened(reference, _login()).digest(reference)
    when = datetime.strptime(str(told.value).partition(" at ")[2][:20], "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
    assert (when - datetime.now(UTC)).total_seconds() == pytest.approx(7200, abs=120)


def test_a_silent_port_says_nothing_of_the_image(guarded: GuardedRegistry, opened: Opened) -> None:
    reference = parse(f"{guarded.host}/toy/nightly:here")
    guarded.api.stop()
    with pytest.raises(CannotVerify, match="expected an answer from http://127"):
        opened(reference).digest(reference)


def test_bytes_that_are_not_those_of_the_digest_are_refused(guarded: GuardedRegistry, opened: Opened) -> None:
    guarded.faults.add(Fault(pattern="/lies/here", body=b'{"config": {}}'))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    with pytest.raises(CannotVerify, match="found others"):
        opened(reference, _login()).labels(reference, guarded.digest)


def test_a_web_server_is_no_registry(guarded: GuardedRegistry, opened: Opened) -> None:
    guarded.faults.add(Fault(pattern="/v2/$", status=404))
    with pytest.raises(CannotVerify, match="expected a registry at http://127"):
        opened(parse(f"{guarded.host}/toy/nightly:here")).check()


def test_blobs_are_not_fetched_from_a_chain_of_redirects_without_end(guarded: GuardedRegistry, opened: Opened) -> None:
    where = {"location": "/v2/toy/nightly/manifests/here"}
    guarded.faults.add(Fault(pattern="/manifests/", status=307, headers=where, times=None))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    with pytest.raises(CannotVerify, match="at most 5 redirects"):
        opened(reference, _login()).digest(reference)


def test_a_proxy_is_not_asked_for_this_machine_and_its_password_is_not_told(
    guarded: GuardedRegistry, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    reference = parse(f"{guarded.host}/toy/nightly:here")
    assert opened(reference, _login()).digest(reference) == guarded.digest
    monkeypatch.setenv("HTTPS_PROXY", "odd://me:ghp_PlantedInProxy@proxy:1")
    with pytest.raises(UsageError, match="expected an http:// or https:// proxy") as refused:
        opened(parse("ghcr.io/nvidia/jax:x"))
    assert "Planted" not in f"{refused.value}{refused.value.__context__}"


def test_a_realm_that_somebody_else_names_is_not_asked(guarded: GuardedRegistry, opened: Opened) -> None:
    elsewhere = {"location": f"{guarded.blob.url}/manifests/here"}
    challenge = {"www-authenticate": f'Bearer realm="{guarded.realm.url}/token"'}
    guarded.faults.add(Fault(pattern="/manifests/", host="api", status=307, headers=elsewhere, times=None))
    guarded.faults.add(Fault(pattern="/manifests/", host="blob", status=401, headers=challenge, times=None))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    with pytest.raises(CannotVerify, match="found HTTP 401"):
        opened(reference, _login()).digest(reference)
    assert guarded.signed("realm") == []


def test_a_registry_over_plain_http_does_not_say_where_the_login_goes(guarded: GuardedRegistry) -> None:
    guarded.anonymous = True
    transport = Transport("http://registry.example")
    challenge = f'Bearer realm="{guarded.realm.url}/token"'
    asked = httpx.URL("http://registry.example/v2/")
    authorizer = Authorizer(transport, "registry.example", _login())
    found = authorizer.answer([challenge], asked, "toy", None)
    transport.close()
    assert found == f"Bearer {GIVEN}"
    assert guarded.signed("realm") == [""]


def test_a_realm_over_plain_http_elsewhere_gets_no_login(
    guarded: GuardedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded.anonymous = True
    # The proxy sees what another machine would.
    monkeypatch.setenv("HTTP_PROXY", guarded.realm.url)
    transport = Transport("https://registry.example")
    challenge = 'Bearer realm="http://realm.example/token"'
    asked = httpx.URL("https://registry.example/v2/")
    authorizer = Authorizer(transport, "registry.example", _login())
    found = authorizer.answer([challenge], asked, "toy", None)
    with pytest.raises(CannotVerify, match="to lead to https, found plain http on b"):
        redirect_target(httpx.URL("https://a/x"), "http://b/y")
    transport.close()
    assert found == f"Bearer {GIVEN}"
    assert guarded.signed("realm") == [""]


@pytest.mark.slow
def test_a_silent_realm_is_not_waited_for_by_one_thread_after_the_other(
    guarded: GuardedRegistry, opened: Opened
) -> None:
    guarded.faults.add(Fault(pattern="/token", status=502, delay=0.2, times=None))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    registry = opened(reference, _login())

    def asked(_: int) -> str:
        with pytest.raises(CannotVerify, match="found HTTP 502") as refused:
            registry.digest(reference)
        return str(refused.value)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(asked, range(8)))
    assert len(guarded.signed("realm")) < 20


def test_of_an_answer_only_so_much_is_read(guarded: GuardedRegistry, opened: Opened) -> None:
    body = b" " * (96 << 20)
    guarded.faults.add(Fault(pattern="/lies/here", body=body))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    with pytest.raises(CannotVerify, match="expected less than 16,777,216 bytes"):
        opened(reference, _login()).labels(reference, guarded.digest)
    guarded.blob.stop()
    (asked,) = (request for request in guarded.requests if request.host == "blob")
    assert asked.sent < len(body)


def test_one_answer_makes_up_for_many_that_did_not_come(guarded: GuardedRegistry, opened: Opened) -> None:
    reference = parse(f"{guarded.host}/toy/nightly:here")
    registry = opened(reference, _login())
    guarded.faults.add(Fault(pattern="/manifests/odd", status=502, times=None))
    for _ in range(5):
        with pytest.raises(CannotVerify, match="found HTTP 502"):
            registry.digest(parse(f"{guarded.host}/toy/nightly:odd"))
        assert registry.digest(reference) == guarded.digest


@pytest.mark.parametrize("fault", [{"status": 503}, {"reset": True, "cut_after": 0}])
def test_a_realm_that_has_no_time_is_asked_again(
    guarded: GuardedRegistry, opened: Opened, fault: dict[str, Any]
) -> None:
    guarded.faults.add(Fault(pattern="/token", **fault))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    assert opened(reference, _login()).digest(reference) == guarded.digest
    assert opened.waited == [1.0]


def test_a_realm_that_never_has_time_is_named(guarded: GuardedRegistry, opened: Opened) -> None:
    guarded.faults.add(Fault(pattern="/token", status=502, times=None))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    with pytest.raises(CannotVerify, match=r"a token with the login from .*, found HTTP 502 from"):
        opened(reference, _login()).digest(reference)


@pytest.mark.parametrize("body", [b"<html>", b'{"x":' + b"[" * 100_000])
def test_a_page_is_no_manifest(guarded: GuardedRegistry, opened: Opened, body: bytes) -> None:
    reference = parse(f"{guarded.host}/toy/nightly:here")
    guarded.faults.add(Fault(pattern="/manifests/", status=200, body=body, times=None))
    with pytest.raises(CannotVerify, match="expected a manifest") as refused:
        opened(reference, _login()).labels(reference, f"sha256:{sha256_hex(body)}")
    assert refused.value.next_command == f"curl --include http://{guarded.host}/v2/"


def test_a_page_is_no_registry(opened: Opened) -> None:
    with GuardedRegistry() as guarded:
        page = Fault(pattern="/v2/$", status=200, headers={"content-type": "text/html"}, body=b"<html>")
        guarded.faults.add(page)
        with pytest.raises(CannotVerify, match="found a web page"):
            opened(parse(f"{guarded.host}/toy/nightly:here")).check()


def test_an_answer_that_does_not_end_is_none(guarded: GuardedRegistry) -> None:
    reference = parse(f"{guarded.host}/toy/nightly:here")
    registry = Registry(reference, _login(), pause=lambda _: None, longest=0.05)
    registry.digest(reference)
    guarded.faults.add(Fault(pattern="/lies/here", rate=100, times=None))
    with pytest.raises(CannotVerify, match=r"no end of it within 0\.05 s"):
        registry.labels(reference, guarded.digest)
    registry.close()


@pytest.mark.parametrize("said", ["²", "soon", "-1", "9" * 400])
def test_a_wait_that_cannot_be_read_is_none(guarded: GuardedRegistry, opened: Opened, said: str) -> None:
    guarded.faults.add(Fault(pattern="/manifests/", status=429, headers={"retry-after": said}))
    reference = parse(f"{guarded.host}/toy/nightly:here")
    assert opened(reference, _login()).digest(reference) == guarded.digest
    assert opened.waited == [1.0]


def test_nothing_of_it_is_logged(guarded: GuardedRegistry, opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    reference = parse(f"{guarded.host}/toy/nightly:here")
    opened(reference, _login()).labels(reference, guarded.digest)
    assert any("sig=1" in request.target for request in guarded.requests)
    assert [one for one in caplog.records if one.name.startswith(("httpx", "httpcore"))] == []


def test_a_challenge_is_taken_apart() -> None:
    hub = 'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="a,b"'
    assert challenge_of([hub]) == Challenge(
        scheme="bearer", realm="https://auth.docker.io/token", service="registry.docker.io"
    )
    assert challenge_of(["Basic realm=Registry", hub]) == challenge_of([hub])
    assert challenge_of(['Basic realm="x"']) == Challenge(scheme="basic", realm="x")
    assert challenge_of([f'Negotiate, Basic realm="x", {hub}']) == challenge_of([hub])
    assert challenge_of(["Negotiate"]) is None
    assert challenge_of([]) is None


def test_secrets_travel_over_https_or_on_this_machine_only() -> None:
    assert is_private(httpx.URL("https://ghcr.io/token"))
    assert is_private(httpx.URL("http://127.0.0.1:5000/token"))
    assert is_private(httpx.URL("http://[::1]/token"))
    assert not is_private(httpx.URL("http://ghcr.io/token"))
    assert not is_private(httpx.URL("http://127.0.0.1.example.org/token"))


def test_a_login_shows_itself_to_nobody() -> None:
    login = _login()
    assert PASSWORD not in f"{login} {login!r}"
    with pytest.raises(TypeError, match="not copied"):
        copy.deepcopy(login)


@pytest.mark.parametrize(
    ("key", "image", "found"),
    [
        ("ghcr.io", "ghcr.io/nvidia/jax:x", True),
        ("https://ghcr.io/v2/", "ghcr.io/nvidia/jax:x", True),
        ("ghcr.io/nvidia", "ghcr.io/nvidia/jax:x", True),
        ("ghcr.io/other", "ghcr.io/nvidia/jax:x", False),
        ("https://index.docker.io/v1/", "python:3.11", True),
        ("ghcr.io.example.org", "ghcr.io/nvidia/jax:x", False),
    ],
)
def test_the_engines_own_login_is_found_by_the_registrys_name(
    tmp_path: Path, key: str, image: str, *, found: bool
) -> None:
    pair = base64.b64encode(b"me:word").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {key: {"auth": pair}}}))
    login = stored_login(parse(image).name, {"DOCKER_CONFIG": str(tmp_path)})
    assert (login is not None) == found
    if login:
        assert login.value() == f"Basic {pair}"
        assert login.found_in == str(tmp_path / "config.json")


@pytest.mark.parametrize("auth", ["ü", "!", "/w==", ""])
def test_a_stored_login_that_cannot_be_read_is_none(tmp_path: Path, auth: str) -> None:
    path = tmp_path / "auth.json"
    path.write_text(json.dumps({"auths": {"ghcr.io": {"auth": auth}}}))
    env = {"REGISTRY_AUTH_FILE": str(path)}
    assert stored_login(parse("ghcr.io/nvidia/jax:x").name, env) is None


def test_the_closest_login_wins_and_podmans_file_comes_first(tmp_path: Path) -> None:
    podman, docker = tmp_path / "auth.json", tmp_path / "config.json"
    pairs = {name: base64.b64encode(f"{name}:word".encode()).decode() for name in ("far", "near", "old")}
    auths = {"ghcr.io": {"auth": pairs["far"]}, "ghcr.io/nvidia": {"auth": pairs["near"]}}
    podman.write_text(json.dumps({"auths": auths}))
    docker.write_text(json.dumps({"auths": {"ghcr.io": {"auth": pairs["old"]}}}))
    env = {"REGISTRY_AUTH_FILE": str(podman), "DOCKER_CONFIG": str(tmp_path)}
    near = stored_login(parse("ghcr.io/nvidia/jax:x").name, env)
    far = stored_login(parse("ghcr.io/else/jax:x").name, env)
    assert near is not None
    assert far is not None
    assert (near.value(), far.value()) == (f"Basic {pairs['near']}", f"Basic {pairs['far']}")
    podman.write_text("no JSON")
    old = stored_login(parse("ghcr.io/nvidia/jax:x").name, env)
    assert old is not None
    assert old.value() == f"Basic {pairs['old']}"


@pytest.mark.parametrize("how", ["credHelpers", "credsStore"])
def test_a_credential_helper_is_asked_on_its_stdin(tmp_path: Path, how: str) -> None:
    helper = tmp_path / "docker-credential-planted"
    helper.write_text(
        '#!/bin/sh\nread server\n[ "$1 $server" = "get ghcr.io" ] || exit 1\n'
        'echo \'{"ServerURL": "ghcr.io", "Username": "me", "Secret": "word"}\'\n'
    )
    helper.chmod(0o755)
    said = {
        "credHelpers": {"credHelpers": {"ghcr.io": "planted"}},
        "credsStore": {"credsStore": "planted", "auths": {"ghcr.io": {}}},
    }
    (tmp_path / "config.json").write_text(json.dumps(said[how]))
    env = {"DOCKER_CONFIG": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    login = stored_login(parse("ghcr.io/nvidia/jax:x").name, env)
    assert login is not None
    assert login.value() == f"Basic {base64.b64encode(b'me:word').decode()}"
    assert stored_login(parse("quay.io/nvidia/jax:x").name, env) is None


def test_a_helper_that_fails_or_has_an_odd_name_gives_no_login(tmp_path: Path) -> None:
    said = {"credHelpers": {"ghcr.io": "../planted", "quay.io": "nobody-has-it"}}
    (tmp_path / "config.json").write_text(json.dumps(said))
    env = {"DOCKER_CONFIG": str(tmp_path), "PATH": os.environ["PATH"]}
    for host in ("ghcr.io", "quay.io"):
        assert stored_login(parse(f"{host}/nvidia/jax:x").name, env) is None
