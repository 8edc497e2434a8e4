"""Every metric that the alerts and the dashboard name is one that a tool writes, and both files are what Prometheus and Grafana
read: promtool says so of the alerts where it is installed, and that
they fire. Every alert says what to do. usage: monitoring.py SOURCE"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

# Where each tool names its families: the source, and what stands before a name.
SOURCES = {
    "ms_diag_": ("libms/ops/health/commands/report.cpp", r'"(ms_diag_\w+)"|# TYPE (ms_diag_\w+)'),
    "ms_driver_": ("libms/ops/driver/status.cpp", r'gauge\("(\w+)"|# TYPE ms_driver_(\w+)'),
    "ms_loan_": ("libms/ops/loan/memory.cpp", r'add\("(\w+)"'),
}


RULES = "packaging/monitoring/ms-rules.yml"


def families(source):
    names = set()
    for prefix, (path, pattern) in SOURCES.items():
        found = {a or b for a, b in (match.groups() if match.re.groups == 2 else (match[1], "")
                                     for match in re.finditer(pattern, (source / path).read_text()))}
        assert found, f"{path} names no families"
        names |= {name if name.startswith(prefix) else prefix + name for name in found}
    return names


def expressions(source):
    folder = source / "packaging/monitoring"
    dashboard = json.loads((folder / "ms-dashboard.json").read_text())
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert len({(p["x"], p["y"]) for p in places}) == len(places), "two panels lie in the same place"
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield f"dashboard, {panel['title']}", target["expr"]
    for text in re.findall(r" expr: (.*?)\n +(?:for|labels):", (source / RULES).read_text(), re.DOTALL):
        yield "alerts", text


def main():
    source = pathlib.Path(sys.argv[1])
    known, wrong, seen = families(source), [], 0
    for where, text in expressions(source):
        named = re.findall(r"\bms_\w+", text)
        seen += len(named)
        if not named:
            wrong.append(f"{where}: names no metric: {text}")
        wrong += [f"{where}: no tool writes {name}" for name in named if name not in known]
    for alert in (source / RULES).read_text().split("- alert: ")[1:]:
        if " summary: " not in alert or " description: " not in alert:
            wrong.append(f"alert {alert.split()[0]}: says not what to do")
    print(f"{seen} uses of {len(known)} families")
    if promtool := shutil.which("promtool"):
        subprocess.run([promtool, "check", "rules", source / RULES], check=True)
        subprocess.run([promtool, "test", "rules", source / "tests/packages/ms-rules-test.yml"], check=True)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
