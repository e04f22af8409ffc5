"""The shapes of the ranks and of their exchange, for every workload that has them. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping

from profkit.errors import ProfkitError
from profkit.model.workload import Shape, ShapeValue

LOCAL_COPY = "copy"
DISTRIBUTED = "distributed"

RANKS = Shape(8, "ranks that share the KV cache; the processes where the exchange is between them")
EXCHANGE = Shape(
    LOCAL_COPY,
    "what stands between the ranks: a copy on the device, or torch.distributed among the processes of --nproc "
    "(the default there)",
    choices=(LOCAL_COPY, DISTRIBUTED),
)


def job_shapes(given: Mapping[str, ShapeValue], processes: int) -> dict[str, ShapeValue]:
    """Defaults of ``exchange`` and ``ranks`` among so many processes; see `Workload.job_shapes`.

    Several processes exchange in earnest unless the user wants each of them to copy for itself. Where they do, the
    ranks are the processes.

    Raises:
        ProfkitError: the exchange is real and the ranks are given as another number.
    """
    exchange = given.get("exchange", LOCAL_COPY if processes == 1 else DISTRIBUTED)
    if exchange != DISTRIBUTED:
        return {"exchange": exchange}
    if given.get("ranks", processes) != processes:
        raise ProfkitError(
            f"--shape ranks={given['ranks']}: {processes} process{'' if processes == 1 else 'es'} take part in the "
            f"exchange, so the ranks are as many. Leave the shape out, give --nproc {given['ranks']}, or add "
            f"--shape exchange={LOCAL_COPY}."
        )
    return {"exchange": exchange, "ranks": processes}
