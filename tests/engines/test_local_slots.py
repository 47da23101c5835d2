from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from factories.jobs import job
from karat.engines.job import EngineSettings, open_engine
from karat.engines.local import SlotClaim, SlotsTaken, claim_slots, visible_gpus
from karat.findings import CannotVerify, UsageError
from karat.system.locks import own_temporary_folder, take

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name that lists four GPUs, as the real one does."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    lines = [f"GPU {n}: NVIDIA H200 (UUID: GPU-{n}{n}-aa-{n})" for n in range(4)]
    program.write_text("#!/bin/sh\ncat <<.\n{}\n.\n".format("\n".join(lines)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def wanted(slots: int = 1, cores: int = 0, gpus: int = 0) -> EngineSettings:
    return EngineSettings(slots=slots, cores=cores, gpus=gpus)


def test_slots_have_cores_of_their_own(tmp_path: Path) -> None:
    held = SlotClaim(wanted(slots=CORES, cores=1), tmp_path)
    cores = [core for slot in held.slots for core in slot.cores]
    assert sorted(cores) == sorted(os.sched_getaffinity(0))
    assert [slot.number for slot in held.slots] == list(range(CORES))
    held.release()


def test_without_a_number_of_cores_nothing_is_pinned(tmp_path: Path) -> None:
    held = SlotClaim(wanted(slots=CORES + 5), tmp_path)
    assert {slot.cores for slot in held.slots} == {()}
    held.release()


def test_more_cores_than_there_are_is_an_error_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"the {CORES} that this process may use, found 2 slots with {CORES} each"):
        SlotClaim(wanted(slots=2, cores=CORES), tmp_path)


@pytest.mark.parametrize(("cores", "gpus"), [(0.5, 0), (0, 0.25)])
def test_a_part_of_a_core_is_nobodys_own(tmp_path: Path, cores: float, gpus: float) -> None:
    with pytest.raises(UsageError, match="whole number"):
        open_engine(EngineSettings(slots=1, cores=cores, gpus=gpus), tmp_path)


@pytest.mark.slow
def test_another_hunt_waits_is_told_so_and_goes_on_when_the_first_is_done(tmp_path: Path) -> None:
    first = SlotClaim(wanted(cores=CORES), tmp_path / "a")
    said: list[str] = []
    heard = threading.Event()

    def notice(message: str) -> None:
        said.append(message)
        heard.set()

    got: list[SlotClaim] = []
    thread = threading.Thread(target=lambda: got.append(claim_slots(wanted(cores=CORES), tmp_path / "b", notice)))
    thread.start()
    assert heard.wait(10)
    first.release()
    thread.join()
    got[0].release()
    assert said == [f"waiting for {CORES} cores: another hunt on this machine has them"]


def test_whoever_waits_keeps_nothing_from_others(tmp_path: Path) -> None:
    if CORES < 2:
        pytest.skip("needs two cores")
    first = SlotClaim(wanted(cores=1), tmp_path / "a")
    with pytest.raises(SlotsTaken):
        SlotClaim(wanted(cores=CORES), tmp_path / "b")
    rest = SlotClaim(wanted(slots=CORES - 1, cores=1), tmp_path / "c")
    rest.release()
    first.release()


def test_a_killed_process_has_let_go_of_everything(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from karat.engines.job import EngineSettings\nfrom karat.engines.local import SlotClaim\n"
        f"held = SlotClaim(EngineSettings(slots=1, cores={CORES}, gpus=0), Path(sys.argv[1]))\n"
        "print('held', flush=True)\ntime.sleep(1000)"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "work")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        try:
            with pytest.raises(SlotsTaken):
                SlotClaim(wanted(cores=1), tmp_path / "work")
        finally:
            other.kill()
    SlotClaim(wanted(cores=CORES), tmp_path / "work").release()


@pytest.mark.usefixtures("nvidia")
def test_slots_have_gpus_of_their_own_and_another_hunt_gets_the_others(tmp_path: Path) -> None:
    first = SlotClaim(wanted(slots=1, gpus=2), tmp_path / "a")
    assert [slot.gpus for slot in first.slots] == [("0", "1")]
    second = SlotClaim(wanted(slots=2, gpus=1), tmp_path / "b")
    assert [slot.gpus for slot in second.slots] == [("2",), ("3",)]
    first.release()
    second.release()


@pytest.mark.usefixtures("nvidia")
def test_a_gpu_is_the_same_by_its_number_and_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = SlotClaim(wanted(slots=1, gpus=1), tmp_path / "a")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-00,3")
    second = SlotClaim(wanted(slots=1, gpus=1), tmp_path / "b")
    assert [slot.gpus for slot in second.slots] == [("3",)]
    first.release()
    second.release()


@pytest.mark.usefixtures("nvidia")
def test_only_gpus_that_this_process_may_see_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3")
    assert list(visible_gpus()) == ["2", "3"]
    with pytest.raises(UsageError, match=r"the 2 that this process may use, found 3 slots with 1 each, which makes 3"):
        SlotClaim(wanted(slots=3, gpus=1), tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert visible_gpus() == {}


def test_gpus_that_nobody_can_list_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotVerify, match=r"expected `nvidia-smi -L` to list the GPUs") as caught:
        open_engine(EngineSettings(slots=1, gpus=1), tmp_path)
    assert "CUDA_VISIBLE_DEVICES" in caught.value.next_command


def test_a_machine_whose_gpus_are_only_named_by_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1/2/3")
    held = SlotClaim(wanted(gpus=1), tmp_path)
    assert held.slots[0].gpus == ("MIG-1/2/3",)
    held.release()


@pytest.mark.slow
def test_a_job_of_a_dead_hunt_holds_its_cores_until_its_last_process_is_gone(tmp_path: Path) -> None:
    # Deaf to being asked, so that its end takes a while: all that time the core is not free.
    pids = tmp_path / "pids"
    program = (
        "import sys\nfrom pathlib import Path\nfrom karat.engines.job import EngineSettings, open_engine\n"
        "from karat.engines.job import JobCommand, Job\n"
        f"engine = open_engine(EngineSettings(slots=1, cores={CORES}), Path(sys.argv[1]))\n"
        "engine.submit(Job(key='k', commands=(JobCommand(role='measure', argv=tuple(sys.argv[2:])),)))\n"
        "engine.wait()"
    )
    deaf = f"trap '' TERM; echo $$ > {pids}; while true; do sleep 1; done"
    words = [sys.executable, "-c", program, str(tmp_path / "work"), "sh", "-c", deaf]
    with subprocess.Popen(words) as hunt:
        while not pids.exists() or not pids.read_text().endswith("\n"):
            assert hunt.poll() is None
        hunt.kill()
        hunt.wait()
    held = claim_slots(wanted(cores=CORES), tmp_path / "other", lambda _: None)
    assert not Path(f"/proc/{pids.read_text().strip()}").exists()
    held.release()


def test_jobs_find_their_cores_in_a_word(tmp_path: Path) -> None:
    engine = open_engine(EngineSettings(slots=1, cores=1), tmp_path / "work")
    try:
        engine.submit(job("echo @CORES@"))
        (result,) = engine.wait()
    finally:
        engine.close()
    assert result.ran[0].output.decode().strip() == str(min(os.sched_getaffinity(0)))
    assert "cores" in result.where


def test_a_lock_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotVerify, match="expected to write and lock"):
        take(tmp_path / "file" / "slot-0.lock")


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert own_temporary_folder().stat().st_mode & 0o777 == 0o700
    own_temporary_folder().rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"karat-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CannotVerify, match="belongs to another user"):
        own_temporary_folder()


def test_a_gpu_that_is_named_twice_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0,1")
    assert list(visible_gpus()) == ["1", "0"]
    # Not "another hunt has them", for ever.
    with pytest.raises(UsageError, match="the 2 that this process may use, found 3 slots"):
        open_engine(EngineSettings(slots=3, gpus=1), tmp_path)
