"""clang-tidy with .clang-tidy (the naming rules). Slow, so it is run by `./bootstrap tidy`; ctest only proves that it bites."""

import concurrent.futures
import os
import re
import shutil
import subprocess

import lint


def check(tree, args):
    names = [f"clang-tidy-{version}" for version in range(22, 14, -1)] + ["clang-tidy"]
    tool = next((name for name in names if shutil.which(name)), None)
    if tool is None:
        raise lint.Skip("there is no clang-tidy here")

    def one(path):
        flags = ["-p", args.build, path] if args.build else [path, "--", "-std=c++20", *lint.INCLUDES]
        return subprocess.run([tool, "--quiet", *flags], cwd=tree.root, capture_output=True, text=True, check=False)

    sources = [f for f in tree.cxx(("libms/", "tools/")) if f.endswith(".cpp")]
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(one, sources):
            for line in done.stdout.splitlines():
                match = re.match(rf"(?:{re.escape(str(tree.root))}/)?(.+?:\d+):\d+: (?:warning|error): (.*)", line)
                if match is None or match.groups() in seen:
                    continue
                seen.add(match.groups())
                if "[clang-diagnostic-error]" in line:  # g++ compiles it; this clang is too old for it
                    print(f"note: {tool} cannot read {match.group(1)}: {match.group(2)}")
                else:
                    yield f"{match.group(1)}: {match.group(2)}"


if __name__ == "__main__":
    lint.run(check, __doc__)
