"""Configurations that we ship pass `ms-train check`; steps can be simulated on clusters, and fabrics be planned."""

import subprocess

import lint


def check(tree, args):
    for tool in (args.bin / "ms-train", args.bin / "ms-netcheck"):
        if not tool.exists():
            raise lint.Skip(f"{tool.name} is not built")
    configs = [f for f in tree.files if f.startswith("configs/") and f.endswith(".toml")]
    for path in configs:
        tool = args.bin / "ms-train"
        command = ["check", path, "--no-files"]
        if path.startswith("configs/clusters/"):
            command = ["simulate", "configs/tiny-3d.toml", "--cluster", path]
        elif path.startswith("configs/fabrics/"):
            tool = args.bin / "ms-netcheck"
            command = ["plan", path, "--dp", "2", "--tp", "8"]
        done = subprocess.run([tool, *command], cwd=tree.root, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            yield f"{path}:1: {tool.name} {command[0]} exits {done.returncode}: {' '.join(done.stderr.split())}"


if __name__ == "__main__":
    lint.run(check, __doc__)
