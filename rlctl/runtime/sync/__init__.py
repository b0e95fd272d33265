"""Weight sync: the policy's weights travel to the rollout engines in buckets, by one state machine over several transports.

bucket      tensors end to end in one piece of memory, with a table of what they are
transport   how a bucket gets from the first train worker to the engines
sender      the train worker's side: gather, pack, send
receiver    the engine's side: receive, check, load
machine     the controller's side: begin, bucket after bucket, commit
"""
