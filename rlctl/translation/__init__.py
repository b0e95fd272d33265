"""From any framework's config to any other's, every key accounted for: what a front end calls."""
