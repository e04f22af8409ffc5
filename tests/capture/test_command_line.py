"""The command line as a whole: version, help that is quick, errors printed in one place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from capture_cli import command, environment, profkit

import profkit.cli as cli
from profkit import __version__


def test_the_version_is_printed(tmp_path: Path) -> None:
    done = profkit("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"profkit {__version__}\n")


def test_help_lists_the_commands(tmp_path: Path) -> None:
    done = subprocess.run(command("--help"), cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0
    assert {"capture", "diff", "doctor", "kernels", "layers", "scrub", "sweep"} <= set(done.stdout.split())


def test_help_imports_none_of_the_heavy_modules(tmp_path: Path) -> None:
    code = (
        "import sys; from profkit.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'triton', 'pandas', 'numpy', 'pyarrow', 'scipy', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_capture_takes_a_command_after_dashes() -> None:
    assert cli.split_command(["capture", "-o", "d", "--", "a", "--", "b"]) == (
        ["capture", "-o", "d"],
        cli.Trailing(["a", "--", "b"]),
    )
    assert cli.split_command(["layers", "d"]) == (["layers", "d"], cli.Trailing(None))
