# Made from the registry of public names by `make api`.


__all__ = [

]
