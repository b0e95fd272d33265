"""What all dialects share: rules, tables, and how they are read and written."""
