"""Records what Paddle does, into ``recorded.json``: one run with each of the two versions.

``.venv-paddle/bin/python tests/optimizer/record.py`` writes the part of Paddle 2.6.2, ``.venv-fluid/bin/python
tests/optimizer/record.py`` that of 1.8.5, whose Python is 3.7.
"""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import described  # noqa: E402 - the line above makes it importable for a script

RECORDED = os.path.join(HERE, "recorded.json")


def main():
    """Replaces the part of the version that runs this."""
    import paddle

    if hasattr(paddle, "enable_static"):
        paddle.enable_static()
    found = described.of_2(paddle) if paddle.__version__.startswith("2") else described.of_1(paddle.fluid)
    known = {}
    if os.path.exists(RECORDED):
        with open(RECORDED) as file:
            known = json.load(file)
    known[paddle.__version__] = found
    with open(RECORDED, "w") as file:
        json.dump(rounded(known), file, indent=0, sort_keys=True)
        file.write("\n")


def rounded(value):
    """Returns the same with eight digits: float32 has fewer."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
