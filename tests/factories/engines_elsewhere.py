"""An engine in a process of its own: Ray reads its settings when it is imported, so each cluster needs a new process.

Run as a program it serves one engine: a line of JSON in, a line of JSON out.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from karat.engines.job import EngineSettings, Job, JobResult, open_engine
from karat.findings import KaratError


class EngineElsewhere:
    """An engine that another process has opened."""

    abandoned = False

    def __init__(self, env: Mapping[str, str], kind: str, *, errors: IO[bytes] | None = None, **settings: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "factories.engines_elsewhere"],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        self._orders = cast("IO[bytes]", self.process.stdin)
        self._answers = cast("IO[bytes]", self.process.stdout)
        self._ask("open", kind=kind, **settings)

    def _ask(self, what: str, **words: Any) -> Any:
        self._orders.write(json.dumps({"what": what, **words}).encode() + b"\n")
        self._orders.flush()
        line = self._answers.readline()
        if not line:
            self.process.wait()
            self.close()
            raise ElsewhereError("expected an answer of the engine, found that its process has ended", "ray status")
        answer = json.loads(line)
        if "error" in answer:
            self.process.wait()
            self.close()
            raise ElsewhereError(answer["error"], answer["next"])
        return answer["answer"]

    @property
    def slots(self) -> int:
        return cast("int", self._ask("slots"))

    def submit(self, job: Job) -> None:
        self._ask("submit", job=base64.b64encode(msgspec.msgpack.encode(job)).decode())

    def wait(self, seconds: float | None = None) -> Sequence[JobResult]:
        return [
            msgspec.msgpack.decode(base64.b64decode(each), type=JobResult)
            for each in self._ask("wait", seconds=seconds)
        ]

    def cancel(self, key: str) -> None:
        self._ask("cancel", key=key)

    def close(self) -> None:
        if self.process.poll() is None:
            self._ask("close")
            self.process.wait()
        self._orders.close()
        self._answers.close()


class ElsewhereError(Exception):
    """A KaratError over there."""

    def __init__(self, message: str, next_command: str) -> None:
        super().__init__(message)
        self.next_command = next_command


def serve() -> None:
    # Whatever Ray may print is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine: Any = None
    for line in sys.stdin:
        words = json.loads(line)
        what = words.pop("what")
        answer: Any = None
        try:
            if what == "open":
                work = Path(words.pop("work"))
                engine = open_engine(EngineSettings(**words), work)
            elif what == "slots":
                answer = engine.slots
            elif what == "submit":
                engine.submit(msgspec.msgpack.decode(base64.b64decode(words["job"]), type=Job))
            elif what == "wait":
                results = engine.wait(words["seconds"])
                answer = [base64.b64encode(msgspec.msgpack.encode(r)).decode() for r in results]
            elif what == "cancel":
                engine.cancel(words["key"])
            else:
                engine.close()
        except KaratError as error:
            print(json.dumps({"error": str(error), "next": error.next_command}), file=answers)
            answers.flush()
            return
        print(json.dumps({"answer": answer}), file=answers, flush=True)
        if what == "close":
            return


if __name__ == "__main__":
    serve()
