"""Stores for tests: a folder with an odd name, and a bucket of a real S3-speaking server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.s3_proxy import S3Proxy
from karat.store.backends import Backend, open_backend


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Proxy]:
    with S3Proxy() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> S3Proxy:
    """The server, with credentials for it and nothing else in the environment."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    s3_server.trouble(0.0, 0)
    s3_server.requests.clear()
    s3_server.struck.clear()
    return s3_server


@pytest.fixture
def folder(tmp_path: Path) -> Backend:
    return open_backend(str(tmp_path / "mein Lager ü"))


@pytest.fixture
def bucket(s3: S3Proxy) -> Backend:
    return open_backend(f"s3://{s3.bucket()}/golden/store")


@pytest.fixture(params=["folder", "bucket"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Either kind, since both must keep every promise."""
    made: Backend = request.getfixturevalue(request.param)
    return made
