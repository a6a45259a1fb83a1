"""Functions of the user are compared by what they do: the same text in every process, another one if they change."""

import functools
import math
import subprocess
import sys

import numpy as np
import pytest

from circurve.learning.fingerprint import describe_value

CODE = """
import math, functools
RATE = {rate}
KIND = "b"
def helper(p): return p * {factor}
def schedule(p):
    inner = lambda q: math.{function}(q) * RATE
    return helper(inner(p)) if KIND in {{"alpha", "b", "gamma", 7}} else 0.1
class Decay:
    def __init__(self, rate): self.rate = rate
    def __call__(self, p): return self.rate * p
    def at(self, p): return self.rate * p
def make(rate): return lambda p, scale={default}: rate * p
"""


def described(which="schedule", rate="0.1", factor="2", function="sin", default="1"):
    space = {"__name__": "theirs"}
    exec(CODE.format(rate=rate, factor=factor, function=function, default=default), space)
    return describe_value(eval(which, space))


@pytest.mark.parametrize(
    "change", [{"rate": "0.2"}, {"factor": "3"}, {"function": "cos"}], ids=["global", "function it calls", "method"]
)
def test_a_change_in_or_behind_a_function_is_seen(change):
    assert described() == described()
    assert described(**change) != described()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("make(0.1)", "make(0.2)"),
        ("Decay(0.1)", "Decay(0.2)"),
        ("Decay(0.1).at", "Decay(0.2).at"),
        ("functools.partial(helper, 1)", "functools.partial(helper, 2)"),
        ("functools.partial(Decay(0.1))", "functools.partial(Decay(0.2))"),
    ],
)
def test_values_that_a_function_carries_count(one, other):
    assert described(one) == described(one)
    assert described(one) != described(other)


def test_defaults_count():
    assert described("make(1)", default="2") != described("make(1)")


def test_the_text_is_the_same_in_processes_with_other_orders_of_sets():
    script = f"""
import sys
sys.argv = [""]
from circurve.learning.fingerprint import describe_value
space = {{"__name__": "theirs"}}
exec({CODE.format(rate="0.1", factor="2", function="sin", default="1")!r}, space)
print(describe_value((space["schedule"], space["Decay"](0.5), {{"b", "a", "c"}})))
"""
    texts = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in (1, 2, 3)
    }  # fmt: skip
    assert len(texts) == 1


def test_functions_that_call_themselves_or_each_other_come_to_an_end():
    space = {"__name__": "theirs"}
    exec("def f(p): return g(p) if p else 1\ndef g(p): return f(p - 1)\nloop = []\nloop.append(loop)", space)
    assert describe_value(space["f"]) == describe_value(space["f"])
    assert "itself" in describe_value(space["loop"])


def test_arrays_count_by_all_their_values():
    long = np.zeros(5000)
    other = long.copy()
    other[2500] = 1
    assert describe_value(long) != describe_value(other)
    assert describe_value(functools.partial(math.pow, 2)) == describe_value(functools.partial(math.pow, 2))
