"""Compares the answers of two profkits to everything recorded here: prints what differs; nothing, where nothing does.

    python benchmarks/same_answers.py OLD NEW --cache DIR

OLD and NEW are each a checkout, run with this Python, or the Python of an environment that has profkit. The cases are
commands to paste in DIR/inputs-…: `layers`, `diff` and `scrub` over `traces/` and the folders in `../shared` beside
the checkout, refusals, and the Python interface; `kernels`, `doctor` and what measures answer for the machine and are
out. An answer is the exit status, both outputs and the files written; nothing is tolerated, but the place in the code
that an internal error names is no answer. A side imports profkit once and forks for each case; it uses only
`profkit.cli.main` and the public names. Where OLD and NEW are the same code, it is asked twice: are its answers always
the same? Exit status: 0 the same, 1 not.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import hashlib
import importlib
import inspect
import itertools
import json
import os
import random
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve()
FORMATS = ("json", "text", "md", "csv")
SHARED = ("h200", "corpus", "real", "adversary", "reports", "fuzz")
#: What profkit is built on: other versions may answer otherwise.
DEPENDENCIES = ("numpy", "pandas", "pyarrow", "scipy", "rich", "typer", "msgspec", "adbc-driver-sqlite")
#: Files that are no recordings, by suffix.
PLAIN = ("", ".md", ".tsv", ".txt", ".py", ".sh", ".xz")
#: In a command: a name in a folder of the case's own that is free, a file that is there, and a folder that is there.
OWN = re.compile(r"^(OUT|TAKEN|FOLDER)(?=$|[/:])")

#: Folders that the lists below shorten.
SHORT = {
    "~a": "traces/dcp-combine/eager",
    "~b": "traces/dcp-combine/fused",
    "~t": "traces/dcp-combine-torch",
    "~g": "traces/dcp-combine-2gpu",
    "~i": "corpus/AMD-AGI+TraceLens/tests/traces/inference",
}
#: Before and after of each family. The first ODD are asked with options too; odd, so that formats vary for each.
PAIRS = """
~a ~b | ~t/eager ~t/fused | traces/mla-step/eager traces/mla-step/hoisted | real/hf_eager real/hf_fused
traces/dsa-candidates/old traces/dsa-candidates/one-kernel | real/vllm_mla_native real/vllm_mla_custom
real/vllm_mla_custom_late.pt.trace.json.gz real/vllm_mla_custom_late
reports/06-exec-update/h3d_before.sqlite reports/06-exec-update/h3d_after.sqlite
h200/toy_eager.kineto.json.gz h200/toy_late.kineto.json.gz | ~a traces/dcp-combine/dropped
h200/toy_eager.nsys2025.sqlite h200/toy_fused.nsys2025.sqlite | traces/qsa-attention/default traces/qsa-attention/sm_90
real/hf_late_eager real/hf_late_fused | real/hf_wl_eager real/hf_wl_compiled
real/vllm_mla_native_late real/vllm_mla_custom_late | real/vllm_mla_custom real/vllm_mla_compiled
real/vllm_mla_custom_late real/vllm_mla_compiled_late
"""
ODD = 9
SELECTIONS = r"""
--layers '[02468](\.mla)?$' | --layers nosuch | --layers '(' | --scope ^combine | --scope self_attn | --scope nosuch
--steps 'execute|iteration|ProfilerStep' | --steps nosuch | --graph 2 | --graph 11 | --graph 'sequence 2'
--graph nosuch | --layer-kind A | --layer-kind B | --layer-kind nosuch | --anchor 'rms_?norm|nvjet' | --anchor nosuch
--anchor '[' | --anchor 'rms_?norm' --anchor-every 4 | --anchor-every 2 | --anchor nvjet --steps execute
--capture-trace ~a | --capture-trace nosuch | --capture-trace traces/README.md
--floor-us 2 | --floor-us 0 | --floor-us -1 | --floor-us x | --format xml
"""
GATES = """
--expect-removed 8 | --expect-removed 7 | --expect-removed -1 | --expect-removed x | --expect-fused | --force
--max-regression 1 | --max-regression 0 | --max-regression -1 | --max-launches-per-layer 4 | --max-launches-per-layer 3
--expect-removed 8 --expect-fused --max-regression 5 --max-launches-per-layer 4 --layers mla
"""
#: Asked in every format.
REPORTS = """
layers ~a ~b | layers ~a traces/mla-step/eager | layers ~a ~a | layers 'traces/dcp-combine/*' | layers '~g/eager/*/0'
layers ~i/vllm_decode_full/graph_execution.json.gz --capture-trace ~i/vllm_decode_full/capture_traces
layers ~i/sglang_decode/sglang_Qwen3-8B_decode.json.gz --capture-trace ~i/sglang_decode/capture_traces
layers ~i/sglang_decode/sglang_Qwen3-8B_decode.json.gz --capture-trace ~i/vllm_decode_full/capture_traces
layers real/vllm_mla_custom_late --capture-trace real/vllm_mla_custom
layers reports/16-anchor-advice-is-circular/fin_anchor.json --anchor gemm_kernel
layers reports/16-anchor-advice-is-circular/fin_anchor.json --anchor gemm_kernel --steps .
diff real/hf_late_eager real/hf_late_fused --anchor 'rmsnorm|pow' --expect-removed 1
diff real/hf_late_eager real/hf_late_fused --capture-trace real/hf_eager
diff '~g/eager/[0-3]' '~g/fused/[0-2]' | diff '~g/eager/[0-1]' '~g/eager/[4-5]' | diff ~g/eager/0 ~g/fused/0
diff '~g/eager/*/0' '~g/fused/*/0' --expect-removed 8 | diff '~g/eager/*/0' ~b | diff ~g/eager/0/0 ~g/fused/0/0
diff ~g/eager/0/0 ~g/eager/0/1 | diff traces/mla-step-2gpu --expect-removed 8 | diff ~a traces/README.md
diff traces/dcp-ag-rs-2gpu --expect-removed 8 | diff ~a nosuch | diff ~a | diff ~a ~b traces/dcp-combine/hoisted
diff ~a traces/mla-step/eager | diff ~a traces/mla-step/eager --force | diff ~a ~t/fused | diff ~a ~t/fused --force
diff ~a/trace.sqlite ~b | diff traces/qsa-attention-64-fp8/default traces/qsa-attention/default
diff traces/dsa-candidates/new traces/dsa-candidates/one-kernel --layers consumer --expect-removed 1
"""
REFUSALS = """
--version | --help | nosuch | --nosuch | layers --help | diff --help | scrub --help | capture --help | sweep --help
floor --help | kernels --help | doctor --help | layers | layers nosuch | layers 'nosuch/*' | layers '' | diff
diff '' '' | layers --nosuch traces | layers ~a --format | diff nosuch nosuch2 --format json | diff -- ~a ~b
layers ~a -- --format json | scrub | scrub traces | scrub nosuch OUT | scrub ~a TAKEN | scrub ~a FOLDER
scrub ~a TAKEN --force | scrub ~a FOLDER --force | scrub ~a OUT/below/that | scrub TAKEN TAKEN
scrub ~a/trace.sqlite TAKEN | scrub ~a/trace.sqlite TAKEN --force | scrub ~a/trace.sqlite FOLDER
scrub ~a/trace.sqlite OUT/below | scrub ~a/trace.sqlite TAKEN/below | scrub FOLDER FOLDER/below
floor -o TAKEN | floor --format xml | kernels --format xml | doctor --format xml | capture | capture -o OUT
capture nosuch -o OUT | capture dcp-combine -o TAKEN | capture dcp-combine -o FOLDER | capture TAKEN:x -o OUT
capture dcp-combine -o OUT --variant nosuch | capture dcp-combine -o OUT --shape rows=x | capture -o TAKEN -- true
capture dcp-combine -o OUT --shape nosuch=1 | capture dcp-combine -o OUT --replays 0 | capture -o OUT --pairs 2 -- true
capture dcp-combine -o OUT --profiler nosuch | capture dcp-combine -o OUT --pairs 0 | sweep | sweep nosuch
capture dcp-combine -o OUT --nsys-args=-x | capture dcp-combine -o OUT -- true | sweep FOLDER | sweep TAKEN | sweep ~a
sweep qsa-attention --region nosuch | sweep qsa-attention --state nosuch | sweep qsa-attention --set nosuch=1
sweep qsa-attention --orders 0 | sweep dcp-combine | sweep qsa-attention -o TAKEN | sweep qsa-attention --format xml
sweep qsa-attention --variant nosuch
"""
OPEN = """import hashlib, profkit
trace = profkit.open({!r})
print(*vars(trace.info).items(), sep="\\n")
for name, table in vars(trace).items():
    if name != "info":
        print(name, len(table), hashlib.sha256(table.to_csv().encode(errors="backslashreplace")).hexdigest())
        print(table.dtypes.to_string())"""
TABLE = """import profkit
table = profkit.{}.to_pandas()
print(table.to_csv(), table.dtypes.to_string(), sep="\\n")"""
PRELOAD = """import sys, profkit.cli
sys.argv = ["profkit", "diff", "traces/dcp-combine/eager", "traces/dcp-combine/fused"]
try:
    profkit.cli.main()
