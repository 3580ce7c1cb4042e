"""Records what Paddle 1.8.5 computes: ``.venv-fluid/bin/python -m tests.raw_ops.record`` in the repository's root."""

from tests.helpers import recorder
from tests.raw_ops import described

if __name__ == "__main__":
    from paddle import fluid

    answers = recorder.answers(described.OPS, lambda name: described.run(fluid, name))
    recorder.write(__file__, answers, sort_keys=False)
    print(f"recorded {len(answers)} of {len(described.OPS)} operators")
