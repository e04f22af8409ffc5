"""`profkit kernels`: the shipped workloads with their variants and shapes; needs neither torch nor triton."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from profkit.model.workload import Tunable, Workload

#: Regions that a paragraph names before the others are only counted; the JSON has all.
_NAMED_REGIONS = 4


def kernels(output_format: str) -> str:
    """What to print."""
    from profkit.kernels import WORKLOADS

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
                "shapes": {name: asdict(shape) for name, shape in workload.shapes.items()},
                "sweep": None
                if workload.tunable is None
                else {
                    "parameters": {name: asdict(own) for name, own in workload.tunable.parameters.items()},
                    "regions": {name: dict(shapes) for name, shapes in workload.tunable.regions.items()},
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
        if workload.tunable is not None:
            lines += _sweep_lines(workload.tunable)
    return "\n".join(lines)


def _sweep_lines(tunable: Tunable) -> list[str]:
    """What `profkit sweep` can vary, and the regions that it knows."""
    lines = []
    for name, parameter in tunable.parameters.items():
        values = ",".join(map(str, parameter.values))
        lines.append(f"  sweep --set {f'{name}={values}':<28} {parameter.help}")
    names = list(tunable.regions)
    more = f" and {len(names) - _NAMED_REGIONS} more" if len(names) > _NAMED_REGIONS else ""
    return [*lines, f"  sweep --region {', '.join(names[:_NAMED_REGIONS])}{more}"] if names else lines
