"""Draw which room imports which, read from the syntax trees: `python -m docs.images.make_rooms`.

An arrow that follows from others is left out (the transitive reduction). A test draws the picture
again and compares it with the committed one.
"""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean

from tests.project.source import FILES, room_of, rooms_imported

PICTURE = Path(__file__).with_name("rooms.svg")
BOX_WIDTH, BOX_HEIGHT, COLUMN, BEND, ROW, MARGIN = 92, 30, 112, 40, 74, 14
STYLE = (
    "text{font:14px sans-serif;text-anchor:middle;fill:#24292f}rect{fill:#eef2f8;stroke:#5b7083}"
    "path{fill:none;stroke:#5b7083;stroke-width:1.2;marker-end:url(#tip)}#tip path{fill:#5b7083}"
)
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0,0 L8,4 L0,8 z" style="marker-end:none;stroke:none"/></marker>'
)


def room_graph() -> dict[str, set[str]]:
    """Map each room to the rooms that its files import."""
    graph: dict[str, set[str]] = {room_of(file): set() for file in FILES}
    for file in FILES:
        graph[room_of(file)] |= rooms_imported(file) - {room_of(file)}
    return graph


def below(graph: Mapping[str, set[str]], room: str) -> set[str]:
    """Collect the rooms that a room imports, directly or through others."""
    return graph[room].union(*(below(graph, each) for each in graph[room]))


def reduced(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Leave out the arrows that follow from others."""
    return {
        room: found - set().union(*(below(graph, each) for each in found))
        for room, found in graph.items()
    }


def rows_of(
    graph: Mapping[str, set[str]],
) -> tuple[list[list[str]], dict[tuple[str, str], list[str]]]:
    """Arrange rooms in rows, each above those it imports, with bends where an arrow passes a row.

    Returns:
      The rooms and bends of each row, from the lowest; and the way of each arrow, from its room to
      the one it imports.
    """

    def height(room: str) -> int:
        return 1 + max((height(each) for each in graph[room]), default=-1)

    rows: list[list[str]] = [[] for _ in range(1 + max(map(height, graph)))]
    ways: dict[tuple[str, str], list[str]] = {}
    for room in sorted(graph):
        rows[height(room)].append(room)
        for each in sorted(graph[room]):
            between = range(height(room) - 1, height(each), -1)
            bends = {row: f"{room}>{each}@{row}" for row in between}
            ways[room, each] = [room, *bends.values(), each]
            for row, bend in bends.items():
                rows[row].append(bend)
    for _ in range(8):  # neighbours above and below their neighbours, by their mean places
        for here, there in [*pairwise(rows), *pairwise(rows[::-1])]:
            place, own = places(there), places(here)
            near: dict[str, list[float]] = {name: [] for name in here}
            for way in ways.values():
                for upper, lower in pairwise(way):
                    for one, other in ((upper, lower), (lower, upper)):
                        if one in near and other in place:
                            near[one].append(place[other])
            middle = {name: fmean(near[name] or [own[name]]) for name in here}
            here.sort(key=middle.__getitem__)
    return rows, ways


def places(row: list[str]) -> dict[str, float]:
    """Give the middle of each room and bend of a row, around 0."""
    widths = [BEND if "@" in name else COLUMN for name in row]
    ends = list(accumulate(widths))
    return {n: end - w / 2 - ends[-1] / 2 for n, w, end in zip(row, widths, ends, strict=True)}


def picture() -> str:
    """Draw the rooms as SVG."""
    rows, ways = rows_of(reduced(room_graph()))
    at = {
        name: (x, MARGIN + (len(rows) - 1 - number) * ROW)
        for number, row in enumerate(rows)
        for name, x in places(row).items()
    }
    left = min(x for x, _ in at.values()) - COLUMN / 2 - MARGIN
    width = max(x for x, _ in at.values()) + COLUMN / 2 + MARGIN - left
    height = ROW * (len(rows) - 1) + BOX_HEIGHT + 2 * MARGIN
    lines = []
    for way in ways.values():
        path = ""
        for upper, lower in pairwise(way):
            (x, y), (to_x, to_y) = at[upper], at[lower]
            path += f"M{x:g},{y:g} V{y + BOX_HEIGHT:g} " if not path else f"V{y + BOX_HEIGHT:g} "
            bend = (to_y - y - BOX_HEIGHT) / 2
            path += f"c0,{bend:g} {to_x - x:g},{bend:g} {to_x - x:g},{2 * bend:g} "
        lines.append(f'<path d="{path.strip()}"/>')
    for name, (x, y) in at.items():
        if "@" not in name:
            box = f'x="{x - BOX_WIDTH / 2:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
            lines += [f'<rect {box} rx="6"/>', f'<text x="{x:g}" y="{y + 20:g}">{name}</text>']
    size = f'viewBox="{left:g} 0 {width:g} {height:g}" width="{width:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>{TIP}'
    paper = (
        f'<rect x="{left:g}" width="{width:g}" height="{height:g}" style="fill:#fff;stroke:none"/>'
    )
    return "\n".join([head, paper, *lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture())
