"""The command line: one short function a command; each imports its command module when it runs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profkit import reporters
from profkit._version import __version__
from profkit.capture import profilers
from profkit.errors import Exit, OutputClosedError, ProfkitError, did_you_mean
from profkit.model.wording import one_of

if TYPE_CHECKING:
    from profkit.model.selection import Selection

app = typer.Typer(
    name="profkit",
    help="Per-layer launch accounting for CUDA-graph and HIP-graph replays, and a diff that judges a kernel fusion.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class Trailing:
    """The words after ``--``, None where there is none: a command to run, which no option parser may read."""

    command: Sequence[str] | None


def _number(needed: str, holds: Callable[[float], bool]) -> Callable[[typer.CallbackParam, float | None], float | None]:
    """The callback of an option that takes a finite number for which `holds`; `needed` says so after "give".

    typer's own ranges know no open end, and let nan and infinity through.
    """

    def check(option: typer.CallbackParam, value: float | None) -> float | None:
        # Comparisons with nan are false, and infinity passes them.
        if value is not None and not (math.isfinite(value) and holds(value)):
            shown = value if isinstance(value, int) else f"{value:g}"
            raise ProfkitError(f"{max(option.opts, key=len)} {shown}: give {needed}.")
        return value

    return check


#: What torch's generators take.
_LARGEST_SEED = 2**63 - 1

_COUNT = _number("a whole number of at least 1", lambda value: value >= 1)
_COUNT_OR_NONE = _number("a whole number of at least 0", lambda value: value >= 0)
_SEED = _number(f"a whole number from 0 to {_LARGEST_SEED}", lambda value: 0 <= value <= _LARGEST_SEED)
_SECONDS = _number("a number of seconds above 0", lambda value: value > 0)
_MICROSECONDS = _number("a number of µs above 0", lambda value: value > 0)
_NUMBER_OR_NONE = _number("a finite number of at least 0", lambda value: value >= 0)
_PER_CENT = _number("a finite number of per cent, at least -100 (all of the time)", lambda value: value >= -100)
_FACTOR = _number("a finite factor of at least 1, or 0 for all", lambda value: value == 0 or value >= 1)


def _text_or_json(wanted: str) -> str:
    if wanted not in ("text", "json"):
        raise ProfkitError(f"No format {wanted!r}.{did_you_mean(wanted, ('text', 'json'))}")
    return wanted


_TextOrJson = Annotated[str, typer.Option("--format", help="text or json.", callback=_text_or_json)]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"profkit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


#: The options of `profkit capture` that a command takes.
_OF_COMMANDS = ("output", "profiler", "profiler_args", "force")


def _is_given(context: typer.Context, name: str | None) -> bool:
    """Whether the command line has the option `name`, and not its default only."""
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


@app.command()
def capture(
    context: typer.Context,
    output: Annotated[Path, typer.Option("-o", "--output", help="The run directory to make.")],
    workload: Annotated[str | None, typer.Argument(help="A shipped name, or path/file.py:name.")] = None,
    variant: Annotated[
        str | None, typer.Option(help="Which variant; the first if not given. A file's repetitions need it.")
    ] = None,
    shapes: Annotated[list[str] | None, typer.Option("--shape", help="name=value; once for each.")] = None,
    profiler: Annotated[str, typer.Option(help=f"{one_of(profilers.names())}.")] = "auto",
    replays: Annotated[int, typer.Option(help="Recorded replays of the graph.", callback=_COUNT)] = 20,
    warmup: Annotated[int, typer.Option(help="Runs before the graph is captured.", callback=_COUNT)] = 3,
    seed: Annotated[int, typer.Option(help="Seeds the random inputs.", callback=_SEED)] = 0,
    run_bodies: Annotated[bool, typer.Option("--run-bodies", help="dispatch: run kernel bodies on the CPU.")] = False,
    profiler_args: Annotated[str, typer.Option("--nsys-args", help="More flags for nsys profile, with -- CMD.")] = "",
    against: Annotated[str | None, typer.Option(help="A second arm: this variant, captured in turns.")] = None,
    pairs: Annotated[
        int | None, typer.Option(help="Repetitions of each arm; 7 with --against.", callback=_COUNT)
    ] = None,
    stop_after_s: Annotated[
        float | None,
        typer.Option(
            "--stop-after", help="Repetitions: begin none that would end later, in seconds.", callback=_SECONDS
        ),
    ] = None,
    keep_report: Annotated[
        bool | None, typer.Option(help="Keep nsys's report beside its export; not kept for repetitions.")
    ] = None,
    with_floor: Annotated[
        bool, typer.Option("--floor/--no-floor", help="Measure the dispatch floor of this machine too.")
    ] = True,
    graph_level: Annotated[
        bool, typer.Option("--graph-level", help="nsys: time the step once more, traced at graph level.")
    ] = False,
    nproc: Annotated[
        int | None,
        typer.Option(
            help="Ranks: a process and a GPU each, in one process group, each with its own trace.",
            callback=_COUNT,
        ),
    ] = None,
    rank_timeout_s: Annotated[
        float | None,
        typer.Option(
            "--rank-timeout",
            help="With --nproc: seconds after which ranks that hang are given up; 600.",
            callback=_SECONDS,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
) -> None:
    """Record a workload, or any command given after --, into a run directory."""
    # Its parameters have the names of the fields of `Options`.
    import msgspec

    from profkit.capture.options import DEFAULT_PAIRS, Options
    from profkit.capture.workers import on_ranks
    from profkit.commands.capture import capture_command, capture_workload

    trailing: Trailing = context.obj
    asked = {name: value for name, value in context.params.items() if value is not None}
    if trailing.command is not None:
        if workload is not None:
            raise ProfkitError(f"Give either a workload ({workload}) or a command after --, not both.")
        if others := [
            max(option.opts, key=len)
            for option in context.command.params
            if option.name not in _OF_COMMANDS and _is_given(context, option.name)
        ]:
            raise ProfkitError(f"{', '.join(others)}: such options belong to a workload, not to a command.")
        options = msgspec.convert({**asked, "workload": ""}, Options)
        summary, exit_code = capture_command(trailing.command, options, output, force=force)
        typer.echo(summary, err=True)
        raise typer.Exit(exit_code)
    if workload is None:
        raise ProfkitError("Give a workload (`profkit kernels` lists them), or a command after --.")
    if profiler_args:
        raise ProfkitError("--nsys-args belongs to `profkit capture -- CMD`; a workload's flags are fixed.")
    repeated = pairs is not None or against is not None
    if repeated:
        asked = {"pairs": DEFAULT_PAIRS, "keep_report": False, **asked}
    options = msgspec.convert(asked, Options)
    launched = on_ranks(options)
    if launched is None:
        typer.echo("rank 0's profkit captures all ranks")
        return
    if rank_timeout_s is not None and launched.nproc is None:
        raise ProfkitError("--rank-timeout belongs to several ranks: give --nproc too.")
    if stop_after_s is not None and not repeated:
        raise ProfkitError("--stop-after belongs to repeated captures: give --pairs or --against too.")
    typer.echo(capture_workload(launched, output, force=force))


@app.command()
def floor(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file for the JSON.")] = None,
    profiler: Annotated[str, typer.Option(help=f"{one_of(profilers.names(profilers.FLOOR))}.")] = "auto",
    output_format: _TextOrJson = "text",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Measure what a launch costs on this machine when it does nothing."""
    from profkit.commands.floor import floor as run

    typer.echo(run(profiler, output, output_format, force=force))


