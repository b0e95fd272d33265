"""What the checks say, in Chinese: the texts that the configs of the three frameworks raise most. Others stay in English.

``{}`` stands for a value, in the Chinese ``{0}`` for the first; values are kept as they are. A test fails where no text of
the checks reads as the English here any more.
"""

from __future__ import annotations

import re
from functools import cache

from rlctl.checks.hints import SHOWN, by_key, has_values, shown
from rlctl.common.report import Finding
from rlctl.documents import dotted

NEEDS = {"an account and the network": "账号和网络", "an account": "账号", "a server": "服务器"}
"""Values that are words themselves."""

FINDINGS: dict[str, str] = {
    # files and names
    "the model {} does not exist here": "模型 {0} 在这里不存在",
    "the tokenizer {} does not exist here": "分词器 {0} 在这里不存在",
    "the data {} does not exist here": "数据 {0} 在这里不存在",
    "the judge {} does not exist here": "评判模型 {0} 在这里不存在",
    "the checkpoint {} does not exist here": "检查点 {0} 在这里不存在",
    "the reward's file {} does not exist here": "奖励的文件 {0} 在这里不存在",
    "the reward model {} does not exist here": "奖励模型 {0} 在这里不存在",
    "the reward model {} is not here; it is taken for a name on a hub": "这里没有奖励模型 {0}；当作模型中心上的名称",
    "correct the path; a relative one is taken from the folder that rlctl runs in": (
        "请改正路径；相对路径从 rlctl 所在的文件夹算起"
    ),
    "the model {} is not here; it is taken for a name on a hub": "这里没有模型 {0}；当作模型中心上的名称",
    "the tokenizer {} is not here; it is taken for a name on a hub": "这里没有分词器 {0}；当作模型中心上的名称",
    "the data {} is not here; it is taken for a name on a hub": "这里没有数据 {0}；当作数据中心上的名称",
    "the judge {} is not here; it is taken for a name on a hub": "这里没有评判模型 {0}；当作模型中心上的名称",
    "data.train is empty": "data.train 为空",
    "add a source: {path: train.parquet}": "加一个来源：{path: train.parquet}",
    "source {} of data.{} has no path": "data.{1} 的第 {0} 个来源没有路径",
    "set its path": "请写出它的路径",
    "evaluates regularly, and data.eval is empty": "会定期评测，但 data.eval 为空",
    "add a source to data.eval, or remove schedule.evaluate_every": "在 data.eval 中加一个来源，或去掉 schedule.evaluate_every",
    # what is not run, or not used
    "set it back, or remove it": "改回默认值，或去掉它",
    "keep it for the framework that uses it; rlctl's results don't change": "可以保留给用到它的框架；不影响 rlctl 的结果",
    "multi-turn responses, tools and environments are not run yet": "多轮回答、工具和环境尚不能运行",
    "the engine is not served over HTTP yet": "引擎尚不能通过 HTTP 提供服务",
    "data and experience operators are not run yet": "数据和经验算子尚不能运行",
    "a class of one framework's, kept for translation; score with a rule, function, model, judge or sandbox instead": (
        "某个框架自己的类，只为转换而保留；请改用规则、函数、模型、评判或沙箱打分"
    ),
    "only an engine of vLLM has more than one device here": "这里只有 vLLM 引擎能用多个设备",
    "only vLLM and SGLang have such a setting": "只有 vLLM 和 SGLang 有这个设置",
    "it belongs to one dialect, and is kept for translation only": "它只属于一种格式，只为转换而保留",
    "what Megatron holds stays on its device": "Megatron 持有的内容留在它的设备上",
    "checkpoints are always in Megatron's own format, which reshards": "检查点总用 Megatron 自己的格式，可重新切分",
    "weights are converted by tables of rlctl's own": "权重按 rlctl 自己的表转换",
    "a reference is never trained": "参考模型从不训练",
    "sequences are always laid end to end, without padding": "序列总是首尾相接，没有填充",
    "no model that Megatron trains here has shared experts": "这里用 Megatron 训练的模型都没有共享专家",
    "the log-prob of each drawn token is always kept, and of no other: no framework trains on those of others": (
        "总是保留每个抽到的 token 的 log-prob，不保留其他 token 的：没有框架用它们训练"
    ),
    "prompts are begun as the engines have room, and no process is set up for each; rollout.max_running_prompts limits them": (
        "引擎有空位就开始下一个 prompt，不为每个 prompt 设进程；由 rollout.max_running_prompts 限制"
    ),
    "this tracker is of one framework; what it would show is in events.jsonl": (
        "这个记录工具属于某个框架；它要显示的内容在 events.jsonl 中"
    ),
    "entropy is always computed chunk by chunk": "熵总是分块计算",
    "no remote training service is called": "不调用任何远程训练服务",
    # batches
    "a mini-batch of {} responses, and a step has {}": "mini-batch 有 {0} 条回答，而一步有 {1}",
    "{first} or less": "{first} 或更小",
    "{first} or more": "{first} 或更大",
    "a step has {}, which is {} x {} + {}: the last mini-batch has {}": (
        "一步有 {0}，即 {1} x {2} + {3}：最后一个 mini-batch 有 {4} 条"
    ),
    "for an even split, {fix}": "若要均分，{fix}",
    "a mini-batch of {} responses on {} replicas: {} of them compute nothing": (
        "mini-batch 的 {0} 条回答分给 {1} 个副本：{2} 个副本空闲"
    ),
    "{first} or more, or use fewer devices": "{first} 或更大，或少用设备",
    "sequences of up to {} tokens in micro-batches of {}": "序列最长 {0} 个 token，而 micro-batch 为 {1}",
    "{} prompt tokens + {} response tokens = {}; the context has {}": "prompt {0} + 回答 {1} = {2} 个 token；上下文只有 {3}",
    "{fix}, or shorten one of the two": "{fix}，或缩短两者之一",
    "engines of {} devices on nodes of {}: some would span nodes": "引擎各用 {0} 个设备，而节点有 {1} 个：有的引擎会跨节点",
    "set rollout.parallel.tensor_parallel_size to a divisor of {}": "把 rollout.parallel.tensor_parallel_size 设为 {0} 的约数",
    # the algorithm
    "training responses are drawn with {}; the loss takes the whole distribution": "训练回答以 {0} 抽取；损失按整个分布计算",
    "rollout.sampling.top_p 1.0 and rollout.sampling.top_k null sample from the policy itself": (
        "rollout.sampling.top_p 1.0 且 rollout.sampling.top_k null 才是从策略本身采样"
    ),
    "{} compares the responses of a prompt, and each prompt has 1: the advantage is the reward itself": (
        "{0} 比较同一 prompt 的各条回答，而每个 prompt 只有 1 条：优势就是奖励本身"
    ),
    "{fix}; 4 to 16 are usual": "{fix}；通常为 4 到 16",
    "algorithm.{}.coefficient is 0: the KL has no effect": "algorithm.{0}.coefficient 为 0：这个 KL 不起作用",
    "set algorithm.{}.coefficient above 0, or {fix}": "把 algorithm.{0}.coefficient 设为大于 0，或{fix}",
    "{} asks no critic": "{0} 不需要 critic",
    # what is kept and told
    "every is null, last is false and export is never: nothing is saved": (
        "every 为 null，last 为 false，export 为 never：什么也不保存"
    ),
    "{} in mode {} needs {}": "{0} 的 {1} 模式需要{2}",
    "mode offline keeps files that can be sent later": "offline 模式保存文件，以后可再发送",
    "'{}' holds a secret in plain text": "'{0}' 含有明文密钥",
    "write ${oc.env:NAME}, and set NAME in the environment": "请写 ${oc.env:NAME}，并在环境变量中设置 NAME",
    # what reading a launch script says
    "the script was read, not run; it starts {}, of {}": "只读取脚本，没有运行；它启动 {1} 的 {0}",
    "the script was run in isolation; it starts {}, of {}": "在隔离环境中运行了脚本；它启动 {1} 的 {0}",
    "taken as they are here, because they are no plain texts: {}": "不是纯文本，因此取这里的值：{0}",
    "the sandbox doesn't pass {} from your environment to the script": "沙箱不会把你的环境变量 {0} 传给脚本",
    "--env {}=VALUE passes a variable": "用 --env {0}=值 传递变量",
    "the script sets {} for its programs; that is no part of the config": "脚本为它的程序设置 {0}；这不属于配置",
    "set them where the run starts": "请在启动运行的地方设置它们",
    "assumed that the Python module {} is not installed where this runs": "假设运行处没有安装 Python 模块 {0}",
    "the command starts from '{}', which comes with {}: those are {}'s defaults": (
        "命令以 {1} 自带的 '{0}' 为起点：即 {2} 的默认值"
    ),
    "the command starts from {}": "命令以 {0} 为起点",
    "${} is not set; the script takes it for empty": "没有设置 ${0}；脚本把它当作空",
    "${} is written in the script; it stays ${oc.env:{}}, and its value is shown nowhere": (
        "脚本中写有 ${0}；它保持为 ${oc.env:{1}}，其值不在任何地方显示"
    ),
    "export {} before the run, and take it out of the script": "运行前请 export {0}，并从脚本中去掉它",
    # what a conversion says
    "{} is {} in {}, {} in {}": "{0} 在 {2} 中为 {1}，在 {4} 中为 {3}",
    "{} refuses what is written: {} ({}: {})": "{0} 会拒绝写出的配置：{1}（{2}：{3}）",
    "rlctl cannot read the {} config it wrote: {}": "rlctl 读不了自己写出的 {0} 配置：{1}",
    "check the values that the message names; please report it": "请检查消息中的值，并报告这个问题",
    "'{}' cannot be said in the target: {}": "目标无法表达 '{0}'：{1}",
    "{}.engine is {}: {} runs every role with the policy's engine, so the {} runs with {}, split as the policy is; "
    "results don't change": "{0}.engine 为 {1}：{2} 让所有角色使用策略的引擎，所以 {3} 用 {4}，切分与策略相同；结果不变",
    # what reading a file says
    "{} keys belong to other releases than {}; they are read as those releases mean them": (
        "{0} 个键属于 {1} 以外的版本；按那些版本的含义读取"
    ),
    "'{}: {}' goes on as its value; what it names has no counterpart of its own": (
        "'{0}: {1}' 以它的值继续；它引用的键没有对应的键"
    ),
    "{} has no key '{}'": "{0} 没有键 '{1}'",
    "did you mean '{}'?": "是否指 '{0}'？",
    "rename it to '{}'": "请改为 '{0}'",
    "'{}' holds a secret in the open; it is replaced by ${oc.env:{}}": "'{0}' 含有明文密钥；已换成 ${oc.env:{1}}",
    "export {} before the run, and remove the secret from the file": "运行前请 export {0}，并从文件中删去该密钥",
}  # fmt: skip


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [(pattern(english), chinese) for english, chinese in FINDINGS.items()]


def pattern(english: str) -> re.Pattern[str]:
    """What a text reads as in which ``{}`` are values."""
    return re.compile(r"(.+?)".join(map(re.escape, english.split("{}"))), re.DOTALL)


def in_chinese(text: str) -> str | None:
    """A text of the checks with its values in Chinese; None where the table does not have it."""
    for wanted, chinese in _patterns():
        if found := wanted.fullmatch(text):
            return _filled(chinese, [NEEDS.get(value, value) for value in found.groups()])
    return None


def hint_in_chinese(item: Finding) -> str:
    """What to do about a finding; in English where the table does not have it."""
    if not has_values(item.template) or not item.fixes:
        return in_chinese(item.hint) or item.hint
    template = item.template if item.template in SHOWN else in_chinese(item.template)
    if template is None:
        return item.hint
    values = "，或".join(
        f"把 {dotted(key)} 设为 {' 或 '.join(map(shown, values))}" for key, values in by_key(item.fixes)
    )
    for mark in SHOWN:
        template = template.replace(mark, values)
    return template


def _filled(text: str, values: list[str]) -> str:
    return re.sub(r"\{(\d)\}", lambda place: values[int(place[1])], text)
