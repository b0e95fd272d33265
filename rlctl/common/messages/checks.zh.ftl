# `rlctl check` 的检查结果。说明见 checks.en.ftl。

## 任务读取的内容

mistyped-key = { $framework } 没有 '{ $key }' 这个键
    .about = 框架没有这个键，但它与某个已有的键只差一点，很可能是拼写错误；照此训练，想设置的内容不会生效。
    .hint = 改为 '{ $meant }'

stage = { $reason }
    .about = 某个阶段含有未知的键或无效的取值。

no-model = 没有设置 model.path
    .about = 没有设置 model.path。
    .hint = 设为本地目录，或 Hugging Face Hub 上的名称

no-data = data.train 为空
    .about = 没有训练数据（evaluate_only 时没有评测数据）。
    .hint = 添加数据集：data.train: [train.parquet]
no-data_evaluation = run.mode 是 evaluate_only，但 data.eval 为空
    .hint = 添加数据集：data.eval: [test.parquet]
no-data_path = 没有设置 { $key }
    .hint = 设置这个数据集的路径
no-data_experts = algorithm.objective 是 mix，还要从专家回答中学习，但 buffer.auxiliary 为空
    .hint = 把 buffer.auxiliary.sft_dataset.path 设为专家回答的文件

no-reward = 强化学习需要奖励，但 rewards 为空
    .about = 强化学习至少需要一个奖励。
    .hint = 添加一个：rewards: [type: rule]

reward-names = 有 { $count } 个奖励都叫 '{ $name }'，指标会混在一起
    .about = 奖励的名称必须互不相同，否则指标会混在一起。
    .hint = 给每个奖励起不同的名称

domain-weights = data.domain_weights 给 { $name } 设了权重，但没有叫这个名称的奖励；现有奖励：{ $known }
    .about = 按奖励给数据加权时，奖励不存在、训练目标没有奖励，或者同时用了两种混合设置。
    .hint = { $near ->
        [none] 改为某个奖励的名称，或删除这个权重
       *[other] 是否想写 '{ $near }'？
    }
domain-weights_objective = data.domain_weights 按奖励给数据加权，但 { $objective } 没有奖励
    .hint = 删除 data.domain_weights，改用 data.mixing 和 data.train 各项的 weight
domain-weights_mixing = data.mixing 是 { $value }，但 data.domain_weights 已经混合所有数据集的行
    .hint = 删除 data.mixing，或删除 data.domain_weights
domain-weights_source = { $key } 是 { $value }，但 data.domain_weights 已经混合所有数据集的行
    .hint = 删除这个权重，或删除 data.domain_weights

auxiliary-models = { $reason }
    .about = 辅助模型重名、设备不够，或者评审引用了不存在的辅助模型。
    .hint = { $advice }

judge-model = 评审 '{ $name }' 没有模型
    .about = 评审没有模型，或其引擎与分到的设备不匹配。
    .hint = 设置 { $key }：服务端使用的模型名；没有 base_url 时，设为本地目录或 Hub 上的名称
judge-model_devices = { $reason }
    .hint = { $advice }

path-missing = { $key }：本机没有 { $path }
    .several = 本机不存在以下 { $count } 个路径：{ $names }
    .about = 本地文件或目录不存在。
    .hint = 请改正路径；相对路径从运行 rlctl 的目录算起

no-data-juicer = 设置了 Data-Juicer 的算子，但 service.data_juicer 没有指定执行它的服务
    .about = 设置了 Data-Juicer 的算子，却没有执行它们的服务。
    .hint = 把 service.data_juicer.url 设为正在运行的服务，或设置 auto_start: true，并把 python 设为装有 py-data-juicer 的 Python

hub-name = { $key }：{ $path } 不是本地路径，运行时会从 Hugging Face Hub 下载
    .several = 以下 { $count } 个名称不是本地路径，任务将从 Hugging Face Hub 下载：{ $names }
    .about = 不是本地路径，运行时会从 Hugging Face Hub 下载。

code-syntax = { $file }:{ $line } 不是合法的 Python { $python }：{ $reason }
    .about = 配置所指的 Python 文件有语法错误。
    .hint = 请修正该文件
code-syntax_unreadable = 无法把 { $file } 作为 Python 读取：{ $reason }
    .hint = 请修正该文件

code-name = { $file } 中没有名为 '{ $name }' 的{ $kind ->
        [class] 类
       *[function] 函数
    }；其中有 { $known }
    .about = Python 文件里没有配置所指的函数或类。
    .hint = { $near ->
        [none] 把 { $key } 设为其中之一
       *[other] 是否想写 '{ $near }'？
    }
code-name_empty = { $file } 中没有名为 '{ $name }' 的{ $kind ->
        [class] 类，也没有别的类
       *[function] 函数，也没有别的函数
    }
    .hint = 在该文件中定义它，或改正路径

code-signature = rlctl 无法用 { $where } 的参数来调用奖励
    .about = 奖励函数不接受调用时传入的参数。
    .hint = 接受 response 和 answer，或 verl 的 data_source、solution_str、ground_truth 和 extra_info
