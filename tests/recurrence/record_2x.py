"""Records what Paddle 2.6.2 computes: ``.venv-paddle/bin/python -m tests.recurrence.record_2x``."""

from __future__ import annotations

import json
from pathlib import Path


def main() -> None:
    """Writes the file."""
    import numpy as np
    import paddle

    from tests.recurrence import described_2x

    paddle.enable_static()
    found = {name: described_2x.run(paddle, name) for name in described_2x.NAMES}
    facts = {"versions": {"paddle": paddle.__version__, "numpy": np.__version__}, "programs": found}
    text = json.dumps(facts, indent=0, sort_keys=True) + "\n"
    Path(__file__).with_name("recorded_2x.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
