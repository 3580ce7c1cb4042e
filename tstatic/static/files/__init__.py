"""Programs and values in files.

* ``saving``, ``loading``  save and load; how files of any form are read and checked before their values are written
* ``inference``  inference models, as files and as bytes
* ``predictor``, ``predictor_config``, ``mixed_inference``  ``paddle.inference``
* ``checkpoint_manager``  checkpoints of a training: the newest, the best, and going on
* ``object_files``  nests of plain data
* ``variable_files``, ``file_ops``  Paddle 1.x's functions for saved values and models, and its raw operators
* ``onnx_export``, ``onnx_model``  models in ONNX: an inference program's operators as its nodes, and the file's content
"""