code-signature_missing = { $where } 不接受 { $missing }；rlctl 按名称传入 { $called }
    .verl = { $where } 不接受 { $missing }；verl 按名称传入 { $called }，为第一条回答打分时就会报错退出
    .hint = 补上这些参数，或加上 **kwargs
code-signature_required = { $where } 需要 { $lacking }，但调用方不会传入；verl 为第一条回答打分时就会报错退出
    .hint = 为这些参数设默认值，或在 custom_reward_function.reward_kwargs 中设置
code-signature_args = { $where } 不接受 { $unknown }，而 { $key } 会传入它们
    .hint = 从 { $key } 中去掉它们，或补上这些参数

code-returns = { $where }：{ $name } 可能返回{ $kind ->
        [text] 文本
        [nothing] 空值
        [sequence] 列表
       *[mapping] 没有 'score' 的映射
    }，这不是奖励：rlctl 会{ $then ->
        [stop] 停止训练
       *[zero] 把这样的回答记为 0 分
    }
    .about = 奖励函数可能返回数字或带 score 的映射以外的值。
    .hint = 返回数字，或带 'score' 的映射

code-import = { $file }:{ $line } 导入了 { $module }，rlctl 的 Python 环境中没有安装它
    .about = Python 文件导入了 rlctl 的 Python 环境中没有安装的模块。
    .hint = 请在运行训练的机器上安装 { $module }

data-unreadable = 无法读取 { $file }：{ $reason }
    .about = 数据文件与其扩展名不符，或其中的行无法读取。
    .hint = 请修正该文件，或修正配置中的格式
data-unreadable_rows = { $reason }
    .hint = { $advice }

data-empty = { $file } 没有数据行
    .about = 数据文件没有数据行。
    .hint = 请换成有数据的文件

data-column_nested = { $file } 没有 '{ $column }' 列，但另一列中嵌有 '{ $nested }'
    .hint = 把 { $key } 设为 '{ $nested }'；Trinity-RFT 和 ROLL 只读取顶层的列，用它们训练时请把它写成单独的 '{ $column }' 列
data-column = { $file } 没有 '{ $column }' 列；它的列有 { $known }
    .about = 数据文件没有配置所指的列。
    .hint = { $near ->
        [none] 把 { $key } 设为其中之一
       *[other] 是否想写 '{ $near }'？
    }

data-images_text = { $file } 有图像列 '{ $column }'，但 model.modality 是 text：读取数据时就会停止
    .hint = { $fix }（即忽略图像）
data-images = { $file } 的第 { $row } 行在 prompt 中有 { $places } 处 <image>，却有 { $count } 张图像：读到这一行时会停止
    .about = 数据集中有模型看不到的图像，或者图像占位符与图像的数目不一致。
    .hint = 每张图像写一个 <image>；或者都不写，让图像全部放在最前面

data-split = { $folder } 没有 '{ $split }' 这个划分（split）；它有 { $known }
    .about = 数据文件夹中没有配置所指的划分（split）。
    .hint = { $fix }

data-rows = 训练数据有 { $rows } 行，而每步要取 { $step } 个 prompt，一步也训练不了
    .about = 训练数据的行数少于一步所需。
    .hint = { $first } 或更小

data-overlong = { $file } 的前 { $count } 个 { $what } 中有 { $over } 个超过上限 { $limit } 个 token（{ $shortest } 到 { $longest }，中位数 { $median }）
    .about = 抽查的行中，有些超过长度上限。
    .hint = { $first } 或更大，或缩短数据

data-overlong_words = { $file } 的前 { $count } 个提示词中有 { $over } 个的词数超过上限 { $limit } 个 token，最长 { $longest } 个词
    .hint = 缩短这些提示词，或把上限提高到远大于 { $longest }
    .verl = { $file } 的前 { $count } 个提示词中有 { $over } 个的词数超过上限 { $limit } 个 token，最长 { $longest } 个词：verl 会在遇到第一个时中止，或按 data.truncation 截断
    .trinity = { $file } 的前 { $count } 个提示词中有 { $over } 个的词数超过上限 { $limit } 个 token，最长 { $longest } 个词：Trinity-RFT 不会在它们的回复上训练
    .roll = { $file } 的前 { $count } 个提示词中有 { $over } 个的词数超过上限 { $limit } 个 token，最长 { $longest } 个词：ROLL 会丢弃这些行
data-overlong_dropped = { $file } 的前 { $count } 个提示词中有 { $over } 个的词数超过上限 { $limit } 个 token，最长 { $longest } 个词，这些行会被丢弃
    .hint = 把上限提高到远大于 { $longest }，或删除这些行

data-lengths = { $file } 的前 { $count } 个 { $what } 有 { $shortest } 到 { $longest } 个 token（中位数 { $median }）；上限为 { $limit }
    .about = 抽查若干行的 token 数。
data-lengths_unmeasured = 没有测量数据行的长度：{ $reason }

