"""``paddle.metric``: accuracy and areas under curves as ops of the program, and what adds batches up.

* ``counting``       the metrics of ``paddle.metric``
* ``evaluators``, ``detection_map``  the evaluators of ``fluid``, as ops
* ``fluid_metrics``  the metrics and averages of ``fluid``
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
