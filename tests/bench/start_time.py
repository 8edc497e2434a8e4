"""How long each tool takes to say its version, from exec to exit: wall and CPU time, the least and the median of so many
starts; and the libraries that cost most, each as what `true` takes more when it is loaded. usage: tests/bench/start_time.py BUILD [STARTS]"""

import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

TOOLS = ("ms-train", "ms-data", "ms-ckpt", "ms-tracepp", "ms-netcheck", "ms-driver", "ms-loan", "ms-diag")
SHOWN = 6


def cpu_ms():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (used.ru_utime + used.ru_stime)


def starts(command, number, **environment):
    """Wall and CPU times of so many starts, in ms."""
    wall, cpu = [], []
    for _ in range(number):
        begin, used = time.perf_counter(), cpu_ms()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | environment)
        wall.append(1e3 * (time.perf_counter() - begin))
        cpu.append(cpu_ms() - used)
    return wall, cpu


def libraries(program):
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"=> (/\S+)", text)


def main():
    programs = pathlib.Path(sys.argv[1]) / "bin"
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    print(f"{'tool':<12} {'wall, ms':>15} {'CPU, ms':>15}  libraries   (least and median of {number} starts)")
    loaded = set()
    for tool in TOOLS:
        program = str(programs / tool)
        wall, cpu = starts([program, "--version"], number)
        used = libraries(program)
        loaded.update(used)
        print(f"{tool:<12} {min(wall):7.1f} {statistics.median(wall):7.1f} {min(cpu):7.1f} {statistics.median(cpu):7.1f}  {len(used)}")
    empty = min(starts(["true"], number)[1])
    costs = {path: min(starts(["true"], max(3, number // 4), LD_PRELOAD=path)[1]) - empty for path in loaded}
    print("libraries, with all that they load themselves:")
    for path, cost in sorted(costs.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"  {cost:5.1f} ms  {path}")


if __name__ == "__main__":
    main()
