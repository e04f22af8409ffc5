"""Every option that takes a number: what is out of its range, or no finite number, ends in one message and status 2."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest
from bench import profkit

from profkit.cli import app

_NOT_FINITE = ["nan", "inf", "-inf", "1e400"]
_COUNT, _SEED = ["0", "-1"], ["-1", str(2**63)]
_ABOVE_0 = [*_NOT_FINITE, "0", "-1"]
#: Command and option to values that it must refuse. Whole numbers are parsed by typer, which refuses the rest.
REFUSED = {
    ("capture", "--replays"): _COUNT,
    ("capture", "--warmup"): _COUNT,
    ("capture", "--seed"): _SEED,
    ("capture", "--pairs"): _COUNT,
    ("capture", "--stop-after"): _ABOVE_0,
    ("capture", "--nproc"): _COUNT,
    ("capture", "--rank-timeout"): _ABOVE_0,
    ("sweep", "--orders"): _COUNT,
    ("sweep", "--replays"): _COUNT,
    ("sweep", "--screen"): [*_NOT_FINITE, "0.5", "-1"],
    ("sweep", "--seed"): _SEED,
    ("sweep", "--jobs"): _COUNT,
    ("sweep", "--stop-after"): _ABOVE_0,
    ("layers", "--anchor-every"): _COUNT,
    ("diff", "--anchor-every"): _COUNT,
    ("layers", "--floor-us"): _ABOVE_0,
    ("diff", "--floor-us"): _ABOVE_0,
    ("diff", "--expect-removed"): ["-1"],
    ("diff", "--max-launches-per-layer"): [*_NOT_FINITE, "-1"],
    ("diff", "--expect-faster"): [*_NOT_FINITE, "-101"],
    ("diff", "--max-regression"): [*_NOT_FINITE, "-101"],
}
_OTHERS = {"capture": ["toy", "-o", "x"], "sweep": ["toy"], "layers": ["a"], "diff": ["a", "b"]}


def test_the_table_has_every_option_that_takes_a_number() -> None:
    found = set()
    for command in app.registered_commands:
        assert command.callback is not None
        for name, parameter in inspect.signature(command.callback, eval_str=True).parameters.items():
            kind = next(iter(get_args(parameter.annotation)), None)
            if {int, float} & {kind, *get_args(kind)}:
                # In an annotation typer takes the first name for the default.
                told = [text for o in parameter.annotation.__metadata__ for text in (o.default, *(o.param_decls or ()))]
                given = next((text for text in told if isinstance(text, str) and text.startswith("--")), None)
                found.add((command.callback.__name__, given or f"--{name.replace('_', '-')}"))
    assert found == set(REFUSED)


@pytest.mark.parametrize(
    ("command", "option", "value"), [(*key, value) for key, values in REFUSED.items() for value in values]
)
def test_a_number_out_of_range_is_an_error(command: str, option: str, value: str) -> None:
    done = profkit(command, *_OTHERS[command], f"{option}={value}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"profkit: error: {option} ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("command", "option"), list(REFUSED))
@pytest.mark.parametrize("value", ["x", "nan", "1.5e400"])
def test_what_is_no_number_is_an_error(command: str, option: str, value: str) -> None:
    done = profkit(command, *_OTHERS[command], f"{option}={value}")
    assert (done.returncode, done.stdout) == (2, "")
    assert option in done.stderr
