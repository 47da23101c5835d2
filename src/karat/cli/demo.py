"""`karat demo`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from karat.findings import UsageError
from karat.report.terminal import print_lines, say
from karat.system.command import Command

_DIFF = ("diff", "--html", "report.html", "--csv", "reldiff.csv")
_SUMMARY = ("summary", "-o", "pr.md")
_TABLE = "tables/inductor_training.csv"
_LIFE = (
    ("refresh", "--source", "folder", "ci-run", "--scope", "all", "--write"),
    _DIFF,
    ("check", f"ci-run/{_TABLE}", "--golden", f"goldens/{_TABLE}"),
    ("stage", "--dry-run"),
    _SUMMARY,
)
# The store is named in each command: KARAT_STORE may name somebody's real one.
_LIFE_OF_A_BUNDLE = (
    ("pack", "captures", "-o", "packed"),
    ("verify", "packed"),
    ("push", "captures", "models/nightly", "--store", "store"),
    ("diff", "store#models/nightly", "captures"),
    ("replay", "store#models/nightly", "--run", "phone:run", "--only", "*static*"),
)
_GATE = ("policy", "gate", "evidence", "--complete")


@click.command(epilog="\b\nExample:\n  karat demo /tmp/karat-demo")
@click.argument("folder", default="demo")
def command(*, folder: str) -> int:
    """Run the main commands on an embedded sample.

    Makes a git repository in FOLDER (default: ./demo), refreshes its goldens from a made-up CI run,
    compares, checks, stages and sums up. Then captures, packs and pushes a test, and replays it on a
    made-up phone. Last, checks gradients: one is wrong, one was never checked. Without git, compares two
    folders. Needs no network, account or server.
    """
    path = Path(folder).absolute()
    if path.exists():
        said = f"expected to make {path}, found it already there"
        raise UsageError(said, next_command=Command("karat", "demo", f"{folder}-2"))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]  # see karat.demo.sample
    from karat.demo.sample import build, build_folders

    life: tuple[tuple[str, ...], ...] = _LIFE
    if shutil.which("git"):
        build(path)
        said = "ci-run/ holds what a CI run left"
    else:
        build_folders(path)
        life = tuple((words[0], "before", "after", *words[1:]) for words in (_DIFF, _SUMMARY))
        said = "before/ and after/ a CI run"
    os.chdir(path)
    _show(f"Goldens in {path}; {said}.\n", "bold")
    _live(life)
    _bundles(path / "bundles")
    _gradients(path / "gradients")
    made = {"The page": "report.html", "The PR text": "pr.md", "The CSV": "reldiff.csv"}
    for what, name in made.items():
        say(f"{what}: {path / name}")
    return 0


def _bundles(path: Path) -> None:
    from karat.demo.programs import BACKEND
    from karat.demo.sample import write

    if find_spec("safetensors") is None:
        _show("Capturing needs safetensors; to see it: pip install 'karat[capture]'\n")
        return
    write(path, BACKEND)
    os.chdir(path)
    _show(f"Tests in {path}; what passes is kept for other machines.\n", "bold")
    _python("suite.py")
    _live(_LIFE_OF_A_BUNDLE)


def _gradients(path: Path) -> None:
    from karat.demo.programs import OPERATORS
    from karat.demo.sample import write

    write(path, OPERATORS)
    os.chdir(path)
    _show(f"Operators in {path}; every gradient is checked, or reported as unchecked.\n", "bold")
    _python("wrong.py")
    for test in ("test_softmax", "test_scale"):
        _python("-m", "unittest", "-q", test, KARAT_EVIDENCE="evidence")
        _live((_GATE,))


def _python(*words: str, **environment: str) -> None:
    """A program of the sample, in a process of its own, deaf to what the user has set for others."""
    _say(" ".join([*(f"{name}={value}" for name, value in environment.items()), "python", *words]))
    calm = {k: v for k, v in os.environ.items() if not k.startswith("KARAT_")}
    done = subprocess.run([sys.executable, *words], check=False, env={**calm, **environment})
    _ended(done.returncode)


def _live(life: tuple[tuple[str, ...], ...]) -> None:
    from karat.cli import run

    for words in life:
        _say(Command("karat", *words))
        _ended(run(list(words)))


def _say(command: str) -> None:
    _show(f"$ {command}", "bold cyan")


def _ended(code: int) -> None:
    _show(f"(exit {code})\n", "dim")


def _show(text: str, style: str = "") -> None:
    print_lines((((line, style),) for line in text.split("\n")), sys.stdout)
    sys.stdout.flush()  # what is started next writes to the same place
