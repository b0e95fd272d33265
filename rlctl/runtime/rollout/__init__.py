"""Rollout engines: one interface, and the engines behind it. Importing the package loads no engine."""
