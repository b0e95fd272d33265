"""Weight sync: the policy's weights travel to the rollout engines in buckets, by one state machine over several transports.

bucket      tensors end to end in one piece of memory, with a table of what they are
transport   how a bucket gets from the first train worker to the engines, through memory or files
device      the same from GPU to GPU
ways        which of them a run takes
sender      the train worker's side: gather, send
machine     the controller's side: bucket after bucket
"""
