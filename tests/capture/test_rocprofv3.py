"""rocprofv3: found, judged by its version, called as documented, and its files gathered whole, one set a process."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from capture_cli import HERE, TOY, names, profkit, start, wait_until

from profkit import readers
from profkit.capture.options import Recording
from profkit.capture.profilers.rocprofv3 import ROCPROFV3, Rocprofv3
from profkit.errors import ProfkitError
from profkit.readers.installed import Installed
from profkit.runs import run_dir

# The builders of recordings are those of the readers' tests.
sys.path.append(str(HERE.parent / "readers"))
from builders import SHARED, csv_call, csv_kernel, rocpd_db, rocprof_csv

STUB = HERE / "stub_rocprofv3.py"
ROCPROF = {"PROFKIT_ROCPROFV3": str(STUB)}
RECORDED_DB = SHARED / "corpus/HGLiu1998+batched_gemm/ck_bmm/37ca13315e70/28_results.db"
RECORDED_CSV = SHARED / "corpus/ROCm+rocm-systems/projects/rocprofiler-sdk/source/docs/data"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A rocpd database: a published recording where it is beside the repository, else one of two kernels."""
    if RECORDED_DB.is_file():
        return RECORDED_DB
    kernels = [{"start": 10, "end": 15, "stack": 5}, {"start": 20, "end": 25, "stack": 5}]
    call = {"name": "hipGraphLaunch", "category": "HIP_RUNTIME_API_EXT", "start": 1, "end": 2, "stack": 5}
    return rocpd_db(tmp_path / "recorded.db", kernels=kernels, regions=[call])


@pytest.fixture
def csv_folder(tmp_path: Path) -> Path:
    """CSV files of one process, likewise."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    if RECORDED_CSV.is_dir():
        for kind in ("kernel", "hip", "marker_api", "memory_copy"):
            shutil.copyfile(RECORDED_CSV / f"{kind}_trace.csv", folder / f"717_{kind}_trace.csv")
    else:
        rocprof_csv(folder, kernels=[csv_kernel("k", 10, 15)], calls=[csv_call("hipLaunchKernel", 1, 2)])
    return folder


def install(path: Path) -> Path:
    """Make `path` the stub, run by this Python whatever PATH says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STUB}" "$@"\n')
    path.chmod(0o755)
    return path


# -- the program ------------------------------------------------------------------------------------------------------


def test_places_are_searched_newest_first_after_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROCPROFV3.variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    on_path = install(tmp_path / "bin" / "rocprofv3")
    plain = install(tmp_path / "opt/rocm/bin/rocprofv3")
    old = install(tmp_path / "opt/rocm-6.4.3/bin/rocprofv3")
    new = install(tmp_path / "opt/rocm-7.10.0/bin/rocprofv3")

    assert list(ROCPROFV3.candidates(tmp_path)) == [on_path, plain, new, old]


def test_the_variable_is_taken_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "opt/rocm/bin/rocprofv3")
    monkeypatch.setenv(ROCPROFV3.variable, str(STUB))

    assert list(ROCPROFV3.candidates(tmp_path)) == [STUB]
    assert ROCPROFV3.find(tmp_path) == Installed(STUB, "1.1.0")


def test_none_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROCPROFV3.variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProfkitError, match=r"rocprofv3 is not installed: .*/opt/rocm\*/bin.* PROFKIT_ROCPROFV3"):
        ROCPROFV3.find(tmp_path)


def test_an_old_one_is_refused_with_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_ROCPROFV3_VERSION", "0.3.0")
    with pytest.raises(ProfkitError, match=r"ROCprofiler-SDK 0\.3\.0 is too old: 0\.4 \(ROCm 6\.2\)"):
        ROCPROFV3.check(STUB)


@pytest.mark.parametrize(("program", "message"), [("/bin/true", "named no version"), ("no/such", "does not run")])
def test_another_program_is_refused(program: str, message: str) -> None:
    with pytest.raises(ProfkitError, match=message):
        ROCPROFV3.check(Path(program))


@pytest.mark.parametrize(("version", "output_format"), [("0.4.0", "csv"), ("0.6.0", "csv"), ("1.0.0", "rocpd"),
                                                        ("1.3.5", "rocpd")])  # fmt: skip
