# What rlctl reports about a conversion.

unsupported = '{ $key }' has no equivalent in the target: { $reason }
    .about = The target framework cannot express this key or value.

no-equivalent = '{ $key }': rlctl launch ignores this key, because rlctl has no such setting: { $reason }
    .several = { $names }: rlctl launch ignores these keys, because rlctl has no such settings: { $reason }
    .about = rlctl launch ignores this key of verl, Trinity-RFT or ROLL, which may change the results.
    .hint = run the file with its own framework if you need this key, or remove it

assumed = '{ $key }: { $value }' is assumed: { $reason }
    .about = The source lacks a value that the target needs; rlctl assumes one. --assume supplies it.
    .hint = { $fact ->
        [none] { "" }
       *[other] state { $fact }
    }
assumed_script = { $reason }

environment-fixed = '{ $key }: { $value }' was computed from environment variables; it doesn't follow them anymore
    .about = A value computed from environment variables is written as a number.

silent-difference = { $reason }
    .about = The source framework and the target do something differently although no key of the source sets it.
silent-difference_default = { $reason } ({ $values })
silent-difference_engine = { $role }.engine is { $engine }, but { $framework } runs every role on the policy's engine, so { $role } uses { $policy } with its parallel sizes. Results don't change
mini-batch-within-step = a mini-batch of { $mini } responses is written as { $step }, the responses of a step, because verl refuses a larger one

other-reward = { $target } scores otherwise, so the same response can get another reward. { $source } reads { $ours }. { $target } reads { $theirs }
    .about = The target scores responses with another rule than the source.
    .hint = { $guide ->
        [none] to keep the source's rule, write it as your own reward of { $target }
       *[other] to keep the source's rule, write it as your own reward of { $target } ({ $guide })
    }

rows-counted = rlctl counted { $count } rows in the training data, from which epochs become steps
    .about = The schedule counts epochs, and the training data is in local files whose rows can be counted.
    .option = if overlong prompts are dropped or the run reads other files, state the number: { $option }

target-refuses = { $framework } refuses the written config: { $reason } ({ $source })
    .about = The target's own checks refuse the converted config.
    .hint = { $advice }

not-readable = rlctl cannot read the { $framework } config that it wrote: { $reason }
    .about = rlctl wrote a config that it cannot read back.
    .hint = check the values that the message names, and please report it

not-carried = { $count ->
        [one] one key that the target can't express was discarded, as requested
       *[other] { $count } keys that the target can't express were discarded, as requested
    }
    .about = Keys that the target can't express are not kept, so converting back will not restore them.
not-carried_list = { $count ->
        [one] one key that the target can't express is not kept, because a list of overrides has no comments
       *[other] { $count } keys that the target can't express are not kept, because a list of overrides has no comments
    }

not-expressible = { $reason }
    .about = The target can't express the config at all.
    .hint = { $advice }

## verl

devices-shared = verl trains and generates on all { $devices } devices, which share their memory; the source trains on { $trains } of them only
    .about = verl shares all devices between training and rollout.

devices-uneven = verl stops at a mini-batch of { $mini } responses on { $replicas } replicas, because it doesn't divide evenly
    .about = verl refuses a mini-batch that isn't divisible by the number of replicas.
    .hint = { $more ->
        [none] use { $fewer } devices
       *[other] use { $fewer } devices, or { $more }
    }

other-trainer = the source starts { $was }, but rlctl writes verl.trainer.main_ppo, which { $does }
    .about = The converted config runs with a different verl trainer than the source.
    .hint = to run rollout ahead of training, convert with --to verl@0.9 and give rollout whole nodes
other-trainer_mode = the source starts { $was }, but rlctl writes verl.trainer.main_ppo with { $key } { $mode }, which { $does }
    .hint = compare the staleness of both runs

## Data and rewards

data-columns = { $framework } reads { $expected }; { $found }
    .about = The target reads different data columns than the source has.
    .hint = { $advice }

data-columns_nested = { $framework } reads top-level columns only; the answer is inside another column, as { $nested }
    .hint = write it into a separate column, such as { $column }, and name that column

data-files = { $framework } reads files that end in { $endings }, but the data is { $path }
    .several = { $framework } reads files that end in { $endings }, but the data is { $names }
    .about = The target reads different files than the source has.
    .hint = { $advice }
data-files_validation = verl opens data.val_files at the start, even if it never evaluates, but the config names no such file
    .hint = set data.val_files to a file of prompts