model-files = 无法加载 { $path }：{ $reason }
    .about = 本地模型目录没有权重或没有 config.json，或其中有文件已损坏，或只是 Git LFS 指针。
    .hint = 重新下载模型（hf download，或在克隆的仓库里执行 git lfs pull），或把 { $key } 设为完整的目录

model-files_shape = 无法加载 { $path }：{ $reason }
    .hint = 在运行的机器上下载权重，或把 { $key } 设为完整的目录

model-tokenizer = { $path } 中没有分词器
    .about = 本地目录没有分词器，或者分词器没有 prompt 要套用的对话模板。
    .hint = 下载该模型的 tokenizer.json 和 tokenizer_config.json，或把 model.tokenizer 设为含有它们的目录
model-tokenizer_template = { $path } 中的分词器没有对话模板，而 prompt 要套用对话模板
    .hint = 改用 instruct 模型，或把 model.tokenizer 设为带模板的分词器，或设置 model.chat_template

data-unanswered = { $file } 的前 { $count } 行中有 { $rows } 行没有答案
    .about = 抽查的行中，有些没有答案，而数据里有答案列。与答案比较的奖励会给它们打错分。
    .hint = 删除这些行，或把该数据集的 answer_key 设为含答案的列

data-unanswered_footer = { $file } 的 { $rows } 行中有 { $missing } 行没有答案
    .hint = 补上答案，或删除这些行

data-blank = { $file } 的前 { $count } 行中有 { $rows } 行提示词为空
    .about = 抽查的行中，有些什么也没问：模型会在没有提示的输出上训练。
    .hint = 删除这些行，或把该数据集的 prompt_key 设为含提示词的列

data-repeated = { $file } 的前 { $count } 行中有 { $repeated } 行与其他行重复：只有 { $distinct } 行各不相同
    .about = 数据文件中有大量相同的行。一个 epoch 会多次训练同一个 prompt，同一步里也可能出现两次。
    .hint = 去掉重复的行

data-overlap = 评测和训练读的是同一份数据 { $path }，评测结果只反映训练过的内容
    .about = 同一个文件、子集和划分既是训练数据又是评测数据。
    .hint = 留出一部分数据用于评测，并把 { $key } 设为它

data-overlap_rows = { $path } 的前 { $count } 行中有 { $shared } 行也是训练数据，评测结果会包含训练过的内容
    .hint = 从训练数据中去掉这些行，或把 { $key } 设为其他数据

resume-path = checkpoint.resume 是 path，但没有设置 checkpoint.resume_path
    .about = checkpoint.resume 与 checkpoint.resume_path 不一致。
    .hint = 设置 checkpoint.resume_path
resume-path_unread = 设置了 checkpoint.resume_path，但不会读取，因为 checkpoint.resume 是 { $resume }
    .hint = { $fix }

remote-path = checkpoint.remote 是 '{ $path }'；应为 fsspec 支持的 URL 或绝对路径
    .about = 应填本地目录的地方填成了 URL，或者反过来。
    .hint = 把 checkpoint.remote 设为 URL，例如 s3://bucket/folder
remote-path_folder = checkpoint.folder 是 '{ $path }'；检查点先写到本地，这里应为本地目录
    .hint = 把这个 URL 改设到 checkpoint.remote

## batch 与长度

no-end = 训练没有终点
    .about = 请设置 total_steps、total_epochs 或 total_optimizer_steps。
    .hint = 设置 schedule.total_steps 或 schedule.total_epochs

mini-batch-too-large = 一个 mini-batch 有 { $mini } 个回答，而一步只有 { $step }
    .about = mini-batch 大于整步的回答数。
    .hint = { $first } 或更小

mini-batch-uneven = 一步有 { $step } = { $full } x { $mini } + { $rest }，最后一个 mini-batch 只有 { $rest } 条回答
    .about = 一步的回答数不能被 mini-batch 整除，最后一个会更小。
    .hint = { $fix }

idle-replicas = 一个 mini-batch 有 { $mini } 条回答，却有 { $replicas } 个副本，其中 { $idle } 个会空闲
    .about = 副本数多于 mini-batch 的回答数，部分 GPU 会空闲。
    .hint = { $first } 或更大，或少用设备

replicas-uneven = mini-batch 的 { $mini } 条回答无法平均分给 { $replicas } 个副本（每个 { $each } 条）
    .about = mini-batch 无法平均分给各副本。
    .hint = 若要均分，{ $fix }

sequence-over-micro = 一条序列最长有 { $longest } 个 token，超过 { $key } 的 { $size }。rlctl 会单独计算它，占用更多显存。
    .roll = 一条序列最长有 { $longest } 个 token，超过 { $key } 的 { $size }。遇到第一条这么长的序列时，ROLL 会报错退出。
    .about = 单条序列可能超过 micro-batch 的 token 上限，占用比计划更多的显存。
    .hint = { $first } 或更大

