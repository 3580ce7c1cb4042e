"""The journal of a public call: every edit of lists, dicts, attributes and counters is taken back, at little cost."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter, OrderedDict
from types import FrameType
from typing import Any

import pytest

import tstatic as paddle
from tests.bench.scripts import script
from tstatic import static, undo
from tstatic.ir import export, names
from tstatic.ir.program import Block, Program, Variable
from tstatic.undo import HERE, NotedAttributes, NotedDict, NotedList, note_object, take_back, undone_on_error


def _edit_list(items: NotedList[Any], draw: random.Random) -> None:
    index = draw.randrange(-len(items) - 1, len(items) + 1)
    inside = draw.randrange(-len(items), len(items)) if items else 0
    cut = slice(*sorted(draw.sample(range(len(items) + 2), 2)))
    edits: list[Any] = [
        lambda: items.append(draw.random()), lambda: items.insert(index, draw.random()), items.reverse, items.sort, items.clear,
        lambda: items.extend([1.0, 2.0]), lambda: items.__setitem__(cut, [3.0]), lambda: items.__delitem__(cut),
        lambda: items.__iadd__([4.0]), lambda: items.__imul__(2),
    ]  # fmt: skip
    if items:
        edits += [
            lambda: items.pop(), lambda: items.pop(inside), lambda: items.__delitem__(inside), lambda: items.remove(items[inside]),
            lambda: items.__setitem__(inside, 5.0),
        ]  # fmt: skip
    draw.choice(edits)()


def _edit_dict(members: NotedDict[Any], draw: random.Random) -> None:
    key = f"k{draw.randrange(6)}"
    edits: list[Any] = [
        lambda: members.__setitem__(key, draw.random()), lambda: members.update({key: 1, "new": 2}), lambda: members.pop(key, None),
        lambda: members.setdefault(key, 3), members.clear,
    ]  # fmt: skip
    if key in members:
        edits += [lambda: members.move_to_end(key), lambda: members.__delitem__(key), lambda: members.popitem()]
    draw.choice(edits)()


@pytest.mark.parametrize("seed", range(40))
def test_any_edits_of_lists_and_dicts_are_taken_back(seed: int) -> None:
    draw = random.Random(seed)
    items: NotedList[Any] = NotedList([0.5, 0.25, 0.75])
    members: NotedDict[Any] = NotedDict(k0=1, k1=2, k2=3)
    before = list(items), list(members.items())
    marks = []

    def call() -> None:
        for _ in range(12):
            assert HERE.journal is not None
            marks.append((len(HERE.journal), list(items), list(members.items())))
            _edit_list(items, draw)
            _edit_dict(members, draw)
        # A call inside takes back its own part.
        mark, *then = draw.choice(marks)
        take_back(HERE.journal, mark)
        assert [list(items), list(members.items())] == then
        _edit_list(items, draw)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), undone_on_error():
        call()
    assert (list(items), list(members.items())) == before
    assert HERE.journal is None


def test_no_method_that_edits_lists_or_dicts_is_forgotten() -> None:
    reading = {"copy", "count", "index", "get", "items", "keys", "values", "fromkeys"}
    for cls, base in ((NotedList, list), (NotedDict, OrderedDict)):
        methods = {n for n in vars(base) if not n.startswith("_")} | {"__setitem__", "__delitem__"}
        missing = methods - reading - set(vars(cls))
        # These two of OrderedDict store through `__setitem__`, as the edits above show.
        assert missing <= {"update", "setdefault"}, cls
    assert {"__iadd__", "__imul__"} <= set(vars(NotedList))


class _Thing(NotedAttributes):
    def __init__(self) -> None:
        self.kept: Any = 1


def test_attributes_and_objects_are_put_back() -> None:
    thing, plain = _Thing(), paddle.ParamAttr(name="a")
    members: list[Any] = [1]
    setattr(plain, "members", members)  # noqa: B010 - it is no attribute of the class

    def call() -> None:
        thing.kept = 2
        setattr(thing, "other", 3)  # noqa: B010 - it is no attribute of the class
        del thing.kept
        thing._put(kept=4, more=5)
        plain.name = "b"
        members.append(2)
        raise KeyError

    with pytest.raises(KeyError), undone_on_error(plain):
        call()
    assert vars(thing) == {"kept": 1}
    assert (plain.name, members) == ("a", [1])
    note_object(plain)  # outside of calls there is no journal, and nothing to do


def test_an_interrupt_waits_until_all_is_undone() -> None:
    done: list[int] = []

    def undoing(number: int) -> None:
        if number not in done:
            done.append(number)
            if number == 2:
                raise KeyboardInterrupt

    journal: undo.Journal = [(undoing, n) for n in range(4)]
    with pytest.raises(KeyboardInterrupt):
        take_back(journal, 1)
    assert (done, len(journal)) == ([3, 2, 1], 1)


def test_numbers_of_names_are_given_back_unless_another_thread_counted_on() -> None:
    generator = names.UniqueNameGenerator()

    def call() -> None:
        assert [generator("a"), generator("a"), generator("b")] == ["a_0", "a_1", "b_0"]
        other = threading.Thread(target=generator, args=("b",))
        other.start()
        other.join()
        raise KeyError

    with pytest.raises(KeyError), undone_on_error():
        call()
    assert [generator("a"), generator("b")] == ["a_0", "b_2"]


def test_a_journal_is_open_in_its_own_thread_alone() -> None:
    found: list[Any] = []
    with undone_on_error():
        thread = threading.Thread(target=lambda: found.append(HERE.journal))
        thread.start()
        thread.join()
        assert HERE.journal is not None
    assert found == [None]
    assert HERE.journal is None


def test_public_functions_and_methods_of_what_builds_are_doors() -> None:
    """A function that is public without a door would leave half of what it builds."""
    doors = [
        static.nn.fc, paddle.matmul, paddle.nn.Layer.__call__, paddle.optimizer.Adam.minimize, paddle.optimizer.Optimizer.backward,
        static.append_backward, static.gradients, Block.append_op, Block.create_var, Program.clone, paddle.nn.Linear.__init__,
        static.nn.StaticRNN.step_input, static.amp.decorate, paddle.optimizer.lr.StepDecay.__init__, Variable.__add__,
        static.ExponentialMovingAverage.update, paddle.incubate.LookAhead.minimize, static.nn.While.__init__,
        paddle.nn.ClipGradByGlobalNorm.__call__, paddle.distributed.fleet.Fleet.minimize,
    ]  # fmt: skip
    assert [f for f in doors if f.__code__.co_name != "noting" or "take_back" not in f.__code__.co_names] == []
    # What runs programs keeps what the user's functions change meanwhile.
    assert "take_back" not in static.Executor.run.__code__.co_names


def test_noting_takes_few_of_the_calls_that_build_bert() -> None:
    """Before edits were noted, 68,745 Python calls built these two layers, and 69,902 with the first notes: 1.017 times."""
    models = script("models")
    whole = models.BERT["layers"]
    models.BERT["layers"] = 2
    counted: Counter[bool] = Counter()
    own = {f.__code__ for f in (Block._append, Variable._decide, Program.__setattr__, Block.__setattr__)}

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            counted[frame.f_code in own or frame.f_code.co_filename == undo.__file__] += 1

    try:
        with static.program_guard(Program(), Program()):
            models.MODELS["bert"].build(paddle)
        with static.program_guard(Program(), Program()):
            sys.setprofile(profile)
            models.MODELS["bert"].build(paddle)
    finally:
        sys.setprofile(None)
        models.BERT["layers"] = whole
    assert counted[False] > 20_000
    assert counted[True] <= 0.04 * counted[False], counted


def test_a_door_adds_one_call_and_an_edit_one_entry() -> None:
    """What a public call costs does not grow with the program."""
    x = static.data("x", [2])
    for _ in range(20):
        paddle.tanh(x)
    counts = []
    for _ in range(2):
        count = 0

        def profile(frame: FrameType, event: str, arg: Any) -> None:
            nonlocal count
            count += event == "call" and frame.f_code.co_filename in (undo.__file__, export.__file__)

        sys.setprofile(profile)
        paddle.tanh(x)
        sys.setprofile(None)
        counts.append(count)
        for _ in range(200):
            paddle.tanh(x)
    assert counts[0] == counts[1] <= 8
