"""What metrics are, in Chinese, by the English that is said of them."""

METRICS: dict[str, str] = {
    "Mean total reward of a response.": "一条回答总奖励的均值。",
    "Standard deviation of the total reward over the step's responses.": "本步各回答总奖励的标准差。",
    "Lowest total reward of the step.": "本步最低的总奖励。",
    "Highest total reward of the step.": "本步最高的总奖励。",
    "Share of responses whose reward failed and counts as 0.": "奖励计算失败、按 0 计的回答所占比例。",
    "Mean of one reward, unweighted, over the responses that it scores.": (
        "某一项奖励在它所打分的回答上的均值，未加权。"
    ),
    "Mean of another number that the reward returns.": "该奖励返回的另一项数值的均值。",
    "KL to the reference in the reward: mean over responses of the means of their tokens.": (
        "奖励中相对参考模型的 KL：先在每条回答内对 token 求均值，再对回答求均值。"
    ),
    "Coefficient of the KL in the reward; changes if it is adaptive.": "奖励中 KL 的系数；自适应时会变化。",
    "Mean advantage of a trained token.": "参与训练的 token 的优势均值。",
    "Standard deviation of the advantages of trained tokens.": "参与训练的 token 的优势标准差。",
    "Share of tokens that the estimator excludes from training (clipb, clipv).": (
        "被优势估计方法排除、不参与训练的 token 所占比例（clipb、clipv）。"
    ),
    "Share of generated groups that pass the filters. Surplus groups of a step don't count.": (
        "生成的组中通过过滤的比例，不计填满一步之后多出的组。"
    ),
    "Responses that an experience operator received, by its place and type.": (
        "经验算子收到的回答数，按其位置和类型区分。"
    ),
    "Responses that an experience operator passed on.": "经验算子放行的回答数。",
    "Mean of another number that an experience operator returns.": "经验算子返回的其他数值的均值。",
    "Rounds of prompts generated to fill the step.": "为填满本步生成了几轮 prompt。",
    "Share of the kept groups' responses that stay in the loss.": "保留的组中，过滤后仍计入损失的回答所占比例。",
    "Share of tokens that the rollout correction rejects.": "被 rollout 修正拒绝的 token 所占比例。",
    "Mean importance weight of a token.": "token 重要性权重的均值。",
    "Largest importance weight.": "最大的重要性权重。",
    "Share of tokens whose ratio exceeds the weight limit.": "概率比超过权重上限的 token 所占比例。",
    "Effective sample size of the weights over the number of tokens.": "权重的有效样本量除以 token 数。",
    "Mean length of a response.": "回答长度的均值。",
    "Median length of a response.": "回答长度的中位数。",
    "90th percentile of response length.": "回答长度的第 90 百分位数。",
    "99th percentile of response length.": "回答长度的第 99 百分位数。",
    "Longest response.": "最长回答的长度。",
    "Tokens of all generated responses.": "全部生成回答的 token 总数。",
    "Share of responses truncated at the limit.": "在长度上限处被截断的回答所占比例。",
    "Share of groups whose responses all have the same reward, so nothing is learned from them.": (
        "回答的奖励全部相同的组所占比例：这些组学不到东西。"
    ),
    "Mean size of a group.": "组大小的均值。",
    "Mean staleness: steps between the weights that generated a response and the weights trained on it.": (
        "陈旧度的均值：生成回答所用的权重与用它训练的权重相差的步数。"
    ),
    "Highest staleness of a response.": "各回答陈旧度的最大值。",
    "Share of responses with this staleness: 0, 1, 2-3, 4-7, 8-15, 16 or more. Not logged if none is stale.": (
        "陈旧度为该值的回答所占比例；分 0、1、2-3、4-7、8-15、16 及以上几档。没有陈旧的回答时不记录。"
    ),
    "Policy loss, including its KL and entropy terms.": "策略损失，含 KL 项和熵项。",
    "The policy loss alone.": "单独的策略损失，不含 KL 项和熵项。",
    "KL from the reference in the loss, before its coefficient.": "损失中相对参考模型的 KL，未乘系数。",
    "Share of tokens whose ratio is clipped.": "概率比被裁剪的 token 所占比例。",
    "Share of tokens that the dual clip limits.": "受 dual clip 限制的 token 所占比例。",
    "Mean probability ratio to the policy at the start of the step.": "相对本步初始策略的概率比的均值。",
    "KL from the policy at the start of the step (k1 estimator).": "相对本步初始策略的 KL（k1 估计）。",
    "KL from the training engine's policy to the rollout engine's (k1 estimator).": (
        "训练引擎与 rollout 引擎的策略之间的 KL（k1 估计）。"
    ),
    "KL from the training engine's policy to the rollout engine's (k3 estimator).": (
        "训练引擎与 rollout 引擎的策略之间的 KL（k3 估计）。"
    ),
    "Mean difference of a sampled token's probability in the training and rollout engines.": (
        "采样到的 token 在训练与 rollout 两个引擎中的概率之差的均值。"
    ),
    "Mean squared probability ratio of the training and rollout engines, minus 1.": (
        "训练与 rollout 两个引擎概率比平方的均值减 1。"
    ),
    "Share of tokens that the rollout correction rejects, by current log-probs.": (
        "按当前 log-prob 被 rollout 修正拒绝的 token 所占比例。"
    ),
    "Mean entropy of the next-token distribution.": "下一个 token 分布的熵的均值。",
    "Optimizer steps skipped because the gradient was not finite.": "因梯度出现 NaN 或无穷大而跳过的优化器步数。",
    "Norm of the policy's gradient before clipping.": "裁剪前的梯度范数。",
    "Mean learning rate over the step's optimizer steps.": "本步各优化器步学习率的均值。",
    "Critic loss.": "critic 的损失。",
    "Critic loss before its coefficient.": "critic 的损失，未乘系数。",
    "Mean value of a token.": "token 价值的均值。",
    "Mean return, the critic's target.": "回报（critic 的学习目标）的均值。",
    "Share of the returns' variance that the values at the start of the step explain; below 0 is worse than a constant.": (
        "本步开始时的价值能解释的回报方差的比例；低于 0 时不如预测一个常数。"
    ),
    "Share of tokens whose value moved beyond the clip and has no gradient.": (
        "价值超出裁剪范围、没有梯度的 token 所占比例。"
    ),
    "Norm of the critic's gradient before clipping.": "critic 裁剪前的梯度范数。",
    "Mean learning rate over the critic's optimizer steps.": "critic 各优化器步学习率的均值。",
    "The critic's optimizer steps skipped because the gradient was not finite.": (
        "critic 因梯度出现 NaN 或无穷大而跳过的优化器步数。"
    ),
    "Wall time of a phase.": "一个阶段的实际用时。",
    "Wall time of the step, without the evaluation and checkpoint after it.": (
        "本步的实际用时，不含之后的评测和保存。"
    ),
    "Wall time of the step outside all phases.": "本步中不属于任何阶段的用时。",
    "Mean share of the step in which the role's workers were busy.": "该角色的 worker 在本步中忙碌时间占比的均值。",
    "Main memory of the worker that uses most, after a call (also for the controller).": (
        "一次调用后，占用主机内存最多的 worker 的占用量；控制器也有此项。"
    ),
    "GPU memory in tensors of the worker that uses most, after a call.": (
        "一次调用后，占用显存最多的 worker 中张量所占的显存。"
    ),
    "GPU memory reserved by the allocator of the worker that uses most.": (
        "占用显存最多的 worker 的分配器所预留的显存。"
    ),
    "Peak GPU memory allocated during a call, over all workers.": (
        "一次调用期间显存分配的峰值，取各 worker 的最大值。"
    ),
    "Trained tokens per second, over the whole step.": "按整步计，每秒训练的 token 数。",
    "Trained tokens per second and device of all roles, over the whole step.": (
        "按整步计，每秒训练的 token 数除以所有角色的设备数。"
    ),
    "Tokens per second in the training phase, including prompts, each counted once.": (
        "训练阶段每秒的 token 数，含 prompt，每个 token 只计一次。"
    ),
    "Response tokens per second in the rollout phase.": "rollout 阶段每秒生成的回答 token 数。",
    "Model FLOPs utilization of the training devices in the training phase.": (
        "训练阶段中训练设备的算力利用率（MFU）。"
    ),
    "Model FLOPs utilization of the training devices over the whole step.": "按整步计，训练设备的算力利用率（MFU）。",
    "Responses per second, over the whole step.": "按整步计，每秒的回答数。",
    "Completed passes over the training data.": "已完成的训练轮数（epoch）。",
    "Mean total reward of evaluation responses.": "评测回答总奖励的均值。",
    "Share of evaluation responses with the right answer, if a reward can tell which are right.": (
        "答案正确的评测回答所占比例，前提是有奖励能判断对错。"
    ),
    "Share of evaluation prompts with at least one right answer.": "至少答对一次的评测 prompt 所占比例。",
    "Mean negative log-likelihood of the tokens of evaluation answers that sft would train on.": (
        "评测回答中 sft 会训练的 token 的负对数似然的均值。"
    ),
    "Mean length of evaluation responses.": "评测回答长度的均值。",
    "Mean reward of the k responses to a prompt.": "一个 prompt 的 k 条回答的奖励均值。",
    "Standard deviation of the rewards of the k responses to a prompt.": "一个 prompt 的 k 条回答的奖励标准差。",
    "Expected highest reward of k responses sampled from a prompt's responses, with replacement.": (
        "从一个 prompt 的回答中有放回地采样 k 条，最高奖励的期望。"
    ),
    "Expected lowest reward of k responses sampled from a prompt's responses, with replacement.": (
        "从一个 prompt 的回答中有放回地采样 k 条，最低奖励的期望。"
    ),
    "Correctness of the majority answer of k responses sampled with replacement; its reward if no reward can tell.": (
        "从一个 prompt 的回答中有放回地采样 k 条，多数答案的正确率；没有奖励能判断对错时取其奖励。"
    ),
    "Unbiased estimate of the chance that at least one of k responses is right.": (
        "k 条回答中至少一条正确的概率的无偏估计。"
    ),
    "Mean model calls of a trajectory.": "每条轨迹调用模型次数的均值。",
    "Share of trajectories whose agent failed; agent/failed_<cause> by cause.": (
        "智能体失败的轨迹所占比例；agent/failed_<cause> 按原因给出。"
    ),
    "Mean of what the agent counts in a trajectory: calls, and failed ones by kind.": (
        "智能体在每条轨迹中计数的均值：调用次数，以及各类失败次数。"
    ),
    "Mean tokens of a trajectory that its agent inserted after the prompt.": (
        "智能体在 prompt 之后插入的 token 数，按轨迹取均值。"
    ),
    "Trajectories whose conversation the chat template would render as other tokens than were generated.": (
        "用对话模板重新渲染后与实际生成的 token 不一致的轨迹数。"
    ),
}