context-too-short = prompt { $prompt } + 回答 { $response } = { $total } 个 token，而 model.max_context_tokens 只有 { $context }
    .verl = prompt { $prompt } + 回答 { $response } = { $total } 个 token，而 model.max_context_tokens 只有 { $context }：verl 会在该长度处截断回答
    .roll = prompt { $prompt } + 回答 { $response } = { $total } 个 token，而 model.max_context_tokens 只有 { $context }：ROLL 会在该长度处截断回答
    .about = max_prompt_tokens + max_response_tokens 超过 max_context_tokens。
    .hint = { $fix }，或缩短两者之一

model-positions = 序列最长有 { $longest } 个 token，而 { $model } 只有 { $positions } 个位置
    .about = 序列可能超过模型的 max_position_embeddings。
    .hint = 请缩短 prompt 或回答

response-bounds = rollout.sampling.min_response_tokens 是 { $least }，而 rollout.max_response_tokens 是 { $most }
    .about = min_response_tokens 大于 max_response_tokens。
    .hint = { $first } 或更小，或调大 rollout.max_response_tokens

evaluation-never = data.eval 有 { $count } 个数据集，但 schedule.evaluate_every 未设置间隔，从不评测
    .about = 设置了 data.eval，但从不评测。
    .hint = 设置 schedule.evaluate_every，或去掉 data.eval

evaluation-without-data = 设置了 schedule.evaluate_every，但 data.eval 为空
    .about = 设置了 evaluate_every，但 data.eval 为空。
    .hint = 在 data.eval 中添加数据集，或去掉 schedule.evaluate_every

step-prompts = { $prompts } 个 prompt x { $each } = { $responses } 条回答
step-experts = { $prompts } 个 prompt x { $each } + { $experts } 条专家回答 = { $responses } 条回答
step-responses = { $responses } 条回答

## 设备

devices-not-divisible = { $reason }
    .about = 设备数不能被各并行度整除。
    .hint = { $advice }

heads-undivided = { $key } 是 { $size }，无法均分 { $model } 的 { $heads } 个注意力头和 { $shared } 个 KV 头
    .about = 并行度不能均分模型的注意力头。
    .hint = { $fix }

engine-over-node = 每个 rollout 引擎使用 { $tensor } 个设备，而一个节点有 { $devices } 个，部分引擎会跨节点
    .about = 一个 rollout 引擎会跨节点。
    .hint = 把 rollout.parallel.tensor_parallel_size 设为 { $devices } 的约数

tensor-over-node = { $role }：{ $reason }
    .about = 训练的张量并行跨节点，速度会很慢。
    .hint = { $advice }

megatron-layout = { $role }：{ $reason }
    .about = Megatron 的某个并行度不能整除它所切分的模型维度。
    .hint = { $advice }

context-parallel = { $role }：{ $reason }
    .about = rlctl 的 Megatron 引擎做上下文并行时按注意力头切分，而上下文并行度不能整除头数。
    .hint = { $advice }

pipeline-idle = mini-batch 有 { $mini } 条回答 / { $replicas } 个副本 = { $share } 条，{ $stages } 级流水线只有 { $count } 个 micro-batch：每一级有 { $idle } 的时间空闲
    .about = micro-batch 数少于流水线级数，大部分时间耗在流水线气泡上。
    .hint = { $fix }，或调小 train.engine.pipeline_parallel_size
pipeline-idle_tokens = mini-batch 有 { $mini } 条回答 / { $replicas } 个副本 = { $share } 条，{ $stages } 级流水线最多有 { $count } 个 micro-batch：每一级有 { $idle } 的时间空闲
    .hint = { $fix }，或调小 train.engine.pipeline_parallel_size

role-devices = placement.rollout_devices 占用了 { $total } 个设备中的 { $rollout } 个，训练没有设备可用
    .about = 某个角色分到不存在的设备，或没有设备。
    .hint = { $fix }
role-devices_policy = policy 没有设备
    .hint = 设置 placement.roles.policy.devices
role-devices_unknown = placement.roles 中的 '{ $role }' 不是角色
    .hint = 角色有 { $known }
role-devices_outside = { $key } 列出了 { $wrong }，而设备编号是 0 到 { $last }（{ $nodes } 个节点 x { $devices }）
role-devices_twice = { $key } 把同一个设备列了两次

role-variables = runtime.role_env_vars 中的 '{ $role }' 不是角色
    .about = runtime.role_env_vars 写了不存在的角色。
    .hint = 角色有 { $known }

cluster-too-small = 配置要求 { $nodes } x { $devices } 个 GPU（nodes x devices_per_node），而集群只有 { $known_nodes } x { $known_devices }
    .about = 集群的设备不够。
    .hint = { $fix }，或换用更大的集群。想在本机试用：rlctl try --tiny 运行一个随机小模型；rlctl launch --cpu 缩小规模，列出改动并询问
    .otherwise = 请换用更大的集群，或减少设备并调小各并行度。想在本机试用：rlctl try --tiny 运行一个随机小模型；rlctl launch --cpu 缩小规模，列出改动并询问
