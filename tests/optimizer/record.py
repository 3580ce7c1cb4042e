"""Records what Paddle does: ``python -m tests.optimizer.record`` in ``.venv-paddle`` (2.6.2) and in ``.venv-fluid`` (1.8.5)."""

from tests.helpers import recorder
from tests.optimizer import described

if __name__ == "__main__":
    recorder.write_version(__file__, described, digits=8)
