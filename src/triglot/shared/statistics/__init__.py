"""Statistics of returns over seeds.

The names below load NumPy only. The modules `estimate` and `paired` import scipy.stats,
which takes 2 seconds, so commands that do not compare must not import them.
"""

from .returns import format_return, interval95, interval95_over_seeds, last_return

__all__ = ["format_return", "interval95", "interval95_over_seeds", "last_return"]