cluster-too-small_cpu = placement.device 是 cuda，但本机没有 GPU
    .hint = 想在本机试用：rlctl try --tiny 运行一个随机小模型；rlctl launch --cpu 缩小规模，列出改动并询问
cluster-too-small_cores = 配置要求 { $nodes } x { $devices } 个设备（nodes x devices_per_node），而本机{ $gpu ->
        [none] 没有 GPU，只有 { $cores } 个核
       *[unused] 只有 { $cores } 个核
    }
    .hint = 想在本机试用：rlctl try --tiny 运行一个随机小模型；rlctl launch --cpu 缩小规模，列出改动并询问；--set runtime.ray.num_cpus={ $asked } 会在这些核上运行 { $asked } 个 worker

memory = { $reason }
    .about = 预计显存占用超出单卡显存。
    .hint = { $first }
memory_several = { $reason }
    .hint = 设置 { $settings }
memory_hardware = { $reason }
    .hint = 使用更多 GPU，或显存更大的 GPU

## 调度

staleness = rollout 最多提前 { $ahead } 步，回答最多落后 { $made } 步，而 weight_sync.max_staleness_steps 是 { $most }：提前生成的回答大多会被丢弃
    .about = 按这个调度生成的回答比 weight_sync.max_staleness_steps 更陈旧，会被丢弃。
    .hint = { $fix }
staleness_sync = 权重每 { $every } 步同步一次，即使不提前生成，回答也最多落后 { $behind } 步，而 weight_sync.max_staleness_steps 是 { $most }：有些步会没有可训练的数据
    .hint = { $fix }
staleness_strategy = 权重每 { $every } 步同步一次，回答最多落后 { $made } 个版本，staleness_control 会丢弃整步的回答，没有可训练的数据
    .hint = 把 staleness_control 的 max_staleness 设为 { $made } 或更大，或把 weight_sync.every 设为 1

buffer-too-small = buffer.capacity 是 { $capacity }，而一步需要 { $responses } 条回答，任务会一直等待
    .about = buffer.capacity 小于一步的回答数，任务会卡死。
    .hint = { $fix }

over-rollout = rollout.oversampling.ratio 为 1：这一步的所有 prompt 都会被当作长尾放弃
    .about = rollout.oversampling.ratio 为 1 会放弃所有 prompt。
    .hint = 把 rollout.oversampling.ratio 设为小于 1：它是长尾 prompt 的比例

difficulty-ahead = data.curriculum.order 按难度排序，但异步 rollout 开始新 prompt 时，前面 prompt 的奖励还不知道
    .about = 按难度排序需要奖励，而异步 rollout 时奖励还没有算出。
    .hint = { $fix }

## 算法

group-of-one = { $name } 比较同一 prompt 的多条回答，但 batch.responses_per_prompt 是 1，优势就等于奖励本身
    .about = responses_per_prompt 为 1 时，组内相对的优势估计没有基线。
    .hint = { $fix }；通常为 4 到 16

old-pass-left-out = { $name } 需要重新计算旧 log-prob，而 algorithm.old_log_probs: rollout 跳过了这一遍
    .about = 这种优势估计需要重新计算旧 log-prob，而 old_log_probs: rollout 跳过了这一遍。
    .hint = { $fix }

gae-without-critic = algorithm.advantage 是 gae，但 critic 为 null
    .about = GAE 需要 critic。
    .hint = { $fix }（critic 写成空的一节即使用策略的模型）

critic-unused = 配置了 critic，但 { $name } 用不到
    .about = 配置了 critic，但这种优势估计用不到。
    .hint = { $fix }

warmup-without-critic = 设置了 schedule.critic_warmup_steps，但 { $name } 用不到 critic，前 { $steps } 步什么也不训练
    .about = 设置了 critic_warmup_steps，但没有 critic。
    .hint = { $fix }

kl-off = { $key } 为 0，这一项 KL 不起作用
    .about = KL 系数为 0，不起作用，也不会加载参考模型。
    .hint = 把 { $key } 设为大于 0，或{ $fix }

kl-twice = 损失（系数 { $loss }）和奖励里都有 KL 惩罚，策略受到参考模型的双重约束
    .about = 通常只用一处 KL 惩罚：GRPO 放在损失里，PPO 放在奖励里。两处都有时，约束比任何一个系数所表示的都更强。
    .hint = 只保留一处：{ $fix }

kl-without-pull = algorithm.kl_in_loss.estimator 是 k1，作为损失时梯度期望为 0，起不到约束作用
    .about = k1 作为损失时梯度期望为 0，这一项 KL 起不到约束作用。
    .hint = { $fix }；k1+ 的值同 k1，梯度同 k2

reference-unused = 配置了参考模型，但没有 KL 项使用它
    .about = 配置了参考模型，但没有 KL 项使用它。
    .hint = 设置 algorithm.kl_in_loss，或{ $fix }

greedy-training = rollout.sampling.temperature 为 0，同一组的回答会完全相同
    .about = 采样温度为 0：同一组的回答会完全相同。
    .hint = { $fix }

