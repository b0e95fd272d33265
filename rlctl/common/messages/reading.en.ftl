# What rlctl reports while it reads a config, a list of overrides or a launch script.

## Keys and values

unknown-key = { $framework } has no key '{ $key }'
    .several = { $framework } has none of these { $count } keys: { $names }
    .about = The source framework has no such key.
    .hint = { $near ->
        [none] { "" }
       *[other] did you mean '{ $near }'?
    }

fork = the file is for { $name }, a fork of verl: rlctl does not read { $count } of its keys ({ $names })
    .about = The file has keys of a fork of verl.
    .hint = compare the runs: what these keys set is not in the run that rlctl reads
fork_counts = the file is for { $name }, a fork of verl that counts its batch by '{ $key }'; rlctl does not read its files yet
    .hint = to read it as a run of verl, set { $instead } in a copy without { $name }'s keys ({ $names })

added-key = '+{ $key }' adds a key that { $framework } has already ({ $default }), and Hydra refuses it
    .about = An override adds a key with + although the framework's config has it.
    .hint = { $without ->
        [none] remove the +
       *[other] remove the +, or, if the file is for verl { $without }, which does not have the key, add --from verl@{ $without }
    }

other-engines-key = { $framework } has '{ $key }' only in the config for { $engines }; this run's is for { $engine }, and Hydra refuses the override
    .about = An override sets a key that the framework's config has only for another training engine.
    .hint = remove the override

no-release-key = the config of { $framework } has no '{ $key }', and Hydra refuses to set it without +
    .about = An override sets a key that the framework's config lacks, without +.
    .hint = { $others ->
        [none] write +{ $key }=..., or remove the override
       *[other] remove the override; verl { $others } has this key
    }

unknown-key_canonical = unknown key '{ $key }'
    .hint = { $near ->
        [none] { "" }
       *[other] did you mean '{ $near }'?
    }

key-unread = { $framework } does not read '{ $key }': { $reason }
    .about = The file sets a reward, data or a part of the loss by a key that its framework accepts and does not read.
    .hint = { $instead ->
        [none] remove it
       *[other] set '{ $instead }' instead
    }

hybrid-replicas = separate_async also starts rollout engines on the GPUs that train; rlctl and its plan place rollout on the dedicated GPUs only
    .about = verl's separate_async starts engines on the training GPUs too, which share their memory.
    .hint = with verl 0.9.1, { $hybrid }=false starts none there

other-observations = ROLL's step-wise manager shows the model only the earlier turns whose action was invalid; rlctl shows all earlier turns
    .about = ROLL and rlctl show the model different earlier turns of an environment.

missing-key = '{ $name }' must be set
    .about = A key that has no default is missing.

wrong-type = '{ $key }' is { $value }; it must be { $expected }
    .about = The value has the wrong type.
wrong-type_expression = '{ $key }' is { $value }; it must be { $expected }
    .hint = set what it refers to, or write the value itself
wrong-type_quoted = '{ $key }' is { $value }; it must be { $expected }
    .hint = remove the quotes

out-of-range = '{ $key }' is { $value }; it must be { $expected }
    .about = The value is outside its range.
out-of-range_devices = 'placement.nodes' { $nodes } * 'placement.devices_per_node' { $each } = { $total } devices; a run has at most { $most }

unknown-value = '{ $key }' is { $value }; it must be one of { $expected }
    .about = The value is not one of those that the key can have.
    .hint = { $near ->
        [none] { "" }
       *[other] did you mean '{ $near }'?
    }
unknown-value_untagged = '{ $key }' has no '{ $tag }'; it must be one of { $expected }
unknown-value_option = '{ $key }' has { $tag } { $value }; it must be one of { $expected }
    .hint = { $near ->
        [none] { "" }
       *[other] did you mean '{ $near }'?
    }

schema-version = this file has schema version { $version }; this rlctl reads { $expected }
    .about = The file was written for another version of rlctl's schema.

