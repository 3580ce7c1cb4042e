"""Records what Paddle's schedules say: ``.venv-paddle/bin/python -m tests.profiler.record``."""

import warnings

from tests.helpers import recorder
from tests.profiler import described

if __name__ == "__main__":
    import paddle

    paddle.enable_static()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorder.write(__file__, {paddle.__version__: described.states(paddle.profiler)})
