"""Records what fluid 1.8.5 computes: ``.venv-fluid/bin/python tests/recurrence/record.py``."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    """Writes the file; says which programs failed."""
    sys.path.insert(0, HERE)
    import described
    import numpy as np
    import paddle
    from paddle import fluid

    found = {"versions": {"paddle": paddle.__version__, "numpy": np.__version__}, "programs": {}}
    for name in described.programs(fluid):
        try:
            found["programs"][name] = described.run(fluid, name)
        except Exception as error:
            print(name, type(error).__name__, str(error)[-300:])
    with open(os.path.join(HERE, "recorded.json"), "w") as file:
        json.dump(found, file, indent=0, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
