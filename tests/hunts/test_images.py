"""Pulling ahead: what comes next is fetched, what is forgotten is not, and closing does not wait."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from karat.hunts.timelines.containers import Puller

_TOUCH = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"


def test_images_that_are_here_are_not_pulled_and_failures_are_nobodys(tmp_path: Path) -> None:
    asked: list[str] = []
    done = threading.Event()

    def commands(image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        asked.append(image)
        if image == "last":
            done.set()
        code = "0" if image == "here" else "1"
        check = (sys.executable, "-c", f"raise SystemExit({code})")
        pull = (sys.executable, "-c", _TOUCH, str(tmp_path / image))
        return check, ("/nonexistent/program",) if image == "broken" else pull

    puller = Puller(4, commands)
    puller.ahead(["here", "broken", "wanted", "last", "too many"])
    assert done.wait(60)
    puller.close()
    assert asked == ["here", "broken", "wanted", "last"]
    assert (tmp_path / "wanted").exists()
    assert not (tmp_path / "here").exists()
    puller.ahead(["after the end"])
    assert asked[-1] == "last"


def test_closing_ends_a_pull_that_is_under_way(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    slow = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"

    def commands(_: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (sys.executable, "-c", "raise SystemExit(1)"), (sys.executable, "-c", slow)

    puller = Puller(1, commands)
    puller.ahead(["image"])
    while not begun.exists():
        pass
    puller.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "karat-pull"]


def test_nothing_is_pulled_where_nothing_may_be() -> None:
    asked: list[str] = []

    def commands(image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        asked.append(image)
        return ("true",), ("true",)

    puller = Puller(0, commands)
    puller.ahead(["image"])
    puller.close()
    assert asked == []