@app.command()
def sweep(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help="A shipped name, path/file.py:name, or the directory of a sweep.")],
    region: Annotated[
        list[str] | None, typer.Option(help="A region's name, a glob, or all; the first region if not given.")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="name=value, for a problem of your own.")] = None,
    variant: Annotated[str | None, typer.Option(help="Which variant; the workload's first if not given.")] = None,
    values: Annotated[list[str] | None, typer.Option("--set", help="parameter=v1,v2: sweep these values only.")] = None,
    only_known: Annotated[bool, typer.Option("--only-known", help="Time the entries of known tables alone.")] = False,
    state: Annotated[str, typer.Option(help="Of the L2 cache: hot, evicted or both.")] = "both",
    orders: Annotated[
        int, typer.Option(help="Interleaved orders: forward, backward, shuffled ones.", callback=_COUNT)
    ] = 9,
    replays: Annotated[int, typer.Option(help="Samples of each configuration in each order.", callback=_COUNT)] = 5,
    screen: Annotated[
        float,
        typer.Option(help="Time in full what is within this factor of the best; 0 for all.", callback=_FACTOR),
    ] = 1.5,
    seed: Annotated[int, typer.Option(help="Seeds the inputs and the shuffled orders.", callback=_SEED)] = 0,
    device: Annotated[str, typer.Option(help="cuda, or cpu with the host's clock.")] = "cuda",
    jobs: Annotated[
        int | None, typer.Option(help="Processes that compile beforehand; chosen if not given.", callback=_COUNT)
    ] = None,
    stop_after: Annotated[
        float | None, typer.Option(help="Begin no region that would end later, in seconds.", callback=_SECONDS)
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A directory that can be resumed.")] = None,
    output_format: Annotated[str, typer.Option("--format", help=f"{one_of(reporters.formats('sweep'))}.")] = "text",
    html: Annotated[Path | None, typer.Option(help="A file for heat maps.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
) -> None:
    """Time launch configurations of a workload, and say which differ beyond noise."""
    from profkit.commands.sweep import Report
    from profkit.commands.sweep import sweep as run
    from profkit.sweep.plan import Options

    options = Options(
        workload=workload,
        variant=variant,
        shapes=tuple(shape or ()),
        regions=tuple(region or ()),
        values=tuple(values or ()),
        only_known=only_known,
        state=state,
        orders=orders,
        replays=replays,
        screen=screen,
        seed=seed,
        device=device,
        jobs=jobs,
    )
    report = Report(output_format, html)
    given = _given_options(context)
    raise typer.Exit(int(run(options, output, report, force=force, stop_after_s=stop_after, given=given)))


def _given_options(context: typer.Context) -> list[str]:
    """The long names of the options that are on the command line."""
    given: list[str] = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.param_type_name == "option" and source is not None and source.name == "COMMANDLINE":
            given.append(max(parameter.opts, key=len))
    return given


@app.command()
def doctor(output_format: _TextOrJson = "text") -> None:
    """Say which profilers can be used here, and how to mend the others."""
    from profkit.commands.doctor import doctor as run

    text, exit_code = run(output_format)
    typer.echo(text)
    raise typer.Exit(int(exit_code))


@app.command()
def kernels(output_format: _TextOrJson = "text") -> None:
    """List the shipped workloads, their variants and shapes."""
    from profkit.commands.kernels import kernels as run

    typer.echo(run(output_format))


def _selection(
    layers: Annotated[str | None, typer.Option(help="Regular expression: layers whose scope matches.")] = None,
    scope: Annotated[
        str | None, typer.Option(help="Regular expression: only this part of each layer, e.g. ^combine.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Regular expression: ranges that are steps; found if not given.")
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            help="The kind of step to report, by its id; the longest if not given. In a diff also before=…,after=…."
        ),
    ] = None,
    layer_kind: Annotated[
        str | None, typer.Option(help="Only layers of this kind, e.g. B of those told apart by cut.")
    ] = None,
    capture_trace: Annotated[
        str | None,
        typer.Option(help="Where the graphs' capture was recorded: a trace, or an engine's directory of them."),
    ] = None,
    layers_from: Annotated[
        str | None,
        typer.Option(
            help="Another recording of the same program that knows its layers: a run of its start. In a diff also "
            "before=…,after=…."
        ),
    ] = None,
    anchor: Annotated[
        str | None, typer.Option(help="Regular expression: a kernel that each layer has; found if not given.")
    ] = None,
    anchor_every: Annotated[
        int | None, typer.Option(help="How often --anchor runs in a layer.", callback=_COUNT)
    ] = None,
) -> Selection:
    """The options by which `layers` and `diff` choose steps and layers."""
    from profkit.model.selection import Selection

    return Selection(layers, scope, steps, graph, layer_kind, capture_trace, layers_from, anchor, anchor_every)


def _selecting(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options of `_selection` in the place of its parameter ``selection``."""
    # The selection's class is imported when a command runs, so that its name means nothing yet.
    options, own = (inspect.signature(f, eval_str=True, locals={"Selection": object}) for f in (_selection, command))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in options.parameters}
        command(selection=_selection(**chosen), **given)

    parameters = [
        parameter
        for mine in own.parameters.values()
        for parameter in (options.parameters.values() if mine.name == "selection" else [mine])
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


_FloorUs = Annotated[
    float | None,
    typer.Option(help="The dispatch floor in µs; measured or estimated if not given.", callback=_MICROSECONDS),
]
_Format = Annotated[str, typer.Option("--format", help=f"{one_of(reporters.formats('layers'))}.")]
_Html = Annotated[Path | None, typer.Option("--html", help="A file for the report as a page, with figures.")]
_Details = Annotated[bool, typer.Option("-v", "--verbose", help="Whole tables, and all that is known of times.")]


@app.command()
@_selecting
def layers(
    runs: Annotated[list[str], typer.Argument(help="Run directories, trace files, or globs of per-rank files.")],
    selection: Selection,
    floor_us: _FloorUs = None,
    output_format: _Format = "text",
    details: _Details = False,
    html: _Html = None,
) -> None:
    """Count launches and time per layer."""
    from profkit.commands.layers import layers as run

    run(runs, selection, output_format, floor_us, details=details, html=html)


@app.command()
@_selecting
def diff(
    runs: Annotated[list[str], typer.Argument(help="Two runs, before and after; or a directory with two arms.")],
    selection: Selection,
    expect_removed: Annotated[
        int | None,
        typer.Option(
            help="Fail unless so many launches are gone, net, from every selected layer.", callback=_COUNT_OR_NONE
        ),
    ] = None,
    expect_fused: Annotated[bool, typer.Option("--expect-fused", help="Fail unless a fusion is found.")] = False,
    expect_faster: Annotated[
        float | None,
        typer.Option(help="Fail unless the step is faster by so many per cent, beyond noise.", callback=_PER_CENT),
    ] = None,
    max_launches_per_layer: Annotated[
        float | None, typer.Option(help="Fail if a layer has more, after.", callback=_NUMBER_OR_NONE)
    ] = None,
    max_regression: Annotated[
        float | None,
        typer.Option(help="Fail if a layer's time grew by more per cent, beyond noise.", callback=_PER_CENT),
    ] = None,
    floor_us: _FloorUs = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compare although device, workload, shapes or profiler differ.")
    ] = False,
    output_format: _Format = "text",
    details: _Details = False,
    html: _Html = None,
) -> None:
    """Compare two runs: which launches are gone, what else moved, is the work still done."""
    from profkit.commands.diff import diff as run
    from profkit.comparison.model import Gates

    gates = Gates(
        expect_removed=expect_removed,
        expect_fused=expect_fused,
        expect_faster_percent=expect_faster,
        max_launches_per_layer=max_launches_per_layer,
        max_regression_percent=max_regression,
        floor_us=floor_us,
        force=force,
    )
    raise typer.Exit(int(run(runs, selection, gates, output_format, details=details, html=html)))


@app.command()
def explain(code: Annotated[str, typer.Argument(help="As printed in brackets before a message, or in JSON.")]) -> None:
    """Say what the code of a reason or a warning means, and what to do."""
    from profkit.model.codes import explain as run

    typer.echo(run(code.strip("[]")))


@app.command()
def mcp() -> None:
    """Answer agents: layers, diff, explain and doctor over the Model Context Protocol, on standard input and output."""
    if find_spec("mcp") is None:
        raise ProfkitError("profkit mcp needs the package mcp. Install it: pip install 'profkit[mcp]'")
    from profkit.commands.mcp import serve

    serve()


@app.command()
def scrub(
    source: Annotated[Path, typer.Argument(help="A run directory or a trace file.")],
    target: Annotated[Path, typer.Argument(help="Where to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the target.")] = False,
) -> None:
    """Write a trace without environment, host names, paths and process lists."""
    from profkit.commands.scrub import scrub as run

    typer.echo(run(source, target, force=force))


def split_command(arguments: Sequence[str]) -> tuple[list[str], Trailing]:
    """Set apart what follows the first ``--``: it belongs to another program."""
    if "--" not in arguments:
        return list(arguments), Trailing(None)
    at = arguments.index("--")
    return list(arguments[:at]), Trailing(list(arguments[at + 1 :]))


def _report_defect(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An exception that nothing expected is profkit's defect. Python would end with status 1, which means refuted."""
    if os.environ.get("PROFKIT_TRACEBACK"):
        traceback.print_exception(kind, error, trace)
    where = traceback.extract_tb(trace)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    typer.echo(
        f"profkit: error: internal error ({kind.__name__} at {place}: {error}). This is a defect of profkit, and no "
        "answer; please report it. PROFKIT_TRACEBACK=1 shows the traceback.",
        err=True,
    )
    sys.stdout.flush()
    os._exit(int(Exit.ERROR))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the one place where errors are printed. Status 1 means refuted and nothing else."""
    sys.excepthook = _report_defect
    if sys.stdout is None:
        _complain("profkit: error: standard output is closed, so there is nowhere to answer.")
        raise SystemExit(int(Exit.ERROR))
    for stream in (sys.stdout, sys.stderr):
        # Names and µs are no ASCII, whatever the locale.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    own, trailing = split_command(sys.argv[1:] if arguments is None else arguments)
    if trailing.command is not None and own[:1] != ["capture"]:
        own, trailing = [*own, "--", *trailing.command], Trailing(None)
    # Through typer's own __call__ an unexpected exception would end with status 1.
    command = typer.main.get_command(app)
    try:
        command(args=own, obj=trailing, prog_name="profkit")
    except ProfkitError as error:
        _complain(f"profkit: error: {error}")
        raise SystemExit(int(error.exit_code)) from None
    except (OutputClosedError, BrokenPipeError):
        _end_output()
        raise SystemExit(128 + signal.SIGPIPE) from None
    except OSError as error:
        _end_output()
        _complain(f"profkit: error: cannot read or write: {error}.")
        raise SystemExit(int(Exit.ERROR)) from None


def _complain(message: str) -> None:
    """Print to standard error if there is one; its absence must not change the exit status."""
    with contextlib.suppress(OSError, AttributeError):
        typer.echo(message, err=True)


def _end_output() -> None:
    """Let the interpreter flush standard output into nothing: its reader is gone, or the disk is full."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


if __name__ == "__main__":
    main()
