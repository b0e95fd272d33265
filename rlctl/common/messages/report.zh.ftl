# 转换报告和检查结果表：标题，以及级别和分类的名称。

rank-breaks = 训练会出错
rank-objective = 训练目标会变
rank-schedule = 调度与 batch
rank-data = 数据与奖励
rank-resources = 显存与速度
rank-names = 名称与文件
rank-none = 对训练没有影响
rank-converted = 已转换
rank-written = 写出的内容

level-error = 错误
level-warning = 警告
level-note = 提示

column-where = 位置
column-level = 级别
column-code = 代码
column-what = 内容

report-failed = { $way }：失败，{ $count } 个错误
report-unreadable = 什么也没有读到
report-keys = { $way }：{ $count } 个键
report-shares = { $keys }：{ $shares }
report-share = { $bucket } { $count } 个（{ $share }）
keys-several = { $count } 个键（{ $names }）
keys-section = { $section } 下的 { $count } 个键
