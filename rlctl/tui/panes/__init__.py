"""The tabs of the monitor, one a module: each shows one side of a run."""
