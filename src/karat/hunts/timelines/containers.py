"""Timeline of containers: one image per date, asked of the registry, run by digest.

A point is a date. Whether its image exists is asked of the registry, which also says its digest: that is what is pulled and
run, so that a tag that moves does not change under a hunt. Labels `karat.commit.NAME` and
`org.opencontainers.image.revision` say which commits are in an image.

Images are pulled ahead, and removed for room: only those that this hunt has pulled, and not what was asked for last, since a
job that is under way may be about to use it. Engines refuse to remove what a container uses. Sizes are the engine's own;
layers that images share are counted for each of them, so that the limit is never passed by them.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from karat.engines.job import JobCommand
from karat.findings import CannotVerify, Finding, info, warn
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.settings import (
    COMMIT,
    ContainerSettings,
    HuntSettings,
    RepositorySettings,
    Stage,
    mistake,
    parse_duration,
    parse_size,
    split_command,
)
from karat.hunts.stages import stages
from karat.hunts.timelines.container_engine import ContainerEngine, absolute_mount, env_options, open_container_engine
from karat.hunts.timelines.timeline import Timeline, Workspace
from karat.net import registry_auth
from karat.net.image_reference import ImageReference, parse
from karat.net.registry import Registry
from karat.report.words import count, few
from karat.system.command import Command
from karat.system.files import write_bytes
from karat.system.pool import in_parallel
from karat.system.secrets import EVERYTHING

_DATE = re.compile(r"\{date(?::([^{}]*))?\}")
_PREFIX = "karat.commit."
_MOST = 100_000
# Clients leave behind what they started; on Slurm those are the steps of the job.
_END_STEPS = (
    *("sh", "-c"),
    "squeue --noheader --steps --jobs=$SLURM_JOB_ID --format=%i | grep '[.][0-9]' | xargs -r scancel --signal=KILL",
)


def image_at(template: str, when: dt.datetime) -> ImageReference:
    return parse(_DATE.sub(lambda found: when.strftime(found[1] or "%Y-%m-%d"), template))


def image_times(start: dt.datetime, end: dt.datetime, step: float) -> tuple[dt.datetime, ...]:
    """Every moment from the start to the end, both included where the step leads there."""
    start, end = in_utc(start), in_utc(end)
    if end < start:
        found = f"{start:%Y-%m-%d %H:%M}, found {end:%Y-%m-%d %H:%M}"
        raise mistake(f"containers: expected an end after the start, {found}")
    if step < 1:
        raise mistake(f"containers.step: expected at least a second, found {step:g} s")
    if (end - start).total_seconds() / step > _MOST:
        between = f"{start:%Y-%m-%d} and {end:%Y-%m-%d}"
        raise mistake(f"containers: expected at most {_MOST:,} images, found more between {between}")
    each = dt.timedelta(seconds=step)
    return tuple(start + number * each for number in range((end - start) // each + 1))


def check_template(template: str, step: float) -> None:
    """Refuses a template without a date, or whose date is coarser than the step."""
    rest = _DATE.sub("", template)
    if rest == template or "{" in rest or "}" in rest:
        raise mistake(f"containers.image: expected a date in it, such as nightly-{{date:%Y-%m-%d}}, found {template!r}")
    first = dt.datetime(2023, 8, 24, tzinfo=dt.UTC)
    if image_at(template, first) == image_at(template, first + dt.timedelta(seconds=step)):
        said = f"expected a date that tells apart images {step:g} s from each other, found {template!r}"
        raise mistake(f"containers.image: {said}; use a longer step, or the hour in the date (%H)")


def check_distinct(references: Mapping[str, ImageReference]) -> None:
    """Refuses two moments that have the same image, as a template without the year gives after a year."""
    names: dict[ImageReference, str] = {}
    for name, reference in references.items():
        before = names.setdefault(reference, name)
        if before != name:
            found = f"found {reference.text} for {before} and for {name}"
            raise mistake(f"containers.image: expected a different image for each date, {found}")


def point_name(when: dt.datetime, step: float) -> str:
    """What a moment is called: a day, or a day and a time."""
    if when.time() == dt.time(0) and step % 86400 == 0:
        return f"{when:%Y-%m-%d}"
    return f"{when:%Y-%m-%dT%H:%M}" if step % 60 == 0 else f"{when:%Y-%m-%dT%H:%M:%S}"


def in_utc(when: dt.datetime) -> dt.datetime:
    """The same moment in UTC; what has no zone is UTC."""
    try:
        return when.replace(tzinfo=dt.UTC) if when.tzinfo is None else when.astimezone(dt.UTC)
    except OverflowError as error:
        raise mistake(f"containers: expected a time that can be converted to UTC, found {when}") from error


def commits_of(labels: Mapping[str, str], repositories: Sequence[RepositorySettings] = ()) -> dict[str, str]:
    """`commit.NAME` of each repository that a label tells of.

    The OCI label names one revision and maybe its source: it is the repository with that address, or the only one.
    """
    found = {
        f"commit.{label.removeprefix(_PREFIX)}": value
        for label, value in labels.items()
        if label.startswith(_PREFIX) and COMMIT.fullmatch(value)
    }
    revision, source = (labels.get(f"org.opencontainers.image.{name}", "") for name in ("revision", "source"))
    same = [one.name for one in repositories if not source or _address(one.url) == _address(source)]
    if len(same) == 1 and same[0] and COMMIT.fullmatch(revision):
        found.setdefault(f"commit.{same[0]}", revision)
    return found


def changed_labels(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Labels that are not the same, in words; of many, or of long ones, only so much as a line can hold."""

    def short(text: str) -> str:
        return text if len(text) <= 80 else f"{text[:80]}…"

    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    more = [f"and {len(changed) - 8} more labels"] if len(changed) > 8 else []
    none = "(none)"
    return [f"{short(n)} {short(old.get(n, none))} → {short(new.get(n, none))}" for n in changed[:8]] + more


