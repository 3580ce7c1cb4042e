"""``paddle.io``: which rows of a data set each process trains on.

* ``batch_sampler``   DistributedBatchSampler
"""

from tstatic.io.batch_sampler import DistributedBatchSampler
from tstatic.unsupported import missing_in

__all__ = ["DistributedBatchSampler"]
__getattr__ = missing_in(__name__, __all__)
