"""A toy project of two repositories, forty days of history, and a nightly image of each day in a registry.

`engine` and `front` each have a `cost`; what is measured is 600 less both. Commits come several times a day in both;
`front` also merges a branch every evening. Planted are two slowdowns, one in each repository (that of `front` on a branch
that was merged), a dip, a crash that lasts two nights, and three nights without an image that works.
"""

from __future__ import annotations

import datetime as dt
import gzip
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from factories.registries import Image, Registry, digest_of, packed

FIRST = dt.datetime(2023, 7, 10, tzinfo=dt.UTC)
NIGHTS = 40
BUILT_AT = dt.timedelta(hours=2)
"""The image of a day is made at two in the morning."""
DIP, BACK, SLOWER, BROKEN, MENDED, SLOWEST = (6, 17), (9, 11), (15, 11), (20, 8), (22, 8), (30, 18)
"""Day and hour of each planted commit."""
NOT_THERE, NOT_WHOLE = (11, 25), 31
"""The last is the very night in which the second slowdown would first show."""
SIGNATURE = "ImportError: cannot import name 'tile' from 'engine.ops'"

_TEST = f"""\
if [ -d engine ]; then here=.; else here=/opt/toy; fi
if [ -n "$BUILD" ] && [ $here = . ]; then . /dir/build.sh; fi
if [ -f $here/front/broken ]; then
    echo 'Traceback (most recent call last):'
    echo '  File "/opt/toy/front/tiles.py", line 5, in <module>'
    echo "{SIGNATURE}"
    exit 1
fi
awk '
    FNR == 1 {{ speed = (speed ? speed : 600) - $1 }}
    END {{
        getline uptime < "/proc/uptime"
        srand(uptime * 100)
        printf "SPEED: %.3f\\n", speed + rand() - rand()
    }}
' $here/built.engine $here/built.front
"""
_BUILD = "for name in engine front; do cat $name/cost $name/log > built.$name; done\n"


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit, as it is written; `id` comes from git."""

    when: dt.datetime
    title: str
    cost: int
    broken: bool = False
    branch: bool = False
    """On a branch that begins at the last commit of main."""
    merge: bool = False
    id: str = ""

    @property
    def log(self) -> str:
        return f"{self.when:%Y-%m-%d %H}\n"


def _engine() -> Iterator[Commit]:
    planted = {DIP: 18, BACK: -18, SLOWER: 10}
    titles = {DIP: "Unroll the inner loop", BACK: 'Revert "Unroll the inner loop"', SLOWER: "Fuse loads"}
    cost = 6
    for day in range(-1, NIGHTS):
        for hour in (5, 11, 17):
            cost += planted.get((day, hour), 0)
            title = titles.get((day, hour), f"Tidy up {day}.{hour}")
            yield Commit(when=_at(day, hour), title=title, cost=cost)


def _front() -> Iterator[Commit]:
    cost, broken = 6, False
    for day in range(-1, NIGHTS):
        broken = (broken or (day, 8) == BROKEN) and (day, 8) != MENDED
        title = {BROKEN: "Move tile elsewhere", MENDED: "Find tile again"}.get((day, 8), f"Words {day}")
        yield Commit(when=_at(day, 8), title=title, cost=cost, broken=broken)
        for hour in (15, 18):
            slower = (day, hour) == SLOWEST
            cost += 40 if slower else 0
            title = "Copy tiles before use" if slower else f"Draft {day}.{hour}"
            yield Commit(when=_at(day, hour), title=title, cost=cost, broken=broken, branch=True)
        yield Commit(when=_at(day, 20), title=f"Merge draft {day}", cost=cost, broken=broken, merge=True)


def _at(day: int, hour: int) -> dt.datetime:
    return FIRST + dt.timedelta(days=day, hours=hour, minutes=(7 * day) % 50)


class ToyProject:
    """Two repositories in a folder, with what is needed to test them, and a hunt.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "repositories").mkdir(parents=True)
        (folder / "test.sh").write_text(_TEST)
        (folder / "build.sh").write_text(_BUILD)
        self.engine = _written(folder / "repositories/engine", list(_engine()))
        self.front = _written(folder / "repositories/front", list(_front()))

    def culprit(self, repository: str, planted: tuple[int, int]) -> Commit:
        commits = {"engine": self.engine, "front": self.front}[repository]
        return next(commit for commit in commits if commit.when == _at(*planted))

    def push_nights(self, registry: Registry, *, labels: bool) -> None:
        """An image for each night, two of them left out, and one that cannot be pulled."""
        for day in range(NIGHTS):
            if day in NOT_THERE:
                continue
            image = self._night(FIRST + dt.timedelta(days=day) + BUILT_AT, labels=labels)
            registry.push("toy/nightly", f"{FIRST + dt.timedelta(days=day):%Y-%m-%d}", image)
            if day == NOT_WHOLE:
                squeezed = gzip.compress(image.layers[0], 1, mtime=0)
                registry.delete_blob("toy/nightly", digest_of(squeezed))

    def _night(self, when: dt.datetime, *, labels: bool) -> Image:
        files, told = {}, {}
        for name, commits in (("engine", self.engine), ("front", self.front)):
            last = [c for c in commits if c.when <= when and not c.branch][-1]
            files[f"opt/toy/built.{name}"] = f"{last.cost}\n{last.log}".encode()
            if last.broken:
                files[f"opt/toy/{name}/broken"] = b""
            told[f"karat.commit.{name}"] = last.id
        return Image(layers=(packed(files),), labels=told if labels else {})

    def write_hunt(self, registry: Registry, *, first: int = 0, last: int = NIGHTS - 1, build: bool = True) -> Path:
        """A hunt over these nights; without `build` the test itself builds, which halves the calls of the engine."""
        built = 'build = "sh /dir/build.sh"\n' if build else ""
        start, end = (FIRST + dt.timedelta(days=day) for day in (first, last))
        path = self.folder / "hunt.toml"
        path.write_text(f"""\
name = "toy"
stages = ["containers by day", "checkouts by hour", "commits"]

[probe]
command = "sh /dir/test.sh"
timeout = "1 min"
env = {{ BUILD = "{"" if build else "yes"}" }}

[[probe.metrics]]
name = "SPEED"
regex = 'SPEED: ([0-9.]+)'
better = "higher"

[containers]
image = "{registry.host}/toy/nightly:{{date:%Y-%m-%d}}"
start = {start:%Y-%m-%d}
end = {end:%Y-%m-%d}
mounts = [".:/dir:ro"]
engine = "podman"

[[repositories]]
name = "engine"
url = "repositories/engine"

[[repositories]]
name = "front"
url = "repositories/front"

[checkouts]
{built}container = "last good"

[search]
grid = 2
confirmations = 1
""")
        return path


