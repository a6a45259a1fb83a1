"""`circurve.curvature` is a package and a function at once, however and in whatever order it is imported."""

import inspect
import pickle
import subprocess
import sys
from itertools import permutations

import numpy as np

import circurve as cc
from circurve.curvature import curvature
from circurve.inputs import Bernoulli

WAYS = {
    "module": "import circurve.curvature as cv\ncv.concentration, cv.Curvature\ntrace = cv(model(), X).trace",
    "name": "from circurve import curvature\ntrace = curvature(model(), X).trace\ncurvature.concentration",
    "package": "import circurve as cc\ntrace = cc.curvature(model(), X).trace\ncc.curvature.reversals",
    "function": "from circurve.curvature import curvature, concentration\ntrace = curvature(model(), X).trace",
    "deep": "import circurve.curvature.record as record\nrecord.Curvature\ntrace = {trace}",
}
MODEL = """
X = [[0, 1], [1, 1], [1, 0]]
def model():
    import circurve
    from circurve.inputs import Bernoulli
    leaves = [circurve.Input(v, Bernoulli(), 2) for v in range(2)]
    root = circurve.Sum(circurve.Product(leaves))
    return circurve.Model.from_parameters(circurve.Circuit(root), None, {leaf: [[0.2], [0.7]] for leaf in leaves})
"""


def model() -> cc.Model:
    leaves = [cc.Input(v, Bernoulli(), 2) for v in range(2)]
    inputs = {leaf: [[0.2], [0.7]] for leaf in leaves}
    return cc.Model.from_parameters(cc.Circuit(cc.Sum(cc.Product(leaves))), None, inputs)


X = np.array([[0, 1], [1, 1], [1, 0]])


ORDERS = [*permutations(("module", "package"), 2), ("name", "module"), ("function", "name", "deep")]
FORGET = "import sys\nfor name in [n for n in sys.modules if n.split('.')[0] == 'circurve']: del sys.modules[name]"


def test_every_way_to_import_it_where_it_was_not_imported_before():
    """In one other process, which forgets the package after each order."""
    wanted = curvature(model(), X).trace
    test = f"\nassert abs(trace - {wanted!r}) < 1e-12"
    orders = ["\n".join(WAYS[way].replace("{trace}", repr(wanted)) + test for way in ways) for ways in ORDERS]
    code = f"for order in {orders!r}: exec({MODEL!r} + order, {{}}); exec({FORGET!r}, {{}})"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_module_answers_as_the_function():
    assert cc.curvature(model(), X).trace == curvature(model(), X).trace
    assert inspect.signature(cc.curvature) == inspect.signature(curvature)
    assert pickle.loads(pickle.dumps(cc.curvature)) is cc.curvature
    assert callable(cc.curvature)
