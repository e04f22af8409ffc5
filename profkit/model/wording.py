"""Counts in sentences: one launch is, two launches are."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: float, noun: str) -> str:
    """`number` with `noun`, which is put in the plural unless the number is one: ``1 other launch``, ``2 launches``."""
    return f"{number if isinstance(number, int) else format(number, 'g')} {noun if number == 1 else _plural(noun)}"


def signed(value: float, decimals: int) -> str:
    """`value` with its sign and so many decimals: ``+1.50``, ``−0.25``; what is printed as zero has no sign."""
    text = f"{abs(value):.{decimals}f}"
    if not text.strip("0."):
        return text
    return f"{'−' if value < 0 else '+'}{text}"


def listed(texts: Sequence[str], most: int = 6, separator: str = ", ") -> str:
    """The first `most` of `texts`, and how many more there are: ``a, b, c and 4 more``."""
    rest = len(texts) - most
    # One more takes no more room than saying so.
    return separator.join(texts) if rest <= 1 else f"{separator.join(texts[:most])} and {rest} more"


def one_of(words: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def are(number: float) -> str:
    """``is`` of one, else ``are``."""
    return "is" if number == 1 else "are"


def have(number: float) -> str:
    """``has`` of one, else ``have``."""
    return "has" if number == 1 else "have"


def were(number: float) -> str:
    """``was`` of one, else ``were``."""
    return "was" if number == 1 else "were"
