"""Where snapshots lie, and which file speaks for an environment.

    tests/test_train.py::test_loss_curve[bf16]    the test
    tests/goldens/test_train/test_loss_curve-bf16/loss.json              a series or a document
    tests/goldens/test_train/test_loss_curve-bf16/accuracy@cuda-sm90.csv a table, of an environment of its own
    tests/goldens/test_train/test_loss_curve-bf16/logits-1c93…/          tensors: a captured case

A name that some file system could not hold, or would take for another, ends with a hash of the whole. These are places
that `karat diff`, `check` and `audit` look at without being told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from karat.bundles.manifest import Identity, case_path, safe_name
from karat.findings import UsageError
from karat.goldens.paths import SAMPLES
from karat.system.hashes import sha256_hex

FOLDER = "goldens"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_ENVIRONMENT = re.compile(r"[A-Za-z0-9_.]+(-[A-Za-z0-9_.]+)*")
_TAKEN = frozenset({"goldens.lock", "karat-manifest", "manifest"})  # Names of files that are no goldens.
_SUFFIXES = {"series": ".json", "document": ".json", "table": ".csv"}


class Place(msgspec.Struct, frozen=True):
    """The folder of one test's snapshots, in two steps: that of its file, and its own."""

    file: Path
    test: str

    @property
    def folder(self) -> Path:
        return self.file / self.test

    def path(self, name: str, shape: str, environment: str = "") -> Path:
        """The file of a snapshot, the folder of tensors."""
        at = f"@{environment}" if environment else ""
        if shape == "bundle":
            return self.file.parent / case_path(self.identity(name, environment))
        return self.folder / f"{_named(name)}{at}{_SUFFIXES[shape]}"

    def identity(self, name: str, environment: str) -> Identity:
        """That of tensors, which are kept as a captured case."""
        at = f"@{environment}" if environment else ""
        return Identity(suite=self.file.name, flow=self.test, test=f"{name}{at}")

    def closest(self, name: str, shape: str, environment: str) -> Path | None:
        """The golden that speaks for an environment.

        Its own; else that of the environment without its last part, and so on (cuda-sm90-h100, cuda-sm90, cuda); else
        the one without an environment. Another environment's is never taken.
        """
        parts = environment.split("-") if environment else []
        tried = ("-".join(parts[:count]) for count in range(len(parts), -1, -1))
        places = (self.path(name, shape, one) for one in tried)
        return next((place for place in places if place.exists()), None)


def place_of(test_file: Path, node: str, central: Path | None = None, root: Path | None = None) -> Place:
    """Where the snapshots of a test lie; `node` is what follows the file in its node id.

    In a `central` folder, the folders of the tests below `root` are kept.
    """
    above = test_file.parent / FOLDER
    if central is not None:
        inside = root is not None and test_file.is_relative_to(root)
        above = central / (test_file.parent.relative_to(root) if root is not None and inside else "")
    name, bracket, parameters = node.replace("::", ".").partition("[")
    # No function has a dash in its name, so the first one begins the parameters.
    text = f"{name}-{parameters.removesuffix(']')}" if bracket else name
    return Place(above / _named(test_file.stem), _named(text))


def _named(text: str) -> str:
    """The text, if it is a plain name of no other use; else one that ends with a hash of it."""
    name = safe_name(text, 90)
    if name == text and _PLAIN.fullmatch(name) and name not in _TAKEN and not f"{name}.json".endswith(SAMPLES):
        return name
    return f"{name.replace('@', '_')}-{sha256_hex(text.encode('utf-8', 'surrogatepass'))[:8]}"


def checked_environment(name: str) -> str:
    """The name of an environment, if it is words joined by dashes; nothing stands for none."""
    if name and not _ENVIRONMENT.fullmatch(name):
        said = f"golden.environment: expected words joined by dashes, found {name!r:.80}"
        raise UsageError(said, next_command='golden.environment("cuda-sm90")')
    return name


def unused(places: Iterable[Place], asked: set[Path], spared: set[Path]) -> Iterator[Path]:
    """Snapshots that nobody asked for, in whatever environment.

    `places` are those of the tests that ran and passed; the `spared` folders are of tests that did not run.
    """
    tests: dict[Path, set[Path]] = {}
    for place in places:
        tests.setdefault(place.file, set()).add(place.folder)
    used = {_plain(path) for path in asked}
    for file, known in sorted(tests.items()):
        for folder in sorted(path for path in file.iterdir() if path.is_dir()) if file.is_dir() else ():
            if folder not in known | spared:
                yield folder
            elif folder not in spared:
                # Samples go with their golden.
                found = (path for path in sorted(folder.iterdir()) if not path.name.endswith(SAMPLES))
                yield from (path for path in found if _plain(path) not in used and path.name[0] != ".")


def _plain(path: Path) -> tuple[Path, str, str]:
    """What a snapshot is called without its environment: its folder, its name, and its suffix."""
    stem, at, _ = path.name.partition("@")
    if path.suffix in set(_SUFFIXES.values()):
        return path.parent, stem if at else path.stem, path.suffix
    return path.parent, stem if at else path.name.rpartition("-")[0], ""
