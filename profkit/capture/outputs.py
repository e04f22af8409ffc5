"""Digests and numbers of outputs: of a workload's tensors, and of files that a command leaves. Nothing here is torch's.

A tensor travels as its bytes in row-major order, with torch's name of its dtype, so that bits are equal where digests
are, in every process, on every device, and in whichever file.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from profkit.errors import ProfkitError
from profkit.model.outputs import MOST_BLOCKS, OutputNumbers, count_rows

if TYPE_CHECKING:
    import torch

#: Names the folder where a command may leave .npz and .safetensors files of its outputs.
VARIABLE = "PROFKIT_OUTPUTS"
#: Elements that are summed at a time, in double precision.
CHUNK = 1 << 18

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]
#: dtypes that numpy has, by torch's names, which are numpy's.
_PLAIN = {
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64"),
}
#: The names of safetensors to torch's; each element's bytes are the same.
_SAFETENSORS = {
    **{"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32"},
    **{"U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"},
}


@dataclass(frozen=True)
class Raw:
    """A tensor's dtype, as torch names it, its shape, and its bytes: row-major, one axis."""

    dtype: str
    shape: tuple[int, ...]
    data: Bytes

    @property
    def digest(self) -> str:
        """SHA-256 of dtype, shape and bytes."""
        hashed = hashlib.sha256(f"torch.{self.dtype}{self.shape}".encode())
        hashed.update(self.data.data)
        return hashed.hexdigest()


def of_tensor(tensor: torch.Tensor) -> Raw:
    """A tensor as it is, whatever its strides and device."""
    import torch

    host = tensor.detach().cpu().contiguous()
    # As bytes, since numpy has no bfloat16 and no float8.
    data = host.reshape(-1).view(torch.uint8).numpy() if host.numel() else np.zeros(0, np.uint8)
    return Raw(str(host.dtype).removeprefix("torch."), tuple(host.shape), data)


