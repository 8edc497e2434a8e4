"""The runs of losses.sh as tables and plots.

losses.py best WORK OUT VARIANT SEED    prints the learning rate with the lowest final validation loss
losses.py report WORK OUT               writes runs.csv, curves.csv, summary.csv, optimizers.svg, blocks.svg and experts.svg

Runs that WORK does not have are those in OUT's CSV.
"""

import csv
import json
import math
import pathlib
import sys

# What is compared: the plot, the variant that the others are measured against, all of them with their names.
COMPARISONS = {
    "optimizers": ("adamw-1x", {"adamw-1x": "AdamW, batch 1x", "lamb-4x": "LAMB, batch 4x", "adamw-4x": "AdamW, batch 4x"}),
    "blocks": ("adamw-1x", {"adamw-1x": "serial block, full attention", "parallel": "parallel block",
                            "window": "window of a quarter", "both": "parallel block and window"}),
    "experts": ("adamw-1x", {"adamw-1x": "one MLP", "experts": "eight experts, two a token"}),
}
COLOURS = ["#1b6ca8", "#c8553d", "#588157", "#8338ec"]


class Run:
    """One of WORK, or, of a row of runs.csv with the rows of curves.csv, one of OUT."""

    def __init__(self, variant, rate, seed):
        self.variant, self.rate, self.seed = variant, rate, int(seed)
        self.steps = self.tokens = self.train = self.valid = None
        self.curve = []

    def key(self):
        return self.variant, float(self.rate), self.seed

    def read_work(self, path):
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text(encoding="ascii").splitlines()]
        self.steps, self.tokens = rows[-1]["step"], rows[-1]["tokens"]
        self.curve = [(row["tokens"], row["valid_loss"]) for row in rows if "valid_loss" in row]
        self.valid = self.curve[-1][1]
        last = rows[-max(1, len(rows) // 20):]
        self.train = sum(row["loss"] for row in last) / len(last)
        return self

    def read_kept(self, row, curves):
        self.steps, self.tokens = int(row["steps"]), int(row["tokens"])
        self.train, self.valid = float(row["train_loss"]), float(row["valid_loss"])
        self.curve = [(int(point["tokens"]), float(point["valid_loss"])) for point in curves
                      if (point["variant"], point["learning_rate"], point["seed"]) == (self.variant, self.rate, row["seed"])]
        return self


def rows_of(path):
    if not path.exists():
        return []
    with open(path, encoding="ascii", newline="") as file:
        return list(csv.DictReader(file))


def runs_of(work, out):
    curves = rows_of(pathlib.Path(out) / "curves.csv")
    kept = [Run(row["variant"], row["learning_rate"], row["seed"]).read_kept(row, curves)
            for row in rows_of(pathlib.Path(out) / "runs.csv")]
    new = [Run(*done.parent.name.split("_")).read_work(done.parent) for done in pathlib.Path(work).glob("*_*_*/done")]
    return sorted({run.key(): run for run in kept + new}.values(), key=Run.key)


def mean(values):
    return sum(values) / len(values)


def best_rate(runs, variant, seed):
    # A loss that is not a number loses against every other.
    mine = [run for run in runs if run.variant == variant and run.seed == seed]
    return min(mine, key=lambda run: run.valid if math.isfinite(run.valid) else math.inf).rate


def chosen(runs, variant):
    """The runs of a variant at the rate that all its seeds have."""
    by_rate = {}
    for run in runs:
        if run.variant == variant:
            by_rate.setdefault(run.rate, []).append(run)
    return max(by_rate.values(), key=len, default=[])


def write(path, header, rows):
    with open(path, "w", encoding="ascii", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)


class Plot:
    """One set of axes; x and y are what is plotted, log_x draws x by its logarithm."""

    def __init__(self, left, title, x_label, points, log_x=False):
        self.left, self.top, self.width, self.height = left + 52, 40, 340, 240
        self.scale = math.log10 if log_x else float
        xs, ys = [self.scale(x) for x, _ in points], [y for _, y in points]
        margin = (max(xs) - min(xs)) * 0.04
        self.x0, self.x1 = min(xs) - margin, max(xs) + margin
        self.y0, self.y1 = math.floor(min(ys) * 20) / 20, math.ceil(max(ys) * 20) / 20
        self.parts = [f'<rect x="{self.left}" y="{self.top}" width="{self.width}" height="{self.height}" fill="none" stroke="#888"/>',
                      self.text(self.left + self.width / 2, 24, title, "middle"),
                      self.text(self.left + self.width / 2, self.top + self.height + 34, x_label, "middle")]
        step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1) if (self.y1 - self.y0) / s <= 8)
        for i in range(math.ceil(self.y0 / step - 1e-9), math.floor(self.y1 / step + 1e-9) + 1):
            y = self.y(i * step)
            self.parts.append(f'<path d="M{self.left} {y:.1f}h{self.width}" stroke="#ddd"/>')
            self.parts.append(self.text(self.left - 6, y + 4, f"{i * step:.2f}", "end"))
        for x in sorted({x for x, _ in points}):
            label = f"{x:g}" if log_x else f"{x / 1e6:.1f}M"
            self.parts.append(self.text(self.x(x), self.top + self.height + 16, label, "middle"))

    def x(self, value):
        return self.left + self.width * (self.scale(value) - self.x0) / (self.x1 - self.x0)

    def y(self, value):
        return self.top + self.height * (self.y1 - value) / (self.y1 - self.y0)

    @staticmethod
    def text(x, y, words, anchor="start"):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'

    def line(self, points, colour):
        path = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        self.parts += [f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="2.4" fill="{colour}"/>' for x, y in points]

    def legend(self, row, name, colour):
        y = self.top + 18 + 18 * row
        self.parts.append(f'<path d="M{self.left + 130} {y - 4}h22" stroke="{colour}" stroke-width="3"/>')
        self.parts.append(self.text(self.left + 158, y, name))


def save(path, plots):
    width = 420 * len(plots)
    body = "\n".join(part for plot in plots for part in plot.parts)
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="330" viewBox="0 0 {width} 330" '
                    f'font-family="sans-serif" font-size="12">\n<rect width="{width}" height="330" fill="white"/>\n'
                    f"{body}\n</svg>\n", encoding="ascii")


