"""The pack kernel: partial outputs and LSEs into one send buffer, optionally masking empty rows on the way.

One program copies some adjacent heads of one row. All of its loads are issued before its first store, so that they are
in flight together; the metadata search hides behind the payload's loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton
import triton.language as tl

from profkit.kernels.dcp.heads import access_width, head_elements
from profkit.kernels.dcp.layout import Layout, buffer_shape, check_buffer, check_floats, check_layout, pack_dim
from profkit.kernels.dcp.live import row_is_live
from profkit.kernels.dcp.mask import check_metadata


# Everything that changes with the number of rows or requests is kept out of the specialisation: otherwise a kernel is
# compiled anew for row counts that are 1 or divisible by 16. Alignment of the small arrays buys nothing.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=[
        "num_rows",
        "num_seqs",
        "out_stride_row",
        "out_stride_head",
        "out_stride_dim",
        "lse_stride_row",
        "lse_stride_head",
    ],
    do_not_specialize_on_alignment=["lse_ptr", "seq_lens_ptr", "query_start_loc_ptr", "row_mask_ptr"],
)
def pack_kernel(
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    send_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    query_start_loc_ptr: tl.tensor,
    row_mask_ptr: tl.tensor,
    num_rows: tl.tensor,
    num_seqs: tl.tensor,
    out_stride_row: tl.tensor,
    out_stride_head: tl.tensor,
    out_stride_dim: tl.tensor,
    lse_stride_row: tl.tensor,
    lse_stride_head: tl.tensor,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    LSE_SLOTS: tl.constexpr,
    CHUNK_WIDTH: tl.constexpr,
    HEAD_STRIDE: tl.constexpr,
    LSE_PLANE: tl.constexpr,
    MASK: tl.constexpr,
    NUM_SEQS_POW2: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    DIM_CONTIGUOUS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    EVICT: tl.constexpr,
    STORE_CACHE: tl.constexpr,
) -> None:
    """One row and BLOCK_HEADS of its N * HEADS heads; a row's programs are adjacent.

    MASK is ``"none"``, ``"fused"`` (search seq_lens and query_start_loc) or ``"row"`` (read row_mask).
    For the strides of out see `head_elements`. CHUNK_WIDTH, HEAD_STRIDE and LSE_PLANE are the buffer's `Layout`.
    """
    BLOCKS: tl.constexpr = (N * HEADS + BLOCK_HEADS - 1) // BLOCK_HEADS
    row = (tl.program_id(0) // BLOCKS).to(tl.int64)
    source_head = (tl.program_id(0) % BLOCKS) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    present = source_head < N * HEADS
    rank = (source_head // HEADS).to(tl.int64)
    dim = tl.arange(0, D)

    elements = head_elements(
        out_ptr, row, source_head, out_stride_row, out_stride_head, out_stride_dim, D, OUT_VECTOR, DIM_CONTIGUOUS
    )
    payload = tl.load(elements, mask=present[:, None], eviction_policy=EVICT)
    lse_source = lse_ptr + row * lse_stride_row + source_head.to(tl.int64) * lse_stride_head
    lse = tl.load(lse_source, mask=present, other=0.0).to(tl.float32)

    if MASK == "fused":
        live = row_is_live(row, seq_lens_ptr, query_start_loc_ptr, num_seqs, NUM_SEQS_POW2)
        lse = tl.where(live, lse, float("-inf"))
    elif MASK == "row":
        empty = tl.load(row_mask_ptr + row).to(tl.int32)
        lse = tl.where(empty > 0, float("-inf"), lse)

    # Which of its chunk's R * h heads each one is.
    index = row * HEADS + source_head % HEADS
    chunk = rank * (num_rows.to(tl.int64) * (HEADS * CHUNK_WIDTH))
    target = send_ptr + chunk + index * HEAD_STRIDE
    tl.store(target[:, None] + dim[None, :], payload, mask=present[:, None], cache_modifier=STORE_CACHE)

    words_ptr = send_ptr.to(tl.pointer_type(tl.float32), bitcast=True)
    if LSE_PLANE:
        word = num_rows.to(tl.int64) * (HEADS * D // LSE_SLOTS) + index
    else:
        word = index * (HEAD_STRIDE // LSE_SLOTS) + D // LSE_SLOTS
    tl.store(words_ptr + chunk // LSE_SLOTS + word, lse, mask=present)


@dataclass(frozen=True)
class PackConfig:
    """How the pack kernel is launched; results do not depend on it.

    Args:
        heads: of one row that a program copies, a power of two.
        warps: of a program.
        evict: the eviction policy of the payload's loads.
        store_cache: the cache modifier of the payload's stores.
    """

    heads: int
    warps: int
    evict: Literal["", "evict_first"] = ""
    store_cache: Literal["", ".cg", ".cs"] = ""


def default_config(head_dim: int, layout: Layout) -> PackConfig:
    """What measured best on an H200 with heads of 512; as many elements a warp for others.

    See docs/results/dcp-combine-h200.md.
    """
    match layout:
        case Layout.INTERLEAVED:
            # The least for whole combines: what is stored stays in L2 for the exchange, what was loaded need not.
            return PackConfig(4, _warps(4 * head_dim, 1024), "evict_first", ".cg")
        case Layout.PLANAR:
            # The least for pack alone and behind an eager mask; the exchange behind it pays for the streaming stores.
            return PackConfig(8, _warps(8 * head_dim, 4096), "evict_first", ".cs")
        case Layout.PADDED:
            # The least for a whole combine with the fused mask; hints make pack dearer here.
            return PackConfig(8, _warps(8 * head_dim, 4096))


def _warps(elements: int, elements_a_warp: int) -> int:
    return max(1, min(8, elements // elements_a_warp))


def pack(
    out: torch.Tensor,
    lse: torch.Tensor,
    send: torch.Tensor,
    seq_lens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    row_mask: torch.Tensor | None = None,
    *,
    layout: Layout = Layout.INTERLEAVED,
    config: PackConfig | None = None,
) -> None:
    """Pack partial outputs and LSEs into `send`: one kernel, or none where there are no rows.

    The payload of an empty row is copied as it is; only its LSE becomes -inf. `lse` itself is not changed.

    Args:
        out: ``[R, H, D]``, fp16, bf16 or fp32, any strides, D a power of two from 2 up.
        lse: ``[R, H]``, fp16, bf16 or fp32, any strides.
        send: ``[N, R, H / N, W]``, contiguous, dtype of `out` (see `layout.buffer_shape`).
        seq_lens: ``[S]`` int32: mask rows by searching the metadata inside the kernel. With `query_start_loc`.
        query_start_loc: ``[S + 1]`` int32.
        row_mask: ``[R]`` bool, True where empty: mask by this instead.
        layout: of `send`.
        config: how to launch the kernel; None for `default_config`.

    Raises:
        ValueError: shapes, dtypes, strides or alignment that do not fit, or both kinds of mask.
    """
    grid, arguments, constants = pack_arguments(
        out, lse, send, seq_lens, query_start_loc, row_mask, layout=layout, config=config
    )
    if out.shape[0] == 0:
        return
    pack_kernel[grid](*arguments, **constants)


def pack_arguments(
    out: torch.Tensor,
    lse: torch.Tensor,
    send: torch.Tensor,
    seq_lens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    row_mask: torch.Tensor | None = None,
    *,
    layout: Layout = Layout.INTERLEAVED,
    config: PackConfig | None = None,
) -> tuple[tuple[int, int, int], tuple[Any, ...], dict[str, Any]]:
    """The grid, the checked positional arguments, and the constants and launch options of `pack_kernel`; see `pack`."""
    fused = check_metadata(seq_lens, query_start_loc)
    _check_tensors(out, lse, send, row_mask, layout)
    if fused and row_mask is not None:
        raise ValueError("give either seq_lens and query_start_loc or row_mask, not both")
    rows, num_heads, head_dim = out.shape
    ranks, _, heads, _ = send.shape
    config = config or default_config(head_dim, layout)
    block_heads = min(config.heads, triton.next_power_of_2(num_heads))
    num_seqs = seq_lens.numel() if seq_lens is not None else 0
    stride_row, stride_head, stride_dim = out.stride()
    vector = access_width(out, layout.alignment(heads, head_dim, out.dtype))
    arguments = (
        *(out, lse, send, seq_lens, query_start_loc, row_mask),
        *(rows, num_seqs, stride_row // vector, stride_head // vector, stride_dim),
        *lse.stride(),
    )
    constants = {
        "N": ranks,
        "HEADS": heads,
        "D": head_dim,
        "LSE_SLOTS": pack_dim(out.dtype),
        "CHUNK_WIDTH": layout.chunk_width(head_dim, out.dtype),
        "HEAD_STRIDE": layout.head_stride(head_dim, out.dtype),
        "LSE_PLANE": layout is Layout.PLANAR,
        "MASK": "fused" if fused else "row" if row_mask is not None else "none",
        "NUM_SEQS_POW2": triton.next_power_of_2(max(num_seqs, 1)),
        "OUT_VECTOR": vector,
        "DIM_CONTIGUOUS": stride_dim == 1,
        "BLOCK_HEADS": block_heads,
        "EVICT": config.evict,
        "STORE_CACHE": config.store_cache,
        "num_warps": config.warps,
    }
    return (rows * triton.cdiv(num_heads, block_heads), 1, 1), arguments, constants


def _check_tensors(
    out: torch.Tensor, lse: torch.Tensor, send: torch.Tensor, row_mask: torch.Tensor | None, layout: Layout
) -> None:
    if out.dim() != 3 or send.dim() != 4:
        raise ValueError(f"out must be [R, H, D] and send [N, R, h, W]; they are {out.dim()}-D and {send.dim()}-D")
    check_layout(layout)
    check_floats(out, "out")
    check_floats(lse, "lse")
    rows, num_heads, head_dim = out.shape
    if head_dim < 2 or head_dim & (head_dim - 1):
        raise ValueError(f"the head dimension must be a power of two from 2 up, not {head_dim}")
    if lse.shape != (rows, num_heads):
        raise ValueError(f"lse is {list(lse.shape)}; for this out it must be [{rows}, {num_heads}]")
    check_buffer(send, "send", buffer_shape(send.shape[0], rows, num_heads, head_dim, out.dtype, layout), out.dtype)
    if row_mask is not None and (row_mask.shape != (rows,) or row_mask.dtype != torch.bool or row_mask.stride(0) != 1):
        raise ValueError(
            f"row_mask must be [{rows}], bool and contiguous; it is {list(row_mask.shape)}, {row_mask.dtype}"
        )
