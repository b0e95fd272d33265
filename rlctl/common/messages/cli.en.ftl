# What rlctl alone prints, and what to do about an error that gives no advice of its own.

start = rlctl converts, checks and runs RL post-training configs of verl, Trinity-RFT and ROLL. Start here (all commands: rlctl --help):
start-convert = convert a config, with a report on every key
start-check = find mistakes before a run
start-tui = edit configs and monitor runs in the terminal
start-quickstart = train a tiny model on this machine in five minutes

next-usage = { $command } shows the syntax
next-script = pass --trace to run the script in a sandbox instead of parsing it
next-document = correct that place, or choose another file, and run the command again
next-config = rlctl explain KEY shows the values that a key accepts
next-packages = rlctl doctor shows what to install
next-run = rlctl check finds mistakes in the config; rlctl doctor checks the installation

explain-type = type
explain-default = default
explain-no-default = none; it must be set
explain-unit = unit
explain-range = range
explain-secret = secret
explain-secret-how = write it as { $expression }; rlctl never shows or stores it
explain-launch = launch
explain-status-honoured = supported
explain-status-descriptive = recorded only; it doesn't affect the run
explain-status-front-end = used before the run starts
explain-status-noted = ignored
explain-status-refused = not supported
explain-because = { $status }; { $reason }
explain-set = set with
explain-note = note
explain-only = no key of rlctl: it has a meaning only in { $framework }
explain-is = means { $key }
explain-releases = ; in { $releases }
explain-frameworks = in each framework:
explain-others = in other frameworks:
explain-nothing = no key: { $notes }
explain-also = the same name in other options:
explain-options = options:
explain-with = with { $names }
explain-keys = keys:
explain-may-be = { $word } may be:
explain-of-tools = { $word } in { $tools } is:

# rlctl launch

launch-not-started = nothing was started

# rlctl batch

batch-what = what
batch-value = value
batch-unit = unit
batch-formula = formula
batch-key = key
batch-where = where
batch-default = default
batch-stage = stage { $name }

data-operator = operator
data-in = in
data-out = out
data-dropped = dropped by { $operator }
data-kept = kept
data-counted = lengths
data-row-count = rows
data-half = p50
data-most = p99
data-longest = longest
data-prompt-tokens = tokens of a prompt
data-prompt-characters = characters of a prompt
data-sequence-tokens = tokens of a row
data-sequence-characters = characters of a row
data-lengths-exist = { $file } already exists
data-lengths-hint = name another file

# rlctl diff

diff-key = key
diff-from = from
diff-default = default
diff-not-compared = { $file }: keys not compared, because rlctl has no equivalent for them: { $keys }
diff-no-script = --env is for a launch script, and neither { $first } nor { $second } is one
diff-found = { $first } and { $second }: { $count ->
        [0] no difference in meaning
        [one] 1 difference
       *[other] { $count } differences
    }

review-total = { $count ->
        [one] one changed config
       *[other] { $count } changed configs
    }
review-colon = { ": " }
review-fails = { $count } would fail
review-warns = { $count } with new warnings
review-clean = no new problems
review-none = No training config changed.
review-config = config
review-changes = what changes
review-findings = new findings
review-memory = memory per GPU
review-time = step time
review-was = (was { $name })
review-built = (unchanged; it uses { $names })
review-added = new config
review-deleted = deleted
review-unknown = not comparable
review-same = nothing that training reads
review-uncompared = only keys without an effect that rlctl knows
review-and = and { $count } more
review-fixed = { $count } fixed
review-old = { $count } as before
review-overflow = **does not fit**
review-overflow-before = does not fit, as before
review-unread-before = The version before could not be read: { $reason }
review-other-line = { " (unchanged line)" }
review-setting = setting
review-before = before
review-after = after
review-means = in rlctl's words
review-derived = follows from { $key }
review-default = (default)
review-slight = { $count ->
        [one] One change
       *[other] { $count } changes
    } of names, checkpoints or logging
review-not-compared = Changed, but not compared, because rlctl has no equivalent: { $keys }
review-gone = ✅ Fixed: { $findings }
review-more-findings = and { $count } more findings; rlctl check shows them
review-more-settings = And { $count } more settings; rlctl diff shows them.
review-more-configs = And { $count } more configs.
review-more = The changes of { $count } configs are not shown, because the comment would be too long; rlctl review --json has them.
review-skipped = Not reviewed: { $file }: { $reason }
review-more-skipped = and { $count } more files
review-compared = Compared { $head } with { $base }, where the branches parted.
review-cluster = Memory and time are estimates for { $cluster }.
review-no-cluster = Without a cluster (--cluster 1x8:H100) the memory is that of the largest role, and there is no step time.
review-scope = Nothing was run; paths of data and models were not checked.
review-posted = review: { $what }

# the end of a run

end-stage = stage
end-steps = steps
end-evaluation = evaluation before -> after
end-time = time
end-pace = tokens/s
end-phases = by phase
end-finished = finished: { $folder }
end-stopped = stopped before its end: { $folder }
end-failed = failed: { $folder }
end-show = look at it:
end-follow = follow it:
end-resume = resume:
end-weights = weights:
end-hugging-face = { $path }  (Hugging Face format)
end-saved = saved:
end-stages = { $count ->
        [one] stage { $names } finished
       *[other] stages { $names } finished
    }
end-step = step { $step } of { $stage }: { $folder }
end-no-step = { $over }, no step of { $stage } yet; a resumed run starts { $stage }
end-nothing = nothing yet; a resumed run starts from the beginning

# rlctl try

sample-prompt-id = prompt id
sample-source = dataset
sample-prompt = prompt
sample-answer = answer
sample-weight-version = weight version

code-when = { $code }, { $when }
when-start = before the first step
when-engine = when the rollout engine starts
when-load = when the model is loaded
when-generation = at the first rollout
when-rollout = after the first rollout
when-update = at the first update
when-validation = at the first validation
when-sync = at the first weight sync
when-save = at the first save
