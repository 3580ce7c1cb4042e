"""What was cast and why is in ``explain``: as text, as plain data and on the page."""

from __future__ import annotations

import json

import numpy as np

import tstatic as paddle
from tests.amp.nets import build, mlp
from tstatic import static


def test_explain_says_what_was_cast_and_why() -> None:
    net = build(mlp, paddle.optimizer.SGD(0.1), dtype="bfloat16")
    explained = static.CompiledProgram(net.main).explain([net.loss], {"x": [4, 6], "y": [4, 1]})
    lines = explained.to_text(verbose=True).splitlines()
    at = lines.index("Mixed precision")
    wanted = [
        "mul -> fc_0.tmp_0 in bfloat16: it is on the white list; casts x from float32, fc_0.w_0 from float32",
        "elementwise_add -> fc_0.tmp_1 in bfloat16: it follows its input fc_0.tmp_0; casts fc_0.b_0 from float32",
        "relu -> fc_0.tmp_2 in bfloat16: it follows its input fc_0.tmp_1",
        "layer_norm -> layer_norm_0.tmp_2, layer_norm_0.tmp_0, layer_norm_0.tmp_1 in float32: it is on the black list; "
        "casts fc_0.tmp_2 from bfloat16",
    ]
    assert [line.strip().partition("  at ")[0] for line in lines[at + 1 : at + 5]] == wanted
    assert "nets.py" in lines[at + 1]
    data = json.loads(explained.to_json())["precision"]
    assert data[0]["type"] == "mul"
    assert data[0]["casts"] == [{"variable": "x", "from": "float32"}, {"variable": "fc_0.w_0", "from": "float32"}]
    assert "it is on the white list; casts x from float32" in explained.to_html()


def test_reasons_name_lists_variables_guards_and_levels() -> None:
    x = static.data("x", [4, 4])
    with static.amp.fp16_guard():
        y = paddle.tanh(paddle.matmul(x, x))
        z = paddle.exp(y)
    paddle.nn.functional.one_hot(paddle.argmax(paddle.sqrt(z), 1), 4)
    main = static.default_main_program()
    lists = static.amp.CustomOpLists(custom_black_list=["tanh"], custom_black_varnames=[z.name])
    static.amp.cast_model_to_fp16(main, lists)
    reasons = {one.type: one.reason for one in main.mixed_precision}
    assert reasons == {
        "matmul_v2": "it is on the white list",
        "tanh": "it is on the custom black list",
        "exp": f"custom_black_varnames has {z.name}",
        "sqrt": "it was built outside of fp16_guard",
        "arg_max": "it was built outside of fp16_guard",
    }


def test_a_program_in_float32_says_nothing() -> None:
    net = build(mlp, paddle.optimizer.SGD(0.1))
    explained = static.CompiledProgram(net.main).explain([net.loss])
    assert "Mixed precision" not in explained.to_text(verbose=True)
    assert "Mixed precision" not in explained.to_html()
    assert "precision" not in explained.to_dict()
    assert np.array(explained.precision).size == 0
