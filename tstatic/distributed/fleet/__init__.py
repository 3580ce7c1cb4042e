"""``paddle.distributed.fleet``: distributed training as Paddle spells it.

* ``controller``  Fleet: init, distributed_optimizer, minimize, saving
* ``strategy``  DistributedStrategy
* ``role_maker``  who this process is
* ``util_base``, ``metrics``  exchanges of arrays, and metrics over the processes
* ``common``  roles of ops; parameters that begin alike
* ``local_fs``  LocalFS
* ``older``  ``fluid.incubate.fleet`` of Paddle 1.x

Functions are the methods of the one Fleet of this process, which is also named ``fleet``.
"""

from tstatic.distributed.fleet import metrics
from tstatic.distributed.fleet.controller import Fleet
from tstatic.distributed.fleet.role_maker import PaddleCloudRoleMaker, Role, UserDefinedRoleMaker
from tstatic.distributed.fleet.strategy import DistributedStrategy
from tstatic.distributed.fleet.util_base import UtilBase
from tstatic.ir.export import facade, facade_module

_METHODS = (
    "all_reduce amp_init barrier_worker distributed_model distributed_optimizer distributed_scaler explain get_fl_client "
    "get_hybrid_communicate_group get_loss_scaling init init_coordinator init_server init_worker is_coordinator "
    "is_first_worker is_server is_worker load_inference_model load_model load_one_table local_rank make_fl_strategy minimize "
    "node_num nranks rank rank_in_node run_server save save_cache_model save_cache_table save_dense_params "
    "save_inference_model save_one_table save_persistables server_endpoints server_index server_num set_log_level shrink "
    "stop_worker worker_endpoints worker_index worker_num world_size _final_strategy _get_applied_graph_list "
    "_get_applied_meta_list"
)

_PATH = "distributed.fleet"
_HERE = f"tstatic.{_PATH}"
facade_module(f"{_PATH}.fleet", "the class of fleet.", others={f"{_HERE}.controller": "Fleet"})
facade_module(f"{_PATH}.base", "role makers and the strategy.", modules="distributed_strategy role_maker util_factory")
facade_module(
    f"{_PATH}.base.role_maker",
    "who this process is.",
    others={f"{_HERE}.role_maker": "PaddleCloudRoleMaker, Role, RoleMakerBase, UserDefinedRoleMaker"},
)
facade_module(
    f"{_PATH}.base.distributed_strategy", "the strategy.", others={f"{_HERE}.strategy": "DistributedStrategy"}
)
facade_module(f"{_PATH}.base.util_factory", "exchanges of arrays.", others={f"{_HERE}.util_base": "UtilBase"})
facade_module(
    f"{_PATH}.utils", "files of this machine.", modules="fs", others={f"{_HERE}.local_fs": "HDFSClient, LocalFS"}
)
facade_module(f"{_PATH}.utils.fs", "files of this machine.", others={f"{_HERE}.local_fs": "HDFSClient, LocalFS"})
facade_module(f"{_PATH}.meta_optimizers", "what minimize of fleet applies.", modules="common")
facade_module(
    f"{_PATH}.meta_optimizers.common",
    "roles of ops, and parameters that begin alike.",
    others={
        f"{_HERE}.common": (
            "CollectiveHelper, OP_ROLE_KEY, OP_ROLE_VAR_KEY, OpRole, is_backward_op, is_loss_grad_op, is_optimizer_op, "
            "is_update_op"
        )
    },
)
facade_module(
    f"{_PATH}.metrics.metric",
    "metrics over the processes.",
    others={f"{_HERE}.metrics": "acc, auc, mae, max, min, mse, rmse, sum"},
)

# After the modules: ``fleet.fleet`` is the object, and ``from fleet.fleet import Fleet`` finds the module.
fleet = Fleet()
util = fleet.util
for _name in _METHODS.split():
    globals()[_name] = getattr(fleet, _name)
del _name

_facade, __dir__ = facade(__name__, modules="base meta_optimizers metrics utils")
__all__ = [
    "DistributedStrategy",
    "Fleet",
    "PaddleCloudRoleMaker",
    "Role",
    "UserDefinedRoleMaker",
    "UtilBase",
    "fleet",
    "metrics",
    "util",
    *(_name for _name in _METHODS.split() if _name[0] != "_"),
]


def __getattr__(name: str) -> object:
    if name == "user_defined_optimizer":
        return fleet.user_defined_optimizer
    if name == "_role_maker":
        return fleet._role_maker
    return _facade(name)
