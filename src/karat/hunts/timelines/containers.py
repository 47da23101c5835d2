"""Timeline of containers: one image per date, asked of the registry, run by digest.

A point is a date. Whether its image exists is asked of the registry, which also says its digest: that is what is pulled and
run, so that a tag that moves does not change under a hunt. Labels `karat.commit.NAME` and
`org.opencontainers.image.revision` say which commits are in an image.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from karat.engines.job import JobCommand
from karat.findings import CannotVerify, Finding, info
from karat.hunts.model import Point, Suspect, Window
from karat.hunts.settings import (
    ContainerSettings,
    HuntSettings,
    Stage,
    mistake,
    parse_duration,
    parse_size,
    split_command,
)
from karat.hunts.stages import stages
from karat.hunts.timelines.container_engine import (
    ContainerEngine,
    check_mountable,
    env_options,
    image_sizes,
    inspect,
    mount_options,
    open_container_engine,
    remove_leftovers,
    remove_named,
)
from karat.hunts.timelines.images import (
    ImageCache,
    ListedImage,
    Puller,
    changed_labels,
    check_distinct,
    check_template,
    commits_of,
    image_at,
    image_times,
    in_utc,
    list_images,
    listing_findings,
    open_registry,
    point_name,
)
from karat.hunts.timelines.timeline import Timeline, Workspace
from karat.net.registry import Registry


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
        self._own = own = _table(settings)
        self._repositories = settings.repositories
        self._place, self._engine, self._registry = place, engine, registry
        self._images, self.points = images, points
        self._labels: dict[str, Mapping[str, str]] = {}
        self._unread: list[Finding] = []
        self._lock = threading.Lock()
        # On a cluster images are pulled where they are run, which is not here.
        self._here = settings.engine.kind == "local"
        # Slots that own GPUs show a container their own ones; without any, it sees those it is given.
        self._divided = settings.engine.gpus > 0
        gpus = engine.gpus(own.gpus or ("all" if self._divided else None))
        mounts = mount_options(own.mounts, place.root)
        check_mountable(place.work)
        # One name per slot: nothing else runs in a slot, and what a killed job left there is found by it.
        self._container = f"karat-{place.hunt}-@SLOT@"
        named = engine.named(self._container, place.hunt)
        # For every container, before those of hunt.toml.
        self._options = (*named, "--volume", "@OUT@:@OUT@", "--cpuset-cpus=@CORES@", *mounts, *gpus)
        env_options({**own.env, **settings.probe.env})  # now, rather than in the middle of a hunt
        self._stays = bool(split_command(settings.probe.setup))
        self._puller = Puller(self._own.ahead if self._here else 0, self._pull_ahead)
        self._cache = ImageCache(
            place.work / "containers" / f"images-{place.hunt}.json",
            parse_size(self._own.cache) if self._here else 0,
            partial(image_sizes, engine),
            keep=max(1, settings.engine.slots) + self._own.ahead,
        )

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
        image = self._images[point.id].run
        commands = [JobCommand(role="prepare", name="clear", argv=self._engine.remove(self._container), may_fail=True)]
        if surplus := self._cache.use(image):
            argv = self._engine.remove_images(*surplus)
            commands.append(JobCommand(role="prepare", name="make room", argv=argv, may_fail=True))
        here, pull = self._pull_words(image)
        commands.append(JobCommand(role="prepare", name="pull", argv=pull, unless=here, timeout=7200.0))
        if self._stays:
            # A container for the whole job, so that commands find what `setup` left.
            words = (*self._options, "--entrypoint", "sleep", *self._own.options)
            argv = self._engine.run_detached(image, ("infinity",), words)
            killed = (self._engine.remove(self._container),)
            commands.append(JobCommand(role="prepare", name="container", argv=argv, when_killed=killed))
        return commands

    def command(self, point: Point, command: JobCommand) -> JobCommand:
        """The command in a fresh container of the point's image; after a `setup`, in the one that has seen it."""
        variables = {"KARAT_OUT": "@OUT@", **self._own.env, **command.env}
        if self._divided:
            variables["CUDA_VISIBLE_DEVICES"] = "@GPUS@"
        options, env = env_options(variables)
        engine, name = self._engine, self._container
        if self._stays:
            argv, killed = engine.exec(name, command.argv, options), engine.restart(name)
        else:
            words = (*self._options, *options, *self._own.options)
            argv = engine.run(self._images[point.id].run, command.argv, words)
            killed = engine.remove(name)
        return msgspec.structs.replace(
            command, argv=argv, env=env, cwd="@AREA@", unless=(), when_killed=(killed, *command.when_killed)
        )

    def ahead(self, points: Sequence[Point]) -> None:
        self._puller.ahead([run for point in points if (run := self._images[point.id].run)])

    def suspects(self, old: Point, new: Point) -> Sequence[Suspect]:
        """The commits that labels tell of, and the image itself."""
        before, after = self.identity(old), self.identity(new)
        moved = [
            Suspect(
                part=name.removeprefix("commit."),
                id=after[name],
                title=f"after {before[name][:12]}" if name in before else "",
            )
            for name in after
            if name.startswith("commit.") and before.get(name) != after[name]
        ]
        names = (self._images[point.id].reference.text for point in (old, new))
        changed = changed_labels(self._labels_of(old), self._labels_of(new))
        title = "; ".join((" → ".join(names), *changed))
        whole = Suspect(part="image", id=new.parts["image"], title=title, when=new.when)
        return (*moved, whole)

    def close(self) -> None:
        """Stops pulling and asking; removes containers that wait for another job."""
        self._puller.close()
        if self._stays and self._here:
            remove_named(self._engine, self._place.hunt, self._container)
        if self._registry is not None:
            self._registry.close()

    def _pull_ahead(self, image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        self._cache.expect(image)
        return self._pull_words(image)

    def _pull_words(self, image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        here = self._engine.has_image(image)
        if self._registry is None:
            return here, here  # there is nowhere to pull it from
        return here, self._engine.pull(image, insecure=self._registry.insecure)

    def _labels_of(self, point: Point) -> Mapping[str, str]:
        """Asked when they are needed: what a registry counts as a pull is not spent on images nobody runs."""
        found = self._images[point.id]
        if not found.digest:
            return {}
        with self._lock:
            known = self._labels.get(found.digest)
        if known is not None:
            return known
        if self._registry is None:
            config = (inspect(self._engine, found.run) or {}).get("Config") or {}
            known = {str(name): str(value) for name, value in (config.get("Labels") or {}).items()}
        else:
            try:
                known = self._registry.labels(found.reference, found.digest)
            except CannotVerify as error:
                said = f"the labels of {found.reference.text} could not be read, so its commits are not known: {error}"
                self._unread.append(info("cannot-read", said, next=error.next_command))
                known = {}
        with self._lock:
            self._labels[found.digest] = known
        return known


def open_containers(settings: HuntSettings, stage: Stage, window: Window | None, place: Workspace) -> Containers:
    """The images of a range of dates, each asked of its registry; nothing is pulled."""
    own = _table(settings)
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
    here = settings.engine.kind == "local"
    engine = open_container_engine(own.engine, here=here)
    registry = open_registry(own, list(references.values()), engine)
    try:
        images = list_images(references, engine, registry)
        points = [
            Point(
                id=name,
                label=name,
                when=when,
                parts={"image": images[name].run or references[name].text},
                missing="" if images[name].run else f"no image {references[name].text}",
            )
            for name, when in named.items()
        ]
        timeline = Containers(settings, place, engine, registry, images, points)
    except BaseException:
        if registry is not None:
            registry.close()
        raise
    if here:
        remove_leftovers(engine, place.hunt)
    return timeline


def _table(settings: HuntSettings) -> ContainerSettings:
    if settings.containers is None:
        raise mistake("[containers]: expected a table with an image, found none")
    return settings.containers
