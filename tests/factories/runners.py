"""Bundles to replay, and runners for them: functions in a module, and commands that are Python scripts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import numpy as np

from factories.captured import capture, identity

DOUBLE = """
import os, signal, sys, time
from pathlib import Path

def run(program, inputs):
    (x,) = inputs
    return {"doubled": x * 2}

def off(program, inputs):
    (x,) = inputs
    return {"doubled": x * 2 + 1e-2}

def slightly_off(program, inputs):
    (x,) = inputs
    return {"doubled": x * 2 * (1 + 1e-4)}

def of_program(program, inputs):
    (x,) = inputs
    return {"doubled": x * float(program.read_text())}

def crash_on_one(program, inputs):
    (x,) = inputs
    if x[0] == 1:
        print("about to crash", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"doubled": x * 2}

def hang_on_one(program, inputs):
    (x,) = inputs
    if x[0] == 1:
        time.sleep(60)
    return {"doubled": x * 2}

def raise_on_one(program, inputs):
    (x,) = inputs
    if x[0] == 1:
        raise ValueError("no such operator")
    return {"doubled": x * 2}

def leave_on_one(program, inputs):
    (x,) = inputs
    if x[0] == 1:
        sys.exit(0)
    if x[0] == 2:
        os._exit(7)
    return {"doubled": x * 2}

def noisy(program, inputs):
    (x,) = inputs
    print("garbage" * 1000)
    os.write(1, b"\\x00\\x00\\x00\\x10 more garbage")
    os.write(2, b"\\xff\\xfe")
    return {"doubled": x * 2}

def odd(program, inputs):
    return {"doubled": object()}

def lost(program, inputs):
    return {}

def spoil(program, inputs):
    (x,) = inputs
    out = {"doubled": x * 2}
    x[:] = 0
    if program is not None:
        program.write_text("spoiled")
    return out

def leave_mark(program, inputs):
    Path("ran").touch()
    return run(program, inputs)

def go_elsewhere(program, inputs):
    os.chdir("/")
    return run(program, inputs)

def fork_and_return(program, inputs):
    os.fork()
    return run(program, inputs)

def answer_for_another(program, inputs):
    import io
    from karat.bundles.manifest import Identity
    from karat.replays.judge import ReplayedCase, ReplayOutcome
    from karat.replays.processes import send
    who = Identity(suite="models", flow="xnnpack", test="another")
    forged = io.BytesIO()
    send(forged, ReplayedCase(path="models/xnnpack/another", identity=who, outcome=ReplayOutcome.MATCH))
    for number in range(3, 20):
        try:
            os.write(number, forged.getvalue())
        except OSError:
            pass
    return run(program, inputs)

def write_everywhere(program, inputs):
    text = (b"\\x05\\x00\\x00\\x00short", b"a long text that is no length")[int(inputs[0][0] == 1)]
    for number in range(3, 20):
        try:
            os.write(number, text)
        except OSError:
            pass
    return run(program, inputs)

class Unspeakable(BaseException):
    def __str__(self):
        raise RuntimeError

def raise_the_unspeakable(program, inputs):
    if inputs[0][0] == 1:
        raise Unspeakable
    return run(program, inputs)

not_a_function = 3

class Model:
    @staticmethod
    def run(program, inputs):
        return run(program, inputs)
"""

COPYING = """
import sys, shutil
from pathlib import Path
import numpy as np
program, inputs, outputs = map(Path, sys.argv[1:4])
mode = sys.argv[4] if len(sys.argv) > 4 else "table"
first, *rows = (inputs / "tensors.txt").read_text().splitlines()
assert first == "karat-raw 2", first
(row,) = [row.split("\\t") for row in rows]
role, name, dtype, shape, nbytes, digest, file = row
x = np.fromfile(inputs / file, dtype).reshape([int(n) for n in shape.split("x")])
y = x * np.asarray(float(program.read_text()), dtype)
if mode == "table":
    y.tofile(outputs / "some.bin")
    line = ["output", "output/doubled", dtype, shape, nbytes, "", "some.bin"]
    (outputs / "tensors.txt").write_text("karat-raw 1\\n" + "\\t".join(line) + "\\n")
elif mode == "bare":
    y.tofile(outputs / "expected.doubled.bin")
elif mode == "extra":
    y.tofile(outputs / "expected.doubled.bin")
    y.tofile(outputs / "surprise.bin")
elif mode == "short":
    y[:-1].tofile(outputs / "expected.doubled.bin")
elif mode == "garbage":
    (outputs / "tensors.txt").write_bytes(b"\\x00\\xff no table")
elif mode == "other-shape":
    y.tofile(outputs / "some.bin")
    line = ["output", "expected/doubled", dtype, "1x" + shape, nbytes, "", "some.bin"]
    (outputs / "tensors.txt").write_text("karat-raw 1\\n" + "\\t".join(line) + "\\n")
elif mode == "fail":
    print("cannot allocate", file=sys.stderr)
    sys.exit(3)
elif mode == "crash":
    import os, signal
    os.kill(os.getpid(), signal.SIGABRT)
elif mode == "hang":
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path("child.pid").write_text(str(child.pid))
    child.wait()
"""


def doubling(root: Path, count: int = 3) -> Path:
    """A bundle whose program says by how much: inputs n, n + 1, …, outputs twice that."""
    for number in range(count):
        x = np.arange(number, number + 8, dtype=np.float32)
        capture(
            root,
            identity(f"test_double[{number}]", flow="portable" if number % 2 else "xnnpack"),
            inputs=(x,),
            expected={"doubled": x * 2},
            program=b"2",
        )
    return root


def write_module(folder: Path) -> Path:
    """The module `runner` in a folder that will be the current one."""
    (folder / "runner.py").write_text(DOUBLE, encoding="utf-8")
    return folder


def command_line(folder: Path, mode: str = "table") -> str:
    """A command that doubles; what it leaves is up to the mode."""
    script = folder / "copying.py"
    script.write_text(COPYING, encoding="utf-8")
    words = shlex.join([sys.executable, str(script)])
    return f"{words} {{program}} {{inputs}} {{outputs}} {mode}"


def flip(path: Path, at: int = -3) -> None:
    """One bit of a file is another."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
