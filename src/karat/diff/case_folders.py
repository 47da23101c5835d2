"""Whether two sides may hold captured cases at all; it must be quick to say no."""

from __future__ import annotations

from itertools import chain

from karat.bundles.case_folders import candidates, has_case
from karat.diff.sides import Bundles, Folder, Listing, Revision, Side
from karat.goldens import git


def may_hold_cases(old: Side, new: Side, listing: Listing | None) -> bool:
    """Whether there is anything to look for."""
    if listing is not None:
        changes, tree = listing
        return any(candidates(chain(tree, (change.path for change in changes))))
    return any(_may_hold(side) for side in (old, new))


def _may_hold(side: Side) -> bool:
    if isinstance(side, Folder):
        return has_case(side.root)
    if isinstance(side, Revision):
        return any(candidates(git.tree_paths(side.root, side.commit)))
    return isinstance(side, Bundles)
