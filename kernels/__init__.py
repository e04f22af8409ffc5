"""The shipped workloads, importable as `profkit.kernels`."""
