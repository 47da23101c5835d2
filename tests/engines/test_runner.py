from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from factories.jobs import job, shell
from karat.engines.job import Job, JobCommand, JobResult
from karat.engines.runner import Slot, fill_command, fill_text, identity_key, read_identity, run_job


@pytest.fixture
def slot(tmp_path: Path) -> Slot:
    return Slot(number=3, area=tmp_path / "ein Prüfstand" / "slot-3")


def run(work: Job, slot: Slot) -> JobResult:
    return run_job(work, slot, lambda: False)


def test_commands_run_one_after_the_other_in_the_kept_folder(slot: Slot) -> None:
    prepare = shell("echo there > file", role="prepare")
    result = run(job(prepare, "cat file; echo oops >&2; pwd"), slot)
    assert [ran.exit_code for ran in result.ran] == [0, 0]
    assert result.ran[1].output.decode() == f"there\noops\n{slot.area}\n"
    assert run(job("cat file"), slot).ran[0].output == b"there\n"


def test_words_of_the_runner_are_replaced_everywhere(slot: Slot) -> None:
    given = Slot(number=3, area=slot.area, gpus=("GPU-1", "4"))
    command = JobCommand(
        role="measure",
        argv=("sh", "-c", 'echo "@SLOT@ @GPUS@ [@CORES@] $HERE $KARAT_OUT @HOME@ a@b"; cd "@OUT@"'),
        env={"HERE": "@AREA@"},
    )
    result = run(job(command), given)
    area = slot.area
    assert result.ran[0].output.decode() == f"3 GPU-1,4 [] {area} {area}/.out @HOME@ a@b\n"
    assert result.where.endswith("slot 3, GPUs GPU-1,4")


