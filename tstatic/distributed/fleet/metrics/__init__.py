"""``fleet.metrics``: metrics over the processes.

* ``metric``  all of them
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(
    __name__,
    modules="metric",
    others={"tstatic.distributed.fleet.metrics.metric": "acc, auc, mae, max, min, mse, rmse, sum"},
)
