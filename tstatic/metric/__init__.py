"""``paddle.metric``: accuracy and areas under curves as ops of the program, and what adds batches up.

* ``counting``       the metrics of ``paddle.metric``
* ``fluid_metrics``  the metrics and averages of ``fluid``
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(__name__)
