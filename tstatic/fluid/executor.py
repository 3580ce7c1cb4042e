"""``fluid.executor``: the Executor and scopes."""

from tstatic.runtime.scope import global_scope, scope_guard
from tstatic.static.executor import Executor

__all__ = ["Executor", "global_scope", "scope_guard"]
