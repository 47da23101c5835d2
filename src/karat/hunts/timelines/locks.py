"""Lock files: which packages an environment holds, each in one version.

In: a text of `OLD..NEW`, or of one side: a lock file (requirements.txt with pins, `pip freeze`, uv.lock, pylock.toml), an
image (`image:nvcr.io/nvidia/jax:24.10-py3`), or the pins themselves (`numpy==1.26.4,six==1.16.0`). Out: name → version; `@ URL` where a package comes from an address. What is
meant for another platform or Python is left out, and so is the project itself, which is the code.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from karat.findings import CannotVerify, UsageError
from karat.net.package_index import plain_name
from karat.system.command import Command
from karat.system.foreign import toml
from karat.system.foreign.limits import TEXT, read_plain

Pins = dict[str, str]
_OWN = ("editable", "virtual", "directory", "path")  # Where uv.lock has what lies in the repository.
_LOOKS = "a lock file, image:NAME, or pins such as numpy==1.26.4,six==1.16.0"
_IMAGE = "image:"


def read_sides(text: str, root: Path) -> tuple[Pins, Pins]:
    """Both sides of `OLD..NEW`; paths may have dots of their own."""
    cuts = [found.start() for found in re.finditer(r"(?=\.\.)", text)]
    for cut in cuts:
        old, new = text[:cut], text[cut + 2 :]
        if all("==" in side or side.startswith(_IMAGE) or (side and (root / side).is_file()) for side in (old, new)):
            return read_side(old, root), read_side(new, root)
    said = f"--packages: expected OLD..NEW, each {_LOOKS}, found {text!r}"
    missing = next((side for cut in cuts for side in (text[:cut], text[cut + 2 :]) if not (root / side).is_file()), "")
    raise UsageError(f"{said}{f' (no such file: {missing})' if missing else ''}", next_command="ls")


def read_side(text: str, root: Path) -> Pins:
    path = root / text
    if importlib.util.find_spec("packaging") is None:
        said = "reading lock files needs packaging, which is not installed"
        raise UsageError(said, next_command="pip install 'karat[hunt]'")
    try:
        if text.startswith(_IMAGE):
            return _requirements(_installed_in(text.removeprefix(_IMAGE)), root, text)
        if not path.is_file():
            return _requirements(re.sub(r"[,\s]+", "\n", text), root, "--packages")
        content = read_plain(path, TEXT).decode("utf-8-sig")
        tables = toml.loads(content) if path.suffix in {".lock", ".toml"} and "\n[[package" in content else {}
        if "packages" in tables:
            found = {str(one["name"]): _source(one) for one in tables["packages"] if _fits(one.get("marker"))}
        else:
            found = _uv(tables["package"]) if "package" in tables else _requirements(content, path.parent, str(path))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        said = f"expected {_LOOKS} in {path}, found: {error}"
        raise UsageError(said, next_command=Command("head", str(path))) from error
    if not found:
        raise UsageError(f"expected packages in {path}, found none", next_command=Command("head", str(path)))
    return {plain_name(name): version for name, version in found.items()}


def _installed_in(image: str) -> str:
    """A line of `name==version` for each package of an image's Python; what pip was given as a file has its version, too."""
    from karat.hunts.timelines.container_engine import find_engine
    from karat.net.registry import parse

    asked = ("-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    try:
        parse(image)  # refuses what could be an option; the engine knows names of its own besides
    except UsageError as error:
        error.next_command = "karat hunt split --help"  # no hunt.toml is at fault
        raise
    words = find_engine().run(image, asked, ("--network", "none", "--entrypoint", "python3"))
    done = subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode or not done.stdout.strip():
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        said = f"expected {image} to list its packages, but: {lines[-1] if lines else 'its Python has none'}"
        raise CannotVerify(said, next_command=Command(*words))
    return done.stdout.decode(errors="replace")


def requirement(name: str, version: str) -> str:
    return f"{name} {version}" if version.startswith("@") else f"{name}=={version}"


def _requirements(text: str, folder: Path, where: str) -> Pins:
    from packaging.requirements import Requirement

    found: Pins = {}
    for line in text.replace("\\\n", " ").splitlines():
        # Comments and hashes are no part of a pin. Options are none, but what -r names is; what -e names is the code.
        said = re.sub(r"(^|\s)#.*|\s--hash[= ]\S+", "", line).strip()
        if more := re.fullmatch(r"(?:-r|--requirement)[ =]*(.+)", said):
            found |= read_side(more[1], folder)
        if not said or said.startswith("-"):
            continue
        one = Requirement(said)
        pins = [spec.version for spec in one.specifier if spec.operator in {"==", "==="} and "*" not in spec.version]
        if not (pins or one.url):
            compile_ = Command("uv", "pip", "compile", where, "-o", f"{Path(where).stem}.lock.txt")
            raise UsageError(f"{where}: expected name==version, found {said!r}", next_command=compile_)
        if _fits(one.marker):
            found[plain_name(one.name)] = f"@ {one.url}" if one.url else pins[0]
    return found


def _uv(packages: list[dict[str, Any]]) -> Pins:
    """What the project itself needs here, directly or not."""
    own = [one for one in packages if any(kind in one["source"] for kind in _OWN)]
    there = {p["name"]: p for p in packages if p not in own and any(map(_fits, p.get("resolution-markers", [""])))}
    found: Pins = {} if own else {name: _source(one) for name, one in there.items()}
    while own:
        package = own.pop()
        groups = [package.get("dependencies", []), *package.get("dev-dependencies", {}).values()]
        for need in (need for group in (*groups, *package.get("optional-dependencies", {}).values()) for need in group):
            if _fits(need.get("marker")) and (name := need["name"]) in there and name not in found:
                found[name] = _source(there[name])
                own.append(there[name])
    return found


def _source(package: Mapping[str, Any]) -> str:
    """The version, or the address where there is one: `@ git+https://host/x@commit`."""
    source = package.get("source", {})
    vcs = package.get("vcs", {})
    if git := source.get("git") or (vcs.get("type") == "git" and vcs.get("url")):
        address, _, commit = git.partition("#")
        return f"@ git+{address.partition('?')[0]}@{commit or vcs.get('commit-id', 'HEAD')}"
    return f"@ {source['url']}" if "url" in source else str(package["version"])


def _fits(marker: object) -> bool:
    from packaging.markers import Marker

    return not marker or Marker(str(marker)).evaluate({"extra": ""})
