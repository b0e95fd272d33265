"""``rlctl tui``: edit a run's config and watch runs, in the terminal.

The app shows what ``editing`` and ``monitor`` know and calls them; a screen is a file in ``screens``, a part of one a file in
``widgets``. What takes long runs in a thread and comes back as a message, so that a key never waits.
"""