data-files_folder = Trinity-RFT opens data with load_dataset, which takes a folder or a dataset's name and fails on single files: { $path }
    .several = Trinity-RFT opens data with load_dataset, which takes a folder or a dataset's name and fails on single files: { $names }
    .hint = put each file into a separate folder, and name the folder

other-environment = { $reason }
    .about = The target cannot play the source's environments; its run does something different.
    .hint = { $advice }

other-data-and-reward = { $reason }
    .about = The target does not read the same rows as the source, or scores them differently.
    .hint = write each row as a question and an answer, and name a reward in default_reward_fn_type (math_boxed_reward, countdown_reward, ...) or your own workflow in default_workflow_type

cut-responses-masked = Trinity's { $workflow } does not train on truncated responses; the source does, with the overlong penalty if it has one
    .about = Trinity's workflow masks truncated responses.

uncallable-reward = { $workflow } cannot call { $reward }: their arguments differ, so every task raises a TypeError
    .about = Trinity's workflow cannot call this reward function.
    .hint = { $fits ->
        [none] name another reward function
       *[other] set { $other } to { $fits }
    }

reward-missing = ROLL needs a reward worker, but the source has no reward
    .about = ROLL needs a reward worker.
    .hint = add one: rewards.{ $domain }.worker_cls, and { $data }.domain_interleave_probs.{ $domain }: 1.0

start-script = only start_rlvr_vl_pipeline.py reads images; start_rlvr_pipeline.py accepts the same file and ignores them
    .about = Which keys ROLL reads depends on the start script.
    .hint = start ROLL with that script; the rows need the columns { $columns }

## Training

micro-batches-in-sequences = ROLL's micro-batches hold at most { $each } sequences (of up to { $longest } tokens), however short, where the source packs up to { $tokens } tokens. Results don't change, but short sequences train slower
    .about = ROLL counts micro-batches in sequences, which can be slower.
    .hint = raise per_device_train_batch_size if responses are shorter, or set { $dynamic }, which changes the optimizer steps

micro-batches-added = Trinity 0.6 with verl 0.8 adds up the means of the m micro-batches of a mini-batch, so the gradient is m times as large and clip_grad clips m times as much; AdamW itself cancels the factor
    .about = Trinity 0.6 sums the micro-batches of a mini-batch instead of averaging them.
    .hint = raise trainer.max_token_len_per_gpu until a GPU takes its mini-batch in one piece, or multiply clip_grad by m
micro-batches-added_own = Trinity 0.6 with verl 0.8 adds up the means of the m micro-batches of a mini-batch, so the gradient is m times as large and clip_grad clips m times as much; AdamW itself cancels the factor. Other frameworks take one mean over the mini-batch.

other-gradient = Trinity stops the gradient at SAPO's gate: at a ratio of 1 a step is 2 / tau of the paper's, and further away the gate weighs a token more instead of closing
    .about = Trinity's gradient of SAPO differs from the paper's.

unknown-algorithm = no known release of Trinity has algorithm_type '{ $name }'; rlctl reads it as grpo
    .about = Trinity has no algorithm of this name.
    .hint = { $near ->
        [none] check algorithm.algorithm_type
       *[other] did you mean '{ $near }'?
    }

optimizer-replaced = Trinity 0.3.2 to 0.5 replaces the policy's optim by algorithm.optimizer, its defaults included: { $values }. Trinity 0.3.1 and older, and 0.6, use the values of optim
    .about = Trinity 0.3.2 to 0.5 ignores the optimizer that the file sets under trainer_config.
    .hint = if the file is for Trinity 0.3.1 or older, set them in algorithm.optimizer

rows-of-steps = Trinity counts each step of a trajectory as one experience in buffer.train_batch_size; rlctl assumed one for each trajectory, in the mini-batch and in all lengths that are counted in train steps
    .about = A run that trains on the steps of trajectories counts its batch in steps.
    .hint = with more steps a trajectory, divide buffer.train_batch_size by their number before you convert

endless-schedule = without trainer.total_steps Trinity computes lr_warmup_steps_ratio of sys.maxsize steps, so the learning rate stays near 0; rlctl uses the run's own length
    .about = Without trainer.total_steps Trinity's learning rate schedule never moves.
    .hint = set trainer.total_steps, or lr_warmup_steps
endless-schedule_cosine = without trainer.total_steps Trinity's cosine schedule is sys.maxsize steps long, so the learning rate stays at its peak; rlctl uses the run's own length
    .hint = set trainer.total_steps
