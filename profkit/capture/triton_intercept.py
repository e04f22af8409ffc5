"""Intercepts Triton launches: name and grid are reported, and the body runs only if asked to (in the interpreter)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Launch = Callable[[str, tuple[int, int, int]], None]
Around = Callable[[], AbstractContextManager[None]]


@contextmanager
def intercepted(launch: Launch, around_body: Around, *, run_bodies: bool) -> Iterator[None]:
    """Report every Triton launch in the block to `launch`.

    An autotuned kernel is launched once, with its first configuration: nothing can be timed here.

    Args:
        launch: called with the kernel's name and its three grid sizes before the body runs.
        around_body: makes the context in which a body runs.
        run_bodies: execute bodies; they must have been compiled under TRITON_INTERPRET=1.
    """
    try:
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        yield
        return

    run_interpreted = InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if warmup:
            return
        sizes = grid_sizes(self.fn, grid, args, kwargs)
        if 0 in sizes:
            return
        launch(self.fn.__name__, sizes)
        if run_bodies:
            with around_body():
                run_interpreted(self, *args, grid=grid, warmup=warmup, **kwargs)

    def run_first_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.fn.run(*args, **{**kwargs, **self.configs[0].all_kwargs()})

    saved = [(cls, cls.run) for cls in (JITFunction, InterpretedFunction, Autotuner)]
    JITFunction.run = run
    InterpretedFunction.run = run
    Autotuner.run = run_first_configuration
    try:
        yield
    finally:
        for cls, original in saved:
            cls.run = original


def grid_sizes(
    function: Callable[..., Any], grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[int, int, int]:
    """A launch's grid as three sizes; a callable grid is given the kernel's arguments by name.

    Args:
        function: the kernel's Python function.
        grid: a tuple of one to three sizes, or a function from arguments to one.
        args, kwargs: the launch's arguments; launch options (num_warps and its like) are left out.
    """
    if callable(grid):
        signature = inspect.signature(function)
        own = {name: value for name, value in kwargs.items() if name in signature.parameters}
        bound = signature.bind(*args, **own)
        bound.apply_defaults()
        grid = grid({**kwargs, **bound.arguments})
    sizes = [int(size) for size in grid]
    padded = [*sizes, 1, 1]
    return padded[0], padded[1], padded[2]
