"""Images of a range of dates: which exist, by which digest and with which commits; pulled ahead, and removed for room.

Of the cache only images that this hunt has pulled are known: what was there before it is never removed, nor is what was
asked for last, since a job that is under way may be about to use it. Engines refuse to remove what a container uses. Sizes
are the engine's own; layers that images share are counted for each of them, so that the limit is never passed by them.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, Finding, info, warn
from karat.hunts.settings import ContainerSettings, RepositorySettings, mistake
from karat.hunts.timelines.container_engine import ContainerEngine, inspect
from karat.net import registry_auth
from karat.net.image_reference import Reference, parse
from karat.net.registry import Registry
from karat.system.files import write_bytes
from karat.system.pool import in_parallel

_DATE = re.compile(r"\{date(?::([^{}]*))?\}")
_DAY = 86400.0
PREFIX = "karat.commit."
REVISION, SOURCE = "org.opencontainers.image.revision", "org.opencontainers.image.source"
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SHOWN, _LONGEST = 8, 80
"""Labels that a line shows, and their characters."""
_NAMED = 5
"""Images that a message names."""
_MOST = 100_000


def image_at(template: str, when: dt.datetime) -> Reference:
    return parse(_DATE.sub(lambda found: when.strftime(found[1] or "%Y-%m-%d"), template))


def image_times(start: dt.datetime, end: dt.datetime, step: float) -> tuple[dt.datetime, ...]:
    """Every moment from the start to the end, both included where the step leads there."""
    start, end = in_utc(start), in_utc(end)
    if end < start:
        raise mistake(
            f"containers: expected an end after the start, {start:%Y-%m-%d %H:%M}, found {end:%Y-%m-%d %H:%M}"
        )
    if step < 1:
        raise mistake(f"containers.step: expected at least a second, found {step:g} s")
    if (end - start).total_seconds() / step > _MOST:
        raise mistake(
            f"containers: expected at most {_MOST:,} images, found more between {start:%Y-%m-%d} and {end:%Y-%m-%d}"
        )
    each = dt.timedelta(seconds=step)
    return tuple(start + number * each for number in range((end - start) // each + 1))


def check_template(template: str, step: float) -> None:
    """Refuses a template without a date, or whose date is coarser than the step."""
    rest = _DATE.sub("", template)
    if rest == template or "{" in rest or "}" in rest:
        raise mistake(f"containers.image: expected a date in it, such as nightly-{{date:%Y-%m-%d}}, found {template!r}")
    first = dt.datetime(2023, 8, 24, tzinfo=dt.UTC)
    if image_at(template, first) == image_at(template, first + dt.timedelta(seconds=step)):
        raise mistake(
            f"containers.image: expected a date that tells images apart which are {step:g} s from each other, "
            f"found {template!r}; a longer step, or the hour in the date (%H), would do"
        )


def check_distinct(references: Mapping[str, Reference]) -> None:
    """Refuses two moments that have the same image, as a template without the year gives after a year."""
    names: dict[Reference, str] = {}
    for name, reference in references.items():
        before = names.setdefault(reference, name)
        if before != name:
            raise mistake(
                f"containers.image: expected an image of its own for each date, "
                f"found {reference.text} for {before} and for {name}"
            )


def point_name(when: dt.datetime, step: float) -> str:
    """What a moment is called: a day, or a day and a time."""
    if when.time() == dt.time(0) and step % _DAY == 0:
        return f"{when:%Y-%m-%d}"
    return f"{when:%Y-%m-%dT%H:%M}" if step % 60 == 0 else f"{when:%Y-%m-%dT%H:%M:%S}"


def in_utc(when: dt.datetime) -> dt.datetime:
    """The same moment in UTC; what has no zone is UTC."""
    try:
        return when.replace(tzinfo=dt.UTC) if when.tzinfo is None else when.astimezone(dt.UTC)
    except OverflowError as error:
        raise mistake(f"containers: expected a time that UTC has as well, found {when}") from error


def commits_of(labels: Mapping[str, str], repositories: Sequence[RepositorySettings] = ()) -> dict[str, str]:
    """`commit.NAME` of each repository that a label tells of.

    The OCI label names one revision and maybe its source: it is the repository with that address, or the only one.
    """
    found = {
        f"commit.{label.removeprefix(PREFIX)}": value
        for label, value in labels.items()
        if label.startswith(PREFIX) and _COMMIT.fullmatch(value)
    }
    revision, source = labels.get(REVISION, ""), labels.get(SOURCE, "")
    same = [one.name for one in repositories if not source or _address(one.url) == _address(source)]
    if len(same) == 1 and same[0] and _COMMIT.fullmatch(revision):
        found.setdefault(f"commit.{same[0]}", revision)
    return found


def changed_labels(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Labels that are not the same, in words; of many, or of long ones, only so much as a line can hold."""

    def short(text: str) -> str:
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    more = [f"and {len(changed) - _SHOWN} more labels"] if len(changed) > _SHOWN else []
    none = "(none)"
    return [f"{short(n)} {short(old.get(n, none))} → {short(new.get(n, none))}" for n in changed[:_SHOWN]] + more


