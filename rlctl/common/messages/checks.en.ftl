# What `rlctl check` finds. The part of an id before the first underscore is the finding's code.
# .about says what a code means, .hint what to do.
# { $fix } stands for the values that solve it, { $first } for the nearest one; { $key } is the key that the finding is about.

## What a run reads

mistyped-key = { $framework } has no key '{ $key }'
    .about = An unknown key that is a near miss of a known one. The run would train without what it was meant to set.
    .hint = rename it to '{ $meant }'

stage = { $reason }
    .about = A stage contains an unknown key or an invalid value.

no-model = model.path is not set
    .about = model.path is not set.
    .hint = set it to a local folder or a name on the Hugging Face Hub

no-data = data.train is empty
    .about = No training data (or, for evaluate_only, no evaluation data).
    .hint = add a dataset: data.train: [train.parquet]
no-data_evaluation = run.mode is evaluate_only, but data.eval is empty
    .hint = add a dataset: data.eval: [test.parquet]
no-data_path = { $key } is not set
    .hint = set the path of this dataset
no-data_experts = algorithm.objective is mix, which also learns from expert responses, but buffer.auxiliary is empty
    .hint = set buffer.auxiliary.sft_dataset.path to a file of expert responses

no-reward = RL training needs a reward, but rewards is empty
    .about = RL training needs at least one reward.
    .hint = add one: rewards: [type: rule]

reward-names = { $count } rewards are named '{ $name }', so their metrics would collide
    .about = Reward names must be unique; their metrics would collide.
    .hint = give each reward its own name

domain-weights = data.domain_weights weighs { $name }, but no reward has this name; the rewards are: { $known }
    .about = Data is weighed for a reward that doesn't exist, for an objective without rewards, or by two settings together.
    .hint = { $near ->
        [none] name one of the rewards, or remove the weight
       *[other] did you mean '{ $near }'?
    }
domain-weights_objective = data.domain_weights weighs the rows of rewards, but { $objective } has no rewards
    .hint = remove data.domain_weights, and set data.mixing and the weights of data.train instead
domain-weights_mixing = data.mixing is { $value }, but data.domain_weights mixes the rows of all datasets
    .hint = remove data.mixing, or remove data.domain_weights
domain-weights_source = { $key } is { $value }, but data.domain_weights mixes the rows of all datasets
    .hint = remove this weight, or remove data.domain_weights

auxiliary-models = { $reason }
    .about = Two auxiliary models share a name, one has too few devices, or a judge refers to one that doesn't exist.
    .hint = { $advice }

judge-model = judge '{ $name }' has no model
    .about = The judge has no model, or its engines don't fit on its devices.
    .hint = set { $key } to the model's name at the endpoint; if base_url is not set, to a local folder or a name on the Hub
judge-model_devices = { $reason }
    .hint = { $advice }

path-missing = { $key }: { $path } does not exist on this machine
    .several = { $count } paths do not exist on this machine: { $names }
    .about = A local file or folder does not exist.
    .hint = correct the path; relative paths start from the folder in which rlctl runs

no-data-juicer = an operator of Data-Juicer is set, but service.data_juicer names no service to run it
    .about = Operators of Data-Juicer are set without a service that runs them.
    .hint = set service.data_juicer.url to a service that runs, or auto_start: true and python to the Python that has py-data-juicer

hub-name = { $key }: { $path } is not a local path; the run downloads it from the Hugging Face Hub
    .several = { $count } names are not local paths; the run downloads them from the Hugging Face Hub: { $names }
    .about = Not a local path; will be downloaded from the Hugging Face Hub.

code-syntax = { $file }:{ $line } is not valid Python { $python }: { $reason }
    .about = A Python file that the config names is not valid Python.
    .hint = correct the file
code-syntax_unreadable = { $file } cannot be read as Python: { $reason }
    .hint = correct the file

code-name = { $file } has no { $kind } '{ $name }'; it has { $known }
    .about = A Python file has no function or class of the name that the config gives.
    .hint = { $near ->
        [none] set { $key } to one of them
       *[other] did you mean '{ $near }'?
    }
code-name_empty = { $file } has no { $kind } '{ $name }', and no other { $kind } either
    .hint = define it in the file, or correct the path

code-signature = { $where } has parameters that rlctl cannot call a reward with
    .about = A reward function does not accept the arguments that it is called with.
    .hint = accept response and answer, or verl's data_source, solution_str, ground_truth and extra_info