sampling-cut = { $cut } 截断了采样，而损失按完整分布计算
    .about = top_p/top_k 截断了采样，而损失按完整分布计算。
    .hint = 要按完整分布采样，请把 rollout.sampling.top_p 设为 1.0，rollout.sampling.top_k 设为 null

learning-rate = { $key } 为 0，什么也学不到
    .about = 学习率为 0，或大于 1e-3。
    .hint = 把 { $key } 设为大于 0
learning-rate_high = { $key } 是 { $rate }；全参数微调超过约 { $highest } 就会发散
    .hint = 通常为 1e-6 到 1e-5

updates-rounded-away = 学习率为 { $rate } 时，bfloat16 权重的更新大多被舍入为 0，权重不会变化
    .about = 在这个学习率下，bfloat16 权重的更新会被舍入为 0。
    .hint = { $fix }；计算仍可使用 bfloat16

warmup = 预热同时给了 warmup_steps 和 warmup_ratio
    .about = 预热给了两次（步数和比例），或比整个训练还长。
    .hint = { $fix }
warmup_long = 预热 { $warmup } 比整个训练的 { $total }（单位 { $unit }）还长，学习率到不了峰值
    .hint = { $first } 或更小

clip-range = algorithm.policy_loss.clip_low 是 { $low }。概率比不会小于 0，下界永远不起作用。
    .about = 裁剪界限不起作用，或互相矛盾。
    .hint = 通常为 0.2
clip-range_high = algorithm.policy_loss.clip_high 是 { $high }，小于 algorithm.policy_loss.clip_low 的 { $low }，提高概率的更新会比降低概率的更新更早被裁剪
    .hint = 把 algorithm.policy_loss.clip_high 设为 { $low } 或更大（DAPO：0.28 和 0.2）
clip-range_dual = algorithm.policy_loss.dual_clip 是 { $dual }，没有超过 1 + algorithm.policy_loss.clip_high = { $bound }，与上界矛盾
    .hint = 通常为 3.0，null 表示关闭

## 任务留下的内容

never-saved = 任务不会保存任何权重：没有设置保存间隔，结束时不保存，也不导出
    .about = 任务不会保存任何权重。
    .hint = { $fix }

tracker = { $tracker } 的 { $mode } 模式需要{ $mode ->
        [local] 服务器
       *[other] 账号和网络
    }
    .about = 实验跟踪工具需要账号或服务器。
    .hint = 没有这些条件时，用 offline 模式写成文件，以后再上传

tracker-twice = 实验跟踪工具 { $tracker } 列了 { $count } 次
    .about = 同一个实验跟踪工具列了两次。
    .hint = 只保留一个

literal-secret = '{ $key }' 含有明文密钥
    .about = 文件中含有明文密钥。
    .hint = 写成 { $expression }，并在环境变量中设置 NAME

secret-in-name = { $key } 是 { $value }，任务的目录会以环境变量中的密钥命名
    .about = 任务的某个目录会以环境变量中的密钥命名。
    .hint = 把 { $key } 设为不含密钥的名称

folder-name = { $key } 是 { $value }：{ $reason }
    .about = 任务的名称不能用作其目录的名称。
    .hint = { $fix }；字母、数字、'.'、'_' 和 '-' 在任何地方都安全

## rlctl 运行时的支持情况

not-applied = '{ $key }'：{ $reason }
    .several = { $names }：{ $reason }
    .about = rlctl launch 不使用源框架的这个默认值；它只影响速度或显存。
not-applied_engine = { $reason }
    .hint = { $advice }
not-applied_profiler = profiling.tool 是 { $tool }，但 profiling.steps 没有列出步，不会做性能分析

not-used = '{ $key }'：{ $reason }
    .several = { $names }：{ $reason }
    .about = rlctl launch 不使用这个键：它只影响速度、显存或日志，或在此配置中没有作用对象。
    .hint = 可以保留给用到它的框架；不影响 rlctl 的结果
not-used_engine = { $reason }
    .hint = { $advice }
not-used_profiler = '{ $key }'：rlctl 只对 profiling.steps 列出的步做整步的性能分析
    .several = { $names }：rlctl 只对 profiling.steps 列出的步做整步的性能分析
    .hint = 可以去掉；不影响 rlctl 的结果

not-supported = '{ $key }'：{ $reason }
    .several = { $names }：{ $reason }
    .about = rlctl launch 不支持；原因见具体信息。
    .hint = 改回默认值，或去掉它
not-supported_engine = { $reason }
    .hint = { $advice }
not-supported_temperature = '{ $key }' 是 { $own }，而训练时所有 logits 都除以同一个温度 { $temperature }
    .hint = 去掉它，或{ $fix }：log-prob 就按温度 1 计算
not-supported_strategy = algorithm.sample_strategy 是 mix，而 { $objective } 只用本步的回答训练
    .hint = 去掉 sample_strategy 及其参数，或把 algorithm.objective 设为 mix