def _address(url: str) -> str:
    """Host and path of a repository, the same for https, ssh and with or without `.git`."""
    bare = re.sub(r"^[a-z+]+://", "", url.strip().lower())
    bare = re.sub(r"^[^@/]*@", "", bare).removesuffix("/").removesuffix(".git")
    return re.sub(r"^([^/:]+):(?!\d+/)", r"\1/", bare)


class ListedImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image as it was found, or not."""

    reference: Reference
    """With its tag."""
    run: str = ""
    """What is run: by digest, or by the engine's own id. Empty: there is none."""
    digest: str = ""
    unknown: CannotVerify | None = None
    """Why it could not be said whether it exists; it is tried by its tag then."""


def open_registry(own: ContainerSettings, references: Sequence[Reference], engine: ContainerEngine) -> Registry | None:
    """The registry of the images; None for those that only the engine can have."""
    first = references[0]
    if any(reference.host != first.host for reference in references):
        raise mistake(f"containers.image: expected one registry, found several in {own.image!r}")
    if first.is_local:
        return None
    login = (
        registry_auth.from_variable(own.username, own.password_env, os.environ)
        if own.password_env
        else registry_auth.stored(first, os.environ)
    )
    # A password of one's own is what was refused then, not the engine's login.
    advice = f"export {own.password_env}=…" if own.password_env else f"{engine.name} login {first.host}"
    return Registry(first, login, insecure=own.insecure, advice=advice)


def list_images(
    references: Mapping[str, Reference], engine: ContainerEngine, registry: Registry | None
) -> dict[str, ListedImage]:
    """Each image, asked of the registry or of the engine, many at once."""
    if registry is not None:
        registry.check()

    def ask(name: str, reference: Reference) -> tuple[str, ListedImage]:
        if registry is None:
            image = str((inspect(engine, reference.text) or {}).get("Id", "")).removeprefix("sha256:")
            exact = f"sha256:{image}" if image else ""
            return name, ListedImage(reference=reference, run=exact, digest=exact)
        try:
            digest = registry.digest(reference)
        except CannotVerify as error:
            return name, ListedImage(reference=reference, run=reference.text, unknown=error)
        # Not the tag: it may move while the hunt is under way.
        exact = msgspec.structs.replace(reference, tag="", digest=digest).text if digest else ""
        return name, ListedImage(reference=reference, run=exact, digest=digest or "")

    tasks = [partial(ask, name, reference) for name, reference in references.items()]
    answers = dict(in_parallel(tasks, 16, stop=lambda: None))
    found = {name: answers[name] for name in references}
    unknown = [one.unknown for one in found.values() if one.unknown]
    if len(unknown) == len(found):
        raise CannotVerify(
            f"expected the registry to say which images exist, found for all {len(found)}: {unknown[0]}",
            next_command=unknown[0].next_command,
        )
    if not any(one.run for one in found.values()):
        names = _name_some([one.reference.text for one in found.values()])
        raise mistake(f"containers.image: expected images, found none of {len(found)}: {names}")
    return found