code-signature_missing = { $where } does not accept { $missing }; rlctl calls it with { $called } by name
    .verl = { $where } does not accept { $missing }; verl calls it with { $called } by name, and stops when it scores the first response
    .hint = add the parameters, or **kwargs
code-signature_required = { $where } needs { $lacking }, which no caller passes; verl stops when it scores the first response
    .hint = give these parameters a default, or set them in custom_reward_function.reward_kwargs
code-signature_args = { $where } does not accept { $unknown }, which { $key } passes
    .hint = remove them from { $key }, or add the parameters

code-returns = { $where }: { $name } can return { $kind ->
        [text] text
        [nothing] nothing
        [sequence] a list
       *[mapping] a mapping without 'score'
    }, which is no reward: rlctl { $then ->
        [stop] stops the run
       *[zero] scores such a response 0
    }
    .about = A reward function can return something other than a number or a mapping with score.
    .hint = return a number, or a mapping with 'score'

code-import = { $file }:{ $line } imports { $module }, which is not installed in rlctl's Python environment
    .about = A Python file imports a module that is not installed in rlctl's Python environment.
    .hint = install { $module } where the run starts

data-unreadable = { $file } cannot be read: { $reason }
    .about = A data file does not match its extension, or its rows cannot be read.
    .hint = correct the file, or its format in the config
data-unreadable_rows = { $reason }
    .hint = { $advice }

data-empty = { $file } has no rows
    .about = A data file has no rows.
    .hint = name a file that has rows

data-column_nested = { $file } has no column '{ $column }', but '{ $nested }' inside another column
    .hint = set { $key } to '{ $nested }'; Trinity-RFT and ROLL read top-level columns only, so for them write it into a column '{ $column }'
data-column = { $file } has no column '{ $column }'; its columns are { $known }
    .about = A data file has no column of the name that the config gives.
    .hint = { $near ->
        [none] set { $key } to one of them
       *[other] did you mean '{ $near }'?
    }

data-images_text = { $file } has the column '{ $column }' of images, but model.modality is text: the run stops when it reads the data
    .hint = { $fix } to ignore the images
data-images = row { $row } of { $file } has { $places ->
        [one] one place
       *[other] { $places } places
    } <image> in its prompt, but { $count ->
        [one] one image
       *[other] { $count } images
    }: the run stops at this row
    .about = The rows of a data set have images that the model is not shown, or another number of image placeholders than images.
    .hint = write <image> once for each image, or not at all to put all images first

data-split = { $folder } has no split '{ $split }'; it has { $known }
    .about = A folder of data files has no split of the name that the config gives.
    .hint = { $fix }

data-rows = the training data has { $rows ->
        [one] one row
       *[other] { $rows } rows
    }, but each step takes { $step } prompts, so the run would not train a single step
    .about = The training data has fewer rows than one step takes.
    .hint = { $first } or less

data-overlong = { $over } of the first { $count } { $what } of { $file } are longer than the limit of { $limit } tokens ({ $shortest } to { $longest }, median { $median })
    .about = Some of the rows that were measured are longer than their limit.
    .hint = { $first } or more, or shorten the data

data-overlong_words = { $over } of the first { $count } prompts of { $file } have more words than the limit of { $limit } tokens, up to { $longest }
    .hint = shorten these prompts, or raise the limit to well above { $longest }
    .verl = { $over } of the first { $count } prompts of { $file } have more words than the limit of { $limit } tokens, up to { $longest }: verl stops at the first of them, or cuts it, as data.truncation says
    .trinity = { $over } of the first { $count } prompts of { $file } have more words than the limit of { $limit } tokens, up to { $longest }: Trinity-RFT does not train on their responses
    .roll = { $over } of the first { $count } prompts of { $file } have more words than the limit of { $limit } tokens, up to { $longest }: ROLL leaves these rows out
data-overlong_dropped = { $over } of the first { $count } prompts of { $file } have more words than the limit of { $limit } tokens, up to { $longest }, and are not used
    .hint = raise the limit to well above { $longest }, or remove these rows

data-lengths = the first { $count } { $what } of { $file } have { $shortest } to { $longest } tokens (median { $median }); the limit is { $limit }
    .about = The token counts of some rows.
data-lengths_unmeasured = rlctl did not measure the lengths of rows: { $reason }

model-files = { $path } cannot be loaded: { $reason }
    .about = A local model folder has no weights, lacks config.json, or a file of it is damaged or only a Git LFS pointer.
    .hint = download the model again (hf download, or git lfs pull in a clone), or set { $key } to a complete folder

