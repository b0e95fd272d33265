"""Agents: programs that call the model several times before a trajectory is over. See ``docs/design/agents.md``.

record.py        model calls to a trajectory: rows by exact token prefix
conversation.py  messages to tokens, without encoding generated tokens again
formats.py       how a model writes tool calls
tools.py         the tools of an agent: schemas, calls, limits
kinds.py         the agents: ``tools`` and ``function``
loop.py          the asyncio loop that runs many of them
"""
