"""The app's texts in Chinese, by the English that stands in the code; the help of keys is in `rlctl.config.chinese`."""

ZH: dict[str, str] = {
    # everywhere
    "Quit": "退出",
    "Leave; asks where something is not saved": "离开；有未保存的内容会先询问",
    "Help": "帮助",
    "Every key of where you are": "当前位置的所有按键",
    "Jump": "跳转",
    "A letter on every part of the screen; the letter goes there": "给屏幕上每个部分标一个字母，按字母就过去",
    "Commands": "命令",
    "Every command by its name; every field, run, preset and file": "按名称找任何命令，以及字段、运行、预设和文件",
    "a command, a field, a run, a preset, a file": "命令、字段、运行、预设或文件",
    "opening ...": "正在打开……",
    "the config": "配置",
    "{name} cannot be opened": "打不开 {name}",
    "Something is not saved. It is kept, and offered when the file is opened again. Quit?": (
        "有内容没有保存。它会被留着，下次打开该文件时可以恢复。退出吗？"
    ),
    "Theme": "主题",
    "Theme: {title}": "主题：{title}",
    "Choose the colours, for good": "选择配色，以后都用它",
    "Dark": "深色",
    "Light": "浅色",
    "High contrast": "高对比度",
    "From the next start on": "下次启动时生效",
    "{language} from the next start on": "下次启动时改用{language}",
    "Screenshot": "截图",
    "Save the screen as an SVG file": "把屏幕存成 SVG 文件",
    "section {name}": "配置节 {name}",
    "preset {name}": "预设 {name}",
    "run {name}": "运行 {name}",
    "file {name}": "文件 {name}",
    "Stay here": "留在这里",
    "Here": "此处",
    "On this page": "本页",
    "Everywhere": "任何地方",
    "Close": "关闭",
    "Back": "返回",
    "Letters go to a field while one types in it; esc closes this.": "在字段里输入时，字母进入该字段；按 esc 关闭本页。",
    # the monitor
    "reading the run ...": "正在读取运行……",
    "Overview": "总览",
    "Phase, time, and the main curves": "当前阶段、用时和主要曲线",
    "Metrics": "指标",
    "Any metric, large": "任意指标的大图",
    "Samples": "样本",
    "Prompts, responses and rewards of a step": "某一步的 prompt、回答和奖励",
    "Events": "事件",
    "What happened": "发生过什么",
    "Stop": "停止",
    "End the run after its step, with a checkpoint": "跑完当前步后结束，并保存检查点",
    "Stop {name} after its step, with a checkpoint to go on from?": "跑完当前步后停止 {name}，并保存可以续训的检查点？",
    "{name} ends after its step; rlctl runs resume {folder} goes on": (
        "{name} 将在当前步之后结束；rlctl runs resume {folder} 可以续训"
    ),
    "opened to watch only": "以只读方式打开，只能观察",
    "the run is not running": "该运行不在运行中",
    "Filter": "筛选",
    "Pick metrics by expression or letters": "用正则表达式或字母挑选指标",
    "Log scale": "对数刻度",
    "Smooth": "平滑",
    "Not, a little, much": "不平滑、轻度、重度",
    "Step before": "上一步",
    "Step after": "下一步",
    "step {step}": "第 {step} 步",
    "no responses are shown of this stage yet": "本阶段还没有可看的回答",
    "nothing is known of this run yet": "对这次运行还一无所知",
    "reading {share:.0%}": "正在读取 {share:.0%}",
    "{folder} is not there any more": "{folder} 已经不存在",
    "running": "运行中",
    "finished": "已完成",
    "stopped": "已停止",
    "failed": "失败",
    "interrupted": "被中断",
    "no run.json": "没有 run.json",
    "{time} so far": "已用 {time}",
    "took {time}": "用时 {time}",
    "about {time} left": "约剩 {time}",
    "{phase} for {time}": "{phase} 已进行 {time}",
    "usually {time}": "平时 {time}",
    "weights {version}": "权重版本 {version}",
    "stage {name}": "阶段 {name}",
    "step {done}/{total}": "第 {done}/{total} 步",
    "rewards of step {step}: {responses} responses of {groups} groups that are shown": (
        "第 {step} 步的奖励：所展示 {groups} 组的 {responses} 条回答"
    ),
    "{low:.3g} to {high:.3g}": "{low:.3g} ~ {high:.3g}",
    "mean of the last {steps} steps": "最近 {steps} 步的平均",
    "groups with one reward for all, which teach nothing": "组内奖励全部相同，学不到东西",
    "responses cut off at the limit": "因达到长度上限而被截断的回答",
    "rewards that failed": "计算失败的奖励",
    # what looks wrong in a run, and what to try
    "{value:.0%} of the groups have one reward for all their responses: nothing is learned from them": (
        "{value:.0%} 的组内所有回答奖励相同：从这些组学不到东西"
    ),
    "mix in prompts of another difficulty, raise rollout.sampling.temperature, or filter such groups (algorithm.filters)": (
        "混入其他难度的 prompt，调高 rollout.sampling.temperature，或过滤掉这样的组（algorithm.filters）"
    ),
    "{value:.0%} of the responses are cut off at the longest length": "{value:.0%} 的回答因达到长度上限而被截断",
    "raise rollout.max_response_tokens, or penalize length (algorithm.reward_shaping)": (
        "调大 rollout.max_response_tokens，或惩罚过长的回答（algorithm.reward_shaping）"
    ),
    "{value:.1%} of the rewards failed and count as 0": "{value:.1%} 的奖励计算失败，按 0 计",
    "look at the reward's log, and try it with `rlctl try`": "查看该奖励的日志，并用 `rlctl try` 试一试",
    "rollout and training disagree on the log-probs of what was drawn: a KL of {value:.3g}": (
        "rollout 与训练对同一批采样算出的 log-prob 不一致：KL 为 {value:.3g}"
    ),
    "compare rollout.precision with train.precision, or set algorithm.rollout_correction": (
        "对比 rollout.precision 与 train.precision，或设置 algorithm.rollout_correction"
    ),
    "optimizer steps are skipped, as their gradient is not finite ({value:.2g} a step)": (
        "梯度出现 NaN 或无穷大，优化器步被跳过（每步 {value:.2g} 次）"
    ),
    "lower train.optimizer.learning_rate, or set train.precision.compute to float32 to see whether that is it": (
        "调低 train.optimizer.learning_rate，或把 train.precision.compute 设为 float32 看是否由精度引起"
    ),
    "training uses {value:.0%} of what the devices can compute": "训练只用到设备算力的 {value:.0%}",
    "raise batch.micro, or lower what is recomputed and offloaded (train.memory, train.engine)": (
        "调大 batch.micro，或减少重算与卸载（train.memory、train.engine）"
    ),
    "the phase {phase} has taken {minutes:.0f} minutes; it usually takes {usual:.0f} seconds": (
        "阶段 {phase} 已用 {minutes:.0f} 分钟，平时只需 {usual:.0f} 秒"
    ),
    "look at the logs of its processes; stop the run and resume it, which goes on from the last checkpoint": (
        "查看各进程的日志；停止该运行再续训，会从最近的检查点继续"
    ),
    "{metric} is {recent:.3g}, {times:.0f} times of what it was": "{metric} 为 {recent:.3g}，是之前的 {times:.0f} 倍",
    "lower train.optimizer.learning_rate, or raise the coefficient of algorithm.kl_in_loss": (
        "调低 train.optimizer.learning_rate，或调大 algorithm.kl_in_loss 的系数"
    ),
    "the entropy fell from {before:.3g} to {recent:.3g}: responses are nearly the same each time": (
        "熵从 {before:.3g} 降到 {recent:.3g}：每次的回答几乎一样"
    ),
    "raise algorithm.entropy_coefficient or policy_loss.clip_high, or lower the learning rate": (
        "调大 algorithm.entropy_coefficient 或 policy_loss.clip_high，或调低学习率"
    ),
    # the editor
    "Yes": "是",
    "No": "否",
    "No (n)": "否 (n)",
    "Save": "保存",
    "Cancel": "取消",
    "Take it": "采用",
    "Take it (ctrl+s)": "采用 (ctrl+s)",
    "Give it up": "放弃",
    "Give up what was typed here?": "放弃这里输入的内容吗？",
    "a file needs a name": "文件要有名字",
    "Save as: file, and dialect": "另存为：文件与方言",
    "go on with that file (off: export a copy)": "之后编辑那个文件（不选：只导出一份）",
    "Add": "添加",
    "Remove": "删除",
    "Up": "上移",
    "Down": "下移",
    "As text": "按文本编辑",
    "Undo": "撤销",
    "nothing here yet: a adds": "还是空的：按 a 添加",
    "name": "名称",
    "value": "值",
    "{key}: enter opens an item": "{key}：按 enter 打开一项",
    "A new item of {key}": "{key} 的新项",
    "Choose": "选择",
    "Field above": "上一个字段",
    "Field below": "下一个字段",
    "{first} ... ({count} lines)": "{first} ……（共 {count} 行）",
    "  (not used by this run)": "  （本次运行用不到）",
    "= {value}, follows {link}": "= {value}，跟随 {link}",
    "items F6": "各项 F6",
    "(off)": "（关）",
    # metrics
    "/ filters: an expression, or letters in their order": "/ 筛选：正则表达式，或依次出现的字母",
    "Other runs": "其他运行",
    "Lay other runs over this one": "把其他运行叠在一起看",
    "Take these": "就用这些",
    "space marks runs, enter takes them": "空格标记运行，回车确定",
    "no other runs in {folder}": "{folder} 里没有其他运行",
    "looking for runs ...": "正在查找运行……",
    "Cursor left": "光标左移",
    "Cursor right": "光标右移",
    "Cursor to the first step": "光标到第一步",
    "Cursor to the last step": "光标到最后一步",
    "Zoom in": "放大",
    "Zoom out": "缩小",
    "Earlier steps": "往前",
    "Later steps": "往后",
    "Zoom in on values": "放大数值轴",
    "Zoom out of values": "缩小数值轴",
    "Whole run": "整个运行",
    "Mark": "标记",
    "Mark all": "全部标记",
    "Own range": "各自范围",
    "To the plot": "到曲线图",
    "Clear filter": "清除筛选",
    "Draw this metric beside others": "把这个指标和其他的画在一起",
    "Draw all that are listed, or none": "画出列表中的全部，或全不画",
    "Each curve between its lowest and highest value": "每条曲线按自己的最低到最高值伸展",
    "Cursor and zoom; p leads back": "光标与缩放；p 返回",
    "log10": "log10",
    "each in its own range": "各按自己的范围",
    "no values": "没有数值",
    "at step {step}": "在第 {step} 步",
    "smoothed {weight}": "平滑 {weight}",
    "smoothed {value}": "平滑后 {value}",
}