def test_the_command_line(version: str, output_format: str) -> None:
    found = Rocprofv3(Installed(Path("/opt/rocm/bin/rocprofv3"), version))
    assert found.command(["python", "app.py", "--", "-o"], Path("out"), window=False) == [
        "/opt/rocm/bin/rocprofv3",
        "--kernel-trace",
        "--memory-copy-trace",
        "--hip-trace",
        "--marker-trace",
        "--output-format",
        output_format,
        "-d",
        "out/rocprofv3",
        "-o",
        "%pid%",
        "--",
        "python",
        "app.py",
        "--",
        "-o",
    ]


# -- any command ------------------------------------------------------------------------------------------------------


def capture(tmp_path: Path, *command: str, **environment: str) -> run_dir.Run:
    done = profkit("capture", "--profiler", "rocprofv3", "-o", "run", "--", *command, cwd=tmp_path, **ROCPROF,
                   **environment)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return run_dir.load(tmp_path / "run")


def counts(path: Path) -> Sequence[int]:
    trace = readers.read(path)
    return [len(trace.ops), len(trace.launches), len(trace.ranges)]


def test_a_database_is_kept_under_the_name_of_its_process(tmp_path: Path, database: Path) -> None:
    run = capture(tmp_path, "sh", "-c", "echo $$ > pid", "--token=hunter2", STUB_ROCPROFV3_RECORDING=str(database))

    pid = (tmp_path / "pid").read_text().strip()
    assert run.record.trace == f"{pid}_results.db"
    assert run.record.files == [f"{pid}_results.db"]
    assert counts(run.trace_path) == counts(database)
    assert counts(database)[0] > 0
    profiler = run.record.profiler
    assert (profiler.name, profiler.version) == ("rocprofv3", "1.1.0")
    assert "--marker-trace" in profiler.arguments
    assert run.record.warnings == []
    assert "hunter2" not in str(run.record)


def test_csv_of_an_older_one_keeps_its_companions(tmp_path: Path, csv_folder: Path) -> None:
    environment = {"STUB_ROCPROFV3_VERSION": "0.6.0", "STUB_ROCPROFV3_RECORDING": str(csv_folder)}
    run = capture(tmp_path, "true", **environment)

    kinds = [name.partition("_")[2] for name in names(csv_folder)]
    assert [name.partition("_")[2] for name in run.record.files] == kinds
    assert list(run.record.trace_sha256) == run.record.files
    assert run.record.trace.endswith("_kernel_trace.csv")
    assert counts(run.trace_path) == counts(csv_folder / "717_kernel_trace.csv")
    assert counts(run.trace_path)[1] > 0


def test_no_process_overwrites_another(tmp_path: Path, database: Path) -> None:
    """F11: every process's file is there, and which one is read is said."""
    environment = {"STUB_ROCPROFV3_RECORDING": str(database), "STUB_ROCPROFV3_PROCESSES": "8"}
    run = capture(tmp_path, "true", **environment)

    assert len(run.record.files) == len(set(run.record.files)) == 8
    assert run.record.trace in run.record.files
    (warning,) = run.record.warnings
    assert warning.code == "several-processes"
    assert "8 processes were recorded" in warning.message


def test_the_process_with_the_most_recorded_is_the_trace(tmp_path: Path) -> None:
    source, target = tmp_path / "rocprofv3", tmp_path / "t"
    (source / "host").mkdir(parents=True)
    target.mkdir()
    for pid, size in ((1, 10), (2, 30), (3, 20)):
        (source / "host" / f"{pid}_results.db").write_bytes(bytes(size))

    kept = Rocprofv3(Installed(STUB, "1.1.0")).keep(Recording(tmp_path, tmp_path / "log"), target, keep_report=True)

    assert kept.trace == "2_results.db"
    assert names(target) == ["1_results.db", "2_results.db", "3_results.db"]


def test_the_programs_exit_status_returns_and_a_directory_is_left(tmp_path: Path, database: Path) -> None:
    arguments = ("capture", "--profiler", "rocprofv3", "-o", "run", "--", "sh", "-c", "cat; exit 7")
    environment = {**ROCPROF, "STUB_ROCPROFV3_RECORDING": str(database)}
    done = profkit(*arguments, cwd=tmp_path, stdin="in", **environment)

    assert (done.returncode, done.stdout) == (7, "in")
    assert run_dir.load(tmp_path / "run").record.exit_code == 7


