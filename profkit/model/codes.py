"""What the codes of reasons, warnings and refusals mean: one table, for `profkit explain`, the docs and the reports."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from profkit.errors import ProfkitError
from profkit.model.wording import one_of

#: Of the codes that say whether the work is still done.
WORK = "of the work"


@dataclass(frozen=True)
class Code:
    """An entry: what the code is about, what it means, and what to do."""

    group: str
    means: str
    do: str


@cache
def codes() -> Mapping[str, Code]:
    """Every code, group by group."""
    table = tomllib.loads(files("profkit").joinpath("codes.toml").read_text(encoding="utf-8"))
    return {name: Code(group, *entry) for group, members in table.items() for name, entry in members.items()}


def explain(name: str) -> str:
    """What the code `name` means and what to do, for a terminal.

    Raises:
        ProfkitError: there is no such code.
    """
    found = codes().get(name)
    if found is None:
        near = get_close_matches(name, list(codes()), n=3)
        hint = f" Did you mean {one_of(near)}?" if near else ""
        raise ProfkitError(f"No code {name!r}.{hint} docs/codes.md lists all.")
    return f"{name} ({found.group})\n{found.means}\nWhat to do: {found.do}"
