"""Launch scripts: read statically, or run in isolation where that is not enough."""
