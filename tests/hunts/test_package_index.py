from __future__ import annotations

import datetime as dt
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from factories.certificates import loopback_tls
from factories.package_indexes import PackageIndex
from karat.findings import CannotVerify, UsageError
from karat.hunts.timelines.packages import changed_packages, releases, versions_between
from karat.net import package_index
from karat.net.package_index import IndexAddress, IndexFile, files, find_address, plain_name, without_password
from karat.system.foreign.limits import Limit

SECRET = "ghp_PlantedPassword0000000000000000000"  # noqa: S105 - planted, and looked for afterwards
HERE = sys.version_info[:3]


def at(url: str) -> IndexAddress:
    return IndexAddress(url=url, origin="test")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = msgspec.structs.replace(package_index.RETRY, sleep=lambda _: None)
    monkeypatch.setattr(package_index, "RETRY", quick)


@pytest.mark.parametrize("html", [False, True])
def test_json_and_html_say_the_same(*, html: bool) -> None:
    with PackageIndex(html=html) as index:
        index.add("toy", "1.0", requires_python=">=3.8", upload_time="2020-01-02T03:04:05Z")
        index.add("toy", "1.1", yanked="wrong <tag> & sums")
        index.add("toy", "1.2", yanked=True)
        index.file("toy", "toy-1.3.tar.gz")
        found = files(at(index.url), "toy")
    assert found == (
        IndexFile(
            filename="toy-1.0-py3-none-any.whl",
            requires_python=">=3.8",
            uploaded=dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        ),
        IndexFile(filename="toy-1.1-py3-none-any.whl", yanked="wrong <tag> & sums"),
        IndexFile(filename="toy-1.2-py3-none-any.whl", yanked=""),
        IndexFile(filename="toy-1.3.tar.gz"),
    )


def test_an_index_that_is_busy_is_asked_again() -> None:
    with PackageIndex() as index:
        index.add("toy", "1.0")
        index.answers = [503, 429]
        assert len(files(at(index.url), "toy")) == 1
        index.answers = [503, 503, 503]
        with pytest.raises(CannotVerify, match="HTTP 503"):
            files(at(index.url), "toy")


def test_what_an_index_says_instead_of_files() -> None:
    with PackageIndex() as index:
        with pytest.raises(UsageError, match="found none called 'toi'"):
            files(at(index.url), "toi")
        index.answers = [403]
        with pytest.raises(CannotVerify, match="found HTTP 403"):
            files(at(index.url), "toy")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(CannotVerify, match="expected an answer from http://127"):
        files(at(f"http://127.0.0.1:{port}/simple"), "toy")


def test_other_json_is_no_list_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    with PackageIndex() as index:
        index.projects["toy"] = []
        monkeypatch.setattr(index, "listing", lambda _: ("application/json", b"[1]"))
        with pytest.raises(CannotVerify, match="found other JSON"):
            files(at(index.url), "toy")
        monkeypatch.setattr(index, "listing", lambda _: ("application/json", b'{"files": [1, {"filename": 2}]}'))
        assert files(at(index.url), "toy") == ()


def test_a_password_goes_to_its_own_index_and_into_no_message() -> None:
    with PackageIndex(password=SECRET) as index, PackageIndex() as other:
        index.add("toy", "1.0")
        other.add("toy", "1.0")
        assert files(at(index.with_password), "toy")
        with pytest.raises(CannotVerify) as caught:
            files(at(index.with_password.replace("Planted", "Plainted")), "toy")
        assert "Plainted" not in f"{caught.value} {caught.value.next_command}"
        index.answers = [other.url.replace("127.0.0.1", "localhost") + "/toy"]
        files(at(index.with_password), "toy")
        assert [header for _, header in other.asked] == [""]
        assert SECRET not in f"{at(index.with_password).shown} {at(index.with_password)!r}"


