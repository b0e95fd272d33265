# rlctl 读取配置、命令行参数或启动脚本时的提示。

## 键和值

unknown-key = { $framework } 没有 '{ $key }' 这个键
    .several = { $framework } 没有以下 { $count } 个键：{ $names }
    .about = 源框架没有这个键。
    .hint = { $near ->
        [none] { "" }
       *[other] 是否想写 '{ $near }'？
    }

fork = 该文件属于 verl 的分支 { $name }：其中 { $count } 个键 rlctl 不读取（{ $names }）
    .about = 文件中有 verl 某个分支的键。
    .hint = 请比较两次运行：这些键的设置不在 rlctl 读到的运行中
fork_counts = 该文件属于 verl 的分支 { $name }，它用 '{ $key }' 决定批次大小；rlctl 尚不支持读取它的文件
    .hint = 若要当作 verl 的运行读取，请在去掉 { $name } 的键（{ $names }）的副本中设置 { $instead }

added-key = '+{ $key }' 添加的键在 { $framework } 中已存在（{ $default }），Hydra 会拒绝
    .about = 覆盖项用 + 添加了框架配置中已有的键。
    .hint = { $without ->
        [none] 去掉 +
       *[other] 去掉 +；若文件用于没有该键的 verl { $without }，请加 --from verl@{ $without }
    }

other-engines-key = { $framework } 只在 { $engines } 的配置中有 '{ $key }'；本次运行用的是 { $engine } 的配置，Hydra 会拒绝该覆盖项
    .about = 覆盖项设置的键只存在于框架为其他训练引擎准备的配置中。
    .hint = 去掉该覆盖项

no-release-key = { $framework } 的配置里没有 '{ $key }'，不带 + 的覆盖会被 Hydra 拒绝
    .about = 覆盖项不带 + 设置了框架配置中没有的键。
    .hint = { $others ->
        [none] 写成 +{ $key }=...，或去掉该覆盖项
       *[other] 去掉该覆盖项；有这个键的是 verl { $others }
    }

unknown-key_canonical = 未知的键 '{ $key }'
    .hint = { $near ->
        [none] { "" }
       *[other] 是否想写 '{ $near }'？
    }

key-unread = { $framework } 不读取 '{ $key }'：{ $reason }
    .about = 文件用一个框架接受但不读取的键设置了奖励、数据或损失的一部分。
    .hint = { $instead ->
        [none] 请删除它
       *[other] 请改用 '{ $instead }'
    }

hybrid-replicas = separate_async 也会在训练用的 GPU 上启动生成引擎；rlctl 及其计划只把生成放在专用的 GPU 上
    .about = verl 的 separate_async 也会在训练用的 GPU 上启动引擎，并共享它们的显存。
    .hint = 在 verl 0.9.1 中，{ $hybrid }=false 不会在那里启动引擎

other-observations = ROLL 的逐步管理器只向模型展示动作无效的较早轮次；rlctl 展示全部较早轮次
    .about = ROLL 与 rlctl 向模型展示的环境较早轮次不同。

missing-key = 必须设置 '{ $name }'
    .about = 缺少没有默认值的键。

wrong-type = '{ $key }' 是 { $value }；应为{ $expected }
    .about = 值的类型不对。
wrong-type_expression = '{ $key }' 是 { $value }；应为{ $expected }
    .hint = 设置它引用的内容，或直接写出值
wrong-type_quoted = '{ $key }' 是 { $value }；应为{ $expected }
    .hint = 去掉引号

out-of-range = '{ $key }' 是 { $value }；应{ $expected }
    .about = 值超出范围。
out-of-range_devices = 'placement.nodes' { $nodes } * 'placement.devices_per_node' { $each } = { $total } 个设备；一次运行最多 { $most } 个

unknown-value = '{ $key }' 是 { $value }；应为 { $expected } 之一
    .about = 值不在这个键允许的取值之中。
    .hint = { $near ->
        [none] { "" }
       *[other] 是否想写 '{ $near }'？
    }
unknown-value_untagged = '{ $key }' 没有 '{ $tag }'；应为 { $expected } 之一
unknown-value_option = '{ $key }' 的 { $tag } 是 { $value }；应为 { $expected } 之一
    .hint = { $near ->
        [none] { "" }
       *[other] 是否想写 '{ $near }'？
    }

