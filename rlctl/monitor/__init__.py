"""What a run tells, as it grows: its events read bit by bit, metrics by step, phases, samples, and what to worry about.

Only the run folder is read, and only what is new; nothing is ever asked of the run. Front ends show what is here.

    log         the whole lines of events.jsonl that are new
    metrics     the metrics of steps as columns, thinned and smoothed for a plot
    phases      what a run does now, for how long, and how long that usually takes
    samples     which step's responses are where in the file, read when they are looked at
    advisories  what looks wrong, in plain words, with what to try
    watching    all of it for one run: poll, and look
"""
