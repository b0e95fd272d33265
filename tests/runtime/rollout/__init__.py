"""Tests of the rollout engines."""
