# 转换时的提示。

unsupported = '{ $key }' 在目标中没有对应：{ $reason }
    .about = 目标框架无法表达这个键或值。

no-equivalent = '{ $key }'：rlctl launch 会忽略该键，因为 rlctl 没有对应的设置：{ $reason }
    .several = { $names }：rlctl launch 会忽略这些键，因为 rlctl 没有对应的设置：{ $reason }
    .about = rlctl launch 会忽略 verl、Trinity-RFT 或 ROLL 的这个键，结果可能因此不同。
    .hint = 如果需要这个键，请用原框架运行该文件；否则请删除它

assumed = '{ $key }: { $value }' 是假设的：{ $reason }
    .about = 源配置缺少目标需要的值，rlctl 假设了一个；可以用 --assume 给出。
    .hint = { $fact ->
        [none] { "" }
       *[other] state { $fact }
    }
assumed_script = { $reason }

environment-fixed = '{ $key }: { $value }' 由环境变量算出，以后不再随它们变化
    .about = 由环境变量算出的值写成了数字。

silent-difference = { $reason }
    .about = 源配置没有写出，但源框架与目标框架的行为不同。
silent-difference_default = { $reason }（{ $values }）
silent-difference_engine = { $role }.engine 是 { $engine }，而 { $framework } 让所有角色使用策略的引擎：{ $role } 用 { $policy } 及其并行度；结果不变
mini-batch-within-step = mini-batch 的 { $mini } 条回答写成了一步的 { $step } 条，因为 verl 不接受更大的

other-reward = { $target } 的打分方式不同，因此同一个回答可能得到不同的奖励。{ $source } 读取：{ $ours }。{ $target } 读取：{ $theirs }
    .about = 目标框架用与来源不同的规则给回答打分。
    .hint = { $guide ->
        [none] 要保留来源的规则，请把它写成 { $target } 中您自己的奖励
       *[other] 要保留来源的规则，请把它写成 { $target } 中您自己的奖励（{ $guide }）
    }

rows-counted = rlctl 数出训练数据有 { $count } 行，轮数据此换算成步数
    .about = 计划按轮数计算，而训练数据在本地文件中，可以数出行数。
    .option = 如果会丢弃过长的提示，或运行时读取别的文件，请给出行数：{ $option }

target-refuses = { $framework } 会拒绝写出的配置：{ $reason }（{ $source }）
    .about = 目标框架自己的检查会拒绝转换后的配置。
    .hint = { $advice }

not-readable = rlctl 无法读取自己写出的 { $framework } 配置：{ $reason }
    .about = rlctl 写出的配置自己读不回来。
    .hint = 请检查信息中提到的值，并报告这个问题

not-carried = 按要求丢弃了目标无法表达的 { $count } 个键
    .about = 目标无法表达的键没有保留，转换回去时不会恢复。
not-carried_list = 目标无法表达的 { $count } 个键没有保留，因为命令行参数列表没有注释

not-expressible = { $reason }
    .about = 目标完全无法表达这个配置。
    .hint = { $advice }

## verl

devices-shared = verl 在全部 { $devices } 个设备上训练和生成，二者共用显存；源配置只用其中 { $trains } 个训练
    .about = verl 让训练和 rollout 共用所有设备。

devices-uneven = mini-batch 的 { $mini } 条回答不能平均分给 { $replicas } 个副本，verl 会报错退出
    .about = verl 不接受不能被副本数整除的 mini-batch。
    .hint = { $more ->
        [none] 使用 { $fewer } 个设备
       *[other] 使用 { $fewer } 个设备，或 { $more } 个
    }

other-trainer = 源配置启动的是 { $was }，而 rlctl 写出的是 verl.trainer.main_ppo，它{ $does }
    .about = 转换后的配置使用 verl 的另一个训练器。
    .hint = 要让 rollout 提前于训练，请用 --to verl@0.9 转换，并给 rollout 整节点
other-trainer_mode = 源配置启动的是 { $was }，而 rlctl 写出的是 verl.trainer.main_ppo（{ $key } { $mode }），它{ $does }
    .hint = 请比较两边的陈旧度

## 数据和奖励

data-columns = { $framework } 读取 { $expected }；{ $found }
    .about = 目标读取的数据列与源配置不同。
    .hint = { $advice }

data-columns_nested = { $framework } 只读取顶层的列；而答案嵌在另一列中：{ $nested }
    .hint = 把它写成单独的一列，例如 { $column }，并改填该列

data-files = { $framework } 读取以 { $endings } 结尾的文件，而数据是 { $path }
    .several = { $framework } 读取以 { $endings } 结尾的文件，而数据是 { $names }
    .about = 目标读取的文件与源配置不同。
    .hint = { $advice }
data-files_validation = verl 启动时会打开 data.val_files，即使从不评测，而配置没有给出这个文件
    .hint = 把 data.val_files 设为一个 prompt 文件

