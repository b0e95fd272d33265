# What to set, in the hints of findings: rlctl/checks/hints.py puts them together.

set-key = set { $key } to { $values }
change-key = change { $key }
remove-key = remove { $key }
either-value = { $first } or { $second }
either-key = { $first }, or { $second }
both-keys = { $first } and { $second }
in-units = { $hint } ({ $units })
keeping-rest = { $hint }; also { $keys }, to keep the rest as it is
did-you-mean = did you mean '{ $name }'?
or-option = { $hint }; or pass { $option }
pass-option = pass { $option }
or-change = { $hint }, or change { $key }
no-single-fix = no value of { $key } alone solves this: change it together with the keys that it has to divide or fit