def test_the_environment_is_ours_with_the_commands_and_the_slots_gpus(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    show = 'echo "$OURS $THEIRS $CUDA_VISIBLE_DEVICES"'
    work = job(shell(show, env={"THEIRS": "2"}))
    assert run(work, slot).ran[0].output == b"1 2 7\n"
    given = Slot(number=0, area=slot.area, gpus=("0", "1"))
    assert run(work, given).ran[0].output == b"1 2 0,1\n"


SECRETS = {
    "GITHUB_TOKEN": "ghp-0123456789",
    "AWS_SECRET_ACCESS_KEY": "aws/0123456789",
    "GIT_ASKPASS": "/usr/bin/ask-me",
}
SHOW = "env | sort"


def names_in(output: bytes) -> set[str]:
    return {line.split("=")[0] for line in output.decode().splitlines()}


def test_secrets_of_the_environment_are_withheld_unless_they_are_passed(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**SECRETS, "SSH_AUTH_SOCK": "/run/agent"}.items():
        monkeypatch.setenv(name, value)
    ours = shell(SHOW, role="prepare", passed=("*",))
    ran = run(job(ours, SHOW, passed=("GITHUB_TOKEN",)), slot).ran
    assert {*SECRETS} <= names_in(ran[0].output), "karat's own command logs in"
    seen = names_in(ran[1].output)
    assert seen & {*SECRETS} == {"GITHUB_TOKEN"}
    assert {"PATH", "HOME", "SSH_AUTH_SOCK", "KARAT_OUT"} <= seen


def test_the_values_of_secrets_do_not_come_back(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    given = {"OUR_PASSWORD": "from-hunt.toml", "MODE": "production"}
    tell = shell("echo value=$GITHUB_TOKEN", role="identify")
    work = job(tell, shell(f"{SHOW}; printenv GITHUB_TOKEN | base64", env=given), passed=("*",))
    result = run(work, slot)
    assert result.identity == {"value": "***"}
    assert b"MODE=production" in result.ran[1].output
    whole = msgspec.json.encode(result)
    assert json.loads(whole)["ran"]
    for value in (*SECRETS.values(), "from-hunt.toml", "Z2hwLTAxMjM0"):
        assert value.encode() not in result.ran[1].output + whole


def test_a_slots_own_environment_is_withheld_alike(slot: Slot) -> None:
    given = Slot(number=0, area=slot.area, env={"PATH": os.environ["PATH"], **SECRETS})
    assert not names_in(run(job(SHOW), given).ran[0].output) & set(SECRETS)


def test_the_supervisor_beside_the_command_has_no_secrets_either(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp-0123456789")
    result = run(job("tr '\\0' '\\n' < /proc/$PPID/environ"), slot)
    assert result.ran[0].exit_code == 0
    assert "GITHUB_TOKEN" not in names_in(result.ran[0].output)


def test_nothing_can_be_read_from_stdin(slot: Slot) -> None:
    assert run(job("cat; echo end"), slot).ran[0].output == b"end\n"


def test_what_is_there_already_is_not_done_again(slot: Slot) -> None:
    clone = shell("mkdir clone", role="prepare", unless=("test", "-d", "clone"))
    assert [ran.skipped for ran in run(job(clone, "true"), slot).ran] == [False, False]
    assert [ran.skipped for ran in run(job(clone, "true"), slot).ran] == [True, False]


def test_a_check_that_cannot_be_run_means_that_the_command_is_needed(slot: Slot) -> None:
    command = shell("echo done", role="prepare", unless=("karat-no-such-program",))
    assert run(job(command), slot).ran[0].output == b"done\n"


@pytest.mark.parametrize("role", ["prepare", "build", "identify"])
def test_a_failure_ends_the_job(slot: Slot, role: str) -> None:
    failing = JobCommand(role=role, argv=("sh", "-c", "exit 3"))  # type: ignore[arg-type]
    result = run(job(failing, "echo never", identity={"a": "1"}), slot)
    assert [ran.exit_code for ran in result.ran] == [3]
    assert result.identity_key == ""


def test_a_failure_that_is_allowed_does_not(slot: Slot) -> None:
    result = run(job(shell("exit 3", may_fail=True), shell("kill -SEGV $$", may_fail=True), ""), slot)
    assert [(ran.exit_code, ran.signal) for ran in result.ran] == [(3, None), (None, 11), (0, None)]


def test_what_cannot_be_started_says_why(slot: Slot) -> None:
    (ran,) = run(job(JobCommand(role="measure", argv=("karat-no-such",))), slot).ran
    assert ran.error == "karat-no-such: No such file or directory"
    (ran,) = run(job(shell("true", cwd="@AREA@/no such folder")), slot).ran
    assert ran.error.endswith("no such folder: No such file or directory")
    (ran,) = run(job(JobCommand(role="measure", argv=("sh", "-c", "a\0b"))), slot).ran
    assert "null byte" in ran.error


def test_identity_is_what_was_known_what_was_said_and_what_was_built(slot: Slot) -> None:
    build = shell("mkdir -p out; echo code > out/lib.so", role="build")
    identify = shell("echo commit.xla=1a2b; echo noise=1 >&2", role="identify")
    work = job(build, identify, "true", identity={"image.digest": "sha256:1"}, hash_files=("out/*.so",))
    result = run(work, slot)
    assert result.hashes == {"out/lib.so": hashlib.sha256(b"code\n").hexdigest()}
    assert {**result.identity, "files.sha256": ""} == {
        "image.digest": "sha256:1",
        "commit.xla": "1a2b",
        "files.sha256": "",
    }
    assert b"noise=1" in result.ran[1].output
    assert run(work, slot).identity_key == result.identity_key


def test_what_is_known_is_not_measured_again(slot: Slot) -> None:
    commands = (shell("echo a=1", role="identify"), shell("echo", role="warmup"), shell("echo"))
    first = run(job(*commands), slot)
    assert not first.shared
    again = run(job(*commands, known=("other", first.identity_key)), slot)
    assert again.shared
    assert [ran.role for ran in again.ran] == ["identify"]


def test_points_of_which_nothing_is_known_are_nobodys_equal(slot: Slot) -> None:
    result = run(job("echo 1", known=("",)), slot)
    assert result.identity_key == ""
    assert not result.shared
    assert len(result.ran) == 1


def test_no_file_to_hash_is_said(slot: Slot) -> None:
    result = run(job("true", hash_files=("build/*.so",)), slot)
    assert result.hashes == {}
    assert result.notes == ("no file matches build/*.so, so none was hashed",)


def test_files_come_back_from_the_jobs_folder_and_from_where_the_last_command_ran(slot: Slot) -> None:
    leave = "echo out > $KARAT_OUT/a.json; echo here > a.json; echo b > b.json; echo c > c.txt"
    result = run(job(leave, collect=("*.json",)), slot)
    assert result.files == {"a.json": b"out\n", "b.json": b"b\n"}
    assert not (slot.area / ".out").exists()


def test_a_file_that_an_earlier_run_left_is_not_taken_for_this_ones(slot: Slot) -> None:
    measured = job(shell("true", role="prepare"), "test -e a.json || echo 1 > a.json", collect=("*",))
    assert run(measured, slot).files == {"a.json": b"1\n"}
    again = run(measured, slot)
    assert again.files == {}
    assert again.notes == ("a.json: an earlier run left it, this one did not write it; left out",)


def test_each_job_begins_with_an_empty_folder_even_after_a_killed_one(slot: Slot) -> None:
    (slot.area / ".out").mkdir(parents=True)
    (slot.area / ".out" / "old").write_text("x")
    assert run(job('ls "$KARAT_OUT"'), slot).ran[0].output == b""


def test_a_command_may_have_a_folder_of_its_own_below_the_jobs(slot: Slot) -> None:
    work = job(
        shell("echo 1 > $KARAT_OUT/r", env={"KARAT_OUT": "@OUT@/run-1"}),
        shell("echo 2 > $KARAT_OUT/r", env={"KARAT_OUT": "@OUT@/run-2"}),
        collect=("run-*/r",),
    )
    assert run(work, slot).files == {"run-1/r": b"1\n", "run-2/r": b"2\n"}


def test_a_runaway_printer_is_cut_in_the_middle(slot: Slot) -> None:
    (ran,) = run(job("echo first; yes | head -c 30000000; echo last"), slot).ran
    assert ran.exit_code == 0
    assert ran.output.startswith(b"first\ny\n")
    assert ran.output.endswith(b"y\nlast\n")
    assert b"[karat left out 24,757,131 bytes here]" in ran.output
    assert len(ran.output) < 6 << 20


def test_times_are_the_commands_own(slot: Slot) -> None:
    result = run(job(shell("sleep 0.3", role="prepare"), "sleep 0.1"), slot)
    assert result.ran[0].seconds >= 0.3
    assert 0.1 <= result.ran[1].seconds < result.seconds
    assert result.started > 1e9


def test_a_job_that_is_cancelled_says_so(slot: Slot) -> None:
    looks = iter([False, False, True])
    result = run_job(job("sleep 1000"), slot, lambda: next(looks, True))
    assert result.lost == "cancelled"


def test_a_name_that_is_no_text_is_brought_over(slot: Slot) -> None:
    leave = "printf x > \"$(printf 'bad-\\377')\""
    result = run(job(leave, collect=("bad*",), hash_files=()), slot)
    assert result.files == {"bad-\\xff": b"x"}
    odd = os.fsdecode(b"odd-\xff")
    assert run(job(shell("echo $ODD", env={"ODD": odd})), slot).ran[0].output == b"odd-\xff\n"


@pytest.mark.parametrize("timeout", [30 * 86400.0, float("inf")])
def test_a_command_may_have_more_time_than_the_kernel_counts(slot: Slot, timeout: float) -> None:
    assert run(job(shell("echo 1", timeout=timeout)), slot).ran[0].output == b"1\n"


def test_a_folder_of_results_that_became_a_link_is_not_read(slot: Slot, tmp_path: Path) -> None:
    # A container that has the area could name any folder of this machine.
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key.txt").write_text("secret")
    replace = f'rmdir "$KARAT_OUT"; ln -s {tmp_path}/private "$KARAT_OUT"'
    result = run(job(replace, collect=("*.txt",)), slot)
    assert result.files == {}
    assert result.notes == ("KARAT_OUT was replaced by a link; its files were not collected",)
    assert run(job("echo 1 > $KARAT_OUT/a.txt", collect=("*.txt",)), slot).files == {"a.txt": b"1\n"}
    assert [path.name for path in (tmp_path / "private").iterdir()] == ["key.txt"]


def test_a_file_where_a_commands_folder_should_be_is_the_commands_to_see(slot: Slot) -> None:
    env = {"KARAT_OUT": "@OUT@/run-1"}
    spoil = shell('rmdir "$KARAT_OUT"; echo 1 > "$KARAT_OUT"', env=env)
    result = run(job(spoil, shell('cat "$KARAT_OUT"', env=env)), slot)
    assert result.lost == ""
    assert result.ran[1].output == b"1\n"


def test_a_file_of_the_jobs_folder_comes_back_once(slot: Slot) -> None:
    result = run(job("echo 1 > $KARAT_OUT/a.json; echo 2 > b.json", collect=("**/*.json",)), slot)
    assert result.files == {"a.json": b"1\n", "b.json": b"2\n"}


def test_many_descriptors_are_no_obstacle(slot: Slot) -> None:
    # As a machine of hundreds of slots has them: three locks and two pipes each.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    handles = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert run(job("echo 1"), slot).ran[0].output == b"1\n"
    finally:
        for handle in handles:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_said_of_an_identity_can_be_sent_and_stored(slot: Slot) -> None:
    result = run(job(shell("printf 'a=\\377\\n'", role="identify"), "true"), slot)
    assert result.identity == {"a": "\\xff"}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=JobResult) == result


_SLOW_START = """
import json, os, sys, time
from karat.engines.supervisor import Supervisor

class Slow(Supervisor):
    def _started(self, *words):
        time.sleep(0.25)
        return super()._started(*words)

orders, ours = os.pipe()
order = {"argv": ["true"], "cwd": ".", "env": {}, "timeout": None, "when_killed": [], "apart": False, "sweep": True}
os.write(ours, json.dumps(order).encode() + b"\\n")
os.close(ours)
supervisor = Slow(orders, 1)
print(supervisor._run(supervisor._next())[0].seconds)
"""


def test_the_time_of_a_command_counts_from_before_its_start() -> None:
    # By when it has been started, a short one may be over: `true` used to take no time at all.
    ended = subprocess.run([sys.executable, "-c", _SLOW_START], check=True, capture_output=True)
    assert float(ended.stdout) >= 0.25


WORDS = {"AREA": "/a@OUT@b", "OUT": "/o", "SLOT": "3", "GPUS": ""}


def test_words_are_replaced_once() -> None:
    assert fill_text("@AREA@/x @SLOT@@SLOT@ [@GPUS@]", WORDS) == "/a@OUT@b/x 33 []"


def test_what_only_looks_like_a_word_stays() -> None:
    for text in ("me@OUT", "@out@", "@", "@@", "@@@", "OUT@", "user@SLOT.example", "@OTHER@"):
        assert fill_text(text, WORDS) == text
    assert fill_text("a@b@OUT@", WORDS) == "a@b/o"
    assert fill_text("image@sha256:1 @SLOT@", WORDS) == "image@sha256:1 3"


@given(st.text("@AOUTS ", max_size=20))
def test_without_words_nothing_changes(text: str) -> None:
    assert fill_text(text, {}) == text


@given(st.lists(st.sampled_from([*WORDS, "x", ""]), max_size=8))
def test_each_word_between_two_signs_is_replaced(names: list[str]) -> None:
    text = " ".join(f"@{name}@" for name in names)
    expected = " ".join(WORDS.get(name, f"@{name}@") for name in names)
    assert fill_text(text, WORDS) == expected


def test_all_of_a_command_is_filled() -> None:
    command = shell("@SLOT@", cwd="@OUT@", env={"A": "@SLOT@"}, unless=("@SLOT@",), when_killed=(("rm", "@SLOT@"),))
    done = fill_command(command, WORDS)
    assert (done.argv[2], done.cwd, done.env, done.unless, done.when_killed) == (
        "3",
        "/o",
        {"A": "3"},
        ("3",),
        (("rm", "3"),),
    )


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=40)
IDENTITIES = st.dictionaries(NAMES, VALUES.map(str.strip), max_size=5)


@pytest.mark.slow
@given(IDENTITIES)
def test_lines_say_what_is_under_test(identity: dict[str, str]) -> None:
    assert read_identity("".join(f"{name} = {value}\n" for name, value in identity.items()).encode()) == identity


@pytest.mark.slow
@given(IDENTITIES, IDENTITIES)
def test_keys_are_equal_exactly_for_equal_identities(a: dict[str, str], b: dict[str, str]) -> None:
    assert (identity_key(a) == identity_key(b)) == (a == b)
    assert identity_key(dict(reversed(a.items()))) == identity_key(a)


@given(st.binary(max_size=200))
def test_anything_may_be_printed(output: bytes) -> None:
    assert all(isinstance(value, str) for value in read_identity(output).values())
    json.dumps(read_identity(output)).encode("utf-8")


def test_nothing_known_has_no_key() -> None:
    assert identity_key({}) == ""


def test_lines_that_say_nothing_are_left_out() -> None:
    said = b"Loading...\n  jaxlib = 0.4.14 \nx==y\n=1\nurl=https://a/?b=c\n[1]\n"
    assert read_identity(said) == {"jaxlib": "0.4.14", "x": "=y", "url": "https://a/?b=c"}


def test_an_endless_identity_is_cut() -> None:
    assert len(read_identity(b"\n".join(b"n%d=1" % n for n in range(5000)))) == 1000
    assert len(read_identity(b"a=" + b"x" * 100_000)["a"]) == 4096
    assert read_identity(b"[" * 100_000) == {}
