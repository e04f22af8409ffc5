"""What `profkit sweep qsa-attention` varies, and the problems that it does so on. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from profkit.model.workload import Parameter, ShapeValue

BLOCK_N = (32, 64, 128)
SPLITS = (1, 2, 4, 8, 16, 32, 64)
WARPS = (1, 2, 4, 8)

PARAMETERS = {
    "block_n": Parameter(BLOCK_N, "selected tokens in a tile"),
    "splits": Parameter(SPLITS, "programs that share a row's tiles, at most one a tile"),
    "warps": Parameter(WARPS, "warps a program"),
}

#: (Row, KV head) pairs, in decode. First one of every region of the tables, mostly its upper bound, which captured
#: batch sizes hit; with the two past the last bound, in decode and prefill, these come first, so that a sweep that is
#: stopped early has seen every region. Then sizes between the bounds. With one KV head 512 are the 128 requests of 4
#: rows that the sm_90 table was tuned on, 4 and 16 its 1 and 4 requests of 4 rows.
PAIRS = (4, 32, 64, 128, 256, 512, 2048)
MANY_PAIRS = 3072
PAIRS_BETWEEN = (16, 48, 96, 192, 384, 1024)

#: Query heads a KV head, and the page size that goes with them: 3 and 6 are 8 and 4 ranks, 12 is 1 or 2.
GROUP_PAGES = {3: 784, 6: 784, 12: 1568}
KV_HEADS = (1, 2)
DTYPES = ("bf16", "fp8")

#: Rows of one request in decode (one token and three drafts) and in a chunk of a prefill.
DECODE_ROWS = 4
PREFILL_ROWS = 1024


def _regions() -> Iterator[tuple[str, Mapping[str, ShapeValue]]]:
    first = [*(("r", pairs, "decode") for pairs in (*PAIRS, MANY_PAIRS)), ("r", MANY_PAIRS, "prefill")]
    for start, pairs, mode in (*first, *(("between-r", pairs, "decode") for pairs in PAIRS_BETWEEN)):
        for group, page in GROUP_PAGES.items():
            for kv_heads in KV_HEADS:
                for dtype in DTYPES:
                    rows = pairs // kv_heads
                    name = f"{start}{rows}-g{group}-kv{kv_heads}-{dtype}{'-prefill' if mode == 'prefill' else ''}"
                    yield (
                        name,
                        {
                            "rows": rows,
                            "rows_per_request": DECODE_ROWS if mode == "decode" else PREFILL_ROWS,
                            "q_heads": group * kv_heads,
                            "kv_heads": kv_heads,
                            "dtype": dtype,
                            "page": page,
                            "mode": mode,
                            "layers": 1,
                        },
                    )


#: Name to shapes, such as ``r4-g12-kv1-bf16``: 4 rows, 12 query heads a KV head, 1 KV head. ``r*`` are the 108 with one
#: size in each region of the tables.
SWEPT = dict(_regions())
