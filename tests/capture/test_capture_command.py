"""`profkit capture -- CMD`: the program keeps its terminal, signals and exit status; a run directory is left."""

from __future__ import annotations

import hashlib
import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from capture_cli import STUB_NSYS, alive, names, profkit, start, wait_until

from profkit.capture import process
from profkit.capture.profilers.nsys import more_flags
from profkit.errors import ProfkitError
from profkit.runs import run_dir

NSYS = {"PROFKIT_NSYS": str(STUB_NSYS)}
ECHO = 'read line; echo "out $line"; echo "err $line" >&2; exit 7'


def test_stdin_stdout_stderr_and_exit_status_pass_through(tmp_path: Path) -> None:
    done = profkit("capture", "-o", "run", "--", "sh", "-c", ECHO, cwd=tmp_path, stdin="hello\n", **NSYS)
    assert done.returncode == 7
    assert done.stdout == "out hello\n"
    assert "err hello\n" in done.stderr
    assert "warning: command-failed" in done.stderr


def test_a_run_directory_is_left_also_when_the_command_fails(tmp_path: Path) -> None:
    profkit("capture", "-o", "run", "--", "sh", "-c", "exit 7", cwd=tmp_path, **NSYS)
    assert names(tmp_path) == ["run"]
    run = run_dir.load(tmp_path / "run")
    assert run.record.exit_code == 7
    assert run.record.files == ["trace.nsys-rep", "trace.sqlite"]
    assert run.record.trace_sha256 == {"trace.sqlite": hashlib.sha256(run.trace_path.read_bytes()).hexdigest()}
    assert run.record.profiler.name == "nsys"
    assert run.record.profiler.version == "2025.3.1.90"
    with sqlite3.connect(run.trace_path) as database:
        assert database.execute("SELECT name FROM META_DATA_EXPORT").fetchall() == [("EXPORT_SCHEMA_VERSION",)]


def test_arguments_are_counted_and_not_kept(tmp_path: Path) -> None:
    done = profkit("capture", "-o", "run", "--", "/bin/sh", "-c", "true", "--token=hunter2", cwd=tmp_path, **NSYS)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "run" / "run.json").read_text()
    assert json.loads(text)["command"] == {"program": "sh", "arguments": 3}
    assert "hunter2" not in text
    assert "/bin" not in text


