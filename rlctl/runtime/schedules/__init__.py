"""Rollout response by response: prompts under way, what may be begun, and groups handed on as they finish."""