data-files_folder = Trinity-RFT 用 load_dataset 打开数据，它只接受目录或数据集名，不能打开单个文件：{ $path }
    .several = Trinity-RFT 用 load_dataset 打开数据，它只接受目录或数据集名，不能打开单个文件：{ $names }
    .hint = 把每个文件移到各自的目录里，并改填目录

other-environment = { $reason }
    .about = 目标无法运行源配置的环境，任务的内容会不同。
    .hint = { $advice }

other-data-and-reward = { $reason }
    .about = 目标读取的数据行或打分方式与源配置不同。
    .hint = 把每行写成一个问题和一个答案，在 default_reward_fn_type 中指定奖励（math_boxed_reward、countdown_reward 等），或在 default_workflow_type 中指定自己的 workflow

cut-responses-masked = Trinity 的 { $workflow } 不训练被截断的回答；源配置会训练，如有超长惩罚也会计入
    .about = Trinity 的 workflow 会屏蔽被截断的回答。

uncallable-reward = { $workflow } 无法调用 { $reward }：参数不一致，每个任务都会抛出 TypeError
    .about = Trinity 的 workflow 无法调用这个奖励函数。
    .hint = { $fits ->
        [none] 换一个奖励函数
       *[other] 把 { $other } 设为 { $fits }
    }

reward-missing = ROLL 需要奖励 worker，而源配置没有奖励
    .about = ROLL 需要奖励 worker。
    .hint = 添加一个：rewards.{ $domain }.worker_cls，以及 { $data }.domain_interleave_probs.{ $domain }: 1.0

start-script = 只有 start_rlvr_vl_pipeline.py 读取图像；start_rlvr_pipeline.py 接受同样的文件，但会忽略图像
    .about = ROLL 读取文件的哪些内容由启动脚本决定。
    .hint = 请用该脚本启动 ROLL；数据行需要 { $columns } 这些列

## 训练

micro-batches-in-sequences = ROLL 的 micro-batch 不论序列多短，最多只放 { $each } 条（每条最长 { $longest } 个 token）；源配置则最多装满 { $tokens } 个 token。结果不变，但短序列训练会变慢
    .about = ROLL 的 micro-batch 按序列计数，可能更慢。
    .hint = 回答较短时调大 per_device_train_batch_size，或设置 { $dynamic }，但后者会改变优化器步

micro-batches-added = Trinity 0.6（verl 0.8）把一个 mini-batch 的 m 个 micro-batch 的均值相加，梯度变成 m 倍，clip_grad 的裁剪也强 m 倍；AdamW 本身会抵消这个倍数
    .about = Trinity 0.6 对 mini-batch 中的 micro-batch 求和而不是求均值。
    .hint = 调大 trainer.max_token_len_per_gpu，直到一个 GPU 能一次放下它的 mini-batch，或把 clip_grad 乘以 m
micro-batches-added_own = Trinity 0.6（verl 0.8）把一个 mini-batch 的 m 个 micro-batch 的均值相加，梯度变成 m 倍，clip_grad 的裁剪也强 m 倍；AdamW 本身会抵消这个倍数。其他框架对整个 mini-batch 求一次均值。

other-gradient = Trinity 在 SAPO 的门控处截断了梯度：概率比为 1 时，更新是论文的 2 / tau 倍；离 1 更远时，门控不是关闭，而是放大权重
    .about = Trinity 的 SAPO 梯度与论文不同。

unknown-algorithm = 已知的 Trinity 版本都没有 algorithm_type '{ $name }'；rlctl 按 grpo 读取
    .about = Trinity 没有这个名称的算法。
    .hint = { $near ->
        [none] 请检查 algorithm.algorithm_type
       *[other] 是否想写 '{ $near }'？
    }

optimizer-replaced = Trinity 0.3.2 至 0.5 会用 algorithm.optimizer（包括它的默认值）覆盖策略的 optim：{ $values }。0.3.1 及更早的版本和 0.6 使用 optim 中的值
    .about = Trinity 0.3.2 至 0.5 会忽略 trainer_config 中设置的优化器。
    .hint = 如果文件是为 Trinity 0.3.1 或更早的版本写的，请在 algorithm.optimizer 中设置这些值

rows-of-steps = Trinity 把轨迹的每一步都算作 buffer.train_batch_size 中的一条经验；rlctl 在小批次和所有按训练步计的长度中假设每条轨迹只有一条
    .about = 在轨迹的各步上训练的运行按步计算批次。
    .hint = 若每条轨迹有多步，请在转换前把 buffer.train_batch_size 除以步数

endless-schedule = 没有 trainer.total_steps 时，Trinity 按 sys.maxsize 步计算 lr_warmup_steps_ratio，学习率一直接近 0；rlctl 按实际训练长度计算
    .about = 没有 trainer.total_steps 时，Trinity 的学习率调度不会推进。
    .hint = 设置 trainer.total_steps 或 lr_warmup_steps
endless-schedule_cosine = 没有 trainer.total_steps 时，Trinity 的 cosine 调度长达 sys.maxsize 步，学习率一直停在峰值；rlctl 按实际训练长度计算
    .hint = 设置 trainer.total_steps
