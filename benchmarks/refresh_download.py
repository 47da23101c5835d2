"""Downloads of a refresh against a plain sequential download, and what they cost in bytes and memory.

A forge that behaves like GitHub serves 200 artifacts of 2 MB, each answer 50 ms late, from a process
of its own. The plain side is what a careful person writes first: list, then one artifact after the
other over one kept-alive connection, redirect followed, whole archive, unpack. Both sides run in
fresh processes with nothing cached, and what they unpack must be equal. Run: make bench
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPO, RUN = "octo/goldens", 4711
WANTED = "golden_values.json"
SIZE, LATENCY = 2_000_000, 0.05
VARIETY = 8
"""So many different archives; a server that kept 200 would measure this machine's memory."""


def member(seed: int) -> bytes:
    """A golden as runs leave it: five metrics of a thousand steps."""
    chance = random.Random(seed)
    metrics = ("lm loss", "num-zeros", "mem-allocated-bytes", "grad-norm", "iteration-time")
    blocks = {
        name: {
            "start_step": 1,
            "end_step": 1000,
            "step_interval": 1,
            "values": {str(step): round(10 * chance.random(), 5) for step in range(1, 1001)},
        }
        for name in metrics
    }
    return json.dumps(blocks, indent=4).encode()


def archive(seed: int) -> bytes:
    """A golden beside what no refresh wants, 2 MB in all."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("logs/train.log", f"step {seed}\n" * 20_000)
        packed.writestr(WANTED, member(seed))
        room = SIZE - buffer.tell() - 1000
        packed.writestr("checkpoint.bin", random.Random(seed).randbytes(room))
    return buffer.getvalue()


def serve(artifacts: int) -> None:
    """The forge; answers one line per question on its standard input."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from factories.forge import Forge

    bodies = [archive(seed) for seed in range(VARIETY)]
    with Forge() as forge:
        run = forge.github.run(REPO, run_id=RUN)
        for number in range(artifacts):
            run.artifact(f"logs-{number:03}", raw=bodies[number % VARIETY])
        forge.latency = LATENCY
        print(json.dumps({"url": forge.github_url, "token": forge.github.token}), flush=True)
        for line in sys.stdin:
            if line.strip() == "ranges off":
                forge.faults.no_ranges()
            sent = sum(request.sent for request in forge.seen(host="blob"))
            print(json.dumps({"sent": sent, "requests": len(forge.requests)}), flush=True)
            forge.requests.clear()


