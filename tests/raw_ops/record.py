"""Records what Paddle 1.8.5 computes: ``.venv-fluid/bin/python -m tests.raw_ops.record`` in the repository's root."""

import json
from pathlib import Path

from tests.raw_ops import described

RECORDED = Path(__file__).parent / "recorded.json"

if __name__ == "__main__":
    from paddle import fluid

    answers = {}
    for name in described.OPS:
        try:
            answers[name] = described.run(fluid, name)
        except Exception as error:  # what Paddle refuses is not compared
            print(name, str(error)[-300:])
    RECORDED.write_text(json.dumps(answers, indent=0) + "\n", encoding="utf-8")
    print(f"recorded {len(answers)} of {len(described.OPS)} operators")
