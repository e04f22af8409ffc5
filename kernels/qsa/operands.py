"""What the kernels work on: query, gate, paged cache and selection of one layer; and the splits' partial results."""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: Types of a KV cache, and the types of query that go with each.
FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
BITS_16_DTYPES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Operands:
    """One layer's operands, checked when they are put together.

    Args:
        query: ``[R, HQ, D]`` bf16 or fp16, contiguous; D a power of two from 16 up.
        gate: ``[R, HQ, D]``, of any float type, contiguous.
        keys, values: ``[blocks, page, HK, D]`` views of one cache, of the query's type or fp8, the last dimension
            contiguous; HK divides HQ.
        indices: ``[R, W + 1]`` int32, rows contiguous: up to W token positions in the request, -1 where there is none,
            and in the last column how many there are. Tiles past that many are not read; in a tile that is, only -1
            says that there is no token.
        block_table: ``[requests, pages]`` int32, rows contiguous: the cache block of each page of a request. Tokens of
            a page that is not in the table, or whose block is not in the cache, are left out.
        token_to_req: ``[R]`` int32, contiguous: each row's request. A row of no request in the table attends to
            nothing and gets 0.
        k_scale, v_scale: what an fp8 cache's elements are multiplied with; 1 otherwise.

    Raises:
        ValueError: shapes, types or strides that do not fit.
    """

    query: torch.Tensor
    gate: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    indices: torch.Tensor
    block_table: torch.Tensor
    token_to_req: torch.Tensor
    k_scale: float = 1.0
    v_scale: float = 1.0

    def __post_init__(self) -> None:
        _check_query(self)
        _check_cache(self)
        _check_selection(self)

    @property
    def width(self) -> int:
        """W, the most tokens that a row selects."""
        return self.indices.shape[1] - 1

    @property
    def fp8(self) -> bool:
        """Whether the cache is of an fp8 type."""
        return self.keys.dtype in FP8_DTYPES


@dataclass(frozen=True)
class Partials:
    """What the splits leave for the merge.

    Args:
        outputs: ``[splits, R, HQ, D]`` fp32, contiguous.
        lse: ``[splits, R, HQ]`` fp32, contiguous: base-2 LSEs, -inf for a split without tokens.
    """

    outputs: torch.Tensor
    lse: torch.Tensor

    @property
    def splits(self) -> int:
        return self.outputs.shape[0]


class Workspace:
    """One buffer for the partial results of all layers and launches; its address never changes, so graphs may hold it.

    Args:
        splits: the most splits that it is asked for.
        query: ``[R, HQ, D]``, of the size and on the device of every query.
    """

    def __init__(self, splits: int, query: torch.Tensor) -> None:
        self.splits = splits
        self._shape = tuple(query.shape)
        heads = query.shape[0] * query.shape[1]
        self._outputs = torch.empty(splits * query.numel(), dtype=torch.float32, device=query.device)
        self._lse = torch.empty(splits * heads, dtype=torch.float32, device=query.device)

    def partials(self, splits: int) -> Partials | None:
        """Partials of `splits` splits, contents undefined; None for one split.

        Raises:
            ValueError: more splits than the workspace holds.
        """
        if splits > self.splits:
            raise ValueError(f"the workspace holds {self.splits} splits, not {splits}")
        if splits == 1:
            return None
        rows, heads, head_dim = self._shape
        outputs = self._outputs[: splits * rows * heads * head_dim].view(splits, rows, heads, head_dim)
        return Partials(outputs, self._lse[: splits * rows * heads].view(splits, rows, heads))


def _check_query(operands: Operands) -> None:
    query, gate = operands.query, operands.gate
    if query.dim() != 3 or not query.is_contiguous() or query.dtype not in BITS_16_DTYPES:
        raise ValueError(
            f"query must be [R, HQ, D], bf16 or fp16, contiguous; it is {list(query.shape)}, {query.dtype}"
        )
    head_dim = query.shape[2]
    if head_dim < 16 or head_dim & (head_dim - 1):
        raise ValueError(f"the head dimension must be a power of two from 16 up, not {head_dim}")
    if gate.shape != query.shape or not gate.is_contiguous():
        raise ValueError(f"gate must be {list(query.shape)} and contiguous; it is {list(gate.shape)}")


def _check_cache(operands: Operands) -> None:
    query, keys, values = operands.query, operands.keys, operands.values
    if keys.dim() != 4 or keys.shape != values.shape or keys.shape[3] != query.shape[2]:
        raise ValueError(
            f"keys and values must both be [blocks, page, HK, {query.shape[2]}]; "
            f"they are {list(keys.shape)} and {list(values.shape)}"
        )
    if keys.shape[2] < 1 or query.shape[1] % keys.shape[2]:
        raise ValueError(f"{query.shape[1]} query heads cannot be divided evenly over {keys.shape[2]} KV heads")
    if keys.dtype != values.dtype or keys.dtype not in (query.dtype, *FP8_DTYPES):
        raise ValueError(f"keys and values must be {query.dtype} or fp8; they are {keys.dtype} and {values.dtype}")
    for name, tensor in (("keys", keys), ("values", values)):
        if tensor.stride(3) != 1:
            raise ValueError(f"the last dimension of {name} must be contiguous; its stride is {tensor.stride(3)}")
        if tensor.shape[1] * tensor.stride(1) + tensor.shape[2] * tensor.stride(2) >= 2**31:
            raise ValueError(f"a block of {name} must span fewer than 2^31 elements")


def _check_selection(operands: Operands) -> None:
    rows = operands.query.shape[0]
    indices, table, requests = operands.indices, operands.block_table, operands.token_to_req
    if indices.dim() != 2 or indices.shape[0] != rows or indices.shape[1] < 2:
        raise ValueError(f"indices must be [{rows}, W + 1] with W from 1 up; it is {list(indices.shape)}")
    if table.dim() != 2:
        raise ValueError(f"block_table must be [requests, pages]; it is {list(table.shape)}")
    if requests.shape != (rows,) or (rows and requests.stride(0) != 1):
        raise ValueError(f"token_to_req must be [{rows}] and contiguous; it is {list(requests.shape)}")
    for name, tensor in (("indices", indices), ("block_table", table), ("token_to_req", requests)):
        if tensor.dtype != torch.int32:
            raise ValueError(f"{name} must be int32, not {tensor.dtype}")
    if (rows and indices.stride(1) != 1) or (table.numel() and table.stride(1) != 1):
        raise ValueError("rows of indices and block_table must be contiguous")
