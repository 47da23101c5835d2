"""Pictures for the site and the README, made with the sample of `karat demo`.

Those of pages need Chromium, and are made when the site is built. `python tools/pictures.py` writes the one of the README,
docs/pictures/diff.svg: what `karat diff before after` prints.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
WIDTH, LINES = 120, 24
README = ROOT / "docs" / "pictures" / "diff.svg"
PAGES = {"diff": ("diff", "--html"), "audit": ("audit", "--html")}
"""Picture → the command, in the sample's repository, that writes the page; `review` is served instead."""


def picture(name: str, *, width: int = 1100, height: int = 700) -> bytes | None:
    """A page as Chromium shows it; None where there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None or find_spec("playwright") is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": height})
        if name == "review":
            words = [sys.executable, "-m", "karat", "review", "--web", "--quiet"]
            place = Path(sample().name, "demo")
            with subprocess.Popen(words, cwd=place, env=environment(), stdout=subprocess.PIPE, text=True) as served:
                tab.goto(served.stdout.readline().strip() if served.stdout else "")
                tab.locator("canvas[data-drawn]").first.wait_for()
                shot = tab.screenshot()
                served.terminate()
        else:
            karat(*PAGES[name], "report.html")
            tab.goto(Path(sample().name, "demo", "report.html").as_uri())
            shot = tab.screenshot()
        browser.close()
        return shot


@cache
def sample() -> TemporaryDirectory[str]:
    """The repository of `karat demo` after its refresh."""
    folder = TemporaryDirectory()
    karat("demo", f"{folder.name}/demo", at=Path(folder.name))
    return folder


def terminal() -> str:
    """What a terminal shows of the sample's diff, as SVG without anything from elsewhere."""
    from rich.console import Console
    from rich.text import Text

    with TemporaryDirectory() as folder:
        code = "from pathlib import Path; from karat.sample import build_folders; build_folders(Path('.'))"
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, env=environment())
        text = karat("diff", "before", "after", at=Path(folder), FORCE_COLOR="1")
    shown = "\n".join(["\x1b[1m$ karat diff before after\x1b[0m", *text.splitlines()[:LINES]])
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(shown))
    svg = console.export_svg(title="karat diff", unique_id="karat")
    return re.sub(r"\s*@font-face \{[^}]*\}", "", svg)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": str(WIDTH), **more}


def karat(*words: str, at: Path | None = None, **more: str) -> str:
    """Run karat; whatever it finds in the sample is meant to be there."""
    place = at or Path(sample().name, "demo")
    done = subprocess.run(
        [sys.executable, "-m", "karat", *words],
        cwd=place,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode > 1:
        raise RuntimeError(done.stderr)
    return done.stdout


if __name__ == "__main__":
    README.parent.mkdir(exist_ok=True)
    README.write_text(terminal(), encoding="utf-8")
