"""What building a shipped workload needs beyond profkit itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from profkit.errors import ProfkitError


@contextmanager
def gpu_packages(workload: str) -> Iterator[None]:
    """Around the imports of a build: says how to install torch or triton where one of them is absent.

    Raises:
        ProfkitError: torch or triton is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        raise ProfkitError(
            f"The workload {workload} needs {error.name}, which is not installed here. "
            "Install it with: pip install 'profkit[gpu]'"
        ) from error
