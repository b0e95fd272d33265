# 转换报告和检查结果表：标题，以及级别和分类的名称。

rank-breaks = 训练会出错
rank-objective = 训练目标会变
rank-schedule = 调度与 batch
rank-data = 数据与奖励
rank-resources = 显存与速度
rank-names = 名称与文件
rank-reading = 读取方式
rank-none = 对训练没有影响
rank-converted = 已转换
rank-written = 写出的内容

level-error = 错误
level-warning = 警告
level-note = 提示

report-failed = { $way }：失败，{ $count } 个错误
report-unreadable = 什么也没有读到
report-keys = { $way }：共 { $count } 个键：{ $shares }

share-converted = 已转换 { $count } 个
share-rounded = 取整 { $count } 个
share-lost = { $target } 无对应项 { $count } 个
share-kept = 仅 { $source } 使用 { $count } 个
share-ignored = { $source } 自身忽略 { $count } 个
share-unknown = { $source } 不认识 { $count } 个

part-decide = 训练前需要确认
part-changes = 训练会有变化
part-computed = 换算得到

entry-unknown = { $source } 没有这个键{ $near ->
        [none] { "" }
       *[other] ；{ $near }
    }

rest = 另有：{ $counts }（-v 查看详情）
rest-lost = { $count } 个键在 { $target } 中无对应项，只影响显存、速度或名称：{ $keys }
rest-carried = { $count } 个键只有 { $source } 会读取
rest-dead = { $count } 个键 { $source } 自身也忽略
rest-defaults = 写明了 { $source } 的 { $count } 个默认值
rest-notes = { $count } 条提示

origin-mapped = 照搬
origin-derived = 换算
origin-defaulted = 源框架的默认值
origin-assumed = 假定
origin-carried = 上次转换时保留

data-guide = { $hint }（脚本见 { $url }）

convert-wrote = 已写入 { $file }
convert-refused = 未写入任何文件（--on-loss error）：有键会丢失，或训练会改变。
convert-next = 下一步：{ $command }
convert-next_stdout = 下一步：用 -o { $file } 写入文件，然后运行 { $command }
convert-next_refused = 下一步：在源文件中修改上面的键，或用 --on-loss warn 照常写入

check-errors = { $count } 个错误
check-warnings = { $count } 个警告
check-clean = 没有发现问题
check-run-by = { $release }，由 { $runner } 运行
check-ignored = 已忽略 { $count } 条结果：{ $codes }
check-notes = 另有 { $count } 条提示（rlctl check -v 查看）
check-runtime = 仅与 rlctl launch 有关（{ $framework } 自身会读取这些键；若由 { $framework } 运行请保留）
check-none = 这些文件都不是配置文件
check-skipped = 已跳过：{ $file }：{ $reason }
place-line = 第 { $line } 行
name-place = { $name }（第 { $line } 行）
in-stages = 阶段 { $names }：{ $message }
separator = ，
name-separator = 、
semicolon = ；
and-more = ，以及另外 { $count } 项
keys-several = { $count } 个键（{ $names }）
keys-section = { $section } 下的 { $count } 个键

folder-written = 已转换
folder-losses = 已转换但有丢失
folder-skipped = 已跳过
folder-failed = 失败
folder-files = 共 { $count } 个文件：{ $counts }
folder-none = 目录是空的

# 检查了什么
check-checked = 已检查：{ $subjects }
check-unchecked = 未检查：{ $subjects }
scope-separator = ；
scope-unchecked = { $name }（{ $reason }）
scope-config = 键、批次、设备、算法、路径
scope-requirements = 该版本会拒绝什么
scope-rewards = 奖励代码
scope-columns = 数据列
scope-lengths = 各行长度
scope-memory = 显存
scope-here = 本机及其服务
unchecked-release = rlctl 没有读过 { $value } 的源码
unchecked-absent = 有文件不在本机
unchecked-remote = 有数据不是本地文件
unchecked-format = 有文件的列 rlctl 读不出
unchecked-custom = 数据集类是用户自己的代码
unchecked-lengths = 加上 --data
unchecked-cluster = 加上 --cluster，例如 1x8:H100
unchecked-shape = rlctl 不知道模型的规模
