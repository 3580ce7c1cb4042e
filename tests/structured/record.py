"""Records what Paddle answers: ``python -m tests.structured.record`` in ``.venv-fluid`` (1.8.5) and ``.venv-paddle`` (2.6.2)."""

import importlib
import sys

from tests.helpers import recorder


def fluid_answers():
    import paddle.fluid as fluid

    described = importlib.import_module("tests.structured.described")
    programs = importlib.import_module("tests.structured.programs")
    answers = {case.__name__: case(fluid) for case in (*described.PADDED, *described.LOD, *described.DECODED)}
    return {**answers, **{net.__name__: programs.train(fluid, net, how) for net, how in programs.PROGRAMS}}


def paddle_answers():
    import paddle

    modern = importlib.import_module("tests.structured.modern")
    paddle.enable_static()
    return {case.__name__: case(paddle) for case in modern.CASES}


if __name__ == "__main__":
    old = sys.version_info < (3, 8)
    recorder.write(__file__, fluid_answers() if old else paddle_answers(), "fluid.json" if old else "paddle.json")
