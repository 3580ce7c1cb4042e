"""Records what Paddle 2.6.2 computes: ``.venv-paddle/bin/python -m tests.recurrence.record_2x``."""

from tests.helpers import recorder
from tests.recurrence import described_2x

if __name__ == "__main__":
    import paddle

    paddle.enable_static()
    programs = recorder.answers(described_2x.NAMES, lambda name: described_2x.run(paddle, name))
    recorder.write(__file__, {"versions": recorder.versions(), "programs": programs}, "recorded_2x.json")
