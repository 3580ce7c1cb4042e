"""``paddle.distributed.fleet``: distributed training as Paddle spells it.

* ``controller``  Fleet: init, distributed_optimizer, minimize, saving
* ``strategy``, ``applied``  DistributedStrategy, and what it makes of an optimizer and of how processes run its program
* ``role_maker``  who this process is
* ``util_base``, ``metrics``  exchanges of arrays, and metrics over the processes
* ``common``  roles of ops; parameters that begin alike
* ``local_fs``  LocalFS
* ``older``  ``fluid.incubate.fleet`` of Paddle 1.x

Functions are the methods of the one Fleet of this process, which is also named ``fleet``.
"""

from typing import Any

from tstatic.distributed.fleet import metrics
from tstatic.distributed.fleet.controller import Fleet
from tstatic.distributed.fleet.role_maker import PaddleCloudRoleMaker, Role, UserDefinedRoleMaker
from tstatic.distributed.fleet.strategy import DistributedStrategy
from tstatic.distributed.fleet.util_base import UtilBase
from tstatic.ir.export import facade, facade_module

facade_module(
    "distributed.fleet.fleet", "the class of fleet.", others={"tstatic.distributed.fleet.controller": "Fleet"}
)
facade_module(
    "distributed.fleet.base", "role makers and the strategy.", modules="distributed_strategy role_maker util_factory"
)
facade_module(
    "distributed.fleet.base.role_maker",
    "who this process is.",
    others={
        "tstatic.distributed.fleet.role_maker": "PaddleCloudRoleMaker, Role, RoleMakerBase, UserDefinedRoleMaker",
    },
)
facade_module(
    "distributed.fleet.base.distributed_strategy",
    "the strategy.",
    others={"tstatic.distributed.fleet.strategy": "DistributedStrategy"},
)
facade_module(
    "distributed.fleet.base.util_factory",
    "exchanges of arrays.",
    others={"tstatic.distributed.fleet.util_base": "UtilBase"},
)
facade_module(
    "distributed.fleet.utils",
    "files of this machine.",
    modules="fs",
    others={"tstatic.distributed.fleet.local_fs": "HDFSClient, LocalFS"},
)
facade_module(
    "distributed.fleet.utils.fs",
    "files of this machine.",
    others={"tstatic.distributed.fleet.local_fs": "HDFSClient, LocalFS"},
)
facade_module("distributed.fleet.meta_optimizers", "what minimize of fleet applies.", modules="common")
facade_module(
    "distributed.fleet.meta_optimizers.common",
    "roles of ops, and parameters that begin alike.",
    others={
        "tstatic.distributed.fleet.common": (
            "CollectiveHelper, OP_ROLE_KEY, OP_ROLE_VAR_KEY, OpRole, is_backward_op, is_loss_grad_op, is_optimizer_op, "
            "is_update_op"
        )
    },
)

# After the modules: ``fleet.fleet`` is the object, and ``from fleet.fleet import Fleet`` finds the module.
fleet = Fleet()
util = fleet.util
all_reduce = fleet.all_reduce
amp_init = fleet.amp_init
barrier_worker = fleet.barrier_worker
distributed_model = fleet.distributed_model
distributed_optimizer = fleet.distributed_optimizer
distributed_scaler = fleet.distributed_scaler
explain = fleet.explain
get_fl_client = fleet.get_fl_client
get_hybrid_communicate_group = fleet.get_hybrid_communicate_group
get_loss_scaling = fleet.get_loss_scaling
init = fleet.init
init_coordinator = fleet.init_coordinator
init_server = fleet.init_server
init_worker = fleet.init_worker
is_coordinator = fleet.is_coordinator
is_first_worker = fleet.is_first_worker
is_server = fleet.is_server
is_worker = fleet.is_worker
load_inference_model = fleet.load_inference_model
load_model = fleet.load_model
load_one_table = fleet.load_one_table
local_rank = fleet.local_rank
make_fl_strategy = fleet.make_fl_strategy
minimize = fleet.minimize
node_num = fleet.node_num
nranks = fleet.nranks
rank = fleet.rank
rank_in_node = fleet.rank_in_node
run_server = fleet.run_server
save = fleet.save
save_cache_model = fleet.save_cache_model
save_cache_table = fleet.save_cache_table
save_dense_params = fleet.save_dense_params
save_inference_model = fleet.save_inference_model
save_one_table = fleet.save_one_table
save_persistables = fleet.save_persistables
server_endpoints = fleet.server_endpoints
server_index = fleet.server_index
server_num = fleet.server_num
set_log_level = fleet.set_log_level
shrink = fleet.shrink
stop_worker = fleet.stop_worker
worker_endpoints = fleet.worker_endpoints
worker_index = fleet.worker_index
worker_num = fleet.worker_num
world_size = fleet.world_size
_final_strategy = fleet._final_strategy
_get_applied_graph_list = fleet._get_applied_graph_list
_get_applied_meta_list = fleet._get_applied_meta_list

_facade, __dir__ = facade(__name__, modules="base meta_optimizers metrics utils")
__all__ = [
    "DistributedStrategy",
    "Fleet",
    "InMemoryDataset",
    "PaddleCloudRoleMaker",
    "QueueDataset",
    "Role",
    "UserDefinedRoleMaker",
    "UtilBase",
    "all_reduce",
    "amp_init",
    "barrier_worker",
    "distributed_model",
    "distributed_optimizer",
    "distributed_scaler",
    "explain",
    "fleet",
    "get_fl_client",
    "get_hybrid_communicate_group",
    "get_loss_scaling",
    "init",
    "init_coordinator",
    "init_server",
    "init_worker",
    "is_coordinator",
    "is_first_worker",
    "is_server",
    "is_worker",
    "load_inference_model",
    "load_model",
    "load_one_table",
    "local_rank",
    "make_fl_strategy",
    "metrics",
    "minimize",
    "node_num",
    "nranks",
    "rank",
    "rank_in_node",
    "run_server",
    "save",
    "save_cache_model",
    "save_cache_table",
    "save_dense_params",
    "save_inference_model",
    "save_one_table",
    "save_persistables",
    "server_endpoints",
    "server_index",
    "server_num",
    "set_log_level",
    "shrink",
    "stop_worker",
    "util",
    "worker_endpoints",
    "worker_index",
    "worker_num",
    "world_size",
]

# For type checkers; without a value, so that ``__getattr__`` is asked.
user_defined_optimizer: Any


def __getattr__(name: str) -> Any:
    # They change with the calls of ``distributed_optimizer`` and ``init``.
    if name in ("user_defined_optimizer", "_role_maker"):
        return getattr(fleet, name)
    return _facade(name)