model-files_shape = { $path } cannot be loaded: { $reason }
    .hint = download the weights where the run starts, or set { $key } to a complete folder

model-tokenizer = { $path } has no tokenizer
    .about = A local folder has no tokenizer, or one without the chat template that prompts are put into.
    .hint = download tokenizer.json and tokenizer_config.json of the model, or set model.tokenizer to a folder that has them
model-tokenizer_template = the tokenizer in { $path } has no chat template, and prompts are put into one
    .hint = use an instruct model, set model.tokenizer to a tokenizer with a template, or set model.chat_template

data-unanswered = { $rows } of the first { $count } rows of { $file } have no answer
    .about = Some of the rows that were measured have no answer, though the data has a column for it. A reward that compares with it scores them wrong.
    .hint = remove these rows, or set answer_key of the dataset to the column with the answers

data-unanswered_footer = { $missing } of { $rows } rows of { $file } have no answer
    .hint = fill in the answers, or remove these rows

data-blank = { $rows } of the first { $count } rows of { $file } have an empty prompt
    .about = Some of the rows that were measured ask nothing: the model would be trained on what it says unprompted.
    .hint = remove these rows, or set prompt_key of the dataset to the column with the prompts

data-repeated = { $repeated } of the first { $count } rows of { $file } repeat another row: only { $distinct } differ
    .about = Many rows of a data file are the same. An epoch asks the same prompt several times, and a step may hold it twice.
    .hint = remove the repeated rows

data-overlap = evaluation and training read the same data, { $path }, so the evaluation measures what the run has trained on
    .about = The same file, subset and split is among the training data and the evaluation data.
    .hint = hold out rows for evaluation, and set { $key } to them

data-overlap_rows = { $shared } of the first { $count } rows of { $path } are also training rows, so the evaluation measures what the run has trained on
    .hint = remove these rows from the training data, or set { $key } to other data

resume-path = checkpoint.resume is path, but checkpoint.resume_path is not set
    .about = checkpoint.resume and checkpoint.resume_path disagree.
    .hint = set checkpoint.resume_path
resume-path_unread = checkpoint.resume_path is set but not read, because checkpoint.resume is { $resume }
    .hint = { $fix }

remote-path = checkpoint.remote is '{ $path }'; expected a URL that fsspec supports, or an absolute path
    .about = Expected a local folder but got a URL, or vice versa.
    .hint = set checkpoint.remote to a URL such as s3://bucket/folder
remote-path_folder = checkpoint.folder is '{ $path }'; expected a local folder, because checkpoints are written locally first
    .hint = set checkpoint.remote to the URL instead

## Batches and lengths

no-end = the schedule has no end
    .about = Set total_steps, total_epochs or total_optimizer_steps.
    .hint = set schedule.total_steps or schedule.total_epochs

mini-batch-too-large = a mini-batch has { $mini } responses, but a step has only { $step }
    .about = The mini-batch is larger than a whole step.
    .hint = { $first } or less

mini-batch-uneven = a step has { $step } = { $full } x { $mini } + { $rest }, so its last mini-batch has only { $rest ->
        [one] one response
       *[other] { $rest } responses
    }
    .about = The step doesn't divide evenly into mini-batches; the last one will be smaller.
    .hint = { $fix }

idle-replicas = a mini-batch has { $mini ->
        [one] one response
       *[other] { $mini } responses
    } for { $replicas } replicas, so { $idle ->
        [one] one of them is
       *[other] { $idle } of them are
    } idle
    .about = More replicas than responses per mini-batch; some GPUs will be idle.
    .hint = { $first } or more, or use fewer devices

replicas-uneven = a mini-batch of { $mini } responses doesn't divide evenly across { $replicas } replicas ({ $each } each)
    .about = The mini-batch doesn't divide evenly across replicas.
    .hint = for an even split, { $fix }

sequence-over-micro = a sequence can have { $longest } tokens, more than the { $size } of { $key }. rlctl then computes it alone, with more memory.
    .roll = a sequence can have { $longest } tokens, more than the { $size } of { $key }. ROLL stops at the first sequence of that length.
    .about = A single sequence can exceed the micro-batch token budget and use more memory than planned.
    .hint = { $first } or more