def listing_findings(listed: Iterable[ListedImage]) -> Iterator[Finding]:
    """Images that are missing, and those of which nothing could be said."""
    images = list(listed)
    missing = [one.reference.text for one in images if not one.run]
    if missing:
        said = f"{len(missing)} of {len(images)} images do not exist: {_name_some(missing)}"
        yield info("points-missing", said, numbers={"missing": len(missing), "points": len(images)})
    unknown = [one for one in images if one.unknown]
    if unknown:
        yield warn(
            "transfer-failed",
            f"whether {len(unknown)} of {len(images)} images exist could not be said "
            f"({unknown[0].unknown}): {_name_some([one.reference.text for one in unknown])}; they are tried anyway",
            numbers={"unknown": len(unknown), "points": len(images)},
            next="karat hunt resume",
        )


def _name_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


class ImageCache:
    """The images that a hunt has pulled onto this machine, oldest use first."""

    def __init__(
        self, file: Path, limit: int, sizes: Callable[[Sequence[str]], Mapping[str, int]], *, keep: int
    ) -> None:
        self._file, self._limit, self._sizes, self._keep = file, limit, sizes, keep
        self._lock = threading.Lock()
        self._images: list[str] = []  # then nothing is known to be the hunt's, and nothing is removed
        with suppress(OSError, ValueError):
            self._images = msgspec.json.decode(file.read_bytes(), type=list[str])

    def use(self, image: str) -> tuple[str, ...]:
        """Notes that an image is used now; returns those that should be removed first."""
        if not self._limit:
            return ()
        with self._lock:
            sizes = self._sizes([image, *self._images])
            if image in sizes and image not in self._images:
                return ()  # it was here before the hunt
            self._images = [one for one in self._images if one in sizes and one != image]
            surplus = over_limit([(one, sizes[one]) for one in self._images], self._limit, self._keep)
            self._images = [*(one for one in self._images if one not in surplus), image]
            self._save()
            return surplus

    def expect(self, image: str) -> None:
        """Notes that an image is about to be pulled, before it is used."""
        if not self._limit:
            return
        with self._lock:
            if image not in self._images and image not in self._sizes([image]):
                self._images.append(image)
                self._save()

    def _save(self) -> None:
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self._file, msgspec.json.encode(self._images), durable=False)


def over_limit(images: Sequence[tuple[str, int]], limit: int, keep: int) -> tuple[str, ...]:
    """The oldest images that must go, so that the others stay below a limit; the newest `keep` stay. Pure."""
    total = sum(size for _, size in images)
    gone = []
    for image, size in images[: max(0, len(images) - keep)]:
        if total <= limit:
            break
        gone.append(image)
        total -= size
    return tuple(gone)


class Puller:
    """Pulls the images that come next, one after the other, in the background."""

    def __init__(self, most: int, commands: Callable[[str], tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
        """`commands` gives what succeeds if an image is here, and what pulls it."""
        self._most, self._commands = most, commands
        self._wanted: list[str] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ahead(self, images: Sequence[str]) -> None:
        """These come next; what was wanted before and has not begun is forgotten."""
        with self._changed:
            if self._closed or not self._most:
                return
            self._wanted = list(images[: self._most])
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="karat-pull")
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Stops, also in the middle of a pull: engines keep what has come, or drop it."""
        with self._changed:
            self._closed = True
            self._wanted.clear()
            process = self._process
            self._changed.notify_all()
        if process is not None:
            process.terminate()
        if self._thread is not None:
            self._thread.join(5.0)
            if process is not None and self._thread.is_alive():
                process.kill()
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._wanted and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                image = self._wanted.pop(0)
            here, pull = self._commands(image)
            # A failure is not this thread's to tell: the job that needs the image pulls it again, and says why not.
            if self._run(here) != 0:
                self._run(pull)

    def _run(self, argv: tuple[str, ...]) -> int:
        with self._changed:
            if self._closed:
                return 0
            try:
                self._process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            except OSError:
                return 0
            process = self._process
        code = process.wait()
        with self._changed:
            self._process = None
        return code
