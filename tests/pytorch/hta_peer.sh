#!/usr/bin/env bash
# Holistic Trace Analysis beside ms-tracepp, on the traces of GPUs in ../shared.   usage: hta_peer.sh MS_TRACEPP
# Nightly. HTA_PYTHON is one that has HolisticTraceAnalysis; where it is not set, a virtual environment is made.
set -euo pipefail
tracepp=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
traces=$here/../../../shared/data/kineto
[[ -d $traces ]] || { echo "skipped: ../shared/data/kineto is not here" && exit 77; }
python=${HTA_PYTHON-}
if [[ -z $python ]]; then
  venv=$here/../../build/peer-hta
  python=$venv/bin/python
  if [[ ! -x $python ]]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet HolisticTraceAnalysis || { echo "skipped: pip cannot install HTA" && exit 77; }
  fi
fi
"$python" -B "$here/hta_peer.py" "$tracepp" "$traces"
