"""profkit: per-layer launch accounting for CUDA-graph and HIP-graph replays."""

from profkit._version import __version__

__all__ = ["__version__"]