def _written(root: Path, commits: list[Commit]) -> list[Commit]:
    """The history as a real repository, made by one process; branches end in the merge that follows them."""
    root.mkdir()
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main"], cwd=root, check=True)
    parts, trunk, branch = [], 0, 0
    for mark, commit in enumerate(commits, 1):
        parent = branch if commit.branch and branch else trunk
        parts.append(_entry(commit, mark, parent, branch if commit.merge else 0))
        trunk, branch = (trunk, mark) if commit.branch else (mark, 0)
    words = ["git", "fast-import", "--quiet", "--export-marks=.git/marks"]
    subprocess.run(words, cwd=root, input="".join(parts).encode(), check=True)
    marks = dict(line.split() for line in (root / ".git/marks").read_text().splitlines())
    return [Commit(**{**vars(commit), "id": marks[f":{mark}"]}) for mark, commit in enumerate(commits, 1)]


def _entry(commit: Commit, mark: int, parent: int, merged: int) -> str:
    where = "refs/heads/draft" if commit.branch else "refs/heads/main"
    head = [f"commit {where}", f"mark :{mark}"]
    head += [f"committer Zoë Ünal <z@example.invalid> {commit.when.timestamp():.0f} +0000"]
    head += [f"data {len(commit.title)}", commit.title]
    head += [f"from :{parent}"] if parent else []
    head += [f"merge :{merged}"] if merged else []
    files = {"cost": f"{commit.cost}\n", "log": commit.log}
    for name, text in files.items():
        head += [f"M 100644 inline {name}", f"data {len(text)}", text]
    head += ["M 100644 inline broken\ndata 0\n" if commit.broken else "D broken", ""]
    return "\n".join(head) + "\n"
