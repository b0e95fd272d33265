"""The algorithms: pure functions on tensors, one file a kind. torch only: no Ray, no engine, no config.

    rewards ──rewards──▶ ──advantages──▶ advantages ──policy_losses──▶ per-token losses ──aggregation──▶ loss
    which count ──filters──▶ masks, weights of responses ──────────────▶ ┤
    rollout log-probs ──correction──▶ masks, weights of tokens ────────▶ ┤
                                        kl, entropy, value_loss, supervised ──▶ ┘

Everything is **packed** (see ``packed``): ``[N]`` is one number a counted token, sequence after sequence; ``[B]`` one
number a sequence; ``lengths [B]`` says where one sequence ends. There is no padding and no mask to forget.

Nothing here averages over a batch. A loss returns one number a token, its metrics too; ``aggregation`` gives every
token its weight in the whole optimizer step, so the loss does not depend on how the mini-batch was split.

**To add one**, write a function and name it in its file's table. Its positional parameters name the tensors that it
reads, its keyword-only parameters are its options. A new advantage estimator, complete:

    def best_of_group(rewards: Tensor, groups: Tensor, *, margin: float = 0.0) -> Tensor:
        \"\"\"1 for responses within ``margin`` of their group's best, else 0 ...\"\"\"

    ADVANTAGES = {
        ...
        "best_of_group": Estimator(best_of_group),
    }

It reads no ``token_rewards``, so its result is [B] and is spread over each response's tokens. Give it a docstring with
the formula, shapes and source, and a test in ``tests/runtime/algorithms`` with numbers worked out by hand; then its
options a place in the config.
"""