schema-version = 文件的配置格式版本是 { $version }；这个 rlctl 读取 { $expected }
    .about = 文件是为另一版本的 rlctl 配置格式写的。

read-from = { $message }（来自 '{ $source }'）

bad-value = '{ $key }' 是 { $value }；应为{ $expected }
    .about = 值的类型不对，或超出范围。
bad-value_reason = '{ $key }' { $reason }

unresolved = 无法解析 '{ $key }'：{ $reason }
    .about = ${ "{" }oc.env:NAME{ "}" } 这样的表达式在本机没有值。
    .hint = 设置该变量，或给出默认值：${ "{" }oc.env:NAME,default{ "}" }；启动脚本请用 --env NAME=值
unresolved_key = '{ $key }' 是 { $value }，无法解析：{ $reason }
    .hint = 引用一个存在的键，或直接写出值

missing-value = '{ $key }' 是 ???，必须给出值
    .about = 值是 ???，这是 Hydra 表示必须填写的标记。
    .hint = 设置 { $key }

interpolation-resolved = '{ $key }: { $value }' 已替换为实际值，因为它引用的键在 rlctl 中没有单独对应的键
    .several = { $count } 处引用已替换为实际值，因为被引用的键在 rlctl 中没有单独对应的键：{ $names }
    .about = 对其他键的引用已替换为实际值；以后修改那个键，这里不会跟着变。
interpolation-resolved_unwritten = '{ $key }' 写成了实际值 { $value }，因为它引用的 '{ $other }' 不会写出
interpolation-resolved_changed = '{ $key }' 写成了实际值 { $value }，因为它引用的 '{ $other }' 写法不同

secret = '{ $key }' 含有明文密钥；rlctl 把它替换为 { $expression }
    .about = 文件中写有密钥、令牌或密码。rlctl 从不复制它们。
    .hint = 运行前请 export { $variable }，并从文件中删去密钥
secret_script = 脚本把 ${ $variable } 设成了密钥；rlctl 写成 { $expression }，不会显示它的值
    .hint = 运行前请 export { $variable }，并从脚本中删去它
secret_carried = '{ $key }' 含有密钥，rlctl 从不把密钥复制到其他文件
    .hint = 请在目标中重新设置
secret_written = '{ $key }' 是密钥；rlctl 写成 { $expression }
    .hint = 运行前请 export { $variable }

restored = { $count } 个值来自上次转换保留在文件末尾的键：{ $keys }
    .about = 上次转换作为注释保留的值又派上了用场。
restored_replacing = { $count } 个值来自上次转换保留在文件末尾的键：{ $keys }。它们取代那次转换写出的 { $replaced }

not-restored = '{ $key }' 保留在文件末尾，但没有使用：{ $reason }
    .about = 上次转换作为注释保留的值已与文件不符。
not-restored_changed = '{ $key }' 保留在文件末尾，但没有使用，因为 '{ $other }' 后来改过

unknown-dialect = '{ $key }' 属于没有安装的框架；应为 { $known } 之一
    .about = 文件保留了 rlctl 不认识的框架的键。
    .hint = { $near ->
        [none] 安装它的适配器后才能把这些键转换回去；在那之前 rlctl 会一直保留
       *[other] 是否想写 '{ $near }'？
    }

## 框架和版本

detected = 按 { $framework } 读取：{ $reason }
    .about = rlctl 为什么按这个框架和版本读取文件。

other-release = { $count } 个键属于 { $release } 以外的版本；rlctl 按那些版本的含义读取
    .about = 文件中有其他版本的键。

nearest-release = rlctl 没有 { $asked } 的数据；改用最接近的版本 { $release }
    .about = 指定的版本比 rlctl 新，或是开发版、分支版本。

release-assumed = rlctl 假定这是 { $framework } { $release }，即具有并读取这些键的最新版本
    .about = --from 没有指定版本，因此由文件中的键决定。
release-assumed_key = rlctl 假定这是 { $framework } { $release }，因为 { $newer } 没有或不读取 '{ $key }'
    .option = 如果它是为更新的版本写的，请指明：{ $option }
release-assumed_word = rlctl 假定这是 { $framework } { $release }，因为 '{ $key }' 用的是 { $newer } 之前的写法
    .option = 如果它是为更新的版本写的，请指明：{ $option }

releases-differ = 这些键也符合 { $framework } { $release }，而它的默认值不同：{ $differences }
    .about = 文件同时符合同一框架的两个版本，而它们的默认值不同。
    .option = 如果它是为 { $framework } { $release } 写的，请加 { $option }

