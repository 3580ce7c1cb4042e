"""Records what Paddle answers: ``.venv-fluid/bin/python -m tests.detection.record``, and the same with ``.venv-paddle``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def main() -> None:
    """Writes ``fluid.json`` with Paddle 1.8.5, ``paddle.json`` with Paddle 2."""
    import paddle

    from tests.detection import programs

    old = paddle.__version__.startswith("1.")
    fluid: Any = None
    if old:
        import paddle.fluid as fluid
    else:
        paddle.enable_static()
    facts = {
        name: programs.run(name, fluid, None if old else paddle)
        for name in (programs.FLUID if old else programs.PADDLE)
    }
    path = HERE / ("fluid.json" if old else "paddle.json")
    path.write_text(json.dumps({"version": paddle.__version__, **facts}, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
