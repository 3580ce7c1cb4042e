"""The README's picture: what `explain()` says of a small network, as it prints it."""

from __future__ import annotations

import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """\
import tstatic as paddle
from tstatic import static

x = static.data("x", [64, 256])
h = static.nn.fc(x, 256, activation="gelu")
y = paddle.nn.functional.relu(static.nn.fc(h, 256) + x)
loss = paddle.mean(paddle.exp(y) * paddle.mean(y))
paddle.optimizer.AdamW(0.001).minimize(loss)

build = static.BuildStrategy()
build.fuse_gemm_epilogue = build.enable_auto_fusion = True
compiled = static.CompiledProgram(static.default_main_program(), build_strategy=build)
print(compiled.explain(fetch_list=[loss]))
"""
WIDTH, LINE, LETTER, MARGIN = 122, 17, 7.3, 16
"""Letters in a line, and heights and widths in pixels."""
COLOURS = {"fusions": "#1a7f37", "not fused": "#b35900", "to allow it": "#0969da", "switches": "#6e5494"}
"""What a line begins with -> its colour; ``to allow it`` is what nobody else prints."""


def explanation() -> str:
    """Returns what the script prints, run in a process of its own so that nothing of this one shows."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "net.py").write_text(SCRIPT, encoding="utf-8")
        environment = {n: v for n, v in os.environ.items() if not n.startswith(("TSTATIC_", "FLAGS_"))}
        environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
        command = [sys.executable, "net.py"]
        return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


def _colour(line: str) -> str:
    return next((colour for start, colour in COLOURS.items() if line.strip().startswith(start)), "#24292f")


def picture() -> str:
    """Returns the picture as SVG."""
    shown = ["print(compiled.explain(fetch_list=[loss]))", "", *explanation().splitlines()[:-1]]
    shown = [line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in shown]
    width, height = WIDTH * LETTER + 2 * MARGIN, len(shown) * LINE + 2 * MARGIN
    texts = [
        f'<text x="{MARGIN}" y="{MARGIN + LINE * (i + 0.75):g}" fill="{_colour(line)}">{html.escape(line)}</text>'
        for i, line in enumerate(shown)
        if line
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
            "<title>What explain() says: what was fused, what was not, why, and what would allow it</title>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#f6f8fa" stroke="#d0d7de"/>',
            '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12" xml:space="preserve">',
            *texts,
            "</g>",
            "</svg>",
            "",
        ]
    )