def _address(url: str) -> str:
    """Host and path of a repository, the same for https, ssh and with or without `.git`."""
    bare = re.sub(r"^[a-z+]+://", "", url.strip().lower())
    bare = re.sub(r"^[^@/]*@", "", bare).removesuffix("/").removesuffix(".git")
    return re.sub(r"^([^/:]+):(?!\d+/)", r"\1/", bare)


class ListedImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image as it was found, or not."""

    reference: ImageReference
    run: str = ""  # What is run: by digest, or by the engine's own id. Empty: there is none.
    digest: str = ""
    unknown: CannotVerify | None = None  # Why it is not known whether it exists; it is tried by its tag then.


def open_registry(
    own: ContainerSettings, references: Sequence[ImageReference], engine: ContainerEngine
) -> Registry | None:
    """The registry of the images; None for those that only the engine can have."""
    first = references[0]
    if any(reference.host != first.host for reference in references):
        raise mistake(f"containers.image: expected one registry, found several in {own.image!r}")
    if first.is_local and engine.name == "pyxis":
        raise mistake(f"containers.image: expected images of a registry, as pyxis imports them, found {own.image!r}")
    if first.is_local:
        return None
    if not own.password_env:
        client = "docker" if engine.name == "pyxis" else engine.name
        advice, login = Command(client, "login", first.host), registry_auth.stored(first, os.environ)
    else:
        # That is what was refused then, not the engine's login.
        advice = Command("export", f"{own.password_env}=PASSWORD")
        login = registry_auth.from_variable(own.username, own.password_env, os.environ)
    return Registry(first, login, insecure=own.insecure, advice=advice)


def list_images(
    references: Mapping[str, ImageReference], engine: ContainerEngine, registry: Registry | None
) -> dict[str, ListedImage]:
    """Each image, asked of the registry or of the engine, many at once."""
    if registry is not None:
        registry.check()

    def ask(name: str, reference: ImageReference) -> tuple[str, ListedImage]:
        if registry is None:
            image = str((engine.inspect(reference.text) or {}).get("Id", "")).removeprefix("sha256:")
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
        said = f"could not look up any of the {len(found)} images in the registry: {unknown[0]}"
        raise CannotVerify(said, next_command=unknown[0].next_command)
    if not any(one.run for one in found.values()):
        names = few([one.reference.text for one in found.values()], 5)
        there: Sequence[str] = ()
        with suppress(CannotVerify):
            there = registry.tags(next(iter(references.values()))) if registry is not None else ()
        tags = (
            f"; the repository has {count(len(there), 'tag')}, the last ones are {few(there[-5:], 5)}" if there else ""
        )
        raise mistake(f"containers.image: expected images, found none of {len(found)}: {names}{tags}")
    return found


def listing_findings(listed: Iterable[ListedImage]) -> Iterator[Finding]:
    """Images that are missing, and those that may be."""
    images = list(listed)
    missing = [one.reference.text for one in images if not one.run]
    if missing:
        said = f"{len(missing)} of {len(images)} images do not exist: {few(missing, 5)}"
        yield info("points-missing", said, numbers={"missing": len(missing), "points": len(images)})
    unknown = [one for one in images if one.unknown]
    if unknown:
        names = few([one.reference.text for one in unknown], 5)
        said = f"it is not known whether {len(unknown)} of {len(images)} images exist ({unknown[0].unknown}): {names}"
        numbers = {"unknown": len(unknown), "points": len(images)}
        yield warn("transfer-failed", f"{said}; they are tried anyway", numbers=numbers, next="karat hunt resume")


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
        self._pool = ThreadPoolExecutor(1, "karat-pull")
        self._wanted: list[Future[None]] = []
        self._starting, self._closed = threading.Lock(), False
        self._process: subprocess.Popen[bytes] | None = None

    def ahead(self, images: Sequence[str]) -> None:
        """These come next; what was wanted before and has not begun is forgotten."""
        for pull in self._wanted:
            pull.cancel()
        if not self._closed:
            self._wanted = [self._pool.submit(self._pull, image) for image in images[: self._most]]

    def close(self) -> None:
        """Stops, also in the middle of a pull: engines keep what has come, or drop it."""
        with self._starting:
            self._closed = True
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)
            self._process.kill()
        self._pool.shutdown(cancel_futures=True)

    def _pull(self, image: str) -> None:
        # A failure is not this thread's to tell: the job that needs the image pulls it again, and says why not.
        nothing = subprocess.DEVNULL
        for argv in self._commands(image):
            with self._starting, suppress(OSError):
                if self._closed:
                    return
                self._process = subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=nothing)
            if self._process is None or self._process.wait() == 0:
                return


class Containers(Timeline):
    """Images by date, and how each is put under test."""

    name = "containers"
    points: Sequence[Point] = ()

    def __init__(
        self,
        settings: HuntSettings,
        place: Workspace,
        engine: ContainerEngine,
        registry: Registry | None,
        images: Mapping[str, ListedImage],
        points: Sequence[Point],
    ) -> None:
        self._own = own = settings.containers or ContainerSettings(image="")
        self._repositories, self._passed = settings.repositories, settings.probe.env_pass
        self._place, self._engine, self._registry = place, engine, registry
        self._images, self.points = images, points
        self._labels: dict[str, Mapping[str, str]] = {}
        self._unread: list[Finding] = []
        # On a cluster images are pulled where they are run, which is not here.
        self._here = settings.engine.kind == "local"
        # Slots that own GPUs show a container their own ones; without any, it sees those it is given.
        self._divided = settings.engine.gpus > 0
        gpus = engine.gpus(own.gpus or ("all" if self._divided else None))
        mounts = [word for mount in own.mounts for word in ("--volume", absolute_mount(mount, place.root))]
        # One name per slot: nothing else runs in a slot, and what a killed job left there is found by it.
        self._container = f"karat-{place.hunt}-@SLOT@"
        named = engine.named(self._container, place.hunt)
        # For every container, before those of hunt.toml.
        self._options = (*named, "--volume", "@OUT@:@OUT@", "--cpuset-cpus=@CORES@", *mounts, *gpus)
        self._stays = bool(split_command(settings.probe.setup))
        self._puller = Puller(own.ahead if self._here else 0, self._pull_ahead)
        file = place.work / "containers" / f"images-{place.hunt}.json"
        limit = parse_size(own.cache) if self._here else 0
        keep = max(1, settings.engine.slots) + own.ahead
        self._cache = ImageCache(file, limit, engine.image_sizes, keep=keep)

    @property
    def findings(self) -> Sequence[Finding]:
        """Images that are missing, and those of which nothing, or not all, could be said."""
        return (*listing_findings(self._images.values()), *self._unread)

    def identity(self, point: Point) -> Mapping[str, str]:
        """The digest, and the commits that labels tell of."""
        found = self._images[point.id]
        if not found.digest:
            return {}
        return {"image.digest": found.digest, **commits_of(self._labels_of(point), self._repositories)}

    def prepare(self, point: Point) -> Sequence[JobCommand]:
        """What a killed job left in this slot is removed; the image is pulled, unless it is here."""
        image, made = self._images[point.id].run, partial(JobCommand, role="prepare")
        if self._engine.name == "pyxis":
            argv = self._engine.run(image, ("true",), (*self._options, *self._own.options))
            return [made(name="pull", argv=argv, timeout=7200.0, when_killed=(_END_STEPS,))]
        commands = [made(name="clear", argv=self._engine.remove(self._container), may_fail=True)]
        if surplus := self._cache.use(image):
            remove = (self._engine.program, "image", "rm", *surplus)
            commands.append(made(name="make room", argv=remove, may_fail=True))
        here, pull = self._pull_words(image)
        commands.append(made(name="pull", argv=pull, unless=here, timeout=7200.0, passed=EVERYTHING))
        if self._stays:
            # A container for the whole job, so that commands find what `setup` left.
            words = (*self._options, "--entrypoint", "sleep", *self._own.options)
            argv = self._engine.run_detached(image, ("infinity",), words)
            killed = (self._engine.remove(self._container),)
            commands.append(made(name="container", argv=argv, when_killed=killed))
        return commands

    def command(self, point: Point, command: JobCommand) -> JobCommand:
        """The command in a fresh container of the point's image; after a `setup`, in the one that has seen it."""
        variables = {"KARAT_OUT": "@OUT@", **self._own.env, **command.env}
        if self._divided:
            variables["CUDA_VISIBLE_DEVICES"] = "@GPUS@"
        options, env = env_options(variables, self._passed)
        engine, name = self._engine, self._container
        if self._stays and engine.name != "pyxis":
            argv, killed = engine.exec(name, command.argv, options), engine.restart(name)
        else:
            words = (*self._options, *options, *self._own.options)
            argv = engine.run(self._images[point.id].run, command.argv, words)
            killed = engine.remove(name) if engine.name != "pyxis" else _END_STEPS
        after = (killed, *command.when_killed)
        return msgspec.structs.replace(command, argv=argv, env=env, cwd="@AREA@", unless=(), when_killed=after)

    def ahead(self, points: Sequence[Point]) -> None:
        self._puller.ahead([run for point in points if (run := self._images[point.id].run)])

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """The commits that labels tell of, and the image itself."""
        before, after = self.identity(old), self.identity(new)
        moved = []
        for name, commit in after.items():
            if name.startswith("commit.") and before.get(name) != commit:
                title = f"after {before[name][:12]}" if name in before else ""
                moved.append(Suspect(part=name.removeprefix("commit."), id=commit, title=title))
        names = (self._images[point.id].reference.text for point in (old, new))
        changed = changed_labels(self._labels_of(old), self._labels_of(new))
        title = "; ".join((" → ".join(names), *changed))
        return (*moved, Suspect(part="image", id=new.parts["image"], title=title, when=new.when))

    def close(self) -> None:
        """Stops pulling and asking; removes containers that wait for another job."""
        self._puller.close()
        if self._stays and self._here:
            self._engine.remove_named(self._place.hunt, self._container)
        if self._registry is not None:
            self._registry.close()

    def _pull_ahead(self, image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        self._cache.expect(image)
        return self._pull_words(image)

    def _pull_words(self, image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        here = (self._engine.program, "image", "inspect", "--format", "{{.Id}}", image)
        if self._registry is None:
            return here, here  # there is nowhere to pull it from
        return here, self._engine.pull(image, insecure=self._registry.insecure)

    def _labels_of(self, point: Point) -> Mapping[str, str]:
        """Asked when they are needed: what a registry counts as a pull is not spent on images nobody runs."""
        found = self._images[point.id]
        if not found.digest:
            return {}
        if found.digest in self._labels:
            return self._labels[found.digest]
        known: Mapping[str, str] = {}
        if self._registry is None:
            config = (self._engine.inspect(found.run) or {}).get("Config") or {}
            known = {str(name): str(value) for name, value in (config.get("Labels") or {}).items()}
        else:
            try:
                known = self._registry.labels(found.reference, found.digest)
            except CannotVerify as error:
                said = f"the labels of {found.reference.text} could not be read, so its commits are not known: {error}"
                self._unread.append(info("cannot-read", said, next=error.next_command))
        self._labels[found.digest] = known
        return known


def open_containers(settings: HuntSettings, stage: Stage, window: Window | None, place: Workspace) -> Containers:
    """The images of a range of dates, each asked of its registry; nothing is pulled."""
    own = settings.containers
    if own is None:
        raise mistake("[containers]: expected a table with an image, found none")
    step = stage.step if stage.step is not None else parse_duration(own.step)
    for each in stages(settings):
        if each.timeline == "containers":
            check_template(own.image, each.step or step)
    if window is not None and window.old.when and window.new.when:
        start, end = window.old.when, window.new.when
    elif own.start is None or own.end is None:
        missing = "start" if own.start is None else "end"
        raise mistake(f"containers.{missing}: expected a date, such as 2023-08-24, found none")
    else:
        start, end = in_utc(own.start), in_utc(own.end)
    named = {point_name(when, step): when for when in image_times(start, end, step)}
    references = {name: image_at(own.image, when) for name, when in named.items()}
    check_distinct(references)
    engine = open_container_engine(settings, place)
    registry = open_registry(own, list(references.values()), engine)
    try:
        images = list_images(references, engine, registry)
        points = []
        for name, when in named.items():
            run, tagged = images[name].run, references[name].text
            missing = "" if run else f"no image {tagged}"
            points.append(Point(id=name, label=name, when=when, parts={"image": run or tagged}, missing=missing))
        return Containers(settings, place, engine, registry, images, points)
    except BaseException:
        if registry is not None:
            registry.close()
        raise
