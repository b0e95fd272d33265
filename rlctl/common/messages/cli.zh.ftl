# 单独运行 rlctl 时的输出，以及没有自带建议的错误该如何处理。

start = rlctl 转换、检查和运行 verl、Trinity-RFT 与 ROLL 的强化学习后训练配置。从这里开始（全部命令：rlctl --help）：
start-convert = 转换配置，并报告每个键的去向
start-check = 在训练前找出问题
start-tui = 在终端里编辑配置、监控任务
start-quickstart = 在本机用五分钟训练一个极小的模型

next-usage = { $command } 会显示用法
next-script = 加上 --trace 可以在沙箱中运行脚本，而不是解析它
next-document = 请改正该处，或换一个文件，再运行一次
next-config = rlctl explain KEY 会显示这个键接受哪些值
next-packages = rlctl doctor 会显示需要安装什么
next-run = rlctl check 可以检查配置，rlctl doctor 可以检查安装

explain-type = 类型
explain-default = 默认值
explain-no-default = 无，必须设置
explain-unit = 单位
explain-range = 范围
explain-secret = 密钥
explain-secret-how = 请写成 { $expression }；rlctl 不会显示或保存它
explain-launch = 运行时
explain-status-honoured = 支持
explain-status-descriptive = 仅作记录，不影响运行
explain-status-front-end = 在运行前使用
explain-status-noted = 忽略
explain-status-refused = 不支持
explain-because = { $status }；{ $reason }
explain-set = 设置方法
explain-note = 说明
explain-only = 没有对应的 rlctl 键：它只在 { $framework } 中有意义
explain-is = 即 { $key }
explain-releases = ；版本 { $releases }
explain-frameworks = 各框架中的名称：
explain-others = 其他框架中的名称：
explain-nothing = 没有对应的键：{ $notes }
explain-also = 其他选项中的同名键：
explain-options = 选项：
explain-with = 参数 { $names }
explain-keys = 键：
explain-may-be = { $word } 可能是：
explain-of-tools = { $tools } 的 { $word } 对应：

# rlctl launch

launch-not-started = 没有启动任何任务

# rlctl batch

batch-what = 项目
batch-value = 数值
batch-unit = 单位
batch-formula = 算式
batch-key = 键
batch-where = 位置
batch-default = 默认值
batch-stage = 阶段 { $name }

data-operator = 算子
data-in = 输入
data-out = 输出
data-dropped = 被 { $operator } 丢弃
data-kept = 保留
data-counted = 长度
data-row-count = 行数
data-half = p50
data-most = p99
data-longest = 最长
data-prompt-tokens = prompt 的 token 数
data-prompt-characters = prompt 的字符数
data-sequence-tokens = 每行的 token 数
data-sequence-characters = 每行的字符数
data-lengths-exist = { $file } 已存在
data-lengths-hint = 请换一个文件名

# rlctl diff

diff-key = 键
diff-from = 来自
diff-default = 默认值
diff-not-compared = { $file }：以下键未参与比较，因为 rlctl 没有对应的键：{ $keys }
diff-no-script = --env 用于启动脚本，而 { $first } 和 { $second } 都不是
diff-found = { $first } 与 { $second }：{ $count ->
        [0] 含义相同
       *[other] 有 { $count } 处不同
    }

review-total = { $count } 个配置有改动
review-colon = ：
review-fails = { $count } 个会运行失败
review-warns = { $count } 个有新警告
review-clean = 没有新问题
review-none = 没有改动任何训练配置。
review-config = 配置
review-changes = 改动
review-findings = 新问题
review-memory = 单卡显存
review-time = 单步耗时
review-was = （原名 { $name }）
review-built = （本身未改，但用到了 { $names }）
review-added = 新增配置
review-deleted = 已删除
review-unknown = 无法比较
review-same = 不影响训练
review-uncompared = 只改了 rlctl 不了解其作用的键
review-and = 等，另有 { $count } 项
review-fixed = 修复 { $count } 个
review-old = 原有 { $count } 个
review-overflow = **放不下**
review-overflow-before = 放不下，与改动前一样
review-unread-before = 改动前的版本无法读取：{ $reason }
review-other-line = （该行未改动）
review-setting = 设置
review-before = 改动前
review-after = 改动后
review-means = rlctl 中的键
review-derived = 源自 { $key }
review-default = （默认值）
review-slight = { $count } 处名称、检查点或日志方面的改动
review-not-compared = 有改动，但因 rlctl 没有对应的键而未比较：{ $keys }
review-gone = ✅ 已修复：{ $findings }
review-more-findings = 另有 { $count } 个问题，可用 rlctl check 查看
review-more-settings = 另有 { $count } 项设置，可用 rlctl diff 查看。
review-more-configs = 另有 { $count } 个配置。
review-more = 为避免评论过长，未列出另外 { $count } 个配置的改动；完整结果见 rlctl review --json。
review-skipped = 未评审：{ $file }：{ $reason }
review-more-skipped = 另有 { $count } 个文件
review-compared = 比较 { $head } 与分支分叉处的 { $base }。
review-cluster = 显存与耗时是在 { $cluster } 上的估计值。
review-no-cluster = 未指定集群（--cluster 1x8:H100），显存为占用最多的角色的估计值，没有单步耗时。
review-scope = 没有运行任何代码，也没有检查数据和模型的路径。
review-posted = 评审：{ $what }

# 任务结束时

end-stage = 阶段
end-steps = 步数
end-evaluation = 评测（训练前 -> 训练后）
end-time = 耗时
end-pace = token/秒
end-phases = 各环节占比
end-finished = 已完成：{ $folder }
end-stopped = 中途停止：{ $folder }
end-failed = 失败：{ $folder }
end-show = 查看：
end-follow = 跟踪：
end-resume = 继续：
end-weights = 权重：
end-hugging-face = { $path }（Hugging Face 格式）
end-saved = 已保存：
end-stages = 阶段 { $names } 已完成
end-step = { $stage } 的第 { $step } 步：{ $folder }
end-no-step = { $over }，{ $stage } 尚未保存任何一步；恢复时从 { $stage } 开始
end-nothing = 尚无内容；恢复时从头开始

# rlctl try

sample-prompt-id = prompt 编号
sample-source = 数据集
sample-prompt = prompt
sample-answer = 标准答案
sample-weight-version = 权重版本

code-when = { $code }，{ $when }
when-start = 第一步之前
when-engine = 启动 rollout 引擎时
when-load = 加载模型时
when-generation = 第一次 rollout 时
when-rollout = 第一次 rollout 之后
when-update = 第一次更新参数时
when-validation = 第一次验证时
when-sync = 第一次权重同步时
when-save = 第一次保存时
