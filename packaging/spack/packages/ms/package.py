# Spack's recipe, for the checkout that it lies in: after `spack repo add packaging/spack`, `spack install ms` builds what its
# branch main has, and `spack dev-build ms@main` what lies there.
#
# The Slurm of `+slurm` is the one that the cluster runs, a version of it exactly: an external in packages.yaml, else Spack
# builds one that no daemon of the cluster is of. Spack 0.23 has no recipe of simdjson yet: the one of spack-packages goes into a
# repository of the site.
import pathlib

from spack.package import *

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage, generator  # from Spack 1.0 on
except ImportError:
    pass


class Ms(CMakePackage):
    """MegaScale for Slurm: trains LLMs on Slurm clusters, checks nodes, and goes on without bad ones."""

    git = f"file://{pathlib.Path(__file__).resolve().parents[4]}"
    license("Apache-2.0 AND GPL-2.0-or-later")

    version("main", branch="main")

    variant("cuda", default=False, description="the CUDA device, with cuDNN and NCCL")
    variant("slurm", default=True, description="the SPANK plugin, for the Slurm that it is built with")
    variant("curl", default=True, description="ms-diag notify, and token files in object stores")
    variant("sqlite", default=True, description="ms-tracepp reads SQLite exports of Nsight Systems")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    # libms.so links them all: what is built static by default may not be position-independent.
    for library in ("fmt", "spdlog", "cli11", "toml11", "nlohmann-json", "onednn cpu_runtime=omp", "xxhash", "zlib-api", "zstd",
                    "xz", "bzip2", "simdjson+shared", "pcre2", "utf8proc+shared", "openssl", "jpeg", "libpng", "hdf5~mpi", "mpi", "pmix", "munge"):
        depends_on(library)
    depends_on("slurm", when="+slurm")
    depends_on("curl", when="+curl")
    depends_on("sqlite", when="+sqlite")
    depends_on("cuda@12.4:", when="+cuda")
    depends_on("cudnn@9.8:", when="+cuda")
    depends_on("nccl", when="+cuda")

    conflicts("%gcc@:11", msg="ms is built and tested with GCC 12 and later")

    generator("ninja")
    build_targets = ["installed"]

    def cmake_args(self):
        args = [self.define("MS_TESTS", False), self.define("MS_WERROR", False)]
        args += [self.define(f"MS_{name.upper()}", "ON" if f"+{name}" in self.spec else "OFF")
                 for name in ("cuda", "slurm", "curl", "sqlite")]
        args += [self.define(f"MS_{name}", "ON") for name in ("MPI", "PMIX", "HDF5", "MUNGE")]
        if "+slurm" in self.spec:
            args.append(self.define("MS_SLURM_INCLUDE", self.spec["slurm"].prefix.include))
        return args
