"""Records what Paddle reads from the files of ``made``: ``.venv-paddle/bin/python -m tests.dataset.record``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.helpers import recorder

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        import paddle

        from tests.dataset.made import build
        from tests.dataset.samples import sets

        (Path(home) / ".cache/paddle/dataset/wmt16").mkdir(parents=True)
        (Path(home) / "files").mkdir()
        files = build(Path(home) / "files")

        def wmt16(mode: str, lang: str) -> list[object]:
            reader = paddle.dataset.wmt16.reader_creator(files["wmt16.tar.gz"], f"wmt16/{mode}", 6, 7, lang)
            return list(reader())

        found = {"paddle": paddle.__version__, "sets": sets(paddle, files, wmt16)}
    recorder.write(__file__, found, indent=None, sort_keys=False, separators=(",", ":"))
