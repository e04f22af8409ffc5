"""The shipped workloads, importable as `profkit.kernels`, and the loader of a user's own.

Listing imports neither torch nor triton: a workload's module describes it, and only `Workload.build` needs them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

from profkit.errors import ProfkitError, Terminated
from profkit.model.workload import Workload

#: A new kernel family adds its line here: name → ``module:attribute``.
_SHIPPED = {
    "dcp-combine": "profkit.kernels.dcp.workload:DCP_COMBINE",
    "dcp-ag-rs": "profkit.kernels.dcp.workload:DCP_AG_RS",
    "dsa-candidates": "profkit.kernels.dsa.workload:DSA_CANDIDATES",
    "mla-step": "profkit.kernels.mla_step.workload:MLA_STEP",
    "qsa-attention": "profkit.kernels.qsa.workload:QSA_ATTENTION",
}


class _Registry(Mapping[str, Workload]):
    """The shipped workloads by name; a workload's module is imported when it is first looked up."""

    def __getitem__(self, name: str) -> Workload:
        module_name, _, attribute = _SHIPPED[name].partition(":")
        workload = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(workload, Workload)
        return workload

    def __iter__(self) -> Iterator[str]:
        return iter(_SHIPPED)

    def __len__(self) -> int:
        return len(_SHIPPED)


WORKLOADS: Mapping[str, Workload] = _Registry()


def get(name: str) -> Workload:
    """The shipped workload called `name`.

    Raises:
        ProfkitError: there is none of that name.
    """
    if name not in WORKLOADS:
        raise ProfkitError(
            f"No shipped workload is called {name!r}. Shipped: {', '.join(WORKLOADS)}. "
            "For one of your own give path/to/file.py:name."
        )
    return WORKLOADS[name]


def load(spec: str) -> Workload:
    """The workload that the command line's `spec` names.

    Args:
        spec: a shipped name, or ``path/to/file.py:name`` where ``name`` is a `Workload` in that file. The file's folder
            is importable while and after it is loaded, as it is for a script.

    Raises:
        ProfkitError: an unknown name, no such file, a file that raises when imported, no such attribute in it, or an
            attribute that is no `Workload`.
    """
    path_text, separator, attribute = spec.rpartition(":")
    if not separator:
        if spec.endswith(".py"):
            raise ProfkitError(f"{spec} names a file but no workload in it. Give {spec}:name.")
        return get(spec)
    path = Path(path_text)
    if not path.is_file():
        raise ProfkitError(
            f"{path} is not a file, so it holds no workload {attribute!r}. Check the path before the colon."
        )
    module = _import_file(path.resolve())
    if not hasattr(module, attribute):
        names = sorted(name for name, value in vars(module).items() if isinstance(value, Workload))
        found = f"It has: {', '.join(names)}." if names else "It defines no profkit.model.workload.Workload at all."
        raise ProfkitError(f"{path} has no attribute {attribute!r}. {found}")
    workload = getattr(module, attribute)
    if not isinstance(workload, Workload):
        raise ProfkitError(
            f"{attribute} in {path} is of type {type(workload).__name__}, not a profkit.model.workload.Workload. "
            "Make it one, or name another attribute after the colon."
        )
    return workload


def _import_file(path: Path) -> ModuleType:
    """The module in the file at `path`, registered so that dataclasses and triton find its source."""
    name = f"profkit_user_workload_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ProfkitError(f"{path} is not Python source. A workload of your own is a .py file.")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Terminated, KeyboardInterrupt):
        raise
    # Whatever a workload's file raises is no error of profkit.
    except BaseException as error:
        del sys.modules[name]
        raise ProfkitError(
            f"{path} raised {type(error).__name__} when it was imported: {error}. "
            "Run it with python to see where, and mend it."
        ) from error
    return module
