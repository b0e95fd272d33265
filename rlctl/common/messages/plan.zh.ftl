# rlctl plan 的输出。

plan-gpus = { $nodes } 个节点 x { $each } 张 GPU
plan-cpus = { $nodes ->
        [1] { "" }
       *[other] { $nodes } 个节点 x{ " " }
    }{ $each } 个 CPU 进程
plan-stage = 阶段 { $name }（{ $objective }）
plan-continues = ，从上一阶段的权重开始

plan-device = GPU
plan-worker = CPU 进程
plan-node = 节点
plan-on-cpu = { $engine }，在 CPU 上，{ $count } 个进程
plan-replicas = { $engine }，{ $count } 个副本
plan-engines = { $engine }，{ $count } 个引擎{ $each ->
        [1] { "" }
       *[other] ，每个 { $each } 张 GPU
    }
plan-turns = 与 policy 轮流使用
plan-on = { $count ->
        [0] 在 CPU 上
       *[other] 在设备 { $devices } 上
    }

plan-batch = batch
plan-schedule = 进度安排
plan-memory = 显存
plan-cost = 计算量
plan-prompts = { $prompts } 条 prompt x { $each } 条回答 = { $responses } 条回答
plan-responses = { $responses } 条回答
plan-mini-batches = { $count } 个 mini-batch，每个 { $size } 条{ $last ->
        [none] { "" }
       *[other] ，最后一个 { $last } 条
    }
plan-share = 每个副本 { $each } 条
plan-optimizer = 每步更新 { $count } 次参数{ $passes ->
        [1] { "" }
       *[other] ，回答共训练 { $passes } 遍
    }
plan-steps = 共 { $count } 步
plan-steps-unknown = 步数取决于训练数据的行数（可用 rlctl plan --rows N 计算）
plan-dry = 直到缓冲区取空
plan-dry-within = 最多{ $steps }，或直到缓冲区取空
plan-evaluates = 每 { $count } 步评测一次
plan-evaluates-never = 训练中不评测
plan-saves = 每 { $count } 步保存一次
plan-saves-never = 训练中不保存检查点
plan-gib = { $gib } / { $of } GiB
plan-rest = 其余 { $gib }
plan-role-memory = { $role } 每个设备 { $gib } GiB：{ $parts }
plan-role-memory-little = { $role } 每个设备不到 0.1 GiB
plan-operations = 每步最多 { $flops } FLOPs
plan-step-time = 每步约 { $time }，若所有回答都达到最大长度则为 { $longest }
plan-training-time = 训练 { $time }
plan-generation-time = 生成 { $time }
plan-moving-time = 权重同步与卸载 { $time }
plan-note-times = 时间：按平均回答长度 { $tokens } 个 token 估算，即上限的一半；可用 --lengths 指定实测长度。显存取决于最长的序列，时间取决于平均长度和最长的回答
plan-overflow = 显存不足：{ $problem }
plan-remedy = 可以这样调整：
plan-no-remedy = rlctl 试过的设置都放不下
plan-ignored = rlctl launch 会忽略的键
plan-notes = 说明
plan-rows = 训练数据共 { $count } 行，包括训练时会丢弃的超长 prompt。
plan-saved = 执行计划已保存为 { $file }
plan-next = 下一步：{ $command }
plan-refused = rlctl launch 还不能运行此配置，原因见上。
plan-refused_saved = rlctl launch 还不能运行此配置，原因见上；未保存执行计划。
plan-now = （当前为 { $value }）

plan-note-old-log-probs = policy：旧 log-prob { $value ->
        [rollout] 取自 rollout 引擎
       *[other] 由训练引擎在训练前计算
    }
plan-note-schedule = 调度方式：{ $name }
plan-note-sync = 权重同步：rlctl 选择 { $way }
plan-note-adapters-sent = 权重同步：只向 vLLM 发送适配器，不发送合并后的权重
plan-note-merged = 权重同步：适配器合并到权重后再发送，原因：{ $reason }
plan-way-memory = memory（经主机内存）
plan-way-nccl = nccl（GPU 到 GPU）
plan-way-ipc = ipc（训练与 rollout 共用的 GPU 上）
plan-note-full-kl = policy：完整 KL 要比较整个分布，因此其进程还会加载参考模型
plan-note-teacher = policy：其进程还会加载教师模型 { $teacher }
plan-note-no-evaluation = 任务只生成 rollout，不使用评测 prompt
plan-gpu-source = 数据手册（稠密 BF16）
plan-note-runner = 显存：按运行该文件的 { $runner } 估算；用 --runner rlctl 查看 rlctl 运行时的占用
plan-note-lengths = 显存：假设一个 micro-batch 中有一条序列达到最大长度，其余为其 { $share }；如果全部达到最大长度，train 阶段需要 { $gib } GiB
plan-note-memory = 未估算显存：{ $reason }
plan-note-adapters-off = reference：即关闭 adapter 的 policy；不使用 reference.engine 和 reference.precision
plan-note-judge = judge：rlctl 选择 { $engine }，因为设备是 { $device ->
        [cpu] CPU
       *[other] GPU
    }
plan-note-reward-model = reward_model：用 Transformers 运行 { $path }，不使用其他引擎的设置（{ $kept }）
plan-note-fsdp2 = { $role }：{ $source } 以最接近的 FSDP2 运行{ $zero ->
        [full] ：每次前向和反向都收集权重，相当于 ZeRO 3
        [partial] ：权重收集后保留到反向结束，最接近 ZeRO 1 和 2
       *[none] { "" }
    }
plan-note-attention = policy：{ $attention } attention 会填充序列；auto 则拼接序列、不填充
plan-note-megatron = { $role }：Megatron-core { $layout ->
        [none] 不切分模型
       *[other] 按 { $layout } 切分模型
    }
plan-note-engine = rollout：rlctl 选择 { $engine }，因为设备是 { $device ->
        [cpu] CPU
       *[other] GPU
    }
plan-note-external = rollout：由一个进程调用 endpoint，不需要 GPU

plan-solve-title = 求解：{ $names }（按 { $runner } 的显存估算）
plan-solve-gpus = 最少的 GPU 数
plan-solve-max_response_length = 最长的回答
plan-solve-gpu_memory_utilization = rollout 引擎最大的显存占比
plan-solve-micro-batch = 最大的 micro-batch
plan-solve-tokens = micro-batch 最多的 token 数
plan-solve-best = 最优值
plan-solve-value = { $value }{ $now ->
    [none] { "" }
   *[other] （当前为 { $now }）
}
plan-solve-needs = 需要
plan-solve-peak = { $phase } { $gib } / { $of } GiB
plan-solve-stops = 上限
plan-solve-stop = { $value }：{ $phase } 需要 { $gib } GiB，可用 { $room } GiB；增长最多的是 { $part }
plan-solve-stop-refused = { $value }：{ $reason }
plan-solve-end = 已是有意义的最后一个值
plan-solve-none = 没有任何取值放得下这些 GPU。
plan-solve-refused = 没有可接受的取值：{ $reason }