read-from = { $message } (from '{ $source }')

bad-value = '{ $key }' is { $value }; expected { $expected }
    .about = A value has the wrong type, or is outside its range.
bad-value_reason = '{ $key }' { $reason }

unresolved = '{ $key }' cannot be resolved: { $reason }
    .about = An expression such as ${ "{" }oc.env:NAME{ "}" } has no value on this machine.
    .hint = set the variable, or give a default: ${ "{" }oc.env:NAME,default{ "}" }; for a launch script give --env NAME=VALUE
unresolved_key = '{ $key }' is { $value }, which cannot be resolved: { $reason }
    .hint = name a key that exists, or write the value

missing-value = '{ $key }' is ???, so it must be given a value
    .about = The value is ???, Hydra's mark for a value that must be given.
    .hint = set { $key }

interpolation-resolved = '{ $key }: { $value }' is replaced by its value, because the key that it refers to has no single counterpart in rlctl
    .several = { $count } references are replaced by their values, because the keys that they refer to have no single counterpart in rlctl: { $names }
    .about = A reference to another key is replaced by its value; changing the other key no longer changes this one.
interpolation-resolved_unwritten = '{ $key }' is written as its value { $value }, because '{ $other }', which it refers to, is not written
interpolation-resolved_changed = '{ $key }' is written as its value { $value }, because '{ $other }', which it refers to, is written differently

secret = '{ $key }' contains a plaintext secret; rlctl replaces it with { $expression }
    .about = A key, token or password is written in the file. rlctl never copies it.
    .hint = export { $variable } before the run, and remove the secret from the file
secret_script = ${ $variable } is set to a secret in the script; rlctl writes { $expression } and shows its value nowhere
    .hint = export { $variable } before the run, and remove it from the script
secret_carried = '{ $key }' contains a secret, which rlctl never copies to another file
    .hint = set it again in the target
secret_written = '{ $key }' is a secret; rlctl writes { $expression }
    .hint = export { $variable } before the run

restored = { $count ->
        [one] one value comes
       *[other] { $count } values come
    } from the keys that an earlier conversion kept at the end of the file: { $keys }
    .about = Values that an earlier conversion kept as comments are used again.
restored_replacing = { $count ->
        [one] one value comes
       *[other] { $count } values come
    } from the keys that an earlier conversion kept at the end of the file: { $keys }. They replace { $replaced }, which that conversion wrote

not-restored = '{ $key }' is kept at the end of the file but not used: { $reason }
    .about = A value that an earlier conversion kept as a comment no longer fits the file.
not-restored_changed = '{ $key }' is kept at the end of the file but not used, because '{ $other }' has changed since

unknown-dialect = '{ $key }' names a framework that is not installed; expected one of { $known }
    .about = The file keeps keys of a framework that rlctl does not know.
    .hint = { $near ->
        [none] install its adapter to convert these keys back; rlctl keeps them until then
       *[other] did you mean '{ $near }'?
    }

## Which framework and release

detected = read as { $framework }: { $reason }
    .about = Why rlctl reads the file as this framework and release.

other-release = { $count ->
        [one] one key belongs to a different release than { $release }; rlctl reads it as that release does
       *[other] { $count } keys belong to different releases than { $release }; rlctl reads them as those releases do
    }
    .about = The file has keys of a different release than the one it is read as.

nearest-release = rlctl does not have { $asked }; { $release }, the nearest release that it has, is used
    .about = The release that was asked for is newer than rlctl, a development version, or one of a fork.

release-assumed = rlctl assumed { $framework } { $release }, the newest release that has and reads these keys
    .about = No release is named with --from, so that the keys of the file decide.
release-assumed_key = rlctl assumed { $framework } { $release }, because { $newer } does not have or does not read '{ $key }'
    .option = if it is for a newer release, name it: { $option }