tools-unused = '{ $key }' 要求使用工具，但起作用的是 agent loop，而 '{ $loop }' 是 single_turn_agent：agent_name 不是 tool_agent 的数据行只回答一轮，也不使用工具
    .about = 配置启用了多轮和工具，但 verl 运行的 agent loop 两者都没有。
    .hint = 把 { $loop } 设为 tool_agent；数据行的 agent_name 列可以指定各自的 loop

newer-ignores = 如果仍写成 '{ $key }'，{ $framework } { $since } 及更新的版本会 { $effect }
    .about = 旧版本的这个键会被新版本忽略或拒绝。
    .hint = { $written ->
        [yes] 转换报告中写明了它变成了什么
       *[no] 这个版本没有等价的设置
    }

unreadable = { $reason }
    .about = 无法读取文件。
    .hint = { $advice }
unreadable_empty = 文件中没有 rlctl 能读取的内容

## 启动脚本和参数列表

launch = rlctl { $traced ->
        [yes] 在隔离环境中运行了脚本
       *[no] 只读取了脚本，没有运行
    }；它启动 { $program }（{ $framework }）
    .about = 脚本启动哪个框架的哪个程序。

base-config = 命令以 { $file } 为起点
    .about = 命令以这个配置文件为起点。

shipped-config = '{ $config }' 是 { $framework } 自带的配置，没有设置的键取 { $framework } 的默认值
    .about = 这个配置是框架自带的，其中的值就是框架的默认值。

composed-config = 这是 Hydra 组合出的配置；{ $file } 中是写出的 { $count } 个键，其余为默认值
    .about = Hydra 为某次运行写出的配置；同目录的 overrides 说明哪些键是人设置的。

environment = 以下变量不是字符串，已代入具体的值（本机环境没有设置的取脚本默认值）：{ $variables }
    .about = 脚本中按本机环境代入的变量。
environment_sandbox = 沙箱不会把你的环境变量 { $variables } 传给脚本
    .hint = --env { $variable }=值 可以传入变量

exports = 脚本为它启动的程序设置了 { $variables }；它们不属于配置
    .about = 脚本为运行设置的环境变量。
    .hint = 请在启动训练的地方设置它们

unset = { $case ->
        [value] 没有设置 ${ $variable }，而命令把它用于 { $keys }
       *[word] 没有设置 ${ $variable }，命令在这里得不到任何内容
    }{ $source ->
        [none] { "" }
       *[other] （'{ $source }' 可能会设置它）
    }
    .about = 脚本的某个变量在本机没有设置。

resume-latest = { $key } 是 '{ $mode }'，verl 没有这种方式：它会从最新的检查点恢复，没有检查点时报错
    .about = verl 的恢复方式是 auto、disable 和 resume_path；其 PPO 把其他写法都当作最新的检查点。
    .hint = 请改为 auto，没有检查点时它从头开始训练

run-name = { $key } 只有在脚本运行时才能确定：{ $reason }。rlctl 使用 '{ $value }'
    .about = 脚本运行时才算出的名称或输出文件夹。
    .hint = 在脚本名之后写 { $key }=名称 可以指定

lost-overrides = { $why ->
        [comment] 第 { $line } 行的注释结束了命令
        [blank] 第 { $line } 行是空行，结束了命令
       *[backslash] 第 { $line } 行末尾没有反斜杠，命令在此结束
    }，训练程序得不到 { $count ->
        [one] { $words }
       *[other] 以下 { $count } 项设置：{ $words }
    }
    .about = 命令结束之后的行看起来是它的参数；bash 把每一行当作单独的命令。
    .hint = { $why ->
        [comment] 请把注释移到命令上方
        [blank] 请删除空行
       *[backslash] 请在行末加上反斜杠
    }

option = { $program } 带有选项 '{ $word }'，rlctl 不读取它
    .about = 命令中有 rlctl 不读取的选项或参数。
option_word = { $program } 带有 '{ $word }'，它既不是选项，也不是 key=value

option-left = { $canonical } 不会使用，因为 --set 选择了另一种 { $choice }
    .about = 文件设置了某个选项的键，而 --set 换成了另一个选项。

set = { $reason }
    .about = --set 或命令行给出的值不能使用。
    .hint = { $advice }
