"""``fluid.unique_name``: generated names and guards."""

from tstatic.ir.names import UniqueNameGenerator, generate, generate_with_ignorable_key, guard, switch

__all__ = ["UniqueNameGenerator", "generate", "generate_with_ignorable_key", "guard", "switch"]
