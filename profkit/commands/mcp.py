"""`profkit mcp`: a server of the Model Context Protocol on standard input and output, for agents. It only reads.

A tool runs the command of its name and answers with what ``--format brief`` prints and with the exit status.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from mcp.server.mcpserver import MCPServer

from profkit._version import __version__

_INSTRUCTIONS = """Counts the GPU launches of each layer in recorded CUDA-graph replays, and judges whether a kernel
fusion did what it claims. Exit status of diff: 0 confirmed, neutral or changed; 1 refuted; 3 it cannot be told, which
is no pass; 2 bad input. A code that an answer names is explained by the tool explain."""
_SECONDS = 600


def serve() -> None:
    """Answer until standard input ends."""
    server = MCPServer("profkit", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR")

    @server.tool()
    def layers(
        run: str,
        layers: str | None = None,
        steps: str | None = None,
        graph: str | None = None,
        layers_from: str | None = None,
    ) -> str:
        """Launches and time of each layer of a recording (a run directory or a trace file). `layers` and `steps` are
        regular expressions for ranges, `graph` names a kind of step, `layers_from` a recording of the program's start.
        """
        given = {"--layers": layers, "--steps": steps, "--graph": graph, "--layers-from": layers_from}
        return _run("layers", run, options=given)

    @server.tool()
    def diff(
        before: str,
        after: str,
        expect_removed: int | None = None,
        expect_faster: float | None = None,
        layers: str | None = None,
        graph: str | None = None,
        layers_from: str | None = None,
    ) -> str:
        """Compare two recordings: which launches are gone, what else moved, is the work still done. `expect_removed`
        claims launches gone from each layer, `expect_faster` per cent of the step."""
        claims = {"--expect-removed": expect_removed, "--expect-faster": expect_faster}
        given = {"--layers": layers, "--graph": graph, "--layers-from": layers_from}
        return _run("diff", before, after, options={**claims, **given})

    @server.tool()
    def explain(code: str) -> str:
        """What the code of a reason or a warning means, and what to do."""
        return _run("explain", code, brief=False)

    @server.tool()
    def doctor() -> str:
        """Which profilers can be used on this machine, and how to mend the others."""
        return _run("doctor", brief=False)

    server.run()


def _run(command: str, *arguments: str, brief: bool = True, options: Mapping[str, object] | None = None) -> str:
    given = [f"{name}={value}" for name, value in (options or {}).items() if value is not None]
    report = ["--format=brief"] if brief else []
    # What begins with a dash is an argument all the same: the words after -- are no options.
    words = [sys.executable, "-m", "profkit.cli", command, *given, *report, "--", *arguments]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"profkit {command} was not done after {_SECONDS} s.\nexit 2"
    return f"{done.stdout}{done.stderr}exit {done.returncode}"
