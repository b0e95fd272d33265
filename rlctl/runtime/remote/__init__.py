"""Files at URLs (fsspec): what a config names is brought here, checkpoints are copied there and back."""
