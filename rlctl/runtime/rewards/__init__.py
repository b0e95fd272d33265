"""Rewards: how a response is scored, and which reward scores which prompt.

    routing.py    which rewards apply to a prompt, and their weighted sum
    rules.py      the built-in rules, plain functions on text; boxed.py, dapo.py: how two of them compare
    scorers.py    a reward of the config as something that can be called: a rule, or a function of the user's
    pool.py       calls in child processes with a time limit for each; child.py is what runs there

A child process imports ``interface``, ``scorers`` and what they need, so these load no torch.
To add a rule: a function in ``rules.py`` and a line in its table.
"""
