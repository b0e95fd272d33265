"""The constants of estimates that are fitted to measurements; nothing else in an estimate is.

``benchmarks/estimates.py`` fits those of memory, ``benchmarks/step_times.py`` those of time; both print the errors, in sample
and with each source left out. They are read as attributes of this module, so that these can change them.
"""

from __future__ import annotations

USABLE = 0.95
"""Share of a device's memory that estimates may fill: the CUDA context, NCCL and fragments need the rest."""
FRAGMENTS = 0.1
"""What training without expandable segments leaves unused between tensors, as a share of what a pass allocates."""
MEAN_LENGTH = 0.185
"""Length of the other sequences of a packed micro-batch, as a share of the longest."""
FROZEN_COPY = 1.9
"""Bytes that FSDP1 holds for each frozen weight of its shard, in addition to it, while several devices train adapters."""
TRAINING = 0.35
"""Share of a GPU's arithmetic that matrix products of training and prefill reach."""
DECODING = 0.3
"""Share of a GPU's memory bandwidth that decoding reaches."""
LAUNCH = 3.2e-4
"""Seconds to launch the kernels of a dense layer in a forward pass."""
LINK = 0.45
"""Share of the bandwidth between devices, and between a device and its host, that exchanges reach."""