context-too-short = { $prompt } prompt tokens + { $response } response tokens = { $total }, but model.max_context_tokens is { $context }
    .verl = { $prompt } prompt tokens + { $response } response tokens = { $total }, but model.max_context_tokens is { $context }: verl cuts long responses at that length
    .roll = { $prompt } prompt tokens + { $response } response tokens = { $total }, but model.max_context_tokens is { $context }: ROLL cuts long responses at that length
    .about = max_prompt_tokens + max_response_tokens exceeds max_context_tokens.
    .hint = { $fix }, or shorten one of the two

model-positions = sequences can have { $longest } tokens, but { $model } has only { $positions } positions
    .about = Sequences can exceed the model's max_position_embeddings.
    .hint = shorten prompts or responses

response-bounds = rollout.sampling.min_response_tokens is { $least }, but rollout.max_response_tokens is { $most }
    .about = min_response_tokens is greater than max_response_tokens.
    .hint = { $first } or less, or raise rollout.max_response_tokens

evaluation-never = data.eval has { $count ->
        [one] one dataset
       *[other] { $count } datasets
    }, but schedule.evaluate_every sets no interval, so evaluation never runs
    .about = data.eval is set, but evaluation never runs.
    .hint = set schedule.evaluate_every, or remove data.eval

evaluation-without-data = schedule.evaluate_every is set, but data.eval is empty
    .about = evaluate_every is set, but data.eval is empty.
    .hint = add a dataset to data.eval, or remove schedule.evaluate_every

step-prompts = { $prompts } prompts x { $each } = { $responses } responses
step-experts = { $prompts } prompts x { $each } + { $experts } expert responses = { $responses } responses
step-responses = { $responses ->
        [one] one response
       *[other] { $responses } responses
    }

## Devices

devices-not-divisible = { $reason }
    .about = The device count isn't divisible by the parallelism sizes.
    .hint = { $advice }

heads-undivided = { $key } is { $size }, which does not divide the { $heads } attention heads and { $shared } key-value heads of { $model }
    .about = A parallel size doesn't divide the model's attention heads.
    .hint = { $fix }

engine-over-node = each rollout engine uses { $tensor } devices, but a node has { $devices }: some engines would span several nodes
    .about = A rollout engine would span several nodes.
    .hint = set rollout.parallel.tensor_parallel_size to a divisor of { $devices }

tensor-over-node = { $role }: { $reason }
    .about = Training tensor parallelism spans nodes; expect slow steps.
    .hint = { $advice }

megatron-layout = { $role }: { $reason }
    .about = A Megatron parallel size doesn't divide the model dimension it shards.
    .hint = { $advice }

context-parallel = { $role }: { $reason }
    .about = rlctl's Megatron engine splits heads for context parallelism, and the context parallel size doesn't divide them.
    .hint = { $advice }

pipeline-idle = each of { $replicas } replicas gets { $share } of the { $mini } responses of a mini-batch, which is { $count ->
        [one] one micro-batch
       *[other] { $count } micro-batches
    } for { $stages } pipeline stages, so each stage is idle { $idle } of the time
    .about = Fewer micro-batches than pipeline stages; the pipeline bubble dominates.
    .hint = { $fix }, or lower train.engine.pipeline_parallel_size
pipeline-idle_tokens = each of { $replicas } replicas gets { $share } of the { $mini } responses of a mini-batch, which is at most { $count ->
        [one] one micro-batch
       *[other] { $count } micro-batches
    } for { $stages } pipeline stages, so each stage is idle { $idle } of the time
    .hint = { $fix }, or lower train.engine.pipeline_parallel_size

role-devices = placement.rollout_devices takes { $rollout } of { $total } devices, so training has none
    .about = A role lists devices that don't exist, or no devices.
    .hint = { $fix }
role-devices_policy = the policy has no devices
    .hint = set placement.roles.policy.devices
role-devices_unknown = placement.roles names '{ $role }', which is not a role
    .hint = the roles are { $known }
role-devices_outside = { $key } lists { $wrong }, but the devices are 0 to { $last } ({ $nodes } nodes x { $devices })
role-devices_twice = { $key } lists a device twice

role-variables = runtime.role_env_vars names '{ $role }', which is not a role
    .about = runtime.role_env_vars names an unknown role.
    .hint = the roles are { $known }

cluster-too-small = the config asks for { $nodes } x { $devices } GPUs (nodes x devices_per_node), but the cluster has { $known_nodes } x { $known_devices }
    .about = The cluster has too few devices.
    .hint = { $fix }, or use a larger cluster. To try the config here: rlctl try --tiny runs a small random model; rlctl launch --cpu scales the run down, shows the changes and asks
    .otherwise = use a larger cluster, or fewer devices with smaller parallel sizes. To try the config here: rlctl try --tiny runs a small random model; rlctl launch --cpu scales the run down, shows the changes and asks