not-supported_strategy-args = algorithm.sample_strategy_args 含有 { $unknown }；{ $objective } 配合 { $strategy } 时应为 { $known }
    .hint = { $objective ->
        [mix] 专家回答的比例由 algorithm.objective.expert_share 设置
       *[other] 去掉它们
    }
not-supported_replay-mix = algorithm.router_replay 是 recompute，但更新之前没有哪一遍会读取 mix 的专家回答
    .hint = { $fix }
not-supported_replay-agents = algorithm.router_replay 是 rollout，但引擎只报告单个回答的专家，不报告智能体各轮的专家
    .hint = 请设为 recompute
not-supported_replay-rollout = algorithm.router_replay 是 recompute，但 algorithm.old_log_probs: rollout 跳过了记录专家路由的那一遍计算
    .hint = 把 algorithm.old_log_probs 设为 recompute，或{ $fix }
not-supported_profiler-gpu = profiling.tool torch_memory 记录 GPU 显存分配，但任务在 CPU 上运行
    .hint = 把 profiling.tool 设为 torch，contents 设为 [memory]
not-supported_profiler-role = profiling.roles 中有 '{ $role }'；应为 { $known } 之一
    .hint = { $near ->
        [none] 请用其中之一
       *[other] 是否想写 '{ $near }'？
    }
not-supported_profiler-setting = '{ $key }'：{ $tool } 没有这个设置；它有 { $known }
    .hint = { $near ->
        [none] 请用其中之一
       *[other] 是否想写 '{ $near }'？
    }
not-supported_profiler-value = '{ $key }' 是 { $value }；应为由 { $known } 组成的列表
not-supported_endpoint-address = rollout.engine 是 external，但没有设置 rollout.engine.base_url
    .hint = 设置 rollout.engine.base_url，例如 http://host:8000/v1
not-supported_endpoint-trains = rollout.engine 是 external，但 rlctl 无法向外部服务同步新权重，要训练的任务不能使用它
    .hint = { $fix }
not-supported_rollout-only = run.mode 是 rollout_only，但生成的回答无处保存：没有持久的缓冲区，也没有文件
    .hint = 把 buffer 设为 sql 或 file，或把 rollout.responses_folder 设为文件，例如 responses.parquet
not-supported_rollout-objective = run.mode 是 rollout_only，但目标 { $objective } 不生成回答
    .hint = 把 algorithm.objective 设为 rl
not-supported_agents = { $reason }
    .hint = { $advice }
not-supported_recorded = '{ $key }' 指定了已有的回答，但只有 run.mode evaluate_only 会给它们打分，也只有 sft 会在上面计算损失
    .hint = 把 run.mode 设为 evaluate_only，或去掉 { $key }
not-supported_memory-buffer = run.mode 是 train_only，但内存中的缓冲区会随生成它的任务一起结束
    .hint = 把 buffer 设为 sql，并给出 url
not-supported_no-buffer = run.mode 是 train_only，但没有设置 { $key }
    .hint = 把 { $key } 设为负责 rollout 的任务所用的缓冲区
not-supported_two-runs = { $key } 用于 rollout 和训练在同一任务中的情况；这里由 weight_sync.every 决定何时交换权重
    .hint = 去掉 { $key }；weight_sync.max_staleness_steps 限制回答的陈旧程度
not-supported_wait = weight_sync.on_stale 是 wait，但负责 rollout 的任务不知道训练任务进行到哪一步
    .hint = { $fix }
not-supported_epochs = { $key } 按 epoch 计数，但从缓冲区训练的任务没有 epoch
    .hint = 用步数设置 { $key }
not-supported_replay-capacity = buffer.capacity 是 { $capacity }，而一步需要 { $step } 条回答，回放缓冲区满了会丢弃一部分
    .hint = { $first } 或更大

## 其他框架能否接受

runner-refuses = { $reason }；{ $source } 会拒绝它
    .about = 文件所属的框架，或 --runner 指定的框架，会拒绝这个配置；信息中注明其源码位置。用 --runner rlctl 检查时只是警告。
    .hint = { $advice }

runner-ignores = { $reason }；见 { $source }
    .about = 框架接受这个设置但不会用到它：另一个设置把它关闭或覆盖了；信息中注明其源码位置。
    .hint = { $advice }

runner-release = 文件按 { $read } 读取，但按 { $checked } 的要求检查
    .about = 文件所属的版本与所检查的框架版本不同。

here-late = { $subject } 在 { $seconds } 秒内没有响应
    .about = `--here`：对本机或某个服务的探测没有按时结束，因此不知道它的状态。
    .hint = 看看它是否卡住，然后再检查一次
here-late_failed = 无法探测 { $subject }：{ $reason }
    .hint = 查明系统拒绝的原因，然后再检查一次

