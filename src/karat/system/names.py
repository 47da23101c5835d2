"""Names from outside, before one becomes a path: of archives, snapshots, manifests and jobs.

Pure. One rule for all who write: what leaves its folder, what some file system takes for another name, and what git would
take for its own folder, because git runs what a `.git/config` names.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_PART, LONGEST_PATH = 255, 4000  # Bytes; what file systems take, and for a whole path a little less.
DEVICE = re.compile(r"(?i)(con|prn|aux|nul|conin\$|conout\$|com[\d¹²³]|lpt[\d¹²³])(\.|$)")
"""Windows takes these for devices, whatever follows the first dot."""
_DRIVE = re.compile(r"[A-Za-z]:")
# `git~1` is what Windows calls `.git` in eight letters. NTFS drops dots and spaces at the end, and takes
# what follows a colon for a stream of the same folder.
_GIT = re.compile(r"(?i)(\.git|git~1)[. ]*(:|\Z)")


def not_plain(path: str) -> str | None:
    """Why a `/`-separated path is not a plain relative one, or None."""
    if not path.isprintable() and any(unicodedata.category(char) in {"Cc", "Cs"} for char in path):
        return "holds a control character"
    if "\\" in path:
        return "holds a backslash"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    return "climbs out of its folder" if ".." in path.split("/") else None


def refusal(path: str) -> str | None:
    """Why nothing may be written under a path from outside, or None if it may."""
    wrong = not_plain(path)
    if wrong is None and len(path.encode()) > LONGEST_PATH:
        wrong = f"is too long: at most {LONGEST_PATH:,} bytes are taken"
    for part in () if wrong else path.split("/"):
        if not part:
            return "has a part that is empty"
        if not part.rstrip(". "):
            return "has a part of nothing but dots and spaces"
        if len(part.encode()) > LONGEST_PART:
            return f"has a part that is too long: at most {LONGEST_PART} bytes are taken"
        # HFS+ compares without characters that have no width; none of them is printable.
        bare = part if part.isprintable() else "".join(c for c in part if unicodedata.category(c) != "Cf")
        if _GIT.match(bare):
            return "is one of git's own folders"
    return wrong


def folded(name: str) -> str:
    """What two names share if some file system takes one for the other."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def shown(name: str) -> str:
    """A name as it may stand in a message: short, and without control characters."""
    return repr(name if len(name) <= 120 else f"{name[:100]}…{name[-19:]}")
