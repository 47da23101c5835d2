from __future__ import annotations

import sys
import threading

import pytest

from karat.engines.ray_cluster import QuietStdout


def test_only_threads_of_ray_are_not_heard(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    silence = QuietStdout()
    for name in ("ray_listen_error_messages", "mine"):
        thread = threading.Thread(target=print, args=(f"of {name}",), name=name)
        thread.start()
        thread.join()
    print("mine")
    sys.stdout.flush()
    silence.end()
    assert sys.stdout is before
    assert capsys.readouterr().out == "of mine\nmine\n"