finally:
    print("\\nIMPORTED", *sys.modules)"""


@dataclass(frozen=True)
class Case:
    """A command and the folder to run it in; `group` holds the cases of which a quick run takes one."""

    command: Sequence[str]
    group: str
    folder: str = "."

    @property
    def name(self) -> str:
        return (f"cd {self.folder} && " if self.folder != "." else "") + shlex.join(self.command)


def entries(text: str) -> list[list[str]]:
    """The words of each entry of one of the lists above: entries end with a line, or with a bar between spaces."""
    for short, folder in SHORT.items():
        text = text.replace(short, folder)
    return [shlex.split(entry) for line in text.strip().splitlines() for entry in line.split(" | ")]


def asked(words: Sequence[str], formats: Sequence[str], group: str, folder: str = ".") -> Iterator[Case]:
    for output_format in formats:
        yield Case(("profkit", *words, "--format", output_format), group, folder)


def cases(root: Path) -> Iterator[Case]:
    """Every case that the inputs in `root` give; some come twice."""
    paths = sorted(p.relative_to(root).as_posix() for top in ("traces", *SHARED) for p in (root / top).rglob("*"))
    # A mutant is whole, not the files in its folder; of many repetitions one stands for the others.
    left_out = re.compile(r"^fuzz(/[^/]+|/[^/]+/[^/]+/.*)$|-2gpu/\w+/[1-9]/|^adversary/(.*\.(txt|sh)|[^/]+/\w+/.*)$")
    paths = [p for p in paths if not left_out.search(p)]
    runs = [p for p in paths if (root / p / "run.json").is_file()]
    files = [
        p for p in paths if (root / p).is_file() and Path(p).suffix not in PLAIN and str(Path(p).parent) not in runs
    ]
    traces = [*runs, *files]
    for path in paths:
        kind = " ".join((*Path(path).parts[: 1 + path.startswith("traces")], Path(path).suffix))
        every = path in traces or (root / path).is_dir()
        most = 1 if path.startswith("adversary") or not every else 2 if path.startswith("fuzz") else 4
        yield from asked(("layers", path), FORMATS[:most], f"layers {kind}")
        yield Case(("profkit", "scrub", path, "OUT"), f"scrub {kind}")
        if path in traces and not path.startswith("adversary"):
            yield Case(("python", "-c", OPEN.format(path)), f"open {kind}")
            yield Case(("python", "-c", TABLE.format(f"census({path!r})")), f"census {kind}")
    yield from compared(root, runs, files)
    yield Case(("profkit",), "profkit")
    for words in entries(REPORTS):
        yield from asked(words, FORMATS, shlex.join(words))
    for words in entries(REFUSALS):
        yield Case(("profkit", *words), shlex.join(words))
    for script in sorted(root.glob("adversary/*/cmd.sh")):
        folder = script.parent.relative_to(root).as_posix()
        for line in script.read_text().splitlines():
            if line.startswith("profkit "):
                yield from asked(shlex.split(line.split(";")[0])[1:], FORMATS, folder, folder)
    yield Case(("python", "-c", TABLE.format("load_sweep('traces/dcp-combine/eager/run.json')")), "load_sweep")


def compared(root: Path, runs: Sequence[str], files: Sequence[str]) -> Iterator[Case]:
    """Diffs of what stands side by side, of `PAIRS` and with options."""
    pairs = [tuple(pair) for pair in entries(PAIRS)]
    for pair in pairs:
        yield from asked(("diff", *pair), FORMATS, "diff pairs")
        yield Case(("python", "-c", TABLE.format("diff({!r}, {!r})".format(*pair))), "diff from Python")
    selections = entries(SELECTIONS)
    for number, (words, pair) in enumerate(itertools.product(selections + entries(GATES), pairs[:ODD])):
        formats = FORMATS[number % 4 :][:1]
        yield from asked(("diff", *pair, *words), formats, f"diff {words[0]}")
        if words in selections:
            yield from asked(("layers", pair[0], *words), formats, f"layers {words[0]}")
    for top in sorted(p for p in (root / "traces").glob("*") if p.is_dir()):
        yield from asked(("diff", f"traces/{top.name}"), FORMATS, f"diff {top.name} as a whole")
        arms = sorted(p.relative_to(root).as_posix() for p in top.iterdir())
        for number, pair in enumerate(itertools.permutations(arms, 2)):
            yield from asked(("diff", *pair), ("json", FORMATS[1 + number % 3]), f"diff {top.name}")
            if "-2gpu" in top.name:
                yield from asked(("diff", *(f"{arm}/*" for arm in pair)), ("json",), f"diff {top.name} by glob")
    for run in [r for r in runs if not r.startswith(("adversary", "fuzz"))]:
        yield from asked(("diff", run, run), ("text",), "diff with itself")
    real = sorted(p for p in (*runs, *files) if p.startswith("real"))
    for number, pair in enumerate(itertools.combinations(real, 2)):
        if pair[0][:8] == pair[1][:8]:
            yield from asked(("diff", *pair), (FORMATS[number % 4],), "diff real")
    for folder, beside in itertools.groupby(files, key=lambda path: path.rsplit("/", 1)[0]):
        if folder.startswith(("h200", "reports/")):
            for pair in itertools.permutations(beside, 2):
                yield from asked(("diff", *pair), FORMATS[:2], f"diff {folder.split('/')[0]}")
    for pair in itertools.pairwise(p for p in files if p.startswith("corpus")):
        yield from asked(("diff", *pair), ("json",), "diff corpus")
        yield from asked(("diff", *pair, "--force"), ("text",), "diff corpus --force")


def quick(every: Sequence[Case]) -> list[Case]:
    """One case of each group, each time another one, so that formats and inputs vary."""
    groups: dict[str, list[Case]] = {}
    for case in every:
        groups.setdefault(case.group, []).append(case)
    return [members[number % len(members)] for number, members in enumerate(groups.values())]


def gather(folders: Mapping[str, Path], into: Path) -> Path:
    """Copy `folders` under their names into a folder of `into` that is named after their content, archives unpacked."""
    content = hashlib.sha256()
    for name, folder in folders.items():
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            content.update(f"{name}/{file.relative_to(folder)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    root = into / f"inputs-{content.hexdigest()[:12]}"
    if not root.exists():
        with tempfile.TemporaryDirectory(dir=into) as scratch:
            for name, folder in folders.items():
                copy = shutil.copytree(folder, Path(scratch) / "inputs" / name)
                for archive in copy.glob("*.tar.xz"):
                    with tarfile.open(archive) as packed:
                        packed.extractall(copy, filter="data")
            (Path(scratch) / "inputs").rename(root)
    return root


@dataclass(frozen=True)
class Side:
    """One profkit: how to run it, and where its answers are kept, by all that they depend on."""

    python: str
    environment: Mapping[str, str]
    package: Path
    store: Path

    def known(self) -> dict[str, str]:
        """Name to answer of the cases that were asked."""
        with contextlib.closing(opened(self.store)) as store:
            rows = store.execute("SELECT name, answer FROM answers").fetchall()
        return {name: zlib.decompress(answer).decode(errors="surrogatepass") for name, answer in rows}


def opened(store: Path) -> sqlite3.Connection:
    database = sqlite3.connect(store, timeout=600, isolation_level=None)
    database.execute("PRAGMA synchronous = OFF")
    database.execute("CREATE TABLE IF NOT EXISTS answers (name TEXT PRIMARY KEY, answer BLOB)")
    return database


def find_side(spec: str, cache: Path, root: Path) -> Side:
    """The profkit that `spec` names.

    Raises:
        SystemExit: there is none, or another one comes first.
    """
    path = Path(spec).absolute()
    python = sys.executable if path.is_dir() else str(path)
    looks = {"COLUMNS": "120", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}  # a fork has one thread
    place = {"PYTHONPATH": str(path) if path.is_dir() else "", "PYTHONSAFEPATH": "1"}
    environment = {**os.environ, **looks, **threads, **place}
    code = (
        "import profkit, sys, importlib.metadata as m; print(profkit.__file__); "
        f"print(sys.version.split()[0], *map(m.version, {DEPENDENCIES}))"
    )
    found = subprocess.run([python, "-c", code], env=environment, cwd=root, capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"{spec}: {found.stderr.strip()}")
    file, versions = found.stdout.splitlines()
    package = Path(file).parent
    if path.is_dir() and package.resolve() != (path / "profkit").resolve():
        raise SystemExit(f"{spec}: Python imports {package} instead.")
    how = "".join(inspect.getsource(function) for function in (work, answer_of, become, content_of))
    content = hashlib.sha256(f"{versions}\0{root.name}\0{how}".encode())
    sources = [Path(at) / name for at, _, names in os.walk(package, followlinks=True) for name in names]
    for source in sorted(s for s in sources if s.suffix == ".py"):
        content.update(f"{source.relative_to(package)}\0".encode() + hashlib.sha256(source.read_bytes()).digest())
    return Side(python, environment, package, cache / f"answers-{content.hexdigest()[:16]}.sqlite")


def ask(sides: Sequence[Side], every: Sequence[Case], root: Path, timeout_s: int) -> None:
    """Ask each side the cases that it has not answered yet, both at once, on all processors.

    Raises:
        SystemExit: a side's process failed.
    """
    todo: dict[Path, list[Case]] = {}
    for side in sides:
        known = side.known()
        todo[side.store] = [case for case in every if case.name not in known]
    jobs = max(1, (os.cpu_count() or 1) // max(1, sum(map(bool, todo.values()))))
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for side, job in itertools.product(sides, range(jobs)):
            if mine := todo[side.store][job::jobs]:
                file = Path(scratch) / f"{len(started)}.json"
                file.write_text(json.dumps([asdict(case) for case in mine]))
                places = (HERE, "--work", side.store, file, root, side.package, timeout_s)
                started.append(subprocess.Popen([side.python, *map(str, places)], env=side.environment, cwd=root))
        if sum(process.wait() != 0 for process in started):
            raise SystemExit("A side's process failed.")


def work(store: Path, todo: Path, root: Path, package: Path, timeout_s: int) -> None:
    """A side's process: answer the cases in `todo`, and keep the answers in `store`."""
    main = importlib.import_module("profkit.cli").main
    with tempfile.TemporaryDirectory() as scratch, contextlib.closing(opened(store)) as answers:
        # What a diff imports is imported once. It runs in a process of its own, so as to leave nothing else behind.
        told = answer_of(Case(("python", "-c", PRELOAD), ""), root, Path(scratch) / "preload", 600, main)
        for name in told.partition("\nIMPORTED ")[2].partition("\n")[0].split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.freeze()
        cases_left = [Case(**fields) for fields in json.loads(todo.read_text())]
        random.shuffle(cases_left)  # so that comparisons at one time share the work on the side that they share
        for number, case in enumerate(cases_left):
            if answers.execute("SELECT 1 FROM answers WHERE name = ?", (case.name,)).fetchone():
                continue
            home = Path(scratch).resolve() / str(number)
            answer = answer_of(case, root, home, timeout_s, main)
            for place, name in ((f"{home}/", ""), (str(root), "INPUTS"), (str(package.parent), "PROFKIT")):
                answer = answer.replace(place, name)
            answer = re.sub(r"(internal error \(\w+) at [^\s:]+:\d+", r"\1", answer)
            row = (case.name, zlib.compress(answer.encode(errors="surrogatepass")))
            answers.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", row)
            shutil.rmtree(home)


