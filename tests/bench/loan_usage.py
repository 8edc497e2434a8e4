"""Draws which GPUs were used over two days of a replay, from the samples of ms-loan simulate, as SVG on standard output.
usage: loan_usage.py SAMPLES.csv SCHEDULER [FIRST DAY] [GPUS OF A NODE]"""

import csv
import sys

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 420, 60, 40
DAY_S = 86400


def layers(row, gpus_per_node):
    needed = int(row["own_busy_gpus"]) + int(row["loaned_busy_gpus"]) - int(row["extra_gpus"])
    return [
        ("training, needed workers", "#4477aa", needed),
        ("training, extra workers", "#66ccee", int(row["extra_gpus"])),
        ("inference", "#ccbb44", int(row["demand_nodes"]) * gpus_per_node),
    ]


def main(path, scheduler, first_day="3", gpus_per_node="8"):
    begin = float(first_day) * DAY_S
    with open(path, encoding="ascii") as file:
        rows = [row for row in csv.DictReader(file) if row["scheduler"] == scheduler]
    rows = [row for row in rows if begin <= float(row["time_s"]) <= begin + 2 * DAY_S]
    if not rows:
        sys.exit(f"{path} has no samples of {scheduler} in the two days from day {first_day} on")
    stacked = [layers(row, int(gpus_per_node)) for row in rows]
    top = 1.05 * max(sum(value for _, _, value in stack) for stack in stacked)

    def x(row):
        return LEFT + (float(row["time_s"]) - begin) / (2 * DAY_S) * (WIDTH - LEFT - 10)

    def y(value):
        return HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - 40)

    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">')
    below = [0] * len(rows)
    for layer, (name, colour, _) in enumerate(stacked[0]):
        above = [base + stack[layer][2] for base, stack in zip(below, stacked)]
        edge = [f"{x(row):.1f},{y(value):.1f}" for row, value in zip(rows, above)]
        edge += [f"{x(row):.1f},{y(value):.1f}" for row, value in reversed(list(zip(rows, below)))]
        print(f'<polygon fill="{colour}" points="{" ".join(edge)}"/>')
        print(f'<rect x="{LEFT + 200 * layer}" y="10" width="12" height="12" fill="{colour}"/>')
        print(f'<text x="{LEFT + 200 * layer + 18}" y="20">{name}</text>')
        below = above
    for hour in range(0, 49, 6):
        at = LEFT + hour / 48 * (WIDTH - LEFT - 10)
        print(f'<text x="{at:.0f}" y="{HEIGHT - 20}" text-anchor="middle">{hour} h</text>')
    for value in range(0, int(top), 1000):
        print(f'<text x="{LEFT - 6}" y="{y(value) + 4:.0f}" text-anchor="end">{value}</text>')
    print(f'<text x="{LEFT}" y="{HEIGHT - 4}">busy GPUs under {scheduler}</text></svg>')


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
