"""Two-sample tests: are two sets of draws from the same distribution?"""

from typing import Any

import numpy as np
from scipy import stats

LEVEL = 1e-4  # probability of a false alarm in one comparison of two networks, over all its tests
SPREAD = 1e-3  # relative; statistics that vary less than this over keys are constants


def two_samples(one: np.ndarray, other: np.ndarray) -> float:
    """Test two samples by Kolmogorov and Smirnov, and their spread by Brown and Forsythe.

    The second (`scipy.stats.levene` around the median) finds another standard deviation with fewer
    draws. The smaller p-value is doubled. Samples that hardly vary are compared as constants, since
    rounding would decide the test.

    Args:
      one, other: finite numbers `[n]` and `[m]`.

    Returns:
      The p-value of the null hypothesis that both have the same distribution.
    """
    spreads = [float(np.ptp(side)) for side in (one, other)]
    size = max(abs(float(np.mean(one))), abs(float(np.mean(other))), 1e-30)
    if max(spreads) <= SPREAD * size:
        same = abs(float(np.mean(one)) - float(np.mean(other))) <= SPREAD * size
        return 1.0 if same else 0.0
    results: tuple[Any, ...] = stats.ks_2samp(one, other, method="asymp"), stats.levene(one, other)
    return min(1.0, *(2 * float(result.pvalue) for result in results))
