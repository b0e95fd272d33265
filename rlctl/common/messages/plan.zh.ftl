# rlctl plan 的输出。

plan-gpus = { $nodes } 个节点 x { $each } 张 GPU
plan-cpus = { $each } 个 CPU 进程
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
plan-on = 设备 { $devices }

plan-batch = batch
plan-schedule = 进度安排
plan-memory = 显存
plan-cost = 开销
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
plan-steps-unknown = 步数未知（用 --rows N 给出训练数据的行数）
plan-dry = 直到 buffer 取空
plan-dry-within = 最多{ $steps }，或直到 buffer 取空
plan-evaluates = 每 { $count } 步评测一次
plan-evaluates-never = 训练中不评测
plan-saves = 每 { $count } 步保存一次
plan-saves-never = 训练中不保存 checkpoint
plan-gib = { $gib } / { $of } GiB
plan-rest = 其余 { $gib }
plan-role-memory = { $role } 每个设备 { $gib } GiB：
plan-operations = 每步最多 { $flops } 次运算
plan-training-time = 训练约 { $time }
plan-generation-time = 生成约 { $time }
plan-overflow = 显存不足：{ $problem }
plan-remedy = 可以这样调整：
plan-no-remedy = rlctl 试过的设置都放不下
plan-ignored = rlctl launch 会忽略的键
plan-notes = 说明
plan-rows = 训练数据共 { $count } 行，包括训练时会丢弃的超长 prompt。
plan-saved = 执行计划已保存为 { $file }
plan-next = 下一步：rlctl launch ... --plan { $file }
plan-refused = rlctl launch 还不能运行此配置，原因见上。
plan-refused_saved = rlctl launch 还不能运行此配置，原因见上；未保存执行计划。
plan-now = （当前为 { $value }）
