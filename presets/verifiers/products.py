"""Products of two numbers, as a taskset of verifiers."""

from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["Products"]


class Data(vf.TaskData):
    """One question."""

    answer: str


class Product(vf.Task[Data]):
    """Multiply."""

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        """Whether the last answer is right."""
        return float((trace.last_reply or "").strip() == self.data.answer)


class Products(vf.Taskset[Product]):
    """All products of numbers from 2 to 11."""

    def load(self) -> Iterator[Product]:
        """Make the tasks."""
        for left in range(2, 12):
            for right in range(2, 12):
                yield Product(Data(prompt=f"{left}*{right}=", answer=str(left * right)), self.config.task)
