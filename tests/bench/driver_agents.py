#!/usr/bin/env python3
"""Draws what driver_agents.sh printed: processors and memory of the driver, and seconds until it notices a missing agent, by the
number of agents, as SVG on standard output.   usage: driver_agents.sh 500 2000 6000 12288 | driver_agents.py >driver_agents.svg"""

import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 320, 260, 48, 40, 36
PANELS = [("processors of the driver", 4, "#332288"), ("memory, MiB", 5, "#117733"), ("s to notice a missing agent", 6, "#cc6677")]


def read(lines):
    """The rows of the table: numbers, in its columns; a row whose missing agent was not noticed has no last one."""
    rows = []
    for line in lines:
        words = line.split()
        if words and words[0].isdigit():
            rows.append([float(word) for word in words if word != "-"])
    return rows


def panel(number, title, points, colour):
    most_x, most_y = max(x for x, _ in points), 1.15 * max(y for _, y in points)
    base = number * WIDTH

    def at(x, y):
        return (base + LEFT + x / most_x * (WIDTH - LEFT - 20), HEIGHT - BOTTOM - y / most_y * (HEIGHT - BOTTOM - TOP))

    shapes = [f'<text x="{base + LEFT}" y="20">{title}</text>']
    for share in (0, 0.5, 1):
        left, up = at(0, share * most_y)
        shapes.append(f'<path d="M{left:.0f} {up:.1f}H{base + WIDTH - 20}" stroke="#ddd"/>'
                      f'<text x="{left - 6:.0f}" y="{up + 4:.1f}" text-anchor="end">{share * most_y:.3g}</text>')
    line = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in points)
    shapes.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for x, y in points:
        right, up = at(x, y)
        shapes.append(f'<circle cx="{right:.1f}" cy="{up:.1f}" r="3" fill="{colour}"/>'
                      f'<text x="{right:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:.0f}</text>')
    return shapes


def main():
    rows = read(sys.stdin)
    if len(rows) < 2:
        sys.exit(__doc__)
    shapes = []
    for number, (title, column, colour) in enumerate(PANELS):
        shapes += panel(number, title, [(row[0], row[column]) for row in rows if len(row) > column], colour)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(PANELS)}" height="{HEIGHT}" font-family="sans-serif" '
          f'font-size="11"><rect width="100%" height="100%" fill="#fff"/>', *shapes, "</svg>", sep="\n")


if __name__ == "__main__":
    main()
