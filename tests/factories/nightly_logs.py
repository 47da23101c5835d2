"""The nights of a published investigation of a slowdown, as the logs they left: 60 numbers, and one night that crashed.

The numbers are MLUPS of a lattice Boltzmann solver on nightly images, 07-06 to 09-20 of 2023; nights that are not here
had no image. The text of the crash below its first frame is made up.
"""

from __future__ import annotations

from pathlib import Path

MLUPS = {
    "07-06": 587.9240990200157,
    "07-07": 587.8907972116419,
    "07-08": 587.3186499464459,
    "07-09": 587.3130127722537,
    "07-10": 587.8526619429658,
    "07-17": 570.1631097290182,
    "07-18": 570.2819775617064,
    "07-19": 570.1672213357352,
    "07-20": 587.437153685251,
    "07-21": 587.6702557143142,
    "07-25": 577.3063618431178,
    "07-26": 577.2362978080912,
    "07-27": 577.2101850145785,
    "07-28": 577.0716349809895,
    "07-29": 577.4223280707176,
    "07-30": 577.2255967221336,
    "08-01": 577.277685388252,
    "08-02": 577.0137874289354,
    "08-03": 577.1333281553946,
    "08-04": 577.305012020407,
    "08-05": 577.2143988866626,
    "08-06": 577.2409145495443,
    "08-07": 577.2602819927345,
    "08-08": 577.2823738293221,
    "08-09": 577.3453199728248,
    "08-11": 577.3161423260563,
    "08-12": 577.1697775786824,
    "08-13": 577.3049883393633,
    "08-14": 576.9051978525331,
    "08-15": 577.5331743016213,
    "08-16": 577.5117505070573,
    "08-18": 577.5930698237612,
    "08-19": 577.3539885757353,
    "08-20": 577.4190113959127,
    "08-21": 577.300394253605,
    "08-22": 577.4263792037783,
    "08-23": 577.4087536357031,
    "08-24": 577.1094728438082,
    "08-26": 537.0164618489928,
    "08-27": 536.9545448661609,
    "08-28": 536.2887650464874,
    "08-29": 536.7178471720636,
    "08-30": 536.6978912984252,
    "09-01": 536.7030899164106,
    "09-04": 536.5339818238837,
    "09-05": 536.6507808565617,
    "09-06": 536.7144494518315,
    "09-08": 536.7376612408998,
    "09-09": 536.7798324141778,
    "09-10": 536.726157440174,
    "09-11": 536.7446210750584,
    "09-12": 536.6707332269023,
    "09-13": 536.6777936517823,
    "09-14": 536.7581523280307,
    "09-15": 536.6156273667873,
    "09-16": 536.7320935035265,
    "09-17": 536.7104991444398,
    "09-18": 536.7492269469092,
    "09-19": 536.6760131792959,
    "09-20": 536.7361260076634,
}
CRASHED = "08-25"
FRAME = '  File "/XLB/examples/performance/MLUPS3d.py", line 5, in <module>'
SIGNATURE = "ImportError: cannot import name 'pmap_layouts' from 'jax.experimental' (…/__init__.py)"
CRASH = f"""Traceback (most recent call last):
{FRAME}
    from src.boundary_conditions import *
  File "/XLB/src/boundary_conditions.py", line 2, in <module>
    from jax.experimental import pmap_layouts
ImportError: cannot import name 'pmap_layouts' from 'jax.experimental' (/opt/jax-source/jax/experimental/__init__.py)
"""
MISSING = (
    "07-11",
    "07-12",
    "07-13",
    "07-14",
    "07-15",
    "07-16",
    "07-22",
    "07-23",
    "07-24",
    "07-31",
    "08-10",
    "08-17",
    "08-31",
    "09-02",
    "09-03",
    "09-07",
)


def log_of(value: float) -> str:
    """What one night printed."""
    return f"Collecting jmp\nCloning into 'XLB'...\nTime: 100.3 s\nMLUPS: {value!r}\n"


def write_nights(folder: Path) -> Path:
    """The folder of logs as the loop over nightly images left it."""
    folder.mkdir(parents=True, exist_ok=True)
    for night, value in MLUPS.items():
        (folder / f"OUT-{night}").write_text(log_of(value))
    (folder / f"OUT-{CRASHED}").write_text("Collecting jmp\n" + CRASH)
    return folder


def grepped() -> str:
    """What `grep MLUPS OUT*` printed of them."""
    nights = {**{night: f"MLUPS: {value!r}" for night, value in MLUPS.items()}, CRASHED: FRAME}
    return "".join(f"OUT-{night}:{nights[night]}\n" for night in sorted(nights))
