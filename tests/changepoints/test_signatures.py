from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import textwrap
import traceback

import pytest
from hypothesis import given, strategies as st

from karat.changepoints.signatures import OUT_OF_MEMORY, TIMED_OUT, find_signature, normalise, signature

HEAD = 'Traceback (most recent call last):\n  File "/a/run.py", line 5, in <module>\n    main()\n'


def run(code: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, check=False)


def test_an_exception_is_its_type_and_message() -> None:
    done = run("import json\njson.loads('{')")
    assert signature(done.stderr, exit_code=done.returncode) == (
        "JSONDecodeError: Expecting property name enclosed in double quotes: line N column N (char N)"
    )


def test_of_chained_exceptions_the_last_counts() -> None:
    done = run("""
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise KeyError("where") from error
    """)
    assert signature(done.stderr, exit_code=1) == "KeyError: 'where'"


def test_an_exception_group_is_known_by_its_last_leaf() -> None:
    async def fails() -> None:
        raise ValueError("bad 3")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    try:
        asyncio.run(main())
    except ExceptionGroup:
        said = find_signature(traceback.format_exc())
    assert said == "ValueError: bad N"


def test_a_syntax_error_has_no_traceback_and_is_found() -> None:
    done = run("x = = 3")
    assert signature(done.stderr, exit_code=1) == "SyntaxError: invalid syntax"


def test_a_real_segfault_and_a_real_abort() -> None:
    done = run("import ctypes; ctypes.string_at(0)")
    assert signature(done.stderr, signal=-done.returncode) == "SIGSEGV"
    done = run("import faulthandler, ctypes; faulthandler.enable(); ctypes.string_at(0)")
    assert signature(done.stderr, signal=-done.returncode) == "Fatal Python error: Segmentation fault"
    done = run("import os; os.abort()")
    assert signature(done.stderr, exit_code=done.returncode) == "SIGABRT"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            HEAD + "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to allocate 12 bytes\n",
            "XlaRuntimeError: INTERNAL: Failed to allocate N bytes",
        ),
        (
            HEAD + "ImportError: cannot import name 'x' from 'y' (/opt/y/__init__.py)\n",
            "ImportError: cannot import name 'x' from 'y' (…/__init__.py)",
        ),
        (HEAD + "KeyboardInterrupt\n", "KeyboardInterrupt"),
        (HEAD + "mylib.errors.Stopped: no\n", "Stopped: no"),
        ("[rank0]: " + HEAD.rstrip().replace("\n", "\n[rank0]: ") + "\n[rank0]: ValueError: no\n", "ValueError: no"),
        ("2023-08-25 12:00:00 ERROR " + HEAD + "OSError: gone\nmore output\n", "OSError: gone"),
        ("ValueError: the head of this traceback is cut off\n", "ValueError: the head of this traceback is cut off"),
        ('  File "/XLB/MLUPS3d.py", line 5, in <module>\n', "stopped in MLUPS3d.py, <module>"),
        ("E   AssertionError: assert 3 == 4\n=== 1 failed in 0.1s\n", "AssertionError: assert N == N"),
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no 7\nAborted (core dumped)\n",
            "runtime_error: no N",
        ),
        (
            "F0825 12:00:01.123456 1234 x.cc:42] Check failed: a == b (3 vs. 4)\n",
            "Check failed: a == b (N vs. N) (x.cc)",
        ),
        ("2023-08-25 12:00:01.1: F xla/x.cc:42] Check failed: ok\n", "Check failed: ok (xla/x.cc)"),
        (
            "CUDA error: an illegal memory access was encountered\n",
            "CUDA error: an illegal memory access was encountered",
        ),
        ("a.sh: line 3:  1234 Segmentation fault      (core dumped) ./a 3\n", "SIGSEGV"),
        ("a.sh: line 3:  1234 Killed                  ./a\n", "SIGKILL"),
        ("[12.3] Out of memory: Killed process 123 (python)\n", OUT_OF_MEMORY),
        (
            "xla/a.cc:12:3: error: 'b' was not declared in this scope\na.cc:13: error: other\nERROR: build failed\n",
            "error: 'b' was not declared in this scope",
        ),
        (
            "/usr/bin/ld: a.o: in function `main':\na.c:(.text+0x5): undefined reference to `foo'\n",
            "error: undefined reference to `foo'",
        ),
        ("ERROR: /root/BUILD:12:1 failed\n", "error: …/BUILD:N failed"),
        ("\x1b[31mValueError\x1b[0m: \x1b[1mbad\x1b[0m\n", "ValueError: bad"),
        ("10%\r50%\rValueError: in a bar\n", "ValueError: in a bar"),
        (HEAD + "FileNotFoundError: [Errno 2] no\n", "FileNotFoundError: [Errno 2] no"),
        (HEAD + "RuntimeError: exit status 139 after 3 s\n", "RuntimeError: exit status 139 after N s"),
        ("final error: 0.003\nError: 1e-3\nerror: 12%\n", ""),
        ("error rate: 3\n0 errors, 2 warnings\nno error\nINFO: done\n", ""),
        ("", ""),
    ],
)
def test_what_a_log_says(output: str, said: str) -> None:
    assert find_signature(output) == said
    assert find_signature(output.encode()) == said