def test_an_index_over_https_does_not_lead_to_plain_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, tls = loopback_tls(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with PackageIndex(tls=tls) as index, PackageIndex() as other:
        index.add("toy", "1.0")
        assert files(at(index.url), "toy")
        # The proxy hears what anyone on the way to another machine would.
        monkeypatch.setenv("HTTP_PROXY", other.url.removesuffix("/simple"))
        index.answers = ["http://index.example/simple/toy/"]
        with pytest.raises(CannotVerify, match=r"to lead to https, found plain http on index\.example"):
            files(at(index.url), "toy")
        assert other.asked == []


def test_a_project_is_asked_for_by_its_plain_name() -> None:
    with PackageIndex() as index:
        index.add("zope-interface", "1.0")
        assert files(at(index.url), "Zope.Interface")


def test_an_answer_without_an_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karat.net.package_index.INDEX", Limit("KARAT_MAX_INDEX_MB", 100))
    with PackageIndex() as index:
        index.add("toy", "1.0")
        with pytest.raises(CannotVerify, match="found more than 100 bytes"):
            files(at(index.url), "toy")


def test_who_names_the_index() -> None:
    pip = {"PIP_INDEX_URL": "http://pip/simple/"}
    both = {**pip, "UV_INDEX_URL": "http://uv/simple", "UV_DEFAULT_INDEX": "mine=http://default/simple"}
    assert find_address("http://own/simple", both).url == "http://own/simple"
    assert find_address("", both).url == "http://default/simple"
    assert find_address("", pip) == IndexAddress(url="http://pip/simple", origin="PIP_INDEX_URL")
    assert find_address("", {}).is_pypi


@pytest.mark.parametrize(
    "url", ["ftp://x/simple", "simple", "file:///srv/simple", "http://", "http://[::1", "http://x:99999/simple"]
)
def test_what_is_no_index(url: str) -> None:
    with pytest.raises(UsageError, match=r"packages\.index"):
        find_address(url)


def test_a_url_is_shown_without_who_logs_in() -> None:
    assert without_password("https://a:b@c.d:1/simple") == "https://c.d:1/simple"
    assert without_password("https://c.d/simple") == "https://c.d/simple"
    assert without_password("https://a:b/c@c.d/simple") == "https://c.d/simple"
    assert without_password("http://a:b@[::1") == "http://[::1"
    assert at("https://a%40b:p%2Fq@c.d/simple").credentials == ("a@b", "p/q")


def listed(*names: str, **attributes: str) -> list[IndexFile]:
    return [IndexFile(filename=name, **attributes) for name in names]  # type: ignore[arg-type]


def test_local_versions_are_told_to_the_one_they_would_be_taken_for() -> None:
    names = [f"toy-{v}-py3-none-any.whl" for v in ("1.0", "1.0+cpu", "1.0+cu1", "1.0.post1", "1.1")]
    found = {r.version: r.local for r in releases("toy", listed(*names), HERE)}
    assert found == {"1.0": ("1.0+cpu", "1.0+cu1"), "1.0+cpu": (), "1.0+cu1": (), "1.0.post1": (), "1.1": ()}


def test_versions_are_in_the_order_of_their_numbers_not_of_their_letters() -> None:
    names = [f"toy-{version}.tar.gz" for version in ("1.10", "1.9", "1.10rc1", "1.0.post1", "1!0.1", "1.0")]
    found = releases("toy", listed(*names), HERE)
    assert [r.version for r in found] == ["1.0", "1.0.post1", "1.9", "1.10rc1", "1.10", "1!0.1"]
    assert [r.prerelease for r in found] == [False, False, False, True, False, False]


def test_files_of_others_and_of_no_version_are_left_out() -> None:
    names = (
        "toy-1.0.tar.gz",
        "toybox-2.0.tar.gz",
        "toy-3.0.exe",
        "toy-latest.tar.gz",
        "toy.whl",
        "toy-4.0-py2.egg",
        "",
    )
    assert [r.version for r in releases("Toy", listed(*names), HERE)] == ["1.0"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (listed("toy-1.0-py3-none-any.whl"), ""),
        (listed("toy-1.0-py3-none-any.whl", requires_python=">=4"), "needs Python >=4"),
        (listed("toy-1.0-cp27-cp27m-win32.whl"), "has no wheel for Python"),
        (listed("toy-1.0-cp27-cp27m-win32.whl", "toy-1.0.tar.gz"), ""),
        (listed("toy-1.0-py3-none-any.whl", requires_python="what?"), ""),
    ],
)
def test_what_can_be_installed_here(files: list[IndexFile], said: str) -> None:
    (found,) = releases("toy", files, HERE)
    assert said in found.missing
    assert bool(said) == bool(found.missing)


def test_wheels_of_another_python_than_this_one() -> None:
    files = listed("toy-1.0-cp39-none-any.whl")
    assert releases("toy", files, (3, 9))[0].missing == ""
    assert releases("toy", files, (3, 12))[0].missing


def test_a_release_is_yanked_when_all_of_it_is() -> None:
    half = [IndexFile(filename="toy-1.0.tar.gz", yanked="x"), IndexFile(filename="toy-1.0-py3-none-any.whl")]
    assert releases("toy", half, HERE)[0].yanked is None
    assert releases("toy", half[:1], HERE)[0].yanked == "x"


def test_a_release_came_with_its_first_file() -> None:
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    times = [start + dt.timedelta(hours=h) for h in (0, 5, 9000)]
    files = [IndexFile(filename=f"toy-1.0-{n}-py3-none-any.whl", uploaded=t) for n, t in enumerate(times, 1)]
    (found,) = releases("toy", files, HERE)
    assert found.uploaded == times[0]


def test_ranges() -> None:
    found = releases("toy", listed("toy-1.0.tar.gz", "toy-1.5.tar.gz", "toy-2.0.tar.gz"), HERE)
    assert [r.version for r in versions_between(found, "1.0.0", "1.5")] == ["1.0", "1.5"]
    assert [r.version for r in versions_between(found, "", "1.7")] == ["1.0", "1.5"]
    assert [r.version for r in versions_between(found, "1.1", "")] == ["1.5", "2.0"]
    with pytest.raises(UsageError, match="expected start up to end"):
        versions_between(found, "2", "1")
    with pytest.raises(UsageError, match=r"packages\.start: expected a version"):
        versions_between(found, "new", "")


def test_names_and_what_moved() -> None:
    assert plain_name("Zope.Interface_x") == "zope-interface-x"
    assert changed_packages({"a": "1", "b": "1"}, {"a": "1", "b": "2", "c": "3"}) == {"b": ("1", "2"), "c": ("", "3")}
    assert changed_packages({}, {"a": "1"}) == {}