def numbers(outputs: Mapping[str, T], raw: Callable[[T], Raw]) -> dict[str, OutputNumbers]:
    """The numbers of all `outputs`, in order of name; blocks hold as many rows as `MOST_BLOCKS` asks for.

    Each output has a ``shape``, and only one at a time is made `raw`.
    """
    shaped: Mapping[str, Any] = outputs
    counts = [count_rows(tuple(output.shape)) for output in shaped.values()]
    rows = 1
    # A power of two, so that the blocks of another run can be made of these, or these of those.
    while sum(-(-count // rows) for count in counts) > MOST_BLOCKS and rows < max(counts):
        rows *= 2
    return {name: _numbers(raw(outputs[name]), rows) for name in sorted(outputs)}


def _numbers(raw: Raw, rows: int) -> OutputNumbers:
    size, total = math.prod(raw.shape), count_rows(raw.shape)
    decode = _DECODERS.get(raw.dtype, _undecoded)
    if decode is _undecoded:
        rows, size, total = 0, 0, 0
    blocks = -(-total // max(rows, 1))
    span, width = rows * (raw.shape[-1] if raw.shape else 1), len(raw.data) // max(size, 1)
    sums, squares, nonfinite = np.zeros(blocks), np.zeros(blocks), 0
    low, high = math.inf, -math.inf
    for begin in range(0, size, CHUNK):
        # Bits that are no number, and squares or sums beyond a double, which the comparison sees as infinite.
        with np.errstate(invalid="ignore", over="ignore"):
            values = decode(raw.data[begin * width : (begin + CHUNK) * width]).astype(np.float64)
            finite = np.isfinite(values)
            if finite.all():
                low, high = min(low, float(values.min())), max(high, float(values.max()))
            else:
                nonfinite += int(values.size - finite.sum())
                values[~finite] = 0.0
                low = min(low, float(values.min(where=finite, initial=math.inf)))
                high = max(high, float(values.max(where=finite, initial=-math.inf)))
            # The blocks that this chunk has a part of, and where in it each of them begins.
            first, last = begin // span, (begin + values.size - 1) // span
            starts = np.maximum(np.arange(first, last + 1) * span - begin, 0)
            sums[first : last + 1] += np.add.reduceat(values, starts)
            squares[first : last + 1] += np.add.reduceat(np.multiply(values, values, out=values), starts)
    some = math.isfinite(low)
    return OutputNumbers(
        digest=raw.digest,
        dtype=raw.dtype,
        shape=raw.shape,
        rows=rows,
        minimum=low if some else None,
        maximum=high if some else None,
        nonfinite=nonfinite,
        sums=sums,
        norms=np.sqrt(squares),
    )


def _e4m3() -> npt.NDArray[np.float32]:
    """The value of each float8_e4m3fn: four bits of exponent, three of mantissa, no infinities, two NaN."""
    bits = np.arange(256)
    exponent, mantissa = (bits >> 3) & 15, bits & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    values = np.where(bits & 128, -size, size)
    values[(bits & 127) == 127] = np.nan
    return values.astype(np.float32)


def _undecoded(data: Bytes) -> npt.NDArray[Any]:
    """Bytes of a dtype whose values are not known here."""
    return data[:0]


_E4M3 = _e4m3()
#: What makes bytes values, by dtype.
_DECODERS: dict[str, Callable[[Bytes], npt.NDArray[Any]]] = {
    **{dtype: partial(np.ndarray.view, dtype=np.dtype(dtype)) for dtype in _PLAIN},
    "bfloat16": lambda data: (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32),
    # The upper half of a float16.
    "float8_e5m2": lambda data: (data.astype(np.uint16) << 8).view(np.float16),
    "float8_e4m3fn": lambda data: _E4M3[data],
}


def of_folder(folder: Path) -> dict[str, OutputNumbers]:
    """The numbers of all tensors in the .npz and .safetensors files of `folder`.

    Each has the name that it has in its file, after that of the file (without its suffix) where there are several.

    Raises:
        ProfkitError: a file is damaged, or holds what is no tensor.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in _READERS)
    found: dict[str, Raw] = {}
    for file in files:
        try:
            tensors = _READERS[file.suffix](file)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
            raise ProfkitError(f"The outputs in {file.name} cannot be read: {error}") from None
        found |= {f"{file.stem}/{name}" if len(files) > 1 else name: raw for name, raw in tensors.items()}
    return numbers(found, lambda raw: raw)


def _npz(file: Path) -> dict[str, Raw]:
    found: dict[str, Raw] = {}
    with np.load(file, allow_pickle=False) as members:
        for name in members.files:
            array = np.asarray(members[name])
            if array.dtype.name not in _PLAIN:
                raise ValueError(f"{name} is of dtype {array.dtype}, which .npz does not keep; use .safetensors")
            native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
            found[name] = Raw(array.dtype.name, array.shape, native.reshape(-1).view(np.uint8))
    return found


class _Tensor(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _safetensors(file: Path) -> dict[str, Raw]:
    """Eight bytes with the length of a JSON header, the header, and the tensors' bytes at the offsets that it names."""
    content = np.memmap(file, dtype=np.uint8, mode="r")
    length = int.from_bytes(content[:8].tobytes(), "little")
    if 8 + length > len(content):
        raise ValueError("its header is cut off")
    header = msgspec.json.decode(content[8 : 8 + length].tobytes(), type=dict[str, msgspec.Raw])
    found: dict[str, Raw] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor = msgspec.json.decode(entry, type=_Tensor)
        if tensor.dtype not in _SAFETENSORS:
            raise ValueError(f"{name} is of dtype {tensor.dtype}, which profkit does not know")
        begin, end = (8 + length + offset for offset in tensor.data_offsets)
        dtype = _SAFETENSORS[tensor.dtype]
        width = 1 if dtype.startswith("float8") else 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        if not 8 + length <= begin <= end <= len(content) or end - begin != width * math.prod(tensor.shape):
            raise ValueError(f"{name} is not as long as its shape")
        found[name] = Raw(dtype, tensor.shape, np.ascontiguousarray(content[begin:end]))
    return found


_READERS: dict[str, Callable[[Path], dict[str, Raw]]] = {".npz": _npz, ".safetensors": _safetensors}
