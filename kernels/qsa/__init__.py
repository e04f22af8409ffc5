"""QSA: sparse paged attention with grouped queries, split over programs and merged.

Per layer, an indexer has selected some 2,000 tokens for every row (query position). Each row's query heads attend to
these tokens alone, which lie scattered over the pages of a KV cache. The tokens of a row are divided among several
programs; a second kernel merges their partial outputs and applies the output gate. How many programs, how wide a tile
and how many warps is read from a table by the number of rows.
"""