here-gpus = 配置在每个节点上使用 { $needed } 块 GPU，而本机有 { $found } 块{ $hidden ->
        [0] {""}
       *[other] （CUDA_VISIBLE_DEVICES 隐藏了 { $hidden } 块）
    }
    .about = `--here`：本机 GPU 不够，或者驱动出错、太旧。
    .hint = { $fix }，或换到有 { $needed } 块 GPU 的机器上运行
    .otherwise = 换到有 { $needed } 块 GPU 的机器上运行
here-gpus_none = 配置在每个节点上使用 { $needed } 块 GPU，而本机没有 nvidia-smi，即没有驱动
    .hint = 换到有 GPU 的机器上运行；rlctl try --tiny 可以在 CPU 上试跑几步
here-gpus_driver = GPU 驱动没有响应：{ $reason }
    .hint = 运行 nvidia-smi 查看；如果刚更新过驱动，请重启机器
here-gpus_cuda = 驱动支持 CUDA { $driver }，而安装的 torch 是为 CUDA { $wanted } 编译的
    .hint = 更新驱动，或安装为 CUDA { $driver } 编译的 torch

here-busy = GPU { $gpu } 已占用 { $used } GiB，共 { $total } GiB
    .about = `--here`：GPU 已被其他进程占用。
    .hint = 结束 nvidia-smi 列出的占用进程，或用 CUDA_VISIBLE_DEVICES 选择其他 GPU

here-shm = /dev/shm 只有 { $mib } MiB，多块 GPU 时 NCCL 和 Ray 不够用
    .about = `--here`：共享内存太小，进程之间无法正常交换数据。
    .hint = 启动容器时加上 --shm-size=32g 或 --ipc=host

here-folder = { $key } 为 { $path }，无法写入：{ $reason }
    .about = `--here`：运行的某个目录无法写入。
    .hint = 把 { $key } 设为可写的目录

here-disk = { $kept ->
        [one] 一个检查点需要 { $each } GiB
       *[other] { $kept } 个检查点（每个 { $each } GiB）共需要 { $needed } GiB
    }，而 { $path } 只剩 { $free } GiB
    .about = `--here`：运行保留的检查点超过磁盘剩余空间。
    .hint = { $fix }，或把 checkpoint.folder 设到更大的磁盘上
    .otherwise = 把 checkpoint.folder 设到更大的磁盘上，或从 checkpoint.save_contents 中去掉 optimizer

here-port = 端口 { $port } 已被占用
    .about = `--here`：运行要监听的端口已被占用。
    .hint = 把 { $key } 设为空闲端口，或结束监听该端口的进程（ss -ltnp）
here-port_refused = 无法监听端口 { $port }
    .hint = 把 { $key } 设为 1024 到 65535 之间的端口

here-sandbox = 无法隔离回答中的程序：{ $reason }
    .about = `--here`：用来运行回答中程序的沙箱在本机不可用。
    .hint = { $advice }

here-ray = 无法连接 { $address } 的 Ray 集群：{ $reason }
    .about = `--here`：Ray 集群没有响应，或其 Ray、Python 版本与本机不同。
    .hint = 在头节点上启动 Ray（ray start --head），并检查 runtime.ray.address
here-ray_version = { $address } 的 Ray 集群使用 { $name } { $there }，而本机是 { $here }
    .hint = 在所有机器上安装相同版本的 { $name }

here-hub = 本机没有 { $name }，又无法连接 { $place }：{ $reason }
    .about = `--here`：本机没有某个模型或数据集，而 hub 也不提供。
    .hint = 在有网络的机器上下载（hf download），再把 { $key } 设为该目录；或把 HF_ENDPOINT 设为镜像
here-hub_offline = 本机缓存中没有 { $name }，而 HF_HUB_OFFLINE 禁止下载
    .hint = 先下载（hf download { $name }）
here-hub_login = { $place } 不提供 { $name }：{ $login ->
        [no] 本机没有登录，而它需要申请、不公开或不存在
       *[other] 它需要申请或不公开，而你的账号没有权限
    }
    .hint = 在它的页面申请权限，然后运行 hf auth login 或设置 HF_TOKEN
here-hub_unknown = { $place } 上没有 { $name }
    .hint = 更正 { $key }

here-tracker = 本机没有 { $tracker } 的 API key
    .about = `--here`：跟踪服务没有登录、服务器拒绝密钥，或无法连接。
    .hint = 先登录，或设置 { $variable }；离线模式不需要登录
here-tracker_refused = { $tracker }（{ $place }）拒绝本机的 API key
    .hint = 重新登录，或更正 { $variable }
here-tracker_unreached = 无法连接 { $tracker }（{ $place }）：{ $reason }
    .hint = 改用离线模式：先写入文件，之后再上传

here-endpoint = 无法连接 { $place }：{ $reason }
    .about = `--here`：配置中的某个服务地址没有响应、拒绝密钥，或不提供该模型。
    .hint = 启动该服务，或更正 { $key }
here-endpoint_refused = { $place } 拒绝 API key（HTTP { $status }）
    .hint = 更正 { $key } 旁边的 api_key
here-endpoint_model = { $place } 不提供 { $model }，它提供 { $served }
    .hint = 改用它提供的模型名