def mean_curve(runs):
    """Of several seeds; the first evaluations are far above the rest and would flatten the plot."""
    return [(runs[0].curve[i][0], mean([run.curve[i][1] for run in runs])) for i in range(2, len(runs[0].curve))]


def rates_plot(left, variants, runs):
    """The first seed's loss over the learning rate, where several were tried."""
    lines = {}
    for variant in variants:
        mine = [run for run in runs if run.variant == variant]
        seed = min(run.seed for run in mine)
        lines[variant] = [(float(run.rate), run.valid) for run in mine if run.seed == seed]
    lowest = min(y for line in lines.values() for _, y in line)
    lines = {variant: [point for point in line if point[1] < lowest * 1.25] for variant, line in lines.items()}
    plot = Plot(left, "the same, over the learning rate (one seed)", "learning rate",
                [point for line in lines.values() for point in line], log_x=True)
    for line, colour in zip(lines.values(), COLOURS):
        plot.line(line, colour)
    return plot


def report(work, out):
    out = pathlib.Path(out)
    runs = runs_of(work, out)
    write(out / "runs.csv", ["variant", "learning_rate", "seed", "steps", "tokens", "train_loss", "valid_loss"],
          [[r.variant, r.rate, r.seed, r.steps, r.tokens, f"{r.train:.4f}", f"{r.valid:.4f}"] for r in runs])
    write(out / "curves.csv", ["variant", "learning_rate", "seed", "tokens", "valid_loss"],
          [[r.variant, r.rate, r.seed, tokens, f"{loss:.4f}"] for r in runs for tokens, loss in r.curve])
    summary = []
    for name, (against, variants) in COMPARISONS.items():
        kept = {variant: chosen(runs, variant) for variant in variants}
        reference = mean([run.valid for run in kept[against]])
        for variant, label in variants.items():
            losses = [run.valid for run in kept[variant]]
            change = 100 * (mean(losses) / reference - 1)
            summary.append([name, label, kept[variant][0].rate, len(losses), f"{mean(losses):.4f}", f"{min(losses):.4f}",
                            f"{max(losses):.4f}", f"{change:+.2f}"])
        curves = {variant: mean_curve(kept[variant]) for variant in variants}
        plot = Plot(0, f"validation loss, mean of {len(kept[against])} seeds", "tokens",
                    [point for curve in curves.values() for point in curve])
        for row, (variant, colour) in enumerate(zip(variants, COLOURS)):
            plot.line(curves[variant], colour)
            plot.legend(row, variants[variant], colour)
        save(out / f"{name}.svg", [plot, rates_plot(420, variants, runs)] if name == "optimizers" else [plot])
    header = ["comparison", "variant", "learning_rate", "seeds", "valid_loss", "lowest", "highest", "change_percent"]
    write(out / "summary.csv", header, summary)
    for row in [header, *summary]:
        print("{:<11} {:<29} {:>13} {:>5} {:>10} {:>7} {:>7} {:>14}".format(*row))


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "best":
        print(best_rate(runs_of(*sys.argv[2:4]), sys.argv[4], int(sys.argv[5])))
    elif len(sys.argv) == 4 and sys.argv[1] == "report":
        report(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
