"""Answers of strange package indexes: files, or one clear error, in a moment."""

from __future__ import annotations

import tracemalloc

import pytest

from factories.ends import ends
from factories.package_indexes import PackageIndex
from karat.findings import CannotVerify, UsageError
from karat.hunts.timelines.packages import releases, versions_between
from karat.net.package_index import IndexAddress, IndexFile, files

PAGES = {
    "a declaration": "<![" * 1000,
    "digits": "<a href='&#" + "9" * 5000 + ";'>",
    "an address": "<a href='http://[x/toy-1.tar.gz'>x</a>",
    "brackets": "<" * 200_000,
    "quotes": '<a href="' * 20_000,
    "a tag without end": "<a " * 1_000_000,
    "brackets that end": ("<" * 8000 + ">") * 100,
}


class Page(PackageIndex):
    """An index that answers with one page, whatever it is asked for."""

    def __init__(self, page: str, kind: str = "text/html") -> None:
        super().__init__()
        self.page, self.kind = page, kind

    def listing(self, name: str) -> tuple[str, bytes]:  # noqa: ARG002 - as the index has it
        return self.kind, self.page.encode()


def listed(page: str, kind: str = "text/html") -> tuple[IndexFile, ...]:
    with Page(page, kind) as index:
        index.file("toy", "toy-1.0.tar.gz")
        return files(IndexAddress(url=index.url, origin="test"), "toy")


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_is_read_or_refused(page: str) -> None:
    with ends():
        try:
            assert listed(page) == ()
        except CannotVerify as error:
            assert "found a page that is no HTML" in str(error)  # noqa: PT017 - either will do


def test_a_tag_that_does_not_end_costs_no_memory_and_hides_no_other() -> None:
    tracemalloc.start()
    found = listed("<a " * 300_000 + "><a href='toy-1.0.tar.gz'>toy</a>" + "<a " * 300_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [one.filename for one in found] == ["toy-1.0.tar.gz"]
    assert peak < 40 << 20


def test_an_address_that_is_none_hides_no_other() -> None:
    found = listed("<a href='http://[x/toy-1.tar.gz'>x</a><a href='toy-1.0.tar.gz'>toy</a>")
    assert [one.filename for one in found] == ["toy-1.0.tar.gz"]


@pytest.mark.parametrize(("size", "kind"), [(2 << 20, "application/json"), (2 << 20, "text/html")])
def test_an_answer_beyond_the_limit_names_it(monkeypatch: pytest.MonkeyPatch, size: int, kind: str) -> None:
    monkeypatch.setenv("KARAT_MAX_INDEX_MB", "1")
    with pytest.raises(CannotVerify, match="KARAT_MAX_INDEX_MB changes the limit"):
        listed(" " * size, kind)


@pytest.mark.parametrize("page", ["[" * 100_000, "{}", '{"files": ' + "9" * 5000 + "}", "\x00"])
def test_json_that_lists_nothing_is_one_error(page: str) -> None:
    with pytest.raises(CannotVerify, match="expected a list of files"):
        listed(page, "application/vnd.pypi.simple.v1+json")


def test_a_name_stands_for_no_more_tags_than_a_disk_takes() -> None:
    wheel = f"toy-1.0-{'.'.join(['py3'] * 2000)}-{'.'.join(['none'] * 300)}-any.whl"
    with ends():
        assert releases("toy", [IndexFile(filename=wheel)], (3, 11, 0)) == []


def test_a_version_of_thousands_of_digits_is_a_mistake() -> None:
    with pytest.raises(UsageError, match=r"packages.start: expected a version"):
        versions_between([], "9" * 5000, "")
