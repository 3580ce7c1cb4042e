"""``paddle.distributed``: rank and world size of this process; under plain Python there is one process."""

from tstatic.unsupported import missing_in


def get_rank(group: object = None) -> int:
    """Number of this process: 0, because this release runs in a single process."""
    return 0


def get_world_size(group: object = None) -> int:
    """Number of processes: 1."""
    return 1


__all__ = ["get_rank", "get_world_size"]
__getattr__ = missing_in(__name__, __all__)
