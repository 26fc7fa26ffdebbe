"""The gate on a machine so busy that noise exceeds every time it measures."""

import numpy as np

from collbench.confirm.gate import Limits


def test_the_least_gain_stays_a_fraction_whatever_the_noise() -> None:
    assert Limits(sd=0.01).gain == 0.02
    assert Limits(sd=0.2).gain == 0.1
    for sd in (1.9, 2.0, 5.0):
        assert np.isfinite(np.log1p(-Limits(sd=sd).gain))
