"""Decode context parallelism: combining the partial attention of the ranks that share one KV cache.

Per MLA layer, a rank masks the log-sum-exp (LSE) of rows whose local KV shard is empty, packs its partial output and
LSE into one send buffer, exchanges it with the other ranks, and combines what it received. The mask exists in two
forms here: eight eager kernels, and a few instructions inside the pack kernel.
"""
