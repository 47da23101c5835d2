"""Image references, dates, commits, mounts and the cache: pure parts of the containers timeline."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.findings import UsageError
from karat.hunts.settings import RepositorySettings
from karat.hunts.timelines.container_engine import absolute_mount
from karat.hunts.timelines.containers import (
    ImageCache,
    check_template,
    commits_of,
    image_at,
    image_times,
    over_limit,
    point_name,
)
from karat.net.registry import parse

_DAY = dt.datetime(2023, 8, 24, tzinfo=dt.UTC)
_DIGEST = "sha256:" + "0f" * 32


@pytest.mark.parametrize(
    ("text", "whole", "api"),
    [
        ("python", "docker.io/library/python:latest", "registry-1.docker.io"),
        ("nvidia/cuda:12", "docker.io/nvidia/cuda:12", "registry-1.docker.io"),
        ("docker.io/python:3", "docker.io/library/python:3", "registry-1.docker.io"),
        ("ghcr.io/nvidia/jax:nightly-2023-08-24", "ghcr.io/nvidia/jax:nightly-2023-08-24", "ghcr.io"),
        ("127.0.0.1:5000/toy:a", "127.0.0.1:5000/toy:a", "127.0.0.1:5000"),
        ("localhost:5000/toy:a", "localhost:5000/toy:a", "localhost:5000"),
        ("[::1]:5000/toy:a", "[::1]:5000/toy:a", "[::1]:5000"),
        (f"ghcr.io/a/b:c@{_DIGEST}", f"ghcr.io/a/b@{_DIGEST}", "ghcr.io"),
    ],
)
def test_a_reference_is_read_as_engines_read_it(text: str, whole: str, api: str) -> None:
    found = parse(text)
    assert found.text == whole
    assert found.api_host == api
    assert parse(found.text).text == whole


@pytest.mark.parametrize(
    "text",
    ["", "-rm", "--privileged", "a b", "ghcr.io/UPPER/case", "ghcr.io/a:b:c", "a\n", "a@sha256:12", "../a", "a/-b"],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected an image such as"):
        parse(text)


def test_only_this_machine_is_asked_over_plain_http() -> None:
    loopback = ["127.0.0.1:5000/toy", "localhost:5000/toy", "[::1]:5000/toy", "127.0.0.9/toy"]
    assert all(parse(text).is_loopback for text in loopback)
    assert not any(parse(text).is_loopback for text in ("ghcr.io/toy", "127.0.0.1.nip.io/toy", "toy"))


def test_the_date_stands_where_the_template_says() -> None:
    template = "ghcr.io/nvidia/jax:nightly-{date:%Y-%m-%d}"
    assert image_at(template, _DAY).text == "ghcr.io/nvidia/jax:nightly-2023-08-24"
    assert image_at("r.io/{date:%Y}/jax:{date}", _DAY).text == "r.io/2023/jax:2023-08-24"
    check_template(template, 86400)
    check_template("r.io/jax:{date:%Y-%m-%d-%H}", 6 * 3600)


@pytest.mark.parametrize(
    ("template", "step", "said"),
    [
        ("ghcr.io/nvidia/jax:{day}", 86400, "expected an image such as"),
        ("r.io/jax:{date:%Y-%m-%d}", 3600, "tells apart images 3600 s"),
        ("r.io/jax:{date:%Y %m}", 86400, "expected an image such as"),
    ],
)
def test_a_template_that_cannot_work_is_refused(template: str, step: float, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_template(template, step)


@given(
    st.integers(0, 350_000).map(lambda hours: _DAY + dt.timedelta(hours=hours)),
    st.integers(0, 400),
    st.sampled_from([1, 30, 900, 3600, 21600, 86400, 604800]),
)
def test_moments_go_from_end_to_end_by_the_step_and_have_names_of_their_own(
    start: dt.datetime, count: int, step: int
) -> None:
    end = start + dt.timedelta(seconds=count * step)
    found = image_times(start, end, step)
    assert len(found) == count + 1
    assert found[0] == start
    assert found[-1] == end
    names = [point_name(when, step) for when in found]
    assert len(set(names)) == len(names)
    assert names == sorted(names)


def test_names_of_days_of_hours_and_of_seconds() -> None:
    assert point_name(_DAY, 86400) == "2023-08-24"
    assert point_name(_DAY, 3600) == "2023-08-24T00:00"
    assert point_name(_DAY, 90) == "2023-08-24T00:00:00"


def test_the_last_day_there_is_has_nothing_after_it() -> None:
    last = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
    assert image_times(last - dt.timedelta(days=1), last, 86400)[-1] == last


def test_ends_that_make_no_range_are_refused() -> None:
    for days, step in ((-1, 86400), (1, 1e-9), (400, 60)):
        with pytest.raises(UsageError, match="at most 100,000 images"):
            image_times(_DAY, _DAY + dt.timedelta(days=days), step)


def test_labels_tell_of_commits() -> None:
    labels = {"karat.commit.xla": "a" * 40, "karat.commit.jax": "not a commit", "other": "b" * 40}
    assert commits_of(labels) == {"commit.xla": "a" * 40}


def test_a_revision_is_that_of_the_only_repository() -> None:
    jax = RepositorySettings(name="jax", url="https://github.com/google/jax.git")
    xla = RepositorySettings(name="xla", url="git@github.com:openxla/xla")
    revision = {"org.opencontainers.image.revision": "c" * 40}
    assert commits_of(revision, [jax]) == {"commit.jax": "c" * 40}
    assert commits_of(revision, [jax, xla]) == {}
    told = {**revision, "karat.commit.jax": "d" * 40}
    assert commits_of(told, [jax]) == {"commit.jax": "d" * 40}


def test_mounts_are_seen_from_hunt_toml_and_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert absolute_mount(".:/dir", tmp_path) == f"{tmp_path}:/dir"
    assert absolute_mount("data:/data:ro", tmp_path) == f"{tmp_path}/data:/data:ro"
    for wrong in ("data", "data:relative", "gone:/dir", "data:/dir:--privileged", ":/dir"):
        with pytest.raises(UsageError, match=r"containers\.mounts: expected"):
            absolute_mount(wrong, tmp_path)
    (tmp_path / "a:b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a:b")
    with pytest.raises(UsageError, match="expected a path without a colon"):
        absolute_mount("link:/dir", tmp_path)


@pytest.mark.slow
@given(st.lists(st.integers(0, 50), max_size=12), st.integers(0, 200), st.integers(0, 4))
def test_the_oldest_go_first_and_only_as_many_as_must(sizes: list[int], limit: int, keep: int) -> None:
    images = [(f"image-{number}", size) for number, size in enumerate(sizes)]
    gone = over_limit(images, limit, keep)
    assert gone == tuple(name for name, _ in images[: len(gone)])
    assert len(gone) <= max(0, len(images) - keep)
    left = sum(sizes[len(gone) :])
    assert left <= limit or len(gone) == max(0, len(images) - keep)
    if gone:
        assert left + sizes[len(gone) - 1] > limit


def test_the_cache_removes_what_the_hunt_pulled_and_nothing_else(tmp_path: Path) -> None:
    here = {"foreign": 100}

    def sizes(images: Sequence[str]) -> dict[str, int]:
        return {image: here[image] for image in images if image in here}

    cache = ImageCache(tmp_path / "images.json", 250, sizes, keep=1)
    assert cache.use("foreign") == ()
    for name in ("a", "b", "c"):
        assert cache.use(name) == ()
        here[name] = 100
    # The next process of the same hunt knows them, too; c, used last, would be the last to go.
    again = ImageCache(tmp_path / "images.json", 250, sizes, keep=1)
    assert again.use("d") == ("a",)
    del here["a"]
    here["d"] = 100
    assert again.use("b") == ()
    assert again.use("e") == ("c",)


def test_what_was_pulled_ahead_is_the_hunts_own(tmp_path: Path) -> None:
    here = {"foreign": 100}

    def sizes(images: Sequence[str]) -> dict[str, int]:
        return {image: here[image] for image in images if image in here}

    cache = ImageCache(tmp_path / "images.json", 100, sizes, keep=0)
    cache.expect("a")
    here["a"] = 100
    assert cache.use("foreign") == cache.use("a") == ()
    assert cache.use("b") == ()
    here["b"] = 100
    assert cache.use("c") == ("a",)


def test_without_a_limit_nothing_is_asked_or_written(tmp_path: Path) -> None:
    def sizes(images: Sequence[str]) -> dict[str, int]:
        raise AssertionError(images)

    cache = ImageCache(tmp_path / "images.json", 0, sizes, keep=1)
    assert cache.use("a") == ()
    cache.expect("a")
    assert not (tmp_path / "images.json").exists()
