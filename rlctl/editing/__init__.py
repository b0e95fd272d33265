"""A config that a person edits: its values and what is known of them, undo, checks, previews, and saving in its own dialect.

An editor shows what is here and calls it; nothing here knows a terminal.

    session    a config in any dialect: change, undo, check, preview, save
    fields     every value of a config as a line of a form: section, help, type, default, where it was written
    values     a value as text in a field, and back
    saving     the text that a change makes of a file, which leaves everything else in it as it was
    recovery   what was changed and not saved, kept for the next start
"""
