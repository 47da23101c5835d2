from __future__ import annotations

from collections.abc import Iterator

import pytest

from factories.container_engines import Podman


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with Podman() as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.env.items():
            patch.setenv(name, value)
        yield made
