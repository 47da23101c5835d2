"""Where a case lies: an identity as a path that every file system takes, and no other case has.

The readable part is for people and may be the same for two cases; the hash at the end of the leaf is over
the whole identity and tells them apart, also where a file system takes `A` for `a`.
"""

from __future__ import annotations

import re
from hashlib import sha256

from karat.bundles.manifest import Identity

LONGEST = 120
"""Bytes of one component; file systems take 255, archives and paths on Windows less in sum."""
_HASH = 16
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=,@-]+")
# Windows takes these for devices, whatever follows the first dot.
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|conin\$|conout\$|com\d|lpt\d)(\.|$)")


def case_path(identity: Identity) -> str:
    """suite/flow/leaf: below the root, `/`-separated, ASCII."""
    leaf = identity.test + (f"-{identity.subtest}" if identity.subtest else "")
    return "/".join(
        (
            safe_name(identity.suite),
            safe_name(identity.flow),
            f"{safe_name(leaf, LONGEST - _HASH - 1)}-{_digest(identity)}",
        )
    )


def safe_name(text: str, longest: int = LONGEST) -> str:
    """A name made of the text that every file system takes; two texts may share one."""
    name = _UNSAFE.sub("_", text).rstrip(".")
    # What starts with a dot is hidden, with a dash an option, with = or @ something to many a shell or tool.
    # A zip has its index beside the suites.
    if not name or name[0] in ".-+=,@" or _DEVICES.match(name) or name.lower() == "index.json":
        name = f"_{name}"
    if len(name) <= longest:
        return name
    # Parameters stand at the end, the file at the start: both tell a person which test it is.
    head = longest // 3
    return f"{name[:head]}~{name[-(longest - head - 1) :]}".rstrip(".")


def _digest(identity: Identity) -> str:
    whole = sha256(b"karat.identity/1")
    for part in (identity.suite, identity.flow, identity.test, identity.subtest):
        data = part.encode("utf-8", "surrogatepass")
        whole.update(b"\0%d\0" % len(data))
        whole.update(data)
    return whole.hexdigest()[:_HASH]