release-assumed_word = rlctl assumed { $framework } { $release }, because '{ $key }' is written as before { $newer }
    .option = if it is for a newer release, name it: { $option }

releases-differ = the keys also fit { $framework } { $release }, which has other defaults: { $differences }
    .about = The file fits two releases of its framework whose defaults differ.
    .option = if it is for { $framework } { $release }, add { $option }

tools-unused = '{ $key }' has no effect: '{ $loop }' is single_turn_agent, which uses no tools. Only rows whose agent_name is tool_agent use them
    .about = The config enables several turns with tools, but verl runs an agent loop that has neither.
    .hint = set { $loop } to tool_agent; rows with an agent_name column choose their own loop

newer-ignores = left as '{ $key }', { $framework } { $since } and newer would { $effect }
    .about = The newer release would ignore or refuse this key of the older one.
    .hint = { $written ->
        [yes] the conversion report shows what it became
       *[no] nothing in this release does the same
    }

unreadable = { $reason }
    .about = The file could not be read.
    .hint = { $advice }
unreadable_empty = the file contains nothing that rlctl can read

## Launch scripts and config lists

launch = rlctl { $traced ->
        [yes] ran the script in isolation
       *[no] read the script without running it
    }; it starts { $program } ({ $framework })
    .about = Which program of which framework the script starts.

base-config = the command starts from { $file }
    .about = The command starts from this config file.

shipped-config = '{ $config }' comes with { $framework }, so unset keys have { $framework }'s defaults
    .about = The config is part of the framework; its values are the framework's defaults.

composed-config = Hydra composed this config; { $file } says which { $count } keys were written, the others are defaults
    .about = A config that Hydra wrote for a run; the overrides next to it list the keys that were set on purpose.

environment = rlctl used the values of these script variables in this environment, or else the script's defaults, because their keys take no strings: { $variables }
    .about = Variables of the script that rlctl resolved with this machine's environment.
environment_sandbox = the sandbox doesn't pass { $variables } from your environment to the script
    .hint = --env { $variable }=VALUE passes a variable

exports = the script sets { $variables } for its programs; they are not part of the config
    .about = Environment variables that the script sets for the run.
    .hint = set them where the run starts

unset = { $case ->
        [value] ${ $variable } is not set; the command uses it for { $keys }
       *[word] ${ $variable } is not set, so the command gets nothing in its place
    }{ $source ->
        [none] { "" }
       *[other] {" "}('{ $source }' may set it)
    }
    .about = A variable of the script is not set on this machine.

resume-latest = { $key } is '{ $mode }', which verl does not name: it resumes from the latest checkpoint, and fails without one
    .about = verl resumes by auto, disable or resume_path; its PPO takes any other word for the latest checkpoint.
    .hint = set it to auto, which starts from scratch if there is no checkpoint

run-name = { $key } is known only when the script runs: { $reason }. rlctl uses '{ $value }'
    .about = A name or an output folder that the script computes when it runs.
    .hint = { $key }=NAME after the script's name sets it

lost-overrides = { $why ->
        [comment] the comment in line { $line } ends the command
        [blank] the blank line { $line } ends the command
       *[backslash] line { $line } has no backslash at its end, which ends the command
    }, so the trainer does not get { $count ->
        [one] { $words }
       *[other] { $count } settings: { $words }
    }
    .about = Lines after the end of a command look like its overrides; bash runs each as a separate command.
    .hint = { $why ->
        [comment] move the comment above the command
        [blank] remove the blank line
       *[backslash] end the line with a backslash
    }

option = { $program } gets the option '{ $word }', which rlctl does not read
    .about = An option or argument of the command that rlctl does not read.
option_word = { $program } gets '{ $word }', which is neither an option nor key=value

option-left = { $canonical } is not used, because --set selects another { $choice }
    .about = The file sets a key of an option that --set has replaced by another one.

set = { $reason }
    .about = A value that --set or the command line gives cannot be used.
    .hint = { $advice }