cluster-too-small_cpu = placement.device is cuda, but this machine has no GPU
    .hint = to try it here: rlctl try --tiny runs a small random model; rlctl launch --cpu scales the run down, shows the changes and asks
cluster-too-small_cores = the config asks for { $nodes } x { $devices } devices (nodes x devices_per_node), but this machine has { $gpu ->
        [none] no GPU and { $cores } cores
       *[unused] { $cores } cores
    }
    .hint = to try it here: rlctl try --tiny runs a small random model; rlctl launch --cpu scales the run down, shows the changes and asks; --set runtime.ray.num_cpus={ $asked } runs { $asked } workers on the same cores

memory = { $reason }
    .about = Estimated memory exceeds device memory.
    .hint = { $first }
memory_several = { $reason }
    .hint = set { $settings }
memory_hardware = { $reason }
    .hint = use more GPUs, or GPUs with more memory

## Schedule

staleness = rollout runs up to { $ahead } steps ahead, so responses are up to { $made } steps old, but weight_sync.max_staleness_steps is { $most }: most responses generated ahead would be dropped
    .about = The schedule produces responses staler than weight_sync.max_staleness_steps; they would be dropped.
    .hint = { $fix }
staleness_sync = weights are synced every { $every } steps, so responses are up to { $behind } steps old. weight_sync.max_staleness_steps is { $most }, so some steps would have nothing to train on
    .hint = { $fix }
staleness_strategy = weights are synced every { $every } steps, so responses are up to { $made } versions old, and staleness_control drops whole steps: nothing would be left to train on
    .hint = set max_staleness of staleness_control to { $made } or more, or weight_sync.every to 1

buffer-too-small = buffer.capacity is { $capacity }, but a step needs { $responses } responses, so the run would wait forever
    .about = buffer.capacity is smaller than one step; the run would deadlock.
    .hint = { $fix }

over-rollout = rollout.oversampling.ratio is 1, so every prompt of the step would be abandoned as a straggler
    .about = rollout.oversampling.ratio of 1 discards every prompt.
    .hint = set rollout.oversampling.ratio below 1: it is the share of stragglers

difficulty-ahead = data.curriculum.order sorts prompts by difficulty, but asynchronous rollout starts prompts before the rewards of earlier prompts are known
    .about = Difficulty ordering needs rewards that aren't available yet with asynchronous rollout.
    .hint = { $fix }

## Algorithm

group-of-one = { $name } compares the responses of a prompt, but batch.responses_per_prompt is 1, so the advantage is the reward itself
    .about = A group-relative estimator with responses_per_prompt: 1 has no baseline.
    .hint = { $fix }; 4 to 16 are usual

old-pass-left-out = { $name } needs the old-log-prob pass, which algorithm.old_log_probs: rollout skips
    .about = This estimator needs the old-log-prob pass, which old_log_probs: rollout skips.
    .hint = { $fix }

