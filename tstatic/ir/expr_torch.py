"""Evaluates expressions on tensors of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.ir.expr import FUNCTIONS, Node, count_uses, integers_of_size, picks_or_zero, variables


def run_torch(t: Any, node: Node, tensors: Mapping[str, Any], values: Mapping[str, Any], out: Any = None) -> Any:
    """Evaluates an expression on torch tensors.

    float16 and bfloat16 are computed in float32 where the expression has inner results; the caller rounds the result.

    Args:
        t: The module.
        node: The expression.
        tensors: Those that it names.
        values: Numbers that it names.
        out: A tensor of the result's shape to write to, if the last function can; the caller copies any other result.
    """
    direct = node.args and FUNCTIONS[node.op].direct
    kinds = {tensors[v].dtype for v in variables(node) if v in tensors}
    parts = (node,) if direct and FUNCTIONS[node.op].kind == "bool" else node.args
    widens = not direct or len(kinds) != 1 or not all(map(_unrounded, parts))
    given: dict[Node, Any] = {}
    for leaf in _leaves(node):
        one = leaf.value if leaf.op == "const" else tensors[leaf.value] if leaf.value in tensors else values[leaf.value]
        low = widens and leaf.value in tensors and one.dtype in (t.float16, t.bfloat16)
        given[leaf] = one.float() if low else one
    if out is None or not direct:
        return _torch_values(t, [node], given)[0]
    if node.op == "where":
        condition, *choices = node.args
        compares = _compares(condition, tensors, out)
        # A number or an input needs no other results; what both sides share with the condition is computed once.
        wanted = [*choices, *(condition.args if compares else (condition,))]
        chosen, rest = (found := _torch_values(t, wanted, given))[:2], found[2:]
        if picks_or_zero(*chosen) and chosen[0].dtype == out.dtype:
            kind = integers_of_size(t, out)
            bits = out.view(kind)
            if compares and all(x.data_ptr() != out.data_ptr() for x in tensors.values()):
                # Written as numbers into the result, a comparison is faster than as truth values, and takes no memory.
                mask = getattr(t, FUNCTIONS[condition.op].direct)(*_as_tensors(t, condition.op, rest), out=bits)
            else:
                mask = FUNCTIONS[condition.op].torch(t, *rest) if compares else rest[0]
            t.mul(chosen[0].view(kind), mask, out=bits)
            return out
        args = [FUNCTIONS[condition.op].torch(t, *rest) if compares else rest[0], *chosen]
    else:
        args = _torch_values(t, node.args, given)
    if not _fits(t, node.op, args, out):
        return FUNCTIONS[node.op].torch(t, *args)
    return getattr(t, direct)(*_as_tensors(t, node.op, args), out=out)


def _leaves(node: Node) -> set[Node]:
    """Returns the variables and numbers of an expression."""
    uses: Counter[Node] = Counter()
    count_uses(node, uses)
    return {n for n in uses if n.op in ("var", "const")}


def _torch_values(t: Any, nodes: Sequence[Node], given: Mapping[Node, Any]) -> list[Any]:
    """Evaluates expressions, equal parts once; each inner result is dropped when its last reader has run.

    There is no function that calls itself: its closure would be a cycle, which keeps all inner results until the garbage
    collector finds it.
    """
    uses: Counter[Node] = Counter()
    for node in nodes:
        count_uses(node, uses)
    left = Counter(uses)
    made: dict[Node, Any] = {}
    stack = [*reversed(nodes)]
    while stack:
        node = stack[-1]
        if node in made or node in given:
            stack.pop()
            continue
        missing = [a for a in node.args if a not in made and a not in given]
        if missing:
            stack += reversed(missing)
            continue
        stack.pop()
        made[node] = FUNCTIONS[node.op].torch(t, *(made[a] if a in made else given[a] for a in node.args))
        for arg in node.args:
            left[arg] -= 1
            if not left[arg]:
                made.pop(arg, None)
    return [made[n] if n in made else given[n] for n in nodes]


def _compares(node: Node, tensors: Mapping[str, Any], out: Any) -> bool:
    """Whether a condition compares a tensor of at most 32 bits, and of the result's shape, with a number."""
    if len(node.args) != 2 or FUNCTIONS[node.op].kind != "bool" or not FUNCTIONS[node.op].direct:
        return False
    left, right = node.args
    if left.op != "var" or right.op != "const" or left.value not in tensors:
        return False
    return bool((given := tensors[left.value]).is_floating_point() and given.itemsize <= 4 and given.shape == out.shape)


def _unrounded(node: Node) -> bool:
    """Whether 16 bits hold an argument of an expression's last function, so that the result is rounded once in any case."""
    if node.op in ("var", "const"):
        return True
    return FUNCTIONS[node.op].kind == "bool" and all(
        a.op == "var"
        # bfloat16 has 8 significant bits: whole numbers up to 256 are exact.
        or (a.op == "const" and float(a.value).is_integer() and abs(a.value) <= 256)
        or (a.op not in ("var", "const") and _unrounded(a))
        for a in node.args
    )


def _fits(t: Any, name: str, args: Sequence[Any], out: Any) -> bool:
    """Whether torch's function writes its result to a tensor of this dtype."""
    kinds = [a.dtype for a in args if hasattr(a, "dtype")]
    if FUNCTIONS[name].kind == "bool":
        return bool(kinds) and out.dtype == t.bool
    if name == "where":
        # torch gives the result its own dtype and does not convert it.
        kinds = [a.dtype for a in args[1:] if hasattr(a, "dtype")]
        return bool(kinds) and all(k == out.dtype for k in kinds)
    if not kinds or all(k.is_floating_point for k in kinds):
        return bool(kinds and out.dtype.is_floating_point)
    # A fraction beside integers makes torch's result a float.
    numbers = all(isinstance(a, int) for a in args if not hasattr(a, "dtype"))
    return FUNCTIONS[name].whole and numbers and all(k == out.dtype for k in kinds) and out.dtype != t.bool


def _as_tensors(t: Any, name: str, args: Sequence[Any]) -> Sequence[Any]:
    """Returns arguments as torch's function takes them: numbers stand second, or are tensors of no dimension."""
    if all(hasattr(a, "dtype") for a in args):
        return args
    numbers = FUNCTIONS[name].numbers
    if numbers == "any" or (numbers != "none" and hasattr(args[0], "dtype")):
        return args
    if numbers == "swapped":
        return args[1], args[0]
    first = 1 if name == "where" else 0
    like = next(a for a in args[first:] if hasattr(a, "dtype"))
    return [a if hasattr(a, "dtype") else t.full((), a, dtype=like.dtype, device=like.device) for a in args]
