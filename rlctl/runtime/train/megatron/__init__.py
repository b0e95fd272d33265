"""The Megatron-core engine: GPT models of Megatron-core behind the interface that the FSDP2 engine has.

cpu_shim       Megatron-core without a GPU
layout         process groups
arguments      the config as Megatron-core's config objects
model          the model's chunks of a worker, with an attention over sequences laid end to end
names, weights Hugging Face weights in and out
head           log-probs, entropy and values over a vocabulary that is shared
engine         the engine itself
checkpointing  its state on disk
"""

import warnings

warnings.filterwarnings("ignore", message="Transformer Engine and Apex are not installed")  # neither is needed
