"""Records what Paddle gives for complex numbers and what is made of them: ``.venv-paddle/bin/python -m tests.numbers.record``."""

from __future__ import annotations

import json
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded.json")


def main() -> None:
    """Writes the file."""
    import paddle

    from tests.numbers import described

    paddle.enable_static()
    lines = (f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in described.facts(paddle).items())
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
