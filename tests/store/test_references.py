"""Names for snapshots: written once, newest first, found by date and digest."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, strategies as st

from factories.stores import Watched
from karat.findings import CannotVerify, UsageError
from karat.schemas import schema
from karat.store.backends import Backend, StoreProblem
from karat.store.objects import key_of, seal
from karat.store.references import (
    SnapshotReference,
    check_name,
    ci_of,
    entries,
    forget,
    format_date,
    key_for,
    parse,
    parse_date,
    read,
    resolve,
    unrecognised,
    write,
)

NOW = datetime(2026, 11, 14, 2, 5, 1, 250, tzinfo=UTC)


def reference(name: str = "models/nightly", digest: str = "a" * 64, at: datetime = NOW) -> SnapshotReference:
    return SnapshotReference(
        name=name,
        digest=digest,
        date=format_date(at),
        expires=format_date(at + timedelta(days=90)),
        cases=1,
        files=4,
        size=10,
        karat="0.1.0",
    )


def test_the_newest_is_meant(backend: Backend) -> None:
    for days, digit in ((1, "b"), (0, "a"), (2, "c")):
        write(backend, reference(digest=digit * 64, at=NOW + timedelta(days=days)))
    # Each is newer than what was there, whatever the clock of its maker said.
    assert resolve(backend, "models/nightly").digest == "c" * 64
    assert [entry.start[0] for entry in entries(backend, "models/nightly")] == ["b", "a", "c"]
    assert resolve(backend, "models/nightly@sha256:" + "a" * 12).digest == "a" * 64
    assert resolve(backend, "sha256:" + "b" * 20).digest == "b" * 64


def test_by_day_hour_and_minute(folder: Backend) -> None:
    for i, hours in enumerate((0, 1, 23, 26)):
        write(folder, reference(digest=str(i) * 64, at=NOW + timedelta(hours=hours)))
    for word, digit in (
        ("2026-11-14", "1"),
        ("2026-11-15", "3"),
        ("2026-11-14T02", "0"),
        ("2026-11-14T03:05", "1"),
        ("2026-11-15T01:05:01Z", "2"),
        ("2026-11-14T0205", "0"),
    ):
        assert resolve(folder, f"models/nightly@{word}").digest == digit * 64, word
    with pytest.raises(StoreProblem, match="found 4 of that name, the newest of 2026-11-15T04:05:01Z"):
        resolve(folder, "models/nightly@2026-11-16")


def test_a_name_is_not_the_folder_of_another(folder: Backend) -> None:
    write(folder, reference("models/nightly/arm", "b" * 64, NOW + timedelta(days=1)))
    write(folder, reference("models/nightly", "a" * 64))
    assert resolve(folder, "models/nightly").digest == "a" * 64
    assert resolve(folder, "models/nightly/arm").digest == "b" * 64


def test_what_is_unknown_comes_with_what_is_near(folder: Backend) -> None:
    with pytest.raises(StoreProblem, match="found a store without references"):
        resolve(folder, "models/nightly")
    write(folder, reference())
    with pytest.raises(StoreProblem, match=r"no such reference.*models/nightly") as caught:
        resolve(folder, "models/nigthly")
    assert caught.value.finding.kind == "reference-missing"
    assert caught.value.exit_code == 3
    with pytest.raises(StoreProblem):
        resolve(folder, "sha256:" + "c" * 64)


def test_a_whole_digest_needs_no_name(folder: Backend) -> None:
    folder.put(key_of("c" * 64), b"")
    assert resolve(folder, "sha256:" + "c" * 64).digest == "c" * 64
    assert resolve(folder, "models/old@sha256:" + "c" * 64).name == "models/old"


def test_digests_that_start_alike_are_a_question(folder: Backend) -> None:
    write(folder, reference(digest="a" * 63 + "0"))
    write(folder, reference(digest="a" * 63 + "1"))
    with pytest.raises(UsageError, match="to be one snapshot, found 2"):
        resolve(folder, "sha256:" + "a" * 20)
    assert resolve(folder, "sha256:" + "a" * 63 + "1").digest.endswith("1")


def test_entries_in_one_moment_keep_their_order(folder: Backend) -> None:
    for digit in "fedcba":
        write(folder, reference(digest=digit * 64))
    assert "".join(entry.start[0] for entry in entries(folder)) == "fedcba"


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"<html>", b'{"schema": "karat.reference/1", "name": 1}', b'{"x":' + b"[" * 100_000]
)
def test_an_entry_that_cannot_be_read_is_no_answer(folder: Backend, data: bytes) -> None:
    write(folder, reference())
    (entry,) = entries(folder)
    folder.put(entry.key, data, replace=True)
    with pytest.raises(CannotVerify, match="expected a reference"):
        resolve(folder, "models/nightly")


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "models/other"},
        {"digest": "b" * 64},
        {"schema": "x"},
        {"expires": "soon"},
        {"date": format_date(NOW - timedelta(days=1))},
        {"digest": "a" * 63},
        {"date": "today"},
    ],
)
def test_an_entry_is_held_against_its_own_name(folder: Backend, changes: dict[str, str]) -> None:
    write(folder, reference())
    (entry,) = entries(folder)
    changed = msgspec.structs.replace(read(folder, entry), **changes)
    folder.put(entry.key, seal(changed), replace=True)
    with pytest.raises(CannotVerify, match="expected a reference"):
        read(folder, entry)


@pytest.mark.parametrize("changes", [{"expires": format_date(NOW)}, {"keep": 9000}, {"cases": 2}, {}])
def test_a_reference_that_was_changed_is_no_answer(folder: Backend, changes: dict[str, Any]) -> None:
    """Whoever edits one by hand, or whatever flips a bit of it, does not reseal it."""
    write(folder, reference())
    (entry,) = entries(folder)
    sealed = folder.get(entry.key)
    end = sealed[sealed.index(b',\n "sha256"') :]
    changed = seal(msgspec.structs.replace(read(folder, entry), **changes))
    new = changed[: changed.index(b',\n "sha256"')] + end
    folder.put(entry.key, new if changes else new[:-1], replace=True)
    with pytest.raises(CannotVerify, match="changed after it was sealed"):
        resolve(folder, "models/nightly")


def test_strangers_among_the_references(folder: Backend) -> None:
    write(folder, reference())
    folder.put("refs/models/nightly/README", b"")
    assert unrecognised(folder) == ["refs/models/nightly/README"]
    assert len(entries(folder)) == 1


def test_entries_fit_their_schema(folder: Backend) -> None:
    write(folder, reference())
    jsonschema.validate(json.loads(folder.get(entries(folder)[0].key)), schema("karat.reference/1"))


@pytest.mark.parametrize(
    "word",
    [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        "Models/nightly",
        "a b",
        "a@",
        "a@today",
        "a@sha256:abc",
        "../x",
        "sha256:abc",
        "a@2026-1-1",
        "a.json",
        "a/" * 8 + "a",
        "ü",
        "a@sha256:" + "A" * 64,
        "-a",
        ".a",
    ],
)
def test_what_is_no_reference_is_wrong_usage(word: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse(word)


def test_upper_case_is_refused_with_the_lower() -> None:
    with pytest.raises(UsageError, match="did you mean 'models/pr-12'"):
        check_name("models/PR-12")


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_wrong_usage(word: str) -> None:
    try:
        found = parse(word)
    except UsageError:
        return
    assert found.name is not None or found.digest is not None


@pytest.mark.slow
@given(st.datetimes(timezones=st.just(UTC)).filter(lambda moment: moment.year > 1999))
def test_dates_come_back(moment: datetime) -> None:
    assert parse_date(format_date(moment)) == moment


def test_ci_leaves_tokens_behind() -> None:
    environment = {"GITHUB_RUN_ID": "17", "GITHUB_TOKEN": "x", "GITHUB_REPOSITORY": "o/n"}
    assert ci_of(environment) == {"repository": "o/n", "run": "17"}


def test_every_ci_that_karat_knows_is_named() -> None:
    environment = {"BUILDKITE": "true", "BUILDKITE_BUILD_ID": "b-1", "BUILDKITE_COMMIT": "abc"}
    assert ci_of(environment) == {"run": "b-1", "commit": "abc"}


def test_a_reference_that_is_gone_is_not_an_older_one(backend: Backend) -> None:
    """The issue of an older night, told as the newest."""
    for i in range(3):
        write(backend, reference(digest=str(i) * 64, at=NOW + timedelta(days=i)))
    middle, newest = entries(backend, "models/nightly")[1:]
    backend.delete([newest.key])
    for word in ("models/nightly", "models/nightly@2026-11-16"):
        with pytest.raises(CannotVerify, match=f"expected a reference .* in {newest.key} .*, found: nothing"):
            resolve(backend, word)
    assert resolve(backend, "models/nightly@2026-11-15").digest == "1" * 64
    assert resolve(backend, "models/nightly@sha256:" + "0" * 12).digest == "0" * 64
    backend.delete([middle.key])
    with pytest.raises(CannotVerify, match="nothing"):
        resolve(backend, "models/nightly@2026-11-15")
    # What is pushed later is newer than what is gone, whatever its clock says.
    write(backend, reference(digest="3" * 64))
    assert resolve(backend, "models/nightly").digest == "3" * 64


def test_a_reference_in_the_place_of_another_is_noticed(folder: Backend) -> None:
    """Sealed, under the right name, for a snapshot that starts alike."""
    made = write(folder, reference(digest="a" * 64))
    other = msgspec.structs.replace(made, digest="a" * 12 + "b" * 52)
    folder.put(key_for(other), seal(other), replace=True)
    with pytest.raises(CannotVerify, match="not the one that was pushed"):
        resolve(folder, "models/nightly")


def test_a_store_without_links_is_read_as_before(folder: Backend) -> None:
    """As karat wrote them before there were links."""
    write(folder, reference())
    folder.delete([one.key for one in folder.list("links/")])
    assert resolve(folder, "models/nightly").digest == "a" * 64
    write(folder, reference(digest="b" * 64))
    assert resolve(folder, "models/nightly").digest == "b" * 64


def test_a_reference_that_is_collected_while_they_are_listed_is_not_missed(folder: Backend) -> None:
    for i in range(2):
        write(folder, reference(digest=str(i) * 64, at=NOW + timedelta(days=i)))
    old = entries(folder)[0]

    def before(_number: int, verb: str, key: str) -> None:
        if (verb, key) == ("list", "refs/models/nightly/"):
            forget(folder, [old])

    assert [entry.start for entry in entries(Watched(folder, before), "models/nightly")] == ["1" * 12]
