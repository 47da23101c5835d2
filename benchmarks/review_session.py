"""A review as a person does it, in a real terminal: 306 changed goldens with a few causes, to a staged commit and a text.

The goldens are generated: eleven refreshes of history, so that karat knows what is usual, and one that is not committed:
runs that died, a test that is gone, losses that rose, memory that grew, new tests, and noise. tmux is the terminal; keys go
in one by one, as often as the screen has come to rest. Every screen is kept, and git is asked what came of it.

Run: python benchmarks/review_session.py                          (prints keys and seconds)
     python benchmarks/review_session.py --write docs/review.md   (and puts the transcript on that page)
     python benchmarks/review_session.py --build FOLDER           (only the repository, to try it by hand)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from factories.wrong_goldens import LOSS, Golden, training
from karat.goldens.provenance import LockEntry, encode_lock

STEPS, REFRESHES = 50, 11
SHARE = "tests/functional_tests/test_cases"
MODELS = {"gpt": 41, "moe": 17, "mamba": 24, "t5": 20}  # Cases of each on each platform.
PLATFORMS = ("dgx_h100", "dgx_gb200", "dgx_a100")
MEMORY = "mem-allocated-bytes"
KEYS = (
    ("R", "two runs died at step 13: HEAD's values stay, both goldens at once"),
    ("a", "a golden is gone, which fails, so that karat asks why"),
    *((key, "") for key in "its test was retired in #2101"),
    ("Enter", "the reason goes into the lock"),
    ("n", "the next of the seventeen: does it look the same?"),
    ("g", "all seventeen: the new router is known to do this"),
    ("g", "the memory of all mamba cases, up by the same 4%"),
    ("g", "new goldens"),
    ("g", "drift of num-zeros, which needs no look"),
    ("g", "noise"),
    ("q", "done"),
)

AFTERWARDS = (
    "git diff --cached --shortstat",
    "git status --short | grep -v '^[AMD] ' | wc -l",
    "karat summary | head -14",
)


def paths() -> Iterator[tuple[str, str, str]]:
    """Golden, its model and its platform."""
    for platform in PLATFORMS:
        for model, cases in MODELS.items():
            for number in range(cases):
                yield (
                    f"{SHARE}/{model}/{model}_tp{1 << number % 4}_case_{number:02d}/golden_values_dev_{platform}.json",
                    model,
                    platform,
                )


def jittered(golden: Golden, rng: np.random.Generator) -> Golden:
    """What another run of the same code leaves."""
    new = {name: {**block, "values": dict(block["values"])} for name, block in golden.items()}
    for name, size in ((LOSS, 2e-5), ("num-zeros", 2e-3), ("iteration-time", 0.02)):
        moved = {
            s: round(v * (1 + rng.normal(0, size)), 5) for s, v in new[name]["values"].items() if isinstance(v, float)
        }
        new[name]["values"] |= moved
    return new


def moved(golden: Golden, name: str, factor: float, since: int = 0) -> Golden:
    """One metric, so many times as large from a step on."""
    block = golden[name]
    values = {
        s: round(v * factor, 5) if isinstance(v, float) and int(s) > since else v for s, v in block["values"].items()
    }
    return {**golden, name: {**block, "values": values}}


def died(golden: Golden, last: int = 13) -> Golden:
    """A run that ended early, as the suite writes it."""
    return {
        n: {**b, "values": {s: v if int(s) <= last else "nan" for s, v in b["values"].items()}}
        for n, b in golden.items()
    }


def text(golden: Golden) -> bytes:
    return json.dumps(golden, indent=4).encode()


def lock(goldens: Mapping[str, bytes], run: int) -> bytes:
    """Where they came from."""
    commit, image = sha256(str(run).encode()).hexdigest()[:40], f"pytorch:26.{run % 12 + 1:02d}-py3"
    lines = {
        path: LockEntry(source="github", run=str(25_300_000_000 + run), commit=commit, image=image,
                        date=f"2026-{run % 12 + 1:02d}-03T04:05:06Z", sha256=sha256(data).hexdigest())
        for path, data in goldens.items()
    }  # fmt: skip
    return encode_lock(lines)


def build(root: Path) -> int:
    """The repository; how many goldens differ from HEAD."""
    rng = np.random.default_rng(19)
    first = {path: training(number, STEPS) for number, (path, _, _) in enumerate(paths())}
    runs = [{path: jittered(golden, rng) for path, golden in first.items()} for _ in range(REFRESHES + 1)]
    now = runs.pop()
    for path, model, platform in paths():
        if model == "moe" and platform == "dgx_gb200":
            now[path] = moved(now[path], LOSS, 1.003, since=20)
        elif model == "mamba" and platform == "dgx_h100":
            now[path] = moved(now[path], MEMORY, 1.04)
    known = [path for path, model, _ in paths() if model == "gpt"]
    for path in known[-2:]:
        now[path] = died(now[path])
    del now[known[3]]
    new = [path for path, model, platform in paths() if model == "t5" and platform == "dgx_a100"][-2:]
    for goldens in runs:
        for path in new:
            del goldens[path]

    def history() -> Iterator[bytes]:
        for run, goldens in enumerate(runs):
            written = {path: text(golden) for path, golden in goldens.items()}
            settings = b'preset = "megatron-lm"\n'
            files = {**written, "goldens.lock.json": b"", "karat.toml": settings}
            files[f"{SHARE}/goldens.lock.json"] = lock({p[len(SHARE) + 1 :]: d for p, d in written.items()}, run)
            del files["goldens.lock.json"]
            when = 1_770_000_000 + run * 2_000_000
            yield b"commit refs/heads/main\ncommitter a <a@example.invalid> %d +0000\ndata 7\nrefresh" % when
            for path, data in files.items():
                yield b"\nM 100644 inline %s\ndata %d\n%s" % (path.encode(), len(data), data)
            yield b"\n\n"

    root.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    subprocess.run(["git", "-C", root, "fast-import", "--quiet"], input=b"".join(history()), check=True)
    subprocess.run(["git", "-C", root, "reset", "-q", "--hard"], check=True)
    for path in first.keys() - now.keys():
        (root / path).unlink()
    for path, golden in now.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text(golden))
    written = {path[len(SHARE) + 1 :]: text(golden) for path, golden in now.items()}
    (root / SHARE / "goldens.lock.json").write_bytes(lock(written, REFRESHES))
    return len(first)


class Terminal:
    """A terminal of 80 columns with a shell in it."""

    def __init__(self, folder: Path, width: int, height: int) -> None:
        self._name = f"karat-{os.getpid()}"
        environment = ["PS1=$ ", f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}", "TERM=xterm-256color"]
        environment += [f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"]
        words = ["new-session", "-d", "-s", self._name, "-x", str(width), "-y", str(height), "-c", str(folder)]
        self._tmux(*words, "env", *environment, "sh")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self._name, *words], check=True, capture_output=True, text=True)
        return done.stdout

    def press(self, key: str) -> None:
        self._tmux("send-keys", *([] if key == "Enter" else ["-l"]), key)

    def screen(self) -> str:
        return "\n".join(line.rstrip() for line in self._tmux("capture-pane", "-p").rstrip().splitlines())

    def until(self, pattern: str, *, unlike: str = "", seconds: float = 60) -> str:
        """The screen, once a pattern is on it, it is another than it was, and has come to rest."""
        end, last = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            shown = self.screen()
            if shown == last != unlike and re.search(pattern, shown):
                return shown
            last = shown
            time.sleep(0.05)
        raise AssertionError(f"{pattern!r} did not appear:\n{last}")

    def close(self) -> None:
        self._tmux("kill-server")


def session(root: Path, *, width: int = 80, height: int = 28) -> tuple[list[tuple[str, str, str]], float]:
    """(Key, why, the screen then), the first one without a key; and the seconds from the first screen to the last."""
    terminal = Terminal(root, width, height)
    try:
        terminal.press("karat review --history")
        terminal.press("Enter")
        shown = [("", "", terminal.until("q quit"))]
        began = time.monotonic()
        for key, why in KEYS:
            before = shown[-1][2]
            terminal.press(key)
            shown.append((key, why, terminal.until("karat summary" if key == "q" else "q quit", unlike=before)))
        seconds = time.monotonic() - began
    finally:
        terminal.close()
    return shown, seconds


def shell(root: Path, command: str) -> str:
    """What a command line prints there."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=root, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    return done.stdout


