"""Draw a curve with characters."""

import numpy as np

# The dots of a Braille character, by row and column; U+2800 is the empty one.
DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
EMPTY = 0x2800


def chart(
    x: np.ndarray, y: np.ndarray, *, width: int, height: int, braille: bool = True
) -> list[str]:
    """Draw a curve as lines of text, with the range of `y` on its left.

    Args:
      x: `[P]`, ascending.
      y: `[P]`; NaN is left out.
      width: columns of each line.
      height: number of lines.
      braille: draw 2 x 4 dots in each character; False for one ASCII character per point.

    Returns:
      The lines; none if no value is finite.

    >>> chart(np.arange(3), np.array([0.0, 2.0, 4.0]), width=6, height=3, braille=False)
    ['4 |  *', '  | *', '0 |*']
    """
    is_finite = np.isfinite(y)
    if not is_finite.any():
        return []
    x, y = x[is_finite].astype(float), y[is_finite].astype(float)
    low, high = float(y.min()), float(y.max())
    labels = [f"{value:.4g}" for value in (high, low)]
    margin = max(map(len, labels))
    columns = width - margin - 2
    per_row, per_column = DOTS.shape if braille else (1, 1)
    dots = np.zeros((height * per_row, columns * per_column), bool)
    last = dots.shape[1] - 1
    across = np.rint((x - x[0]) / max(x[-1] - x[0], 1e-12) * last).astype(int)
    # One value for each column of dots: the mean of its points, or between its neighbours.
    at = np.unique(across)
    means = np.array([y[across == column].mean() for column in at])
    drawn = np.arange(at[0], at[-1] + 1)
    level = (np.interp(drawn, at, means) - low) / max(high - low, 1e-12)
    rows = np.rint((1 - level) * (len(dots) - 1)).astype(int)
    for column, row, before in zip(drawn, rows, [rows[0], *rows[:-1]], strict=True):
        first, end = (row, before) if row <= before else (before + 1, row)
        dots[first : max(end, first + 1), column] = True
        dots[row, column] = True

    def draw(cell: np.ndarray) -> str:
        if not braille:
            return "*" if cell.any() else " "
        return chr(EMPTY + int(DOTS[cell].sum()))

    cells = dots.reshape(height, per_row, columns, per_column).swapaxes(1, 2)
    lines = ["".join(map(draw, row)) for row in cells]
    named = {0: labels[0], height - 1: labels[1]}
    return [
        f"{named.get(number, ''):>{margin}} |{line}".rstrip(f" {chr(EMPTY)}")
        for number, line in enumerate(lines)
    ]
