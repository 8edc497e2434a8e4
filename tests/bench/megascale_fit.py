#!/usr/bin/env python3
"""Fits the values that configs/clusters/a100-8x200g.toml calls fitted: one set of them for all rows of the MegaScale
paper's Tables 2 and 3, by steps along one parameter after the other. Prints what is left of each row, the cost and the
values. usage: tests/bench/megascale_fit.py [SWEEPS]    (each takes some minutes; 0 prints where it begins)"""

import math
import sys
from concurrent.futures import ThreadPoolExecutor

import megascale_tables as tables

# Curves that are fitted as a whole, by one factor: size and share.
CURVES = {
    "gemm": [(1e9, 0.30), (1e10, 0.70), (3e10, 0.78), (1e11, 0.83), (4e11, 0.85)],
    "attention": [(1e9, 0.2), (1e10, 0.45), (1e11, 0.5)],
    "memory": [(1e5, 0.3), (1e7, 0.75), (1e8, 0.85)],
}
BEGIN = {"gemm": 0.958, "attention": 0.74, "memory": 0.573, "node.rate": 183.0, "network.rate": 17.9,
         "network.spine_share": 0.875, "noise.spread": 0.08, "node.step": 0.2}
STEPS = {"node.step": 0.3, "network.rate": 0.2, "noise.spread": 0.15, "gemm": 0.02, "memory": 0.2, "node.rate": 0.1,
         "attention": 0.3, "network.spine_share": 0.15}  # of the logarithm


def options(values):
    result = []
    for key, value in values.items():
        if key in CURVES:
            points = ",".join(f'"{size:g}:{min(1, share * value):.4f}"' for size, share in CURVES[key])
            setting = f"device.{key}=[{points}]"
        else:
            setting = f"{key}={min(1, value) if key == 'network.spine_share' else value}"
        result += ["--set-cluster", setting]
    return result


def residuals(values):
    rows = [(system, [f"mesh.dp={dp}", f"train.global_batch={batch}"]) for system, dp, batch, _, _ in tables.TABLE_2]
    settings = ["mesh.dp=4", "train.global_batch=256"]
    for _, more, _ in tables.TABLE_3:
        settings = settings + more
        rows.append(("megatron", settings))
    with ThreadPoolExecutor(2) as pool:
        mfu = list(pool.map(lambda row: 100 * tables.simulate(*row, options(values))["mfu"]["reported"], rows))
    two = [got - row[4] for got, row in zip(mfu, tables.TABLE_2)]
    steps = mfu[len(two):]
    three = []
    for i in range(1, len(steps)):
        paper = tables.TABLE_3[i][2] - tables.TABLE_3[i - 1][2] - (tables.MISC if i == len(steps) - 1 else 0)
        three.append(steps[i] - steps[i - 1] - paper)
    return two, three


def cost(two, three):
    # Squares, steeper from four fifths of what is allowed.
    shares = [abs(r) / 2 for r in two] + [abs(r) / 1.5 for r in three]
    return sum(share**2 + (4 * max(0, share - 0.8)) ** 2 for share in shares)


def main():
    values, steps = dict(BEGIN), dict(STEPS)
    left = residuals(values)
    best = cost(*left)
    for sweep in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
        for key in steps:
            for sign in (1, -1):
                moved = False
                while True:
                    tried = {**values, key: values[key] * math.exp(sign * steps[key])}
                    now = residuals(tried)
                    if cost(*now) >= best - 1e-3:
                        break
                    values, left, best, moved = tried, now, cost(*now), True
                if moved:
                    break
        steps = {key: 0.6 * step for key, step in steps.items()}
        print(f"sweep {sweep}: cost {best:.2f}", flush=True)
    print("Table 2:", *(f"{r:+.2f}" for r in left[0]), " Table 3:", *(f"{r:+.2f}" for r in left[1]))
    print(f"cost {best:.2f}:", ", ".join(f"{key} {value:.4g}" for key, value in values.items()))


if __name__ == "__main__":
    main()
