"""Records what Paddle 1.8.5 answers to calls of sequence layers: ``.venv-fluid/bin/python -m tests.sequences.record``."""

from __future__ import annotations

import json
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded.json")


def rounded(value):
    """Six digits are what float32 keeps."""
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(format(value, ".6g")) if isinstance(value, float) else value


def main():
    """Writes the file."""
    import paddle
    import paddle.fluid as fluid

    from tests.sequences import cases

    facts = {"version": paddle.__version__, "cases": {}}
    for name in cases.CASES:
        try:
            found = cases.run(fluid, name)
        except Exception as error:
            print(name, "FAILED", str(error)[-600:])
            continue
        results = [{"values": rounded(one["values"]), "lod": one["lod"]} for one in found["results"]]
        gradients = {key: rounded(one) for key, one in found["gradients"].items()}
        facts["cases"][name] = {"results": results, "gradients": gradients}
    RECORDED.write_text(json.dumps(facts, indent=0, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
