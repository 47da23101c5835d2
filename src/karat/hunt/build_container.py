"""The container that checkouts are built in: one per slot, kept, with the work area at the same path inside."""

from __future__ import annotations

from collections.abc import Sequence

from karat.findings import UsageError
from karat.hunt.container_engine import env_options, open_engine, remove_leftovers
from karat.hunt.image_mounts import absolute, mountable
from karat.hunt.kept_container import KeptContainer
from karat.hunt.mirrors import Mirror
from karat.hunt.point import Window
from karat.hunt.settings import CheckoutSettings, HuntSettings
from karat.hunt.timeline import Place
from karat.hunt.words import EDIT

LAST_GOOD = "last good"
# The area belongs to another user than the container's root, as git sees it.
_TRUST = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}


def open_container(
    hunt: HuntSettings,
    settings: CheckoutSettings,
    window: Window | None,
    place: Place,
    mirrors: Sequence[Mirror],
) -> KeptContainer | None:
    """The container, as hunt.toml wants it; None: builds run on the host."""
    if not settings.container:
        return None
    theirs = hunt.containers
    here = hunt.engine.kind == "local"
    engine = open_engine(theirs.engine if theirs else None, here=here)
    if here:
        remove_leftovers(engine, place.hunt)
    mountable(place.work)
    env_options({**(theirs.env if theirs else {}), **hunt.probe.env})  # now, rather than in a job
    # Another node has no mirror at that path; a mount of what is not there would stop the container.
    borrowed = tuple(f"{mountable(m.path)}:{m.path}:ro" for m in mirrors) if here else ()
    own = tuple(absolute(mount, place.root) for mount in theirs.mounts) if theirs else ()
    # Slots that own GPUs show a container their own ones; without any, it sees those it is given.
    divided = {"CUDA_VISIBLE_DEVICES": "@GPUS@"} if hunt.engine.gpus > 0 else {}
    return KeptContainer(
        engine=engine,
        image=_image(settings, window),
        name=f"karat-{place.hunt}-@SLOT@",
        hunt=place.hunt,
        mounts=("@AREA@:@AREA@", *borrowed, *own),
        env={"KARAT_OUT": "@OUT@", **_TRUST, **(theirs.env if theirs else {}), **divided},
        gpus=(theirs.gpus if theirs else None) or ("all" if divided else None),
        options=("--cpuset-cpus=@CORES@", *(theirs.options if theirs else ())),
    )


def _image(settings: CheckoutSettings, window: Window | None) -> str:
    if settings.container != LAST_GOOD:
        return settings.container
    found = window.old.parts.get("image", "") if window else ""
    if not found:
        raise UsageError(
            f'container = "{LAST_GOOD}": expected a containers stage before this one, found none',
            next_command=EDIT,
        )
    return found
