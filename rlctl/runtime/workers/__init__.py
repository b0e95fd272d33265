"""The worker classes, one a file: each is plain, knows nothing of Ray, and does one role's part in one process."""