def fingerprint(files: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, content in sorted(files.items()):
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def by_karat() -> dict[str, Any]:
    from karat.sources.github import GitHub

    begun = time.perf_counter()
    source = GitHub(REPO, run_id=RUN)
    found: dict[str, Path] = {}
    received = 0
    for one in source.fetch(source.listing().artifacts, lambda name: name == WANTED):
        assert not one.findings, one.findings
        received += one.received
        found[one.artifact.name] = one.members[WANTED]
    seconds = time.perf_counter() - begun
    peak = peak_memory()
    contents = {name: path.read_bytes() for name, path in found.items()}
    source.close()
    return report(seconds, received, peak, contents)


def one_by_one() -> dict[str, Any]:
    import httpx

    begun = time.perf_counter()
    contents: dict[str, bytes] = {}
    received = 0
    headers = {"Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}"}
    with httpx.Client(headers=headers, follow_redirects=True, timeout=60) as client:
        url: str | None = f"{os.environ['GITHUB_API_URL']}/repos/{REPO}/actions/runs/{RUN}/artifacts"
        while url is not None:
            page = client.get(url, params={"per_page": "100"} if "?" not in url else None)
            for artifact in page.raise_for_status().json()["artifacts"]:
                body = client.get(artifact["archive_download_url"]).raise_for_status().content
                received += len(body)
                with zipfile.ZipFile(io.BytesIO(body)) as packed:
                    contents[artifact["name"]] = packed.read(WANTED)
            url = page.links.get("next", {}).get("url")
    return report(time.perf_counter() - begun, received, peak_memory(), contents)


def report(seconds: float, received: int, peak: int, contents: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "received": received,
        "peak": peak,
        "artifacts": len(contents),
        "fingerprint": fingerprint(contents),
    }


def peak_memory() -> int:
    """This process's, in bytes; ru_maxrss would count the launching process's."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


class Forge:
    """A forge in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._ask, self._answers = process.stdin, process.stdout
        place = json.loads(self._answers.readline())
        self.environment = {"GITHUB_API_URL": place["url"], "GITHUB_TOKEN": place["token"]}

    def asked(self, question: str) -> dict[str, int]:
        """What was sent since the last question."""
        print(question, file=self._ask, flush=True)
        told: dict[str, int] = json.loads(self._answers.readline())
        return told


@contextmanager
def running_forge(artifacts: int) -> Iterator[Forge]:
    command = [sys.executable, __file__, "--serve", str(artifacts)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Forge(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def measured(side: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """One side in a fresh process, with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, __file__, side],
            env={**os.environ, **environment, "KARAT_CACHE_DIR": cache},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(label: str, found: Mapping[str, Any], server: Mapping[str, int]) -> None:
    print(
        f"{label:<34} {found['seconds']:6.2f} s  {found['received'] / 1e6:7.1f} MB received  "
        f"{server['requests']:5} requests  peak {found['peak'] / 1e6:5.1f} MB"
    )


def compare(artifacts: int, repeats: int) -> None:
    packed = [archive(seed) for seed in range(VARIETY)]
    needed = sum(wanted_size(packed[number % VARIETY]) for number in range(artifacts))
    print(
        f"{artifacts} artifacts of {SIZE / 1e6:.0f} MB, {LATENCY * 1000:.0f} ms before every answer; "
        f"wanted: {needed / 1e6:.1f} MB (packed)"
    )
    peaks: dict[str, int] = {}
    with running_forge(artifacts) as forge:
        plain = measured("--one-by-one", forge.environment)
        shown("one after the other", plain, forge.asked("how much"))
        for ranges in ("on", "off"):
            forge.asked(f"ranges {ranges}")
            found, server = best_of(repeats, forge)
            assert found["fingerprint"] == plain["fingerprint"], "the sides disagree"
            shown(f"karat, ranges {ranges}", found, server)
            times, more = plain["seconds"] / found["seconds"], found["received"] / needed
            print(f"    {times:.1f} times as fast; {more:.2f} times the wanted bytes")
            peaks[ranges] = found["peak"]
    show_growth(artifacts, peaks)


def best_of(repeats: int, forge: Forge) -> tuple[dict[str, Any], dict[str, int]]:
    """The quickest of some runs, and what the server saw of it."""
    runs = [(measured("--karat", forge.environment), forge.asked("how much")) for _ in range(repeats)]
    return min(runs, key=lambda run: run[0]["seconds"])


def show_growth(artifacts: int, peaks: Mapping[str, int]) -> None:
    """Memory for a quarter of the artifacts beside that for all."""
    fewer = artifacts // 4
    with running_forge(fewer) as forge:
        for ranges, many in peaks.items():
            forge.asked(f"ranges {ranges}")
            few = measured("--karat", forge.environment)["peak"]
            print(
                f"karat's peak memory, ranges {ranges}: {few / 1e6:.1f} MB for {fewer} artifacts, "
                f"{many / 1e6:.1f} MB for {artifacts}"
            )


def wanted_size(packed: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(packed)) as opened:
        return opened.getinfo(WANTED).compress_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifacts", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--karat", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one-by-one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve is not None:
        serve(chosen.serve)
    elif chosen.karat or chosen.one_by_one:
        print(json.dumps(by_karat() if chosen.karat else one_by_one()))
    else:
        compare(chosen.artifacts, chosen.repeats)


if __name__ == "__main__":
    main()
