# What rlctl plan prints.

plan-gpus = { $nodes ->
        [one] 1 node
       *[other] { $nodes } nodes
    } x { $each } { $each ->
        [one] GPU
       *[other] GPUs
    }
plan-cpus = { $nodes ->
        [one] { "" }
       *[other] { $nodes } nodes x{ " " }
    }{ $each ->
        [one] one CPU worker
       *[other] { $each } CPU workers
    }
plan-stage = Stage { $name } ({ $objective })
plan-continues = , starts from the weights of the previous stage

plan-device = GPU
plan-worker = CPU worker
plan-node = node
plan-on-cpu = { $engine } on the CPU, { $count ->
        [one] one process
       *[other] { $count } processes
    }
plan-replicas = { $engine }, { $count ->
        [one] one replica
       *[other] { $count } replicas
    }
plan-engines = { $engine }, { $count ->
        [one] one engine
       *[other] { $count } engines
    }{ $each ->
        [one] { "" }
       *[other] { " of " }{ $each } GPUs
    }
plan-turns = takes turns with policy
plan-on = { $count ->
        [0] on the CPU
        [one] on device { $devices }
       *[other] on devices { $devices }
    }

plan-batch = batch
plan-schedule = schedule
plan-memory = memory
plan-cost = cost
plan-prompts = { $prompts } prompts x { $each } responses = { $responses } responses
plan-responses = { $responses } responses
plan-mini-batches = { $count ->
        [one] one mini-batch
       *[other] { $count } mini-batches
    } of { $size }{ $last ->
        [none] { "" }
       *[other] , the last of { $last }
    }
plan-share = { $each } on each replica
plan-optimizer = { $count ->
        [one] one optimizer step
       *[other] { $count } optimizer steps
    } per step{ $passes ->
        [one] { "" }
       *[other] , in { $passes } passes over the responses
    }
plan-steps = { $count ->
        [one] one step
       *[other] { $count } steps
    }
plan-steps-unknown = number of steps depends on the rows of the training data (rlctl plan --rows N computes it)
plan-dry = until the buffer is empty
plan-dry-within = at most { $steps }, or until the buffer is empty
plan-evaluates = evaluate every { $count ->
        [one] step
       *[other] { $count } steps
    }
plan-evaluates-never = no evaluation during training
plan-saves = save every { $count ->
        [one] step
       *[other] { $count } steps
    }
plan-saves-never = no checkpoint during training
plan-gib = { $gib } of { $of } GiB
plan-rest = rest { $gib }
plan-role-memory = { $role } { $gib } GiB per device: { $parts }
plan-role-memory-little = { $role } less than 0.1 GiB per device
plan-operations = up to { $flops } FLOPs per step
plan-step-time = about { $time } a step, { $longest } if every response is as long as allowed
plan-training-time = training { $time }
plan-generation-time = generation { $time }
plan-moving-time = weight sync and offload { $time }
plan-note-times = time: responses have { $tokens } tokens on average, half of the limit; --lengths takes measured ones. The longest sequences decide memory, the mean length and the longest response decide time
plan-overflow = Does not fit: { $problem }
plan-remedy = to make it fit:
plan-no-remedy = no setting that rlctl tried makes it fit
plan-ignored = Ignored by rlctl launch
plan-notes = Notes
plan-rows = The training data has { $count } rows, including overlong prompts that training drops.
plan-saved = saved the plan as { $file }
plan-next = next: { $command }
plan-refused = rlctl launch cannot run this config yet, for the reasons above.
plan-refused_saved = rlctl launch cannot run this config yet, for the reasons above; the plan was not saved.
plan-now = { " " }(now { $value })

plan-note-old-log-probs = policy: old log-probs { $value ->
        [rollout] come from the rollout engine
       *[other] are computed by the training engine before it trains
    }
plan-note-schedule = schedule: { $name }
plan-note-sync = weight sync: rlctl chose { $way }
plan-note-adapters-sent = weight sync: vLLM gets the adapters, not the merged weights
plan-note-merged = weight sync: adapters are merged into the weights before these are sent, because { $reason }
plan-way-memory = memory (through host memory)
plan-way-nccl = nccl (from GPU to GPU)
plan-way-ipc = ipc (on the GPU that training and rollout share)
plan-note-full-kl = policy: its workers also hold the reference model, because the full KL compares whole distributions
plan-note-teacher = policy: its workers also hold the teacher { $teacher }
plan-note-no-evaluation = evaluation prompts are not used, because the run only generates rollouts
plan-gpu-source = data sheet (dense BF16)
plan-note-runner = memory: what { $runner } holds, which runs this file; --runner rlctl shows that of rlctl's runtime
plan-note-lengths = memory: of the sequences of a micro-batch, one has the longest length and the others { $share } of it; if all are that long, train needs { $gib } GiB
plan-note-memory = memory is not estimated: { $reason }
plan-note-adapters-off = reference: the policy with its adapters disabled; reference.engine and reference.precision are not used
plan-note-judge = judge: rlctl chose { $engine }, because the devices are { $device ->
        [cpu] CPUs
       *[other] GPUs
    }
plan-note-reward-model = reward_model: Transformers runs { $path } without the settings of another engine ({ $kept })
plan-note-fsdp2 = { $role }: { $source } runs as FSDP2, its closest equivalent{ $zero ->
        [full] : weights are gathered for each pass, as with ZeRO 3
        [partial] : weights stay gathered until the backward pass, which is closest to ZeRO 1 and 2
       *[none] { "" }
    }
plan-note-attention = policy: { $attention } attention pads sequences; auto packs them without padding
plan-note-megatron = { $role }: Megatron-core { $layout ->
        [none] does not split the model
       *[other] splits the model by { $layout }
    }
plan-note-engine = rollout: rlctl chose { $engine }, because the devices are { $device ->
        [cpu] CPUs
       *[other] GPUs
    }
plan-note-external = rollout: one process calls the endpoint and needs no GPU

plan-solve-title = Solved for { $names }, with the memory of { $runner }
plan-solve-gpus = the fewest GPUs
plan-solve-max_response_length = the longest response
plan-solve-gpu_memory_utilization = the largest share of the rollout engine
plan-solve-micro-batch = the largest micro-batch
plan-solve-tokens = the most tokens in a micro-batch
plan-solve-best = best
plan-solve-value = { $value }{ $now ->
    [none] { "" }
   *[other] { " " }(now { $now })
}
plan-solve-needs = needs
plan-solve-peak = { $phase } { $gib } of { $of } GiB
plan-solve-stops = limit
plan-solve-stop = { $value }: { $phase } would need { $gib } GiB, { $room } can be filled; { $part } grows most
plan-solve-stop-refused = { $value }: { $reason }
plan-solve-end = the last value that makes sense
plan-solve-none = No value fits these GPUs.
plan-solve-refused = No value is accepted: { $reason }
