# 检查结果的建议中要设置什么：由 rlctl/checks/hints.py 组合。

set-key = 把 { $key } 设为 { $values }
change-key = 修改 { $key }
remove-key = 去掉 { $key }
either-value = { $first } 或 { $second }
either-key = { $first }，或{ $second }
both-keys = { $first }，并{ $second }
in-units = { $hint }（{ $units }）
keeping-rest = { $hint }；同时{ $keys }，其余保持不变
did-you-mean = 是否想写 '{ $name }'？
or-option = { $hint }；或使用 { $option }
pass-option = 使用 { $option }
or-change = { $hint }，或修改 { $key }
no-single-fix = 只改 { $key } 无法解决：请连同它要整除或适配的键一起修改