def transcript(root: Path, changed: int) -> str:
    """The session as a section of a page: what was pressed, the screens that matter, and what git says in the end."""
    shown, seconds = session(root)
    typed = "".join(key for key, why, _ in shown if key and not why)
    steps = [f"`{key}` {why}" + (f" (`{typed}`)" if key == "a" else "") for key, why, _ in shown if why]
    loss = next(screen for key, _, screen in shown if key == "Enter")
    head = f"{changed} changed goldens, {len(KEYS)} keys, {len(typed)} of them the reason. From the first screen to the last,"
    parts = [
        f"{head} karat took {seconds:.0f} s; the rest is reading. The first screen:",
        _block(f"$ karat review --history\n{shown[0][2]}"),
        "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1)),
        "The third group, after the reason:",
        _block(loss),
        "And then, in the shell:",
        _block(shown[-1][2]),
        *(_block(f"$ {command}\n{shell(root, command).rstrip()}") for command in AFTERWARDS),
    ]
    return "\n\n".join(parts)


def _block(text: str) -> str:
    return f"````\n{text}\n````"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="a page with the transcript between its two marks")
    parser.add_argument("--build", type=Path, help="only make the repository, there")
    options = parser.parse_args()
    if options.build:
        print(f"{build(options.build):,} goldens differ from HEAD in {options.build}")
        return
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "repository"
        told = transcript(root, build(root))
    print(told)
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        before, begin, rest = page.partition("<!-- session -->\n")
        _, end, after = rest.partition("<!-- /session -->\n")
        assert begin, f"{options.write} has no place for it"
        assert end, f"{options.write} has no place for it"
        options.write.write_text(f"{before}{begin}{told}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
