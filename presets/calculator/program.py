"""An agent that knows nothing of rlctl: it answers a question with the official OpenAI client and a calculator of its own."""

import json
import sys
from pathlib import Path

from openai import OpenAI

sys.path.append(str(Path(__file__).parent))
from tools import calculate

TOOL = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Calculate a product of two whole numbers.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "Two numbers with * between them."}},
            "required": ["expression"],
        },
    },
}
MOST_TURNS = 3


def run(row: dict) -> float:
    """Answer the question of a row; returns 1 for the right answer, else 0."""
    client, messages = OpenAI(), list(row["messages"])
    for _ in range(MOST_TURNS):
        said = client.chat.completions.create(model="policy", messages=messages, tools=[TOOL]).choices[0].message
        if not said.tool_calls:
            return float((said.content or "").strip() == str(row["answer"]))
        messages.append(said.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": each.id, "content": answer(each)} for each in said.tool_calls]
    return 0.0


def answer(call) -> str:
    """What the calculator says to a call."""
    try:
        return calculate(**json.loads(call.function.arguments))
    except (TypeError, ValueError) as error:
        return f"Error: {error}"
