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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from karat.engines.job import JobCommand, parse_size
from karat.findings import CannotVerify
from karat.hunts import settings as tables
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.settings import COMMIT, ContainerSettings, HuntSettings, Stage, mistake, stages
from karat.hunts.timelines.container_engine import ContainerEngine, absolute_mount, env_options, open_container_engine
from karat.hunts.timelines.timeline import Timeline, Workspace
from karat.net.registry import ImageReference, Registry, parse, stored_login
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
    if not 0 <= (end - start).total_seconds() <= _MOST * step:
        said = f"at most {_MOST:,} images, found more from {start:%Y-%m-%d} to {end:%Y-%m-%d} by {step:g} s"
        raise mistake(f"containers: expected {said}")
    each = dt.timedelta(seconds=step)
    return tuple(start + number * each for number in range((end - start) // each + 1))


def check_template(template: str, step: float) -> None:
    """Refuses a template whose date is coarser than the step."""
    first = dt.datetime(2023, 8, 24, tzinfo=dt.UTC)
    if image_at(template, first) == image_at(template, first + dt.timedelta(seconds=step)):
        said = f"expected a date that tells apart images {step:g} s from each other, found {template!r}"
        raise mistake(f"containers.image: {said}; use a longer step, or the hour in the date (%H)")


def point_name(when: dt.datetime, step: float) -> str:
    """What a moment is called: a day, or a day and a time."""
    if when.time() == dt.time(0) and step % 86400 == 0:
        return f"{when:%Y-%m-%d}"
    return f"{when:%Y-%m-%dT%H:%M}" if step % 60 == 0 else f"{when:%Y-%m-%dT%H:%M:%S}"


def commits_of(labels: Mapping[str, str], repositories: Sequence[tables.RepositorySettings] = ()) -> dict[str, str]:
    """`commit.NAME` of each repository that a label tells of.

    The OCI label names one revision: that of the only repository.
    """
    told = {label: value for label, value in labels.items() if label.startswith(_PREFIX) and COMMIT.fullmatch(value)}
    found = {f"commit.{label.removeprefix(_PREFIX)}": value for label, value in told.items()}
    revision = labels.get("org.opencontainers.image.revision", "")
    if len(repositories) == 1 and COMMIT.fullmatch(revision):
        found.setdefault(f"commit.{repositories[0].name}", revision)
    return found


class ListedImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image as it was found, or not."""

    reference: ImageReference
    run: str = ""  # What is run: by digest. Empty: there is none.
    digest: str = ""
    unknown: CannotVerify | None = None  # Why it is not known whether it exists; it is tried by its tag then.


def open_registry(own: ContainerSettings, references: Sequence[ImageReference], engine: ContainerEngine) -> Registry:
    """The registry of the images, with the login that the engine has for it."""
    first = references[0]
    if any(reference.host != first.host for reference in references):
        raise mistake(f"containers.image: expected one registry, found several in {own.image!r}")
    advice = Command("docker" if engine.name == "pyxis" else engine.name, "login", first.host)
    return Registry(first, stored_login(first.name, os.environ), insecure=own.insecure, advice=advice)


def list_images(references: Mapping[str, ImageReference], registry: Registry) -> dict[str, ListedImage]:
    """Each image, asked of the registry, many at once."""
    registry.check()

    def ask(name: str, reference: ImageReference) -> tuple[str, ListedImage]:
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
            there = registry.tags(next(iter(references.values())))
        tags = f"; the repository has {count(len(there), 'tag')}, the last ones are {few(there[-5:], 5)}"
        said = f"expected images, found none of {len(found)}: {names}{tags if there else ''}"
        raise mistake(f"containers.image: {said}")
    return found


def notes_on_images(images: Collection[ListedImage]) -> Iterator[str]:
    """Images that are missing, and those that may be."""
    if missing := [one.reference.text for one in images if not one.run]:
        yield f"{len(missing)} of {len(images)} images do not exist: {few(missing, 5)}"
    if unknown := [one for one in images if one.unknown]:
        names, total = few([one.reference.text for one in unknown], 5), len(images)
        said = f"it is not known whether {len(unknown)} of {total} images exist ({unknown[0].unknown}): {names}"
        yield f"{said}; they are tried anyway"


class ImageCache:
    """The images that a hunt has pulled onto this machine, oldest use first."""

    def __init__(self, file: Path, limit: int, sizes: Callable[[list[str]], Mapping[str, int]], *, keep: int) -> None:
        self._file, self._limit, self._sizes, self._keep = file, limit, sizes, keep
        self._images: list[str] = []  # then nothing is known to be the hunt's, and nothing is removed
        with suppress(OSError, ValueError):
            self._images = msgspec.json.decode(file.read_bytes(), type=list[str])

    def use(self, image: str) -> tuple[str, ...]:
        """Notes that an image is used now; returns those that should be removed first."""
        if not self._limit:
            return ()
        sizes = self._sizes([image, *self._images])
        if image in sizes and image not in self._images:
            return ()  # it was here before the hunt
        self._images = [one for one in self._images if one in sizes and one != image]
        surplus = over_limit([(one, sizes[one]) for one in self._images], self._limit, self._keep)
        self._images = [*(one for one in self._images if one not in surplus), image]
        self._save()
        return surplus

    def expect(self, image: str) -> None:
        """Notes that an image, which is not here, is about to be pulled before it is used."""
        if self._limit and image not in self._images:
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


class Containers(Timeline):
    """Images by date, and how each is put under test."""

    name = "containers"

    def __init__(
        self,
        settings: HuntSettings,
        place: Workspace,
        engine: ContainerEngine,
        registry: Registry,
        images: Mapping[str, ListedImage],
        points: Sequence[Point],
    ) -> None:
        self._own = own = settings.containers or ContainerSettings(image="")
        self._repositories, self._passed = settings.repositories, settings.probe.env_pass
        self._place, self._engine, self._registry = place, engine, registry
        self._images, self.points = images, points
        self._labels: dict[str, Mapping[str, str]] = {}
        self.notes = (*notes_on_images(images.values()),)
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
        self._stays = bool(tables.split_command(settings.probe.setup))
        self._pulls: dict[str, subprocess.Popen[bytes]] = {}  # In the background, of what comes next.
        file = place.work / "containers" / f"images-{place.hunt}.json"
        limit = parse_size(own.cache) if self._here else 0
        keep = max(1, settings.engine.slots) + own.ahead
        self._cache = ImageCache(file, limit, engine.image_sizes, keep=keep)

    def identity(self, point: Point) -> Mapping[str, str]:
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
        here = (self._engine.program, "image", "inspect", "--format", "{{.Id}}", image)
        commands.append(made(name="pull", argv=self._pull(image), unless=here, timeout=7200.0, passed=EVERYTHING))
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
        for image in [run for point in points if (run := self._images[point.id].run)][: self._own.ahead]:
            if not self._here or image in self._pulls or self._engine.inspect(image) is not None:
                continue
            self._cache.expect(image)
            nothing = subprocess.DEVNULL
            # A failure is told by the job that needs the image: it pulls it again.
            with suppress(OSError):
                self._pulls[image] = subprocess.Popen(self._pull(image), stdin=nothing, stdout=nothing, stderr=nothing)

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        before, after = self.identity(old), self.identity(new)
        moved = []
        for name, commit in after.items():
            if name.startswith("commit.") and before.get(name) != commit:
                title = f"after {before[name][:12]}" if name in before else ""
                moved.append(Suspect(part=name.removeprefix("commit."), id=commit, title=title))
        title = " → ".join(self._images[point.id].reference.text for point in (old, new))
        return (*moved, Suspect(part="image", id=new.parts["image"], title=title, when=new.when))

    def close(self) -> None:
        """Stops pulling and asking; removes containers that wait for another job."""
        for pull in self._pulls.values():
            pull.terminate()  # also in its middle: engines keep what has come, or drop it
            pull.wait()
        if self._stays and self._here:
            self._engine.remove_named(self._place.hunt, self._container)
        self._registry.close()

    def _pull(self, image: str) -> tuple[str, ...]:
        return self._engine.pull(image, insecure=self._registry.insecure)

    def _labels_of(self, point: Point) -> Mapping[str, str]:
        """Asked when they are needed: what a registry counts as a pull is not spent on images nobody runs."""
        found = self._images[point.id]
        if found.digest not in self._labels:
            self._labels[found.digest] = {}
            try:
                self._labels[found.digest] = self._registry.labels(found.reference, found.digest)
            except CannotVerify as error:
                said = f"the labels of {found.reference.text} could not be read, so its commits are not known: {error}"
                self.notes = (*self.notes, said)
        return self._labels[found.digest]


def open_containers(settings: HuntSettings, stage: Stage, window: Window | None, place: Workspace) -> Containers:
    """The images of a range of dates, each asked of its registry; nothing is pulled."""
    own = settings.containers
    if own is None:
        raise mistake("[containers]: expected a table with an image, found none")
    step = stage.step if stage.step is not None else tables.parse_duration(own.step)
    for each in stages(settings):
        if each.timeline == "containers":
            check_template(own.image, each.step or step)
    if window is not None and window.old.when and window.new.when:
        start, end = window.old.when, window.new.when
    elif own.start is None or own.end is None:
        missing = "start" if own.start is None else "end"
        raise mistake(f"containers.{missing}: expected a date, such as 2023-08-24, found none")
    else:
        start, end = own.start.astimezone(dt.UTC), own.end.astimezone(dt.UTC)
    named = {point_name(when, step): when for when in image_times(start, end, step)}
    references = {name: image_at(own.image, when) for name, when in named.items()}
    engine = open_container_engine(settings, place)
    registry = open_registry(own, list(references.values()), engine)
    try:
        images = list_images(references, registry)
        points = []
        for name, when in named.items():
            run, tagged = images[name].run, references[name].text
            missing = "" if run else f"no image {tagged}"
            points.append(Point(id=name, label=name, when=when, parts={"image": run or tagged}, missing=missing))
        return Containers(settings, place, engine, registry, images, points)
    except BaseException:
        registry.close()
        raise
