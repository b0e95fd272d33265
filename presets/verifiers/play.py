"""An agent program that plays one task of a verifiers taskset: ``play.py TASKSET``, in an environment with verifiers and uv.

The row, as JSON on standard input, says which task; the last line of the output is the reward.
"""

import asyncio
import json
import os
import sys

import verifiers.v1 as vf


async def play(taskset: str, index: int) -> vf.Episode:
    """The episode of one task."""
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    env = vf.SingleAgentEnv(vf.SingleAgentEnvConfig.model_validate({"taskset": {"id": taskset}, "agent": agent}))
    client = vf.EvalClientConfig(base_url=os.environ["OPENAI_BASE_URL"], api_key_var="OPENAI_API_KEY")
    task = next(iter(env.taskset.include(idx=[index])))
    async with env.serving():
        [slot] = env.slots(task)
        return await env.run_slot(slot, vf.ModelContext(model="policy", client=client), None)


episode = asyncio.run(play(sys.argv[1], json.load(sys.stdin)["index"]))
errors = [error.message for trace in episode.traces for error in trace.errors]
if errors:
    sys.exit(errors[0])
print(json.dumps({"reward": sum(trace.reward for trace in episode.traces)}))
