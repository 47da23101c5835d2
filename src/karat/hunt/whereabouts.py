"""Whereabouts: where the files of a hunt are: hunt.toml, the work folder, the journal."""

from __future__ import annotations

import hashlib
import re
import shlex
from contextlib import suppress
from pathlib import Path

from karat.findings import UsageError
from karat.hunt import hunt_file
from karat.hunt.journal_opening import no_journal
from karat.hunt.settings import HuntSettings
from karat.hunt.timeline import Place

SUFFIX = ".hunt"
_WORK = Path(".karat") / "hunt"


def name_of(file: Path, settings: HuntSettings) -> str:
    """What a hunt is called: as hunt.toml says, or as its file is."""
    return settings.name or file.stem


def place_of(file: Path, settings: HuntSettings) -> Place:
    """Where a hunt works. Its id is the same every time, so that a resume finds the containers of before."""
    root = file.absolute().parent
    own = f"{root}\0{name_of(file, settings)}".encode("utf-8", "surrogateescape")
    return Place(root=root, work=root / settings.work, hunt=hashlib.sha256(own).hexdigest()[:8])


def keep_out_of_git(place: Place) -> None:
    """Clones and builds are in nobody's `git status`. A folder that hunt.toml chose is its owner's to ignore."""
    own = place.work / ".gitignore"
    if place.work == place.root / _WORK and not own.exists():
        # A folder that cannot be written is told of by those who must.
        with suppress(OSError):
            own.write_text("*\n", encoding="ascii")


def journal_of(file: Path, settings: HuntSettings) -> Path:
    """Where a hunt's journal is, unless --journal says otherwise."""
    plain = re.sub(r"[^\w.-]+", "-", name_of(file, settings)).strip(".-") or "hunt"
    return _shown(place_of(file, settings).work / f"{plain}{SUFFIX}")


def find_journal(named: str | None) -> Path:
    """The journal that is meant: a journal, a hunt.toml, or what is in this folder."""
    if named is not None:
        path = Path(named)
        found = journal_of(path, hunt_file.read(path)) if path.suffix == ".toml" else path
    else:
        found = _in_this_folder()
    if not found.is_file():
        raise no_journal(found)
    return found


def _in_this_folder() -> Path:
    file = Path(hunt_file.NAME)
    if file.is_file():
        return journal_of(file, hunt_file.read(file))
    journals = sorted(_WORK.glob(f"*{SUFFIX}"))
    if len(journals) > 1:
        names = ", ".join(map(str, journals))
        raise UsageError(
            f"expected to be told which hunt is meant, found {names}",
            next_command=f"karat hunt status {shlex.quote(str(journals[0]))}",
        )
    return journals[0] if journals else _WORK / f"hunt{SUFFIX}"


def _shown(path: Path) -> Path:
    """Short where it is in this folder: it stands in advice that is typed again."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
