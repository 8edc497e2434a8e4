"""Every configuration that we ship passes `ms-train check`, and every cluster file lets a step be simulated."""

import subprocess

import lint


def check(tree, args):
    tool = args.bin / "ms-train"
    if not tool.exists():
        raise lint.Skip(f"{tool.name} is not built")
    configs = [f for f in tree.files if f.startswith("configs/") and f.endswith(".toml")]
    for path in configs:
        command = ["check", path, "--no-files"]
        if path.startswith("configs/clusters/"):
            command = ["simulate", "configs/tiny-3d.toml", "--cluster", path]
        done = subprocess.run([tool, *command], cwd=tree.root, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            yield f"{path}:1: ms-train {command[0]} exits {done.returncode}: {' '.join(done.stderr.split())}"


if __name__ == "__main__":
    lint.run(check, __doc__)
