"""Installed versions: what tells which distributions a Python has, as lines of an identity. It runs on that Python, not here."""

from __future__ import annotations

# One line, so that whoever is shown the command can paste it. The first of a name is the one that is imported.
_PRINT = (
    "import re, sys; from importlib import metadata;"
    " plain = lambda name: re.sub('[-_.]+', '-', name or '').lower();"
    " there = {plain(d.metadata['Name']): d.version for d in reversed(list(metadata.distributions()))};"
    " print(*('package.%s=%s' % (n, there.get(plain(n), 'not installed')) for n in sys.argv[1:] or sorted(there)), sep=chr(10))"
)


def words(*names: str) -> tuple[str, ...]:
    """What a Python is given to print `package.NAME=VERSION` of these distributions; without names, of all."""
    return ("-c", _PRINT, *names)
