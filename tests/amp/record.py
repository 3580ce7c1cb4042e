"""Records what Paddle does in mixed precision: ``.venv-paddle/bin/python -m tests.amp.record``.

Paddle's CPU build says that no op has a 16-bit kernel, and inserts no casts. It is told here that all have, so that the program is
the one that its GPU build makes; such programs are not run.
"""

from __future__ import annotations

from typing import Any

from tests.helpers import recorder


def main() -> None:
    """Writes the file."""
    import paddle
    from paddle.static.amp import fp16_lists

    from tests.amp import described

    paddle.enable_static()
    facts: dict[str, Any] = {
        "versions": recorder.versions(),
        "signatures": described.signatures(paddle),
        "errors": described.errors(paddle),
        "scales": described.scales(paddle),
        "white": sorted(fp16_lists.white_list),
        "black": sorted(fp16_lists.black_list),
        "extra black": sorted(fp16_lists._extra_black_list),
        "gray": sorted(fp16_lists.gray_list),
    }
    supported, _, _ = fp16_lists.core.op_supported_infos("CPU", fp16_lists.core.VarDesc.VarType.FP32)
    fp16_lists.core.op_supported_infos = lambda device, dtype: (supported, supported, set())
    facts["forward"] = {
        program: {
            how: {dtype: described.forward(paddle, program, how, dtype) for dtype in ("float16", "bfloat16")}
            for how in described.HOW
        }
        for program in described.PROGRAMS
    }
    facts["state"] = {level: described.roles(paddle, level) for level in ("O1", "O2")}
    recorder.write(__file__, facts)


if __name__ == "__main__":
    main()
