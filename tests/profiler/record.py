"""Records what Paddle's schedules say: ``.venv-paddle/bin/python -m tests.profiler.record``."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded.json")


def main() -> None:
    """Writes the file."""
    import paddle

    from tests.profiler import described

    paddle.enable_static()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = described.states(paddle.profiler)
    RECORDED.write_text(json.dumps({paddle.__version__: found}, indent=0, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
