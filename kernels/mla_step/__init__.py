"""A decode step of multi-head latent attention (MLA) layers, under decode context parallelism (DCP).

Real projections and a real attention over one rank's share of the KV cache around the combine of `profkit.kernels.dcp`:
the background before which a saving in the combine is seen at its true share.
"""
