"""Export to ONNX: each operator's form, whole networks, and the calls around them."""
