# The report of a conversion and the table of findings: headings, words for levels and buckets.

rank-breaks = The run would break
rank-objective = The objective changes
rank-schedule = Schedule and batch
rank-data = Data and reward
rank-resources = Memory and speed
rank-names = Names and files
rank-none = No effect on the run
rank-converted = Converted
rank-written = Written

level-error = error
level-warning = warning
level-note = note

column-where = where
column-level = level
column-code = code
column-what = what

report-failed = { $way }: failed with { $count ->
        [one] one error
       *[other] { $count } errors
    }
report-unreadable = nothing could be read
report-keys = { $way }: { $count ->
        [one] one key
       *[other] { $count } keys
    }
report-shares = { $keys }: { $shares }
report-share = { $count } { $bucket } ({ $share })
keys-several = { $count } keys ({ $names })
keys-section = { $count } keys of { $section }
