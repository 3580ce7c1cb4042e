"""Records what fluid 1.8.5 computes: ``.venv-fluid/bin/python -m tests.recurrence.record``."""

from tests.helpers import recorder
from tests.recurrence import described

if __name__ == "__main__":
    from paddle import fluid

    programs = recorder.answers(described.programs(fluid), lambda name: described.run(fluid, name))
    recorder.write(__file__, {"versions": recorder.versions(), "programs": programs})