gae-without-critic = algorithm.advantage is gae, but critic is null
    .about = GAE needs a critic section.
    .hint = { $fix } (an empty critic section uses the policy's model)

critic-unused = a critic is configured, but { $name } does not use one
    .about = A critic is configured, but the estimator doesn't use one.
    .hint = { $fix }

warmup-without-critic = schedule.critic_warmup_steps is set, but { $name } does not use a critic, so the first { $steps ->
        [one] step
       *[other] { $steps } steps
    } would train nothing
    .about = critic_warmup_steps is set, but there is no critic.
    .hint = { $fix }

kl-off = { $key } is 0, so this KL term has no effect
    .about = A KL term with coefficient 0 has no effect; the reference model isn't loaded.
    .hint = set { $key } above 0, or { $fix }

kl-twice = both the loss (coefficient { $loss }) and the reward have a KL penalty: the policy is held to the reference twice
    .about = One KL penalty is usual: GRPO has it in the loss, PPO in the reward. With both, the policy is held to the reference more strongly than either coefficient says.
    .hint = keep one of them: { $fix }

kl-without-pull = algorithm.kl_in_loss.estimator is k1, whose expected gradient as a loss is zero, so it does not regularize
    .about = The k1 estimator has zero expected gradient as a loss, so this KL term doesn't regularize.
    .hint = { $fix }; k1+ has the value of k1 and the gradient of k2

reference-unused = a reference model is configured, but no KL term uses it
    .about = A reference model is configured, but no KL term uses it.
    .hint = set algorithm.kl_in_loss, or { $fix }

greedy-training = rollout.sampling.temperature is 0, so all responses of a group would be identical
    .about = Sampling temperature is 0: all responses in a group would be identical.
    .hint = { $fix }

sampling-cut = sampling is truncated by { $cut }, but the loss uses the full distribution
    .about = top_p/top_k truncate sampling, but the loss uses the full distribution.
    .hint = set rollout.sampling.top_p to 1.0 and rollout.sampling.top_k to null to sample from the full distribution

learning-rate = { $key } is 0, so nothing is learned
    .about = The learning rate is 0 or above 1e-3.
    .hint = set { $key } above 0
learning-rate_high = { $key } is { $rate }; full fine-tuning diverges above about { $highest }
    .hint = 1e-6 to 1e-5 are usual

updates-rounded-away = at a learning rate of { $rate }, most updates to bfloat16 weights round to zero, so the weights don't move
    .about = At this learning rate, updates to bfloat16 weights round to zero.
    .hint = { $fix }; computing in bfloat16 is fine

warmup = the warm-up sets both warmup_steps and warmup_ratio
    .about = Warm-up is set twice (steps and ratio), or is longer than the run.
    .hint = { $fix }
warmup_long = a warm-up of { $warmup } steps is longer than the run, which has { $total } ({ $unit }s), so the learning rate never reaches its peak
    .hint = { $first } or less

clip-range = algorithm.policy_loss.clip_low is { $low }. A ratio is never below 0, so the lower bound never takes effect.
    .about = Clip bounds that never take effect or contradict each other.
    .hint = 0.2 is usual
clip-range_high = algorithm.policy_loss.clip_high is { $high }, below algorithm.policy_loss.clip_low { $low }, so updates that raise a probability are clipped earlier than those that lower it
    .hint = set algorithm.policy_loss.clip_high to { $low } or more (DAPO: 0.28 over 0.2)
clip-range_dual = algorithm.policy_loss.dual_clip is { $dual }, within 1 + algorithm.policy_loss.clip_high = { $bound }, so it contradicts the upper bound
    .hint = 3.0 is usual; null turns it off

## What a run leaves behind

never-saved = the run would not save any weights: it sets no checkpoint interval, no checkpoint at the end and no export
    .about = The run would not save any weights.
    .hint = { $fix }

tracker = { $tracker } in mode { $mode } needs { $mode ->
        [local] a server
       *[other] an account and network access
    }
    .about = A tracker needs an account or a server.
    .hint = without these, use offline mode: it writes files that you can upload later

tracker-twice = tracker { $tracker } is listed { $count } times
    .about = A tracker is listed twice.
    .hint = keep one

literal-secret = '{ $key }' contains a plaintext secret
    .about = The file contains a plaintext secret.
    .hint = write { $expression } and set NAME in the environment

secret-in-name = { $key } is { $value }, so a folder would be named after a secret of the environment
    .about = A folder of the run would be named after a secret of the environment.
    .hint = set { $key } to a name without the secret

folder-name = { $key } is { $value }: { $reason }
    .about = The name of the run can't be the name of its folder.
    .hint = { $fix }; letters, digits, '.', '_' and '-' are safe everywhere

## What rlctl's runtime supports

not-applied = '{ $key }': { $reason }
    .several = { $names }: { $reason }
    .about = A source-framework default is ignored by rlctl launch; it affects only speed or memory.
not-applied_engine = { $reason }
    .hint = { $advice }
not-applied_profiler = profiling.tool is { $tool }, but profiling.steps lists no step, so nothing is profiled

not-used = '{ $key }': { $reason }
    .several = { $names }: { $reason }
    .about = rlctl launch ignores this key: it affects only speed, memory or logging, or nothing in this config uses it.
    .hint = keep it for the framework that uses it; rlctl's results don't change
not-used_engine = { $reason }
    .hint = { $advice }
not-used_profiler = '{ $key }': rlctl profiles whole steps, those in profiling.steps
    .several = { $names }: rlctl profiles whole steps, those in profiling.steps
    .hint = remove it; rlctl's results don't change either way

not-supported = '{ $key }': { $reason }
    .several = { $names }: { $reason }
    .about = Not supported by rlctl launch. The message says why.
    .hint = reset it to its default, or remove it
not-supported_engine = { $reason }
    .hint = { $advice }
not-supported_temperature = '{ $key }' is { $own }, but training divides all logits by one temperature, { $temperature }
    .hint = remove it, or { $fix }: log-probs then use temperature 1
not-supported_strategy = algorithm.sample_strategy is mix, but { $objective } trains only on the responses of the current step
    .hint = remove sample_strategy and its arguments, or set algorithm.objective to mix
not-supported_strategy-args = algorithm.sample_strategy_args has { $unknown }; { $objective } with { $strategy } expects { $known }
    .hint = { $objective ->
        [mix] Set algorithm.objective.expert_share for the share of experts.
       *[other] Remove them.
    }
not-supported_replay-mix = algorithm.router_replay is recompute, but no pass before the update reads the expert responses of mix
    .hint = { $fix }
not-supported_replay-agents = algorithm.router_replay is rollout, but engines report the experts of single responses, not of an agent's turns
    .hint = set it to recompute
not-supported_replay-rollout = algorithm.router_replay is recompute, but algorithm.old_log_probs: rollout skips the pass that records the experts
    .hint = set algorithm.old_log_probs to recompute, or { $fix }
not-supported_profiler-gpu = profiling.tool torch_memory records GPU allocations, but the run is on CPU
    .hint = set profiling.tool to torch, with contents [memory]
not-supported_profiler-role = profiling.roles names '{ $role }'; expected one of { $known }
    .hint = { $near ->
        [none] use one of these
       *[other] did you mean '{ $near }'?
    }
not-supported_profiler-setting = '{ $key }': { $tool } has no such setting; it has { $known }
    .hint = { $near ->
        [none] use one of these
       *[other] did you mean '{ $near }'?
    }
not-supported_profiler-value = '{ $key }' is { $value }; expected a list of { $known }
not-supported_endpoint-address = rollout.engine is external, but rollout.engine.base_url is not set
    .hint = set rollout.engine.base_url, such as http://host:8000/v1
not-supported_endpoint-trains = rollout.engine is external, but rlctl cannot send new weights to an outside endpoint, so a run that trains cannot use it
    .hint = { $fix }
not-supported_rollout-only = run.mode is rollout_only, but nothing keeps its responses: there is no persistent buffer and no file
    .hint = set buffer to sql or file, or rollout.responses_folder to a file such as responses.parquet
not-supported_rollout-objective = run.mode is rollout_only, but the objective { $objective } generates no responses
    .hint = set algorithm.objective to rl
not-supported_agents = { $reason }
    .hint = { $advice }
not-supported_recorded = '{ $key }' names recorded responses, but only run.mode evaluate_only scores those, and only sft measures its loss on them
    .hint = set run.mode to evaluate_only, or remove { $key }
not-supported_memory-buffer = run.mode is train_only, but a buffer in memory ends with the run that fills it
    .hint = set buffer to sql with a url
not-supported_no-buffer = run.mode is train_only, but { $key } is not set
    .hint = set { $key } to the buffer of the run that explores
not-supported_two-runs = { $key } applies when one run does both rollout and training; here weight_sync.every sets when weights are exchanged
    .hint = remove { $key }; weight_sync.max_staleness_steps limits how old responses may be
not-supported_wait = weight_sync.on_stale is wait, but a run that explores does not know the step of the run that trains
    .hint = { $fix }
not-supported_epochs = { $key } counts epochs, but a run that trains on a buffer has none
    .hint = set { $key } in steps
not-supported_replay-capacity = buffer.capacity is { $capacity }, but a step takes { $step } responses and a full replay buffer discards some
    .hint = { $first } or more

## What another framework would accept

runner-refuses = { $reason }; { $source } refuses it
    .about = The framework that the file is written for, or that --runner names, refuses the config; the message says where in its source. A warning with --runner rlctl.
    .hint = { $advice }

runner-ignores = { $reason }; see { $source }
    .about = The framework accepts the setting and does not use it, because another setting turns it off or overrides it; the message says where in its source.
    .hint = { $advice }

runner-release = the file is read as { $read }, but checked against the requirements of { $checked }
    .about = The file is for a different release than the one whose requirements are checked.

here-late = { $subject } did not answer within { $seconds } seconds
    .about = `--here`: a probe of this machine or of a service did not end in time, so what it would have found is not known.
    .hint = see whether it hangs, and check again
here-late_failed = { $subject } cannot be asked: { $reason }
    .hint = see why the system refuses it, and check again

here-gpus = the config uses { $needed } GPUs on each node; this machine has { $found }{ $hidden ->
        [0] {""}
       *[other] {" "}(CUDA_VISIBLE_DEVICES hides { $hidden })
    }
    .about = `--here`: this machine lacks GPUs, or its driver fails or is too old.
    .hint = { $fix }, or run it on a machine with { $needed } GPUs
    .otherwise = run it on a machine with { $needed } GPUs
here-gpus_none = the config uses { $needed } GPUs on each node; this machine has no nvidia-smi, so no driver
    .hint = run it on a machine with GPUs; rlctl try --tiny runs a few of its steps on a CPU
here-gpus_driver = the GPU driver does not answer: { $reason }
    .hint = run nvidia-smi; after an update of the driver, restart the machine
here-gpus_cuda = the driver runs CUDA { $driver }, but the installed torch is built for CUDA { $wanted }
    .hint = update the driver, or install a torch that is built for CUDA { $driver }

here-busy = GPU { $gpu } already has { $used } of { $total } GiB in use
    .about = `--here`: other processes fill a GPU.
    .hint = end the processes that nvidia-smi lists for it, or choose other GPUs with CUDA_VISIBLE_DEVICES

here-shm = /dev/shm has { $mib } MiB; NCCL and Ray need more for several GPUs
    .about = `--here`: shared memory is too small for what processes exchange through it.
    .hint = start the container with --shm-size=32g, or with --ipc=host

here-folder = { $key } is { $path }, which cannot be written: { $reason }
    .about = `--here`: a folder of the run cannot be written.
    .hint = set { $key } to a folder that you can write

here-disk = { $kept ->
        [one] a checkpoint takes { $each } GiB
       *[other] { $kept } checkpoints of { $each } GiB take { $needed } GiB
    }; { $path } has { $free } GiB free
    .about = `--here`: the checkpoints that a run keeps are larger than what is free on the disk.
    .hint = { $fix }, or set checkpoint.folder to a larger disk
    .otherwise = set checkpoint.folder to a larger disk, or leave optimizer out of checkpoint.save_contents

here-port = port { $port } is in use
    .about = `--here`: a port on which the run listens is taken.
    .hint = set { $key } to a free port, or end the process that listens there (ss -ltnp)
here-port_refused = nothing can listen on port { $port }
    .hint = set { $key } to a port from 1024 to 65535

here-sandbox = programs of responses cannot be isolated: { $reason }
    .about = `--here`: the sandbox for programs of responses does not work on this machine.
    .hint = { $advice }

here-ray = the Ray cluster at { $address } cannot be reached: { $reason }
    .about = `--here`: the Ray cluster does not answer, or runs another Ray or Python than this machine.
    .hint = start Ray on the head node (ray start --head), and check runtime.ray.address
here-ray_version = the Ray cluster at { $address } runs { $name } { $there }; this machine has { $here }
    .hint = install the same { $name } on all machines

here-hub = { $name } is not on this machine, and { $place } cannot be reached: { $reason }
    .about = `--here`: a model or data set is not on this machine, and its hub does not give it.
    .hint = download it where there is a network (hf download) and set { $key } to the folder, or set HF_ENDPOINT to a mirror
here-hub_offline = { $name } is not in this machine's cache, and HF_HUB_OFFLINE forbids a download
    .hint = download it first (hf download { $name })
here-hub_login = { $place } does not give { $name } to { $login ->
        [no] who is not logged in: it is gated, private, or does not exist
       *[other] your account: it is gated or private
    }
    .hint = ask for access on its page, then run hf auth login or set HF_TOKEN
here-hub_unknown = { $place } has no { $name }
    .hint = correct { $key }

here-tracker = { $tracker } has no API key on this machine
    .about = `--here`: the tracker has no login, its server refuses the key, or cannot be reached.
    .hint = log in, or set { $variable }; offline mode needs none
here-tracker_refused = { $tracker } ({ $place }) refuses the API key of this machine
    .hint = log in again, or correct { $variable }
here-tracker_unreached = { $tracker } ({ $place }) cannot be reached: { $reason }
    .hint = use offline mode: it writes files that you can upload later

here-endpoint = { $place } cannot be reached: { $reason }
    .about = `--here`: an endpoint of the config does not answer, refuses the key, or does not serve the model.
    .hint = start the service, or correct { $key }
here-endpoint_refused = { $place } refuses the API key (HTTP { $status })
    .hint = correct the api_key that belongs to { $key }
here-endpoint_model = { $place } does not serve { $model }; it serves { $served }
    .hint = name a model that it serves
