"""Records what Paddle 1.8.5 answers to calls of sequence layers: ``.venv-fluid/bin/python -m tests.sequences.record``."""

from tests.helpers import recorder
from tests.sequences import cases

if __name__ == "__main__":
    import paddle
    from paddle import fluid

    found = recorder.answers(cases.CASES, lambda name: cases.run(fluid, name))
    # Six digits are what float32 keeps.
    recorder.write(__file__, {"version": paddle.__version__, "cases": recorder.rounded(found, 6)})