def test_a_signal_reaches_the_program(tmp_path: Path, database: Path) -> None:
    program = (
        "import pathlib, signal, sys, time\nsignal.signal(2, lambda *_: sys.exit(42))\n"
        "pathlib.Path('up').touch()\ntime.sleep(600)\n"
    )
    arguments = ("capture", "--profiler", "rocprofv3", "-o", "run", "--", sys.executable, "-c", program)
    environment = {**ROCPROF, "STUB_ROCPROFV3_RECORDING": str(database)}
    running = start(*arguments, cwd=tmp_path, **environment)
    wait_until((tmp_path / "up").exists)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)

    assert running.returncode == 42


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["--profiler", "rocprofv3", "--", "sh", "-c", "exit 5"], ROCPROF,
         "rocprofv3 ended with exit status 5 and left no trace of a GPU"),
        (["--profiler", "rocprofv3", "--", "true"], {"PROFKIT_ROCPROFV3": "no/such"}, "--version does not run"),
        (["--profiler", "rocprofv3", "--nsys-args", "-x", "--", "true"], ROCPROF, "that needs nsys"),
        (["--profiler", "torch", "--", "true"], ROCPROF, "does not go with a command; that needs nsys or rocprofv3"),
        (["--profiler", "rocprof", "--", "true"], ROCPROF, "Did you mean rocprofv3?"),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_is_one_error_and_no_directory(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], message: str
) -> None:
    done = profkit("capture", "-o", "run", *arguments, cwd=tmp_path, **environment)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert names(tmp_path) == []


# -- workloads --------------------------------------------------------------------------------------------------------


def test_ranges_go_to_roctx_through_torch() -> None:
    _, name = Rocprofv3.scope("")
    assert name == "torch.cuda.nvtx"


def test_a_workload_runs_under_it_and_says_that_there_is_no_gpu(tmp_path: Path, database: Path) -> None:
    torch = pytest.importorskip("torch", reason="workloads run torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: see the test below")
    environment = {**ROCPROF, "STUB_ROCPROFV3_RECORDING": str(database)}
    done = profkit("capture", TOY, "--profiler", "rocprofv3", "-o", "run", cwd=tmp_path, **environment)

    assert done.returncode == 2
    assert "finds no CUDA device here" in done.stderr
    assert [name for name in names(tmp_path) if name != database.name] == []


@pytest.mark.gpu
def test_a_workloads_run_directory_is_whole(tmp_path: Path, database: Path) -> None:
    torch = pytest.importorskip("torch", reason="workloads run torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU, of any vendor: the recording is a published one")
    environment = {**ROCPROF, "STUB_ROCPROFV3_RECORDING": str(database)}
    done = profkit("capture", TOY, "--profiler", "rocprofv3", "-o", "run", cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr

    run = run_dir.load(tmp_path / "run")
    assert run.record.profiler.name == "rocprofv3"
    assert run.record.profiler.ranges == "torch.cuda.nvtx"
    assert run.record.untraced.median > 0
    assert run.record.files == sorted([run.record.trace, "outputs.npz"])
    assert counts(run.trace_path) == counts(database)


def test_a_missing_one_is_found_missing_before_anything_runs(tmp_path: Path) -> None:
    done = profkit("capture", TOY, "--profiler", "rocprofv3", "-o", "run", cwd=tmp_path, PROFKIT_ROCPROFV3="no/such")

    assert done.returncode == 2
    assert "does not run: No such file or directory. Check PROFKIT_ROCPROFV3" in done.stderr


@pytest.mark.parametrize(
    ("environment", "version", "says"),
    [
        (ROCPROF, "1.1.0", "rocprofv3 is here, for `profkit capture --profiler rocprofv3 -- CMD`"),
        ({"PROFKIT_ROCPROFV3": "no/such"}, None, "does not run"),
        ({**ROCPROF, "STUB_ROCPROFV3_VERSION": "0.3.0"}, None, "too old"),
    ],
)
def test_the_doctor_knows_it(tmp_path: Path, environment: dict[str, str], version: str | None, says: str) -> None:
    done = profkit("doctor", "--format", "json", cwd=tmp_path, PROFKIT_NSYS="no/such/nsys", **environment)

    (state,) = [s for s in json.loads(done.stdout)["profilers"] if s["name"] == "rocprofv3"]
    assert state["usable"] is False
    assert state["version"] == version
    assert says in state["says"]
