#!/usr/bin/env python3
"""ms-diag predict on published faults and on generated telemetry, and its speed beside XGBoost's own Python.
usage: tests/bench/predict.py published SHARED | generated [--seeds N] | noise [--seeds N] | speed
published   SHARED/data/faults: InfiniteHBD, another fault of a node within 30 days; Titan, a double-bit error within 90 days
generated   tests/bench/predict_data.py: every model and ensemble, by fixed, expanding and sliding training, on 6,400 nodes of
            8 GPUs, as the paper's tens of thousands of GPUs
noise       faults by lot, that nobody can foresee: of how many traces a model is said to have skill
speed       rows/s of training and scoring trees; needs python3-xgboost for the peer"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("MS_DIAG", ROOT / "build/release/bin/ms-diag")
DATA = pathlib.Path(__file__).with_name("predict_data.py")
# Liu et al., arXiv 2201.11853, and its SYSTOR'23 form: the best single model; ensembles with sliding training.
PAPER = "paper (its own data): best single model 46.3 %, ensembles and sliding training 84.0 % (85.4 % in SYSTOR'23): 1.8 x"


def evaluate(options, text=True):
    command = [TOOL, "predict", "evaluate", *map(str, options)]
    if text:
        print(" ".join(["ms-diag", *command[1:]]), flush=True)
        subprocess.run(command, check=True)
        print()
        return None
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def data(*arguments, output=None):
    subprocess.run([sys.executable, DATA, *map(str, arguments)], check=True, stdout=output)


def published(args, scratch):
    faults = args.shared / "data/faults"
    trace = faults / "infinitehbd_days_0_260.json"
    with open(scratch / "nodes.csv", "w", encoding="ascii") as nodes:
        data("nodes", trace, 400, output=nodes)
    evaluate(["--faults", trace, "--nodes", scratch / "nodes.csv", "--seeds", args.seeds])
    lives = scratch / "titan.csv"
    with open(lives, "w", encoding="ascii") as rows:
        data("sample", faults / "titan_gc_full.csv.gz", args.every, 1, output=rows)
    evaluate(["--faults", lives, "--target", "DBE", "--horizon", "90d", "--window", "365d", "--step", "30d", "--top", 100,
              "--gpus", 1, "--seeds", min(args.seeds, 2)])


def generated(args, scratch):
    """One trace a seed: a seed is another cluster, so that the spread over them is the honest one."""
    rows, base, ceilings = {}, [], []
    for seed in range(1, args.seeds + 1):
        data("generate", scratch, "--nodes", args.nodes, "--seed", seed)
        out = evaluate(["--faults", scratch / "faults.csv", "--nodes", scratch / "nodes.csv", "--telemetry",
                        scratch / "telemetry.csv", "--oracle", "oracle", "--horizon", "14d", "--window", "45d", "--step", "2d",
                        "--top", args.nodes // 100, "--recall", 0.1, "--seeds", 1, "--folds", 2, "--training",
                        "fixed,expanding,sliding", "--json"], text=False)
        base.append(out["base_rate"])
        for row in out["models"]:
            rows.setdefault((row["model"], row["training"]), []).append(
                [row[figure]["value"] for figure in ("precision_at_k", "precision_at_recall", "pr_auc")])
    print(f"GENERATED: {args.nodes} nodes, {args.seeds} traces; base rate {100 * sum(base) / len(base):.1f} %")
    print(f"{'model':28} {'training':10} {'P@K':>14} {'P at R=10%':>14} {'PR-AUC':>14}   mean, least-most of the traces")
    for (model, training), figures in rows.items():
        cells = []
        for values in zip(*figures):
            cells.append(f"{100 * sum(values) / len(values):5.1f} {100 * min(values):3.0f}-{100 * max(values):3.0f}")
        print(f"{model:28} {training:10} " + " ".join(f"{cell:>14}" for cell in cells))
    mean = {key: sum(values[1] for values in figures) / len(figures) for key, figures in rows.items()}
    singles = {key: value for key, value in mean.items() if key[0] in ("gbdt", "mlp", "cnn", "logistic")}
    ensembles = {key: value for key, value in mean.items() if key[0] in ("parallel", "cascade")}
    best = max(ensembles, key=ensembles.get)
    ceiling = next(value for (model, _), value in mean.items() if model == "ceiling: oracle")
    for what, chosen in (("fixed", "fixed"), ("sliding", "sliding")):
        own = {key: value for key, value in singles.items() if key[1] == chosen}
        single = max(own, key=own.get)
        print(f"{best[0]}, {best[1]}, against the best single model with {what} training ({single[0]}): "
              f"precision at equal recall x {ensembles[best] / own[single]:.2f}; the ceiling allows x {ceiling / own[single]:.2f}")
    print(PAPER)


def noise(args, scratch):
    faults, skilled, of = scratch / "faults.csv", 0, 0
    for seed in range(1, args.seeds + 1):
        data("noise", faults, "--nodes", args.nodes, "--seed", seed)
        out = evaluate(["--faults", faults, "--nodes", args.nodes, "--models", args.models, "--seeds", 2, "--json"], text=False)
        own = [row for row in out["models"] if not row["control"]]
        of += len(own)
        skilled += sum(row["skill"] for row in own)
    print(f"NOISE: {args.nodes} nodes, {args.seeds} traces, {args.models}: skill is said to be shown {skilled} times of {of}")


def speed(args, scratch):
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # both train with as many threads as there are CPUs
    data("generate", scratch, "--nodes", args.nodes, "--days", 120)
    began = time.monotonic()
    out = evaluate(["--faults", scratch / "faults.csv", "--nodes", scratch / "nodes.csv", "--telemetry",
                    scratch / "telemetry.csv", "--horizon", "14d", "--window", "60d", "--step", "1d", "--models", "gbdt",
                    "--seeds", 1, "--folds", 1, "--json"], text=False)
    took = time.monotonic() - began
    samples = sum(1 for _ in open(scratch / "telemetry.csv", encoding="ascii"))
    print(f"ms-diag predict: {samples} samples, everything in {took:.1f} s; trees: trained on "
          f"{out['trained_rows'] / out['train_s']:,.0f} rows/s ({out['trained_rows']} rows), scored "
          f"{out['scored_rows'] / out['score_s']:,.0f} rows/s, one thread")
    try:
        import numpy
        import xgboost
    except ImportError:
        print("no peer: Python has no xgboost here")
        return
    rows, columns = out["trained_rows"] // 2, out["columns"]  # of two models, with and without shuffled labels
    generator = numpy.random.default_rng(1)
    matrix = generator.normal(size=(rows, columns)).astype("float32")
    labels = (generator.random(rows) < 1 / 21).astype("float32")
    params = {"objective": "binary:logistic", "tree_method": "hist", "eta": 0.08, "max_depth": 4, "min_child_weight": 4,
              "subsample": 0.8, "colsample_bytree": 0.8, "lambda": 2}
    began = time.monotonic()
    booster = xgboost.train(params, xgboost.DMatrix(matrix, labels), 120)
    train_s = time.monotonic() - began
    test = xgboost.DMatrix(matrix)
    began = time.monotonic()
    booster.predict(test)
    print(f"xgboost {xgboost.__version__} by Python, a random matrix of that size: trained on {rows / train_s:,.0f} rows/s, "
          f"scored {rows / (time.monotonic() - began):,.0f} rows/s, one thread")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("published")
    one.add_argument("shared", type=pathlib.Path)
    one.add_argument("--seeds", type=int, default=5)
    one.add_argument("--every", type=int, default=1, help="only every N-th GPU of Titan")
    one.set_defaults(run=published)
    one = commands.add_parser("generated")
    one.add_argument("--seeds", type=int, default=5)
    one.add_argument("--nodes", type=int, default=6400)
    one.set_defaults(run=generated)
    one = commands.add_parser("noise")
    one.add_argument("--seeds", type=int, default=20)
    one.add_argument("--nodes", type=int, default=200)
    one.add_argument("--models", default="logistic")
    one.set_defaults(run=noise)
    one = commands.add_parser("speed")
    one.add_argument("--nodes", type=int, default=1000)
    one.set_defaults(run=speed)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        args.run(args, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
