"""Rewards: how a response is scored, and which reward scores which prompt.

    routing.py    which rewards apply to a prompt, and their weighted sum
    rules.py      the built-in rules, plain functions on text; boxed.py, dapo.py: how two of them compare
                  maths.py, choices.py, instructions.py: rules of their own files
    scorers.py    what a process computes: a rule, or a function of the user's
    function.py   loading a function; signatures.py: how it is called; outcome.py: what it returned or raised
    pool.py       calls in child processes with a time limit for each; child.py is what runs there
    service.py    requests to services over HTTP, many at once; judge.py, sandbox_fusion.py: what is asked
    local_programs.py   code rewards without a service; trials.py: the tests of a response; programs/: running them in the sandbox

Reward models are workers: ``rlctl/runtime/workers/reward_model.py``.
A child process imports ``interface``, ``scorers`` and what they need, so these load no torch.
To add a rule: a function in ``rules.py`` and a line in its table.
"""
