"""`profkit kernels`: the shipped workloads with their variants and shapes; needs neither torch nor triton."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from profkit.capture.plan import did_you_mean
from profkit.errors import ProfkitError
from profkit.workload import Workload

FORMATS = ("text", "json")


def kernels(output_format: str) -> str:
    """What to print.

    Raises:
        ProfkitError: an unknown format.
    """
    from profkit.kernels import WORKLOADS

    if output_format not in FORMATS:
        raise ProfkitError(f"No format {output_format!r}.{did_you_mean(output_format, FORMATS)}")
    workloads = list(WORKLOADS.values())
    if output_format == "json":
        return json.dumps(as_data(workloads), indent=1, ensure_ascii=False)
    return as_text(workloads)


def as_data(workloads: Iterable[Workload]) -> dict[str, Any]:
    """Schema ``profkit.kernels/1``."""
    return {
        "schema": "profkit.kernels/1",
        "workloads": [
            {
                "name": workload.name,
                "summary": workload.summary,
                "variants": dict(workload.variants),
                "shapes": {
                    name: {"default": shape.default, "help": shape.help, "choices": list(shape.choices)}
                    for name, shape in workload.shapes.items()
                },
            }
            for workload in workloads
        ],
    }


def as_text(workloads: Iterable[Workload]) -> str:
    """A paragraph a workload: variants (the first is the baseline), then shapes with their defaults."""
    lines: list[str] = []
    for workload in workloads:
        lines.append(f"{workload.name}: {workload.summary}")
        lines += [f"  --variant {name:<18} {text}" for name, text in workload.variants.items()]
        for name, shape in workload.shapes.items():
            choices = f" (one of {', '.join(map(str, shape.choices))})" if shape.choices else ""
            lines.append(f"  --shape {f'{name}={shape.default}':<20} {shape.help}{choices}")
    return "\n".join(lines)
