"""Runs in a Python that has Trinity-RFT: draws rows with Trinity's own selectors, told of rewards after every batch.

A question is ``{"selector", "keys", "args", "seed", "columns", "batches": [[row -> reward], ...], "size"}``; the answer has the rows of each
batch. Nothing here knows rlctl.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace


def main() -> None:
    from trinity.buffer.selector import SELECTORS
    from trinity.common.config import DataSelectorConfig

    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        columns, passed = asked["columns"], asked["passed"]
        config = DataSelectorConfig(
            selector_type=asked["selector"], seed=asked["seed"], feature_keys=asked["keys"], kwargs=asked["args"]
        )
        source = SimpleNamespace(dataset=columns, dataset_size=len(passed))
        selector = SELECTORS.get(asked["selector"])(source, config)
        drawn = []
        for _ in range(asked["batches"]):
            rows = [int(row) for row in selector.get_indices(asked["size"])]
            drawn.append(rows)
            selector.feedback(rows, [passed[row] for row in rows])
        answers.write(json.dumps({"drawn": drawn}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
