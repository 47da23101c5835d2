"""Environments: where cases were captured, and how this machine differs from that.

A difference explains much and proves nothing, so it is said once for all cases, as information.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec

from karat.bundles.manifest import Environment
from karat.findings import Finding, Severity

_SHOWN = 8


def differences(recorded: Sequence[Environment], *, packages: bool) -> Iterator[Finding]:
    """One finding for all that differs between the captures and this machine.

    Packages matter where karat calls a function of this Python, not where a command runs by itself.
    """
    tally: Counter[str] = Counter()
    for environment in recorded:
        tally.update(_differing(environment, packages=packages))
    if not tally:
        return
    shown = [_counted(what, n, len(recorded)) for what, n in tally.most_common(_SHOWN)]
    more = f"; and {len(tally) - _SHOWN} more" if len(tally) > _SHOWN else ""
    yield Finding(
        kind="environment-changed",
        severity=Severity.INFO,
        message=f"captured elsewhere: {'; '.join(shown)}{more}",
    )


def _counted(what: str, n: int, cases: int) -> str:
    return what if n == cases else f"{what} ({n} of {cases} cases)"


def _differing(environment: Environment, *, packages: bool) -> Iterator[str]:
    here = platform.system()
    # A kernel's release decides over no number, and differs nearly always.
    if environment.platform.partition(" ")[0] != here:
        yield f"platform {environment.platform}, here {here} {platform.release()}"
    if environment.machine.lower() != platform.machine().lower():
        yield f"machine {environment.machine}, here {platform.machine()}"
    if not packages:
        return
    if environment.python != platform.python_version():
        yield f"Python {environment.python}, here {platform.python_version()}"
    yield from _package_differences(environment.packages.items())


def _package_differences(packages: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, recorded in packages:
        found = _version(name)
        if found is None and find_spec(name) is not None:
            continue  # it is there under another name, and does not say which
        if found is None or not same_version(recorded, found):
            yield f"{name} {recorded}, here {found or 'none'}"


def same_version(one: str, other: str) -> bool:
    """Whether two versions are one; a build's own suffix counts only where both have one."""
    if "+" in one and "+" in other:
        return one == other
    return one.partition("+")[0] == other.partition("+")[0]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