def test_what_there_is_without_a_word_in_the_log() -> None:
    assert signature(b"", exit_code=3) == "exit code 3"
    assert signature(b"", exit_code=139) == "SIGSEGV"
    assert signature(b"", exit_code=-9) == "SIGKILL"
    assert signature(b"", signal=200) == "signal 200"
    assert signature(b"all is well") == "no error message"
    assert signature(HEAD + "ValueError: x", timed_out=True) == TIMED_OUT


def test_a_handled_exception_does_not_explain_a_signal() -> None:
    log = HEAD + "ValueError: handled\ngoing on\n"
    assert signature(log, signal=11) == "SIGSEGV"
    assert signature(log, exit_code=137) == "SIGKILL"
    assert signature(log + "oom-kill: constraint=MEMCG\n", signal=9) == OUT_OF_MEMORY


def test_bytes_of_any_encoding() -> None:
    text = HEAD + "ValueError: Größe\n"
    assert find_signature(text.encode("latin-1")) == "ValueError: Gr\ufffd\ufffde"


def test_the_same_crash_on_two_nights_is_one_signature() -> None:
    nights = [
        f"RuntimeError: worker pid {pid} died at {address} in /tmp/tmp{name}/build-{sha}/kernel.so"
        f" after {seconds} s (2023-08-{day}T03:14:15.926+02:00)"
        for pid, address, name, sha, seconds, day in (
            (1234, "0x7f00deadbeef", "ab12cd34", "1a2b3c4d5e", 12.5, "24"),
            (99, "0xCAFE", "zz9_yx01", "ffee0011aa", 7, "26"),
        )
    ]
    assert find_signature(nights[0]) == find_signature(nights[1])
    assert "pid N died at ADDRESS" in find_signature(nights[0])


def test_sizes_are_alike_in_any_unit() -> None:
    said = "OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 0 has {} in total"
    assert find_signature(said.format("20.00 MiB", "79.1 GiB")) == find_signature(said.format("2 GiB", "900 KB"))


@pytest.mark.parametrize(
    "stamp", ["2023-08-25T01:02:0{}.1234567Z ", "2023-08-25 01:02:0{},123 ", "[2023-08-25T01:02:0{}+02:00] "]
)
def test_a_moment_on_every_line_hides_nothing(stamp: str) -> None:
    text = HEAD + "ImportError: no x\n"
    stamped = "".join(stamp.format(n) + line + "\n" for n, line in enumerate(text.splitlines()))
    assert find_signature(stamped) == find_signature(text) == "ImportError: no x"
    stamped = stamp.format(1) + "Segmentation fault (core dumped)\n" + stamp.format(2).rstrip()
    assert find_signature(stamped) == "SIGSEGV"


def test_names_with_digits_stay() -> None:
    assert normalise("no kernel for bfloat16 on H100 (sm_90), got 3.5e-7 of 12GiB") == (
        "no kernel for bfloat16 on H100 (sm_90), got N of NGiB"
    )


@given(st.text(max_size=300))
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from(["{}", "at {} of", "[{}]", "={}:"]))
def test_any_two_numbers_are_alike(a: int, b: int, form: str) -> None:
    assert normalise(form.format(a)) == normalise(form.format(b))


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    said = signature(data, exit_code=1)
    assert said
    assert not re.search(r"[\x00-\x1f\x7f]", said)


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        b"/",
        b"a.",
        b"a:",
        b" ",
        b"0",
        b"F0825 ",
        b"E   a.",
        b"Error: /a",
        b"\x1b[",
        b"\x1b]",
        b"| ",
        b"a\n",
        b"Traceback (most recent call last):\n",
        b"  + Exception Group Traceback (most recent call last):\n",
    ],
)
def test_hostile_logs_come_to_an_end(piece: bytes) -> None:
    # An expression that is quadratic in the length of a log would take minutes here.
    assert len(find_signature(piece * (3_000_000 // len(piece)))) <= 250
