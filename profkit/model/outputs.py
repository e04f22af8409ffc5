"""What is kept of a run's outputs beside their digests: numbers by which two runs are compared that differ in bits.

They stand in one file of the run directory, `OUTPUTS_FILE`, an .npz with three members: ``index``, JSON in UTF-8 with
everything but the blocks' numbers for each output by its name, and ``sums`` and ``norms``, float64, the blocks of all
outputs one after another in the order of the index.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from profkit.errors import ProfkitError

OUTPUTS_FILE = "outputs.npz"
#: Blocks of all outputs of a run together: with two float64 each they stay below 1 MB.
MOST_BLOCKS = 60_000
#: No run's file is larger than this; a damaged one may say that it is.
_MOST_BYTES = 64 << 20

Floats = npt.NDArray[np.float64]


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One output in the index.

    Args:
        digest: SHA-256 of its dtype, shape and bytes, as in run.json.
        dtype: as torch names it, e.g. ``bfloat16``.
        shape: of the tensor.
        rows: how many rows a block holds, a power of two; a row is the last axis, and the last block may hold fewer. 0
            where its dtype has no numbers here (complex, packed ones), so that the digest alone tells.
        minimum, maximum: of the finite elements; None without any.
        nonfinite: how many elements are infinite or NaN. They count as 0 in sums and norms.
    """

    digest: str
    dtype: str
    shape: tuple[int, ...]
    rows: int
    minimum: float | None
    maximum: float | None
    nonfinite: int


class OutputNumbers(_Entry, frozen=True, kw_only=True, eq=False):
    """The numbers of one output tensor.

    Args:
        sums: of each block's elements.
        norms: the 2-norm of each block.
    """

    sums: Floats
    norms: Floats

    @property
    def total_rows(self) -> int:
        """Of the tensor."""
        return count_rows(self.shape)

    def coarser(self, rows: int) -> OutputNumbers:
        """The same in blocks of so many rows, a multiple of its own."""
        if rows == self.rows or not len(self.sums):
            return self
        starts = np.arange(0, len(self.sums), rows // self.rows)
        norms = np.sqrt(np.add.reduceat(self.norms**2, starts))
        return msgspec.structs.replace(self, rows=rows, sums=np.add.reduceat(self.sums, starts), norms=norms)


def count_rows(shape: tuple[int, ...]) -> int:
    """The rows of a tensor of this shape: a scalar is one, and an empty tensor has none."""
    return math.prod(shape[:-1]) if math.prod(shape) else 0


def write(file: Path, outputs: Mapping[str, OutputNumbers]) -> None:
    """Write `outputs` to the new file `file`."""
    index = {name: {field: getattr(own, field) for field in _Entry.__struct_fields__} for name, own in outputs.items()}
    blocks: dict[str, list[Floats]] = {"sums": [], "norms": []}
    for own in outputs.values():
        blocks["sums"].append(own.sums)
        blocks["norms"].append(own.norms)
    members: dict[str, Any] = {name: np.concatenate([np.zeros(0), *parts]) for name, parts in blocks.items()}
    np.savez(file, index=np.frombuffer(msgspec.json.encode(index), dtype=np.uint8), **members)


def read(file: Path) -> dict[str, OutputNumbers]:
    """The outputs in `file`, by name.

    Raises:
        ProfkitError: it is missing or damaged.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                raise ValueError("it is larger than any that profkit writes")
        with np.load(file, allow_pickle=False) as members:
            index = msgspec.json.decode(members["index"].tobytes(), type=dict[str, _Entry])
            sums, norms = (np.asarray(members[name]) for name in ("sums", "norms"))
        counts = [-(-count_rows(entry.shape) // entry.rows) if entry.rows > 0 else 0 for entry in index.values()]
        if sums.dtype != np.float64 or norms.dtype != np.float64 or not len(sums) == len(norms) == sum(counts):
            raise ValueError("its blocks are not those of its index")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise ProfkitError(f"{file} is not as profkit writes it: {error}. Capture the run again.") from None
    ends = np.cumsum([0, *counts])
    return {
        name: OutputNumbers(**msgspec.structs.asdict(entry), sums=sums[begin:end], norms=norms[begin:end])
        for (name, entry), begin, end in zip(index.items(), ends[:-1], ends[1:], strict=True)
    }
