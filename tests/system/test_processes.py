"""Whatever a job started ends with it: after a timeout, a kill of the runner, of the supervisor, of anything."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing
from factories.jobs import job, shell
from factories.processes import gone, started
from karat.engines.job import JobResult, Role
from karat.engines.runner import Slot, run_job
from karat.system import processes

if not Path("/proc/self/stat").exists():
    missing("Linux, for its /proc")

# A daemon as the books have it: its own session, no parent, no terminal, and deaf to what may be asked of it.
PYTHON = shlex.quote(sys.executable)
_DAEMON = """
import os, signal, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
null = os.open(os.devnull, os.O_RDWR)
for fd in (0, 1, 2): os.dup2(null, fd)
with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
time.sleep(1000)
"""


@pytest.fixture
def slot(tmp_path: Path) -> Slot:
    return Slot(number=0, area=tmp_path / "slot-0")


@pytest.fixture
def tree(tmp_path: Path) -> str:
    """A command that starts a daemon, a deaf child and a grandchild, and sleeps; five write down who they are."""
    (tmp_path / "daemon.py").write_text(_DAEMON)
    pids = tmp_path / "pids"
    return (
        f"{PYTHON} {tmp_path}/daemon.py {pids}; "
        f"setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; sleep 1000; sleep 1000' & "
        f"sh -c 'trap \"\" TERM; echo $$ >> {pids}; sleep 1000; sleep 1000' & "
        f"sleep 1000 & echo $! >> {pids}; "
        f"echo $$ >> {pids}; sleep 1000"
    )


def run(*commands: str, slot: Slot, timeout: float | None = None) -> JobResult:
    return run_job(job(*(shell(c, timeout=timeout) for c in commands)), slot, lambda: False)


@pytest.mark.slow
def test_a_timeout_ends_daemons_and_the_deaf(slot: Slot, tree: str, tmp_path: Path) -> None:
    (ran,) = run(tree, slot=slot, timeout=2.0).ran
    assert ran.timed_out
    assert ran.exit_code is None
    assert ran.seconds >= 2.0
    # At once: when the runner returns, nothing may disturb the next measurement.
    assert [pid for pid in started(tmp_path / "pids", 5) if processes.process_of(pid)] == []


@pytest.mark.slow
def test_the_deaf_are_ended_by_what_nobody_can_ignore(slot: Slot) -> None:
    (ran,) = run("trap '' TERM; while true; do sleep 0.1; done", slot=slot, timeout=0.2).ran
    assert (ran.timed_out, ran.exit_code, ran.signal) == (True, None, signal.SIGKILL)


def test_who_ends_when_asked_may_still_say_something(slot: Slot) -> None:
    (ran,) = run("trap 'echo bye; exit 7' TERM; sleep 1000 & wait", slot=slot, timeout=0.5).ran
    assert ran.output == b"bye\n"
    assert ran.timed_out
    assert ran.exit_code is None


def test_what_lives_elsewhere_is_ended_by_a_command(slot: Slot, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as elsewhere:
        pids.write_text(f"{elsewhere.pid}\n")
        command = shell(
            "sleep 1000", timeout=0.3, when_killed=(("no-such-program",), ("sh", "-c", f"kill -9 $(cat {pids})"))
        )
        (ran,) = run_job(job(command), slot, lambda: False).ran
        assert ran.timed_out
        assert elsewhere.wait() == -signal.SIGKILL


def test_what_the_command_for_the_killed_starts_may_stay(slot: Slot, tmp_path: Path) -> None:
    # As `podman restart` starts a container anew.
    pids = tmp_path / "pids"
    again = f"setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' >/dev/null 2>&1 &"
    command = shell("sleep 1000", timeout=0.3, when_killed=(("sh", "-c", again),))
    run_job(job(command), slot, lambda: False)
    (pid,) = started(pids, 1)
    assert processes.process_of(pid) is not None
    os.kill(pid, signal.SIGKILL)
    assert gone([pid])


def test_a_measured_run_leaves_nothing_to_the_next(slot: Slot, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    leave = f"setsid sh -c 'echo $$ >> {pids}; sleep 1000' & sleep 1000 & echo $! >> {pids}"
    wait = f"while [ $(wc -l < {pids}) -lt 2 ]; do sleep 0.01; done"
    # A zombie is dead, and waits for init to take note.
    look = f"for pid in $(cat {pids}); do grep -qs '^State:.[^ZX]' /proc/$pid/status && echo $pid is there; done; true"
    result = run(f"{leave}; {wait}", look, slot=slot)
    assert result.ran[1].output == b""


def test_what_prepares_may_leave_a_server_until_the_job_is_over(slot: Slot, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    serve = f"setsid sh -c 'echo $$ >> {pids}; while sleep 0.01; do echo beat; done' &"
    wait = f"while [ ! -s {pids} ]; do sleep 0.01; done"
    prepare = shell(f"{serve} {wait}", role="prepare")
    look = f"sleep 0.3; test -d /proc/$(cat {pids}) && echo alive"
    result = run_job(job(prepare, look, look), slot, lambda: False)
    assert [ran.output for ran in result.ran[1:]] == [b"alive\n"] * 2
    (pid,) = started(pids, 1)
    assert processes.process_of(pid) is None


def test_who_gives_up_the_mark_may_stay(slot: Slot, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    serve = f"env -u KARAT_JOB setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' >/dev/null 2>&1 &"
    wait = f"while [ ! -s {pids} ]; do sleep 0.01; done"
    run_job(job(shell(f"{serve} {wait}", role="build"), "true"), slot, lambda: False)
    (pid,) = started(pids, 1)
    assert processes.process_of(pid) is not None
    os.kill(pid, signal.SIGKILL)


# A runner in a process of its own, to be killed.
_RUNNER = """
import sys
from pathlib import Path
from karat.engines.job import JobCommand, Job
from karat.engines.runner import run_job
from karat.engines.runner import Slot
when_killed = (("sh", "-c", f"echo done > {sys.argv[3]}"),)
command = JobCommand(role="measure", argv=("sh", "-c", sys.argv[1]), when_killed=when_killed)
result = run_job(Job(key="k", commands=(command,)), Slot(number=0, area=Path(sys.argv[2])), lambda: False)
print(result.lost)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_runner_that_is_killed_leaves_nothing_running(tree: str, tmp_path: Path, number: signal.Signals) -> None:
    after = tmp_path / "after"
    words = [sys.executable, "-c", _RUNNER, tree, str(tmp_path / "area"), str(after)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as runner:
        pids = started(tmp_path / "pids", 5)
        runner.send_signal(number)
        runner.wait()
        assert gone(pids)
    # What lives elsewhere, a container, is seen to as well.
    assert after.read_text() == "done\n"


def test_a_supervisor_that_is_killed_is_noticed_and_its_processes_are_ended(tree: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", _RUNNER, tree, str(tmp_path / "area"), str(tmp_path / "after")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as runner:
        pids = started(tmp_path / "pids", 5)
        table = processes.processes()
        (supervisor,) = [process.pid for process in table.values() if process.parent == runner.pid]
        os.kill(supervisor, signal.SIGKILL)
        assert gone(pids)
        said, _ = runner.communicate()
    assert b"the supervisor of the job was killed" in said


def test_cores_are_those_of_the_slot_for_all_its_processes(tmp_path: Path) -> None:
    (core, *_) = sorted(os.sched_getaffinity(0))
    slot = Slot(number=0, area=tmp_path, cores=(core,))
    show = f"{PYTHON} -c 'import os; print(*os.sched_getaffinity(0))'"
    (ran,) = run(f"setsid sh -c {shlex.quote(show)}", slot=slot).ran
    assert ran.output.decode() == f"{core}\n"


def test_names_of_processes_may_be_anything(tmp_path: Path) -> None:
    odd = tmp_path / ") R 1 2"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "1000"], start_new_session=True) as process:
        found = processes.process_of(process.pid)
        assert found is not None
        assert (found.parent, found.session) == (os.getpid(), process.pid)
        assert process.pid in processes.descendants(os.getpid(), processes.processes())
        processes.send_signal(found._replace(started=found.started + 1), signal.SIGKILL)
        assert processes.process_of(process.pid) is not None
        processes.send_signal(found, signal.SIGKILL)


# As perl does for `$0 = …`, and setproctitle: the title is written over arguments and environment.
_RENAMED = """
import ctypes, os, sys, time
os.setsid()
begin, end = (int(word) for word in open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
ctypes.memset(begin, ord(" "), end - begin)
with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
time.sleep(1000)
"""


@pytest.mark.parametrize("role", ["prepare", "measure"])
def test_a_process_that_changed_its_title_ends_with_its_job(slot: Slot, tmp_path: Path, role: Role) -> None:
    (tmp_path / "renamed.py").write_text(_RENAMED)
    pids = tmp_path / "pids"
    leave = f"{PYTHON} {tmp_path}/renamed.py {pids} >/dev/null 2>&1 &"
    wait = f"while [ ! -s {pids} ]; do sleep 0.01; done"
    look = f"test -d /proc/$(cat {pids}) && echo there; true"
    result = run_job(job(shell(f"{leave} {wait}", role=role), look), slot, lambda: False)
    # What prepares may leave a server, and the server may have a title.
    assert result.ran[1].output == (b"there\n" if role == "prepare" else b"")
    (pid,) = started(pids, 1)
    assert processes.process_of(pid) is None
