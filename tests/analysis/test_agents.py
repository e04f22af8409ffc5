"""What an agent gets: answers of at most 6 KB, and the protocol's round trip."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from bench import profkit
from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import TextContent
from recording import step_trace

TRACES = Path(__file__).parents[2] / "traces"
PAIR = TRACES / "dcp-combine/eager", TRACES / "dcp-combine/fused"


@pytest.mark.parametrize("command", [("diff", *PAIR), ("layers", PAIR[0])])
def test_a_brief_answer_is_small_and_says_what_to_do_next(command: tuple[str | Path, ...]) -> None:
    done = profkit(*command, "--format", "brief")
    assert done.returncode == 0
    assert len(done.stdout.encode()) <= 6_000
    assert "profkit explain CODE" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("next: ")


def test_a_brief_answer_stays_small_whatever_names_there_are(tmp_path: Path) -> None:
    layers = [" ".join(f"{'ç' * 300}{layer}x{n}:900" for n in range(40)) for layer in range(12)]
    sides = [step_trace(tmp_path / f"{n}.sqlite", layers[n:], replays=3) for n in range(2)]
    for command in (["layers", sides[0]], ["diff", *sides]):
        done = profkit(*command, "--format", "brief")
        assert 0 < len(done.stdout.encode()) <= 6_000
        # Each layer is a kind of its own, and the tables that are left out are counted.
        assert command[0] == "diff" or "more tables: --format text" in done.stdout


def test_a_client_asks_for_layers_a_diff_and_a_code() -> None:
    async def ask() -> list[str]:
        server = StdioServerParameters(command=sys.executable, args=["-m", "profkit.cli", "mcp"])
        async with Client(stdio_client(server)) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {"layers", "diff", "explain", "doctor"}
            calls = [
                ("layers", {"run": str(PAIR[0])}),
                ("diff", {"before": str(PAIR[0]), "after": str(PAIR[1]), "expect_removed": 7}),
                ("explain", {"code": "work-lost"}),
                ("layers", {"run": "--help"}),
            ]
            answers = []
            for name, arguments in calls:
                (content,) = (await client.call_tool(name, arguments)).content
                assert isinstance(content, TextContent)
                answers.append(content.text)
            return answers

    layers, diff, code, odd = asyncio.run(ask())
    assert "24 layers" in layers
    assert layers.endswith("exit 0")
    assert diff.startswith("REFUTED: 8 launches per layer are gone, net; 7 were expected.")
    assert diff.endswith("exit 1")
    assert "outputs" in code
    assert "profkit: error: --help" in odd