def answer_of(case: Case, root: Path, home: Path, timeout_s: int, main: Callable[[], None]) -> str:
    """All that `case` answers, as text; `home` becomes the folder of what it writes."""
    (home / "FOLDER").mkdir(parents=True)
    (home / "TAKEN").write_text("taken\n")
    outputs = [home / ".stdout", home / ".stderr"]
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_PROF, timeout_s)  # of its own time: a busy machine changes no answer
        signal.alarm(20 * timeout_s)
        os.chdir(root / case.folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, output in enumerate(outputs, 1):
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), descriptor)
        become([OWN.sub(rf"{home}/\1", word) for word in case.command], main)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGPROF, -signal.SIGALRM):
        return f"timeout, {timeout_s} s"
    parts = [f"exit {code}"]
    for path in [*outputs, *sorted(p for p in home.rglob("*") if p.is_file() and p not in outputs)]:
        parts += [f"--- {path.relative_to(home)}", content_of(path)]
    return "\n".join(parts)


def become(words: Sequence[str], main: Callable[[], None]) -> NoReturn:
    """Do and end as a process that was started with `words`."""
    code: object = 0
    try:
        if words[0] == "python":
            sys.excepthook = lambda kind, error, _: print(f"{kind.__name__}: {error}", file=sys.stderr)
            exec(words[-1], {"__name__": "__main__"})
        else:
            sys.argv = list(words)
            main()
    except SystemExit as end:
        code = end.code
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        code = 1
        sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(code, str):
        print(code, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def content_of(path: Path) -> str:
    """What `path` says: its text, the digest of an SQLite file's dump, or that of any other file's bytes."""
    content = path.read_bytes()
    if path.name in (".stdout", ".stderr", "run.json", "TAKEN") and len(content) < 1 << 24:
        return content.decode(errors="backslashreplace")
    if content.startswith(b"SQLite format 3"):
        with contextlib.suppress(sqlite3.Error, UnicodeError), contextlib.closing(sqlite3.connect(path)) as database:
            return "dump " + hashlib.sha256("\n".join(database.iterdump()).encode(errors="surrogatepass")).hexdigest()
    return "bytes " + hashlib.sha256(content).hexdigest()


def difference(old: str, new: str, ignored: Sequence[str]) -> list[str]:
    """A unified diff of two answers without the lines that match one of `ignored`."""
    texts = [
        [line for line in text.splitlines() if not any(re.search(i, line) for i in ignored)] for text in (old, new)
    ]
    return list(difflib.unified_diff(texts[0], texts[1], lineterm="", n=1))[2:] if texts[0] != texts[1] else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--cache", type=Path, help="a folder that keeps inputs and answers, by the code that gave them")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="cases with this in their name")
    parser.add_argument("--quick", action="store_true", help="one case of each kind")
    parser.add_argument("--full", action="store_true", help="all lines that differ, not 15 a case")
    parser.add_argument("--ignore", action="append", default=[], metavar="REGEX", help="drop lines that match")
    parser.add_argument("--timeout", type=int, default=120, help="processor seconds for a case")
    parser.add_argument("--traces", type=Path, default=HERE.parents[1] / "traces")
    parser.add_argument("--shared", type=Path, default=HERE.parents[2] / "shared")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = (options.cache or Path(scratch)).resolve()
        cache.mkdir(parents=True, exist_ok=True)
        shared = {name: options.shared / name for name in SHARED}
        folders = {name: folder for name, folder in {"traces": options.traces, **shared}.items() if folder.is_dir()}
        root = gather(folders, cache)
        every = list({case.name: case for case in cases(root)}.values())
        every = [case for case in (quick(every) if options.quick else every) if options.only in case.name]
        old, new = (find_side(spec, cache, root) for spec in (options.old, options.new))
        if old.store == new.store:  # the same code is asked again: does it answer the same twice?
            new = replace(new, store=Path(scratch) / "again.sqlite")
        ask((old, new), every, root, options.timeout)
        before, after = old.known(), new.known()
    differ = 0
    for case in every:
        if lines := difference(before[case.name], after[case.name], options.ignore):
            differ += 1
            shown = lines if options.full else lines[:15]
            more = [f"… {len(lines) - len(shown)} more lines"] if len(lines) > len(shown) else []
            print(case.name, *(f"    {line}" for line in (*shown, *more)), "", sep="\n")
    print(f"{len(every)} cases, {differ} differ")
    raise SystemExit(int(differ > 0))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        store, todo, root, package = map(Path, sys.argv[2:6])
        work(store, todo, root, package, int(sys.argv[6]))
    else:
        main()
