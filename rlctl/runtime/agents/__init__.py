"""Agents: programs that call the model several times before a trajectory is over. See ``docs/design/agents.md``.

record.py        model calls to a trajectory: rows by exact token prefix
conversation.py  messages to tokens, without encoding generated tokens again
families.py      how families of models write tool calls
formats.py       the format of a run: chosen, proved, parsed
tools.py         the tools of an agent: schemas, calls, limits; mcp_tools.py: those of MCP servers;
                 confined.py, confined_child.py: in the sandbox
kinds.py         the agents ``tools`` and ``function``, and what agents work with
programs.py      agents of type ``program``; endpoint.py: what they call; program_child.py: runs Python functions
making.py        the agents of a config
acting.py        the agent ``environment``; played.py, hosting.py, environment_host.py: where environments run
loop.py          the asyncio loop that runs many of them
"""
