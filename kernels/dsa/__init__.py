"""Candidate blocks of DeepSeek sparse attention (DSA): choosing them, and masking the logits of all other blocks.

The indexer scores every cached token of a row. One layer picks the blocks of tokens that score highest and stores their
numbers, the candidates; the layers after it set the logits outside these blocks to -inf before their own top-k. The
logits are as wide as the longest context that the model serves, and the live part is often a thousandth of that.
"""
