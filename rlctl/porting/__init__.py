"""Moving a whole run to another framework: its rows, its reward, its launch.

    reading.py   rows of files and folders, a batch at a time, each with its place
    rows.py      one row of any layout -> messages, answer, source: or the reason why it is none
    columns.py   such a row -> the columns that a framework reads
    writing.py   files of rows -> files of another layout, every row counted
    mapping.py   the run's own files, read where they are: the target names their columns
    sampling.py  some rows of a file, unchanged
    folder.py    a folder that is there whole or not at all

Rows need pyarrow for Parquet files only; nothing here imports torch, and nothing runs a user's code.
"""