def test_options_after_the_dashes_belong_to_the_command(tmp_path: Path) -> None:
    done = profkit("capture", "-o", "run", "--", "echo", "--help", "--", "-o", cwd=tmp_path, **NSYS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "--help -- -o\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_programs_group_and_its_exit_status_returns(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = (
        "import os, signal, subprocess, sys, time, pathlib\n"
        "for n in (1, 2, 15): signal.signal(n, lambda n, _: sys.exit(40 + n))\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "pathlib.Path('up.part').write_text(f'{os.getpid()} {child.pid}')\n"
        "os.rename('up.part', 'up')\n"
        "time.sleep(600)\n"
    )
    running = start("capture", "-o", "run", "--", sys.executable, "-c", program, cwd=tmp_path, **NSYS)
    wait_until((tmp_path / "up").exists)
    program_pid, child = map(int, (tmp_path / "up").read_text().split())
    running.send_signal(number)
    running.communicate(timeout=30)
    assert running.returncode == 40 + number
    assert run_dir.load(tmp_path / "run").record.exit_code == 40 + number
    wait_until(lambda: not alive(program_pid) and not alive(child), timeout_s=5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_profiler_that_hangs_when_the_program_has_ended_is_given_up(tmp_path: Path, number: signal.Signals) -> None:
    running = start("capture", "-o", "run", "--", "true", cwd=tmp_path, **NSYS, STUB_NSYS_FAULT="hang")
    wait_until((tmp_path / "hangs").exists)
    running.send_signal(number)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 128 + number
    assert "Traceback" not in errors
    assert names(tmp_path) == ["hangs"]
    assert not alive(int((tmp_path / "hangs").read_text()))


#: Leaves a process behind that is nobody's child and in a session of its own, and says its id.
ORPHAN = "setsid sleep 600 & echo $! > orphan"


def test_what_a_command_leaves_behind_in_a_session_of_its_own_is_ended(tmp_path: Path) -> None:
    done = profkit("capture", "-o", "run", "--", "sh", "-c", ORPHAN, cwd=tmp_path, **NSYS)
    assert done.returncode == 0, done.stderr
    assert not alive(int((tmp_path / "orphan").read_text()))


def test_what_a_worker_leaves_behind_is_ended_with_its_block_also_without_its_environment(tmp_path: Path) -> None:
    pid_file = tmp_path / "orphan"
    script = f"cd {tmp_path}; {ORPHAN}; env -i sh -c 'sleep 600 & echo $! > bare'"
    with process.started(["sh", "-c", script], tmp_path / "log") as child:
        assert child.wait() == 0
        pids = [int(path.read_text()) for path in (pid_file, tmp_path / "bare")]
        assert all(map(alive, pids))
    assert not any(map(alive, pids))


def test_a_process_that_got_the_number_of_a_child_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        with process.started(["true"], tmp_path / "log") as child:
            child.wait()
            child.pid = stranger.pid
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("extra", ["--cuda-flush-interval=100", "--capture-range=nvtx"])
def test_more_flags_reach_nsys(tmp_path: Path, extra: str) -> None:
    done = profkit("capture", "--nsys-args", extra, "-o", "run", "--", "true", cwd=tmp_path, **NSYS)
    assert done.returncode == 0, done.stderr
    arguments = json.loads((tmp_path / "run" / "run.json").read_text())["profiler"]["arguments"]
    assert extra.partition("=")[0] in arguments


def test_a_users_capture_range_never_ends_the_program() -> None:
    assert more_flags("-c nvtx") == ["-c", "nvtx", "--capture-range-end=stop"]
    assert more_flags("-c nvtx --capture-range-end=repeat:3") == ["-c", "nvtx", "--capture-range-end=repeat:3"]
    assert more_flags("--env-var='A=b c'") == ["--env-var=A=b c"]


@pytest.mark.parametrize("text", ["-o x", "--output=x", "--export sqlite", "'unbalanced"])
def test_flags_that_profkit_sets_itself_are_refused(text: str) -> None:
    with pytest.raises(ProfkitError, match="--nsys-args"):
        more_flags(text)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"STUB_NSYS_FAULT": "importer"}, "install the packages libdw1 and libelf1"),
        ({"STUB_NSYS_FAULT": "no-report"}, "nsys left no trace, and ended with exit status 0: see the messages above"),
        ({"STUB_NSYS_FAULT": "crash"}, "nsys ended with SIGSEGV, and not with the command, so nothing is kept."),
        ({"STUB_NSYS_FAULT": "export"}, "nsys export of the report failed (exit status 1): Exportation error"),
        ({"STUB_NSYS_VERSION": "2022.4.2.1-df9881f"}, "nsys 2022.4.2.1 is too old: 2023.4"),
        ({"STUB_NSYS_VERSION": "unknown"}, "named no version"),
        ({"PROFKIT_NSYS": "no/such/nsys"}, "does not run: No such file or directory"),
    ],
)
def test_what_nsys_cannot_do_is_one_error_and_no_directory(
    tmp_path: Path, environment: dict[str, str], message: str
) -> None:
    done = profkit("capture", "-o", "run", "--", "true", cwd=tmp_path, **{**NSYS, **environment})
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert names(tmp_path) == []


def test_a_profiler_that_refuses_its_flags_is_not_taken_for_the_command(tmp_path: Path) -> None:
    done = profkit("capture", "--nsys-args", "--bogus", "-o", "run", "--", "true", cwd=tmp_path, **NSYS)
    assert done.returncode == 2
    assert "nsys ended with exit status 1, before the command began. See the messages above" in done.stderr
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--"], "Nothing to run after `--`"),
        (["--", "no-such-program-anywhere"], "no-such-program-anywhere is not a program"),
        (["toy", "--", "true"], "either a workload (toy) or a command"),
        ([], "Give a workload"),
        (["--seed", "1", "--graph-level", "--", "true"], "--seed, --graph-level: such options belong to a workload"),
        (["--nsys-args", "--stats=true", "toy"], "belongs to `profkit capture -- CMD`"),
    ],
)
def test_misuse_is_one_error(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = profkit("capture", "-o", "run", *arguments, cwd=tmp_path, **NSYS)
    assert done.returncode == 2
    assert message in done.stderr
    assert names(tmp_path) == []
