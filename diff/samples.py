"""Two-sample tests: are two sets of draws from the same distribution?"""

from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 1e-4  # probability of a false alarm in one comparison of two networks, over all its tests
SPREAD = 1e-3  # relative; statistics that vary less than this over keys are constants


class Test(NamedTuple):
    """The result of a two-sample test.

    Attributes:
      statistic: the Kolmogorov-Smirnov distance, from 0 to 1.
      p_value: of the null hypothesis that both samples have the same distribution.
    """

    statistic: float
    p_value: float


def two_samples(one: np.ndarray, other: np.ndarray) -> Test:
    """Test two samples by Kolmogorov and Smirnov (`scipy.stats.ks_2samp`).

    Samples that hardly vary are compared as constants, since rounding would decide the test.

    Args:
      one, other: finite numbers `[n]` and `[m]`.
    """
    spreads = [float(np.ptp(side)) for side in (one, other)]
    size = max(abs(float(np.mean(one))), abs(float(np.mean(other))), 1e-30)
    if max(spreads) <= SPREAD * size:
        same = abs(float(np.mean(one)) - float(np.mean(other))) <= SPREAD * size
        return Test(0.0, 1.0) if same else Test(1.0, 0.0)
    result = stats.ks_2samp(one, other, method="asymp")
    return Test(float(result.statistic), float(result.pvalue))
