"""Each vendor's header is known to the files of this table and to no other file of the product."""

import re

import lint

# header (a regular expression on what stands between the quotes), the files that may include it, at most how many do
VENDORS = [
    (r"mpi\.h", r"libms/engine/comm/mpi_\w+\.cpp", 1),
    (r"pmix.*\.h", r"libms/engine/comm/store_pmix\.cpp", 1),
    (r"nccl.*\.h", r"libms/engine/comm/nccl_\w+\.cpp", 1),
    (r"(cuda|cublas|cudnn|nvrtc|nvtx|nvml).*", r"(kernels/.*|libms/engine/tensor/cuda/.*)", None),
    (r"CLI/.*", r"libms/core/base/cli\.cpp", 1),
    (r"toml.*\.hpp", r"libms/core/base/config_value\.h", 1),
    (r"spdlog/.*", r"libms/core/base/log\.cpp", 1),
    (r"xxh\w+\.h", r"libms/core/base/hash\.cpp", 1),
    (r"nlohmann/.*", r"libms/core/base/json\.cpp", 1),
    (r"(oneapi/)?dnnl.*", r"libms/engine/tensor/cpu_matmul\.cpp", 1),
    (r"curl/.*", r"libms/(ops/notify/http|engine/data/http_get)\.cpp", 2),
    (r"openssl/.*", r"libms/core/link/secret\.cpp", 1),
    (r"zlib\.h", r"libms/(core/unpack/unpack|traces/tracepp/export/file)\.cpp", 2),
    (r"zstd.*\.h", r"libms/core/unpack/unpack\.cpp", 1),
    (r"simdjson\.h", r"libms/(traces/tracepp/read/json_objects\.h|engine/data/json_lines\.cpp)", 2),
    (r"sqlite3\.h", r"libms/traces/tracepp/read/nsys_sqlite\.cpp", 1),
    (r"(jpeglib|jerror)\.h", r"libms/engine/image/jpeg\.cpp", 1),
    (r"png\.h", r"libms/engine/image/png\.cpp", 1),
    (r"pcre2\.h", r"libms/engine/data/pattern\.cpp", 1),
    (r"utf8proc\.h", r"libms/engine/data/unicode\.cpp", 1),
    (r"(hdf5|H5\w+)\.h", r"libms/engine/ckpt/hdf5\.cpp", 1),
    (r"slurm/(slurm\w*|spank|smd_ns)\.h", r"spank/.*", None),  # not our room slurm
]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')


def check(tree, _):
    users = {}
    for path in tree.cxx(lint.PRODUCT):
        for number, line in enumerate(lint.blank_comments(tree.text(path)).splitlines(), 1):
            match = INCLUDE.match(line)
            for header, home, most in VENDORS if match else []:
                if not re.fullmatch(header, match.group(1)):
                    continue
                if not re.fullmatch(home, path):
                    yield f"{path}:{number}: includes {match.group(1)}, which only {home} may know"
                    continue
                users.setdefault(header, set()).add(path)
                if most is not None and len(users[header]) > most:
                    yield f"{path}:{number}: includes {match.group(1)}, and so does {sorted(users[header])[0]}: one file does"


if __name__ == "__main__":
    lint.run(check, __doc__)
