# The report of a conversion and the table of findings: headings, words for levels and buckets.

rank-breaks = The run would break
rank-objective = The objective changes
rank-schedule = Schedule and batch
rank-data = Data and reward
rank-resources = Memory and speed
rank-names = Names and files
rank-reading = How rlctl read the file
rank-none = No effect on the run
rank-converted = Converted
rank-written = Written

level-error = error
level-warning = warning
level-note = note

report-failed = { $way }: failed with { $count ->
        [one] one error
       *[other] { $count } errors
    }
report-unreadable = nothing could be read
report-keys = { $way }: { $count ->
        [one] one key
       *[other] { $count } keys
    }: { $shares }

share-converted = { $count } converted
share-rounded = { $count } rounded
share-lost = { $count } without an equivalent in { $target }
share-kept = { $count } only for { $source }
share-ignored = { $count } ignored by { $source } itself
share-unknown = { $count } unknown to { $source }

part-decide = Decide before you train
part-changes = Training changes
part-computed = Computed

entry-unknown = { $source } has no such key{ $near ->
        [none] { "" }
       *[other] ; { $near }
    }

rest = Also { $counts } (-v lists them)
rest-lost = { $count ->
        [one] One key
       *[other] { $count } keys
    } without an equivalent in { $target }, with an effect only on memory, speed or names: { $keys }
rest-carried = { $count ->
        [one] one key
       *[other] { $count } keys
    } that only { $source } reads
rest-dead = { $count ->
        [one] one key
       *[other] { $count } keys
    } that { $source } itself ignores
rest-defaults = { $count ->
        [one] one default
       *[other] { $count } defaults
    } of { $source } written explicitly
rest-notes = { $count ->
        [one] one note
       *[other] { $count } notes
    }

origin-mapped = copied
origin-derived = computed
origin-defaulted = default of the source
origin-assumed = assumed
origin-carried = kept from an earlier conversion

data-guide = { $hint } (a script that does it: { $url })

convert-wrote = wrote { $file }
convert-refused = Nothing was written (--on-loss error): keys would be lost, or training would change.
convert-next = next: { $command }
convert-next_stdout = next: write it to a file with -o { $file }, then { $command }
convert-next_refused = next: change the keys above in the source, or write the file anyway with --on-loss warn

check-errors = { $count ->
        [one] one error
       *[other] { $count } errors
    }
check-warnings = { $count ->
        [one] one warning
       *[other] { $count } warnings
    }
check-clean = no problems found
check-run-by = { $release }, run by { $runner }
check-ignored = { $count ->
    [one] One finding
   *[other] { $count } findings
} ignored: { $codes }
check-notes = { $count ->
        [one] One note
       *[other] { $count } notes
    } (rlctl check -v)
check-runtime = Only for rlctl launch ({ $framework } itself reads these keys; keep them if { $framework } runs the config)
check-none = none of the files is a config
check-skipped = skipped: { $file }: { $reason }
place-line = line { $line }
name-place = { $name } (line { $line })
in-stages = { $count ->
        [one] stage
       *[other] stages
    } { $names }: { $message }
separator = { ", " }
name-separator = { ", " }
semicolon = { "; " }
and-more = , and { $count } more
keys-several = { $count } keys ({ $names })
keys-section = { $count } keys of { $section }

folder-written = converted
folder-losses = converted with losses
folder-skipped = skipped
folder-failed = failed
folder-files = { $count ->
        [one] one file
       *[other] { $count } files
    }: { $counts }
folder-none = the folder is empty

# What a check looked at
check-checked = checked: { $subjects }
check-unchecked = not checked: { $subjects }
scope-separator = { "; " }
scope-unchecked = { $name } ({ $reason })
scope-config = keys, batches, devices, algorithm, paths
scope-requirements = what this release refuses
scope-rewards = reward code
scope-columns = data columns
scope-lengths = lengths of rows
scope-memory = memory
scope-here = this machine and its services
unchecked-release = rlctl has not read the source of { $value }
unchecked-absent = the files are not all on this machine
unchecked-remote = not all of them are local files
unchecked-format = rlctl cannot read the columns of one of the files
unchecked-custom = the dataset class is your own code
unchecked-lengths = pass --data
unchecked-cluster = pass --cluster, such as 1x8:H100
unchecked-shape = rlctl does not know the size of the model
