# Spack's recipe: `spack repo add packaging/spack`, then `spack install ms`. Builds from the checkout that it lies in by
# `spack dev-build ms@main`.
from spack.package import *


class Ms(CMakePackage):
    """MegaScale for Slurm: trains LLMs on Slurm clusters, checks nodes, and goes on without bad ones."""

    version("main")

    variant("cuda", default=False, description="the CUDA device, with cuDNN and NCCL")
    variant("slurm", default=True, description="the SPANK plugin, for the Slurm that it is built with")
    variant("curl", default=True, description="ms-diag notify")

    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    for library in ("fmt", "spdlog", "cli11", "toml11", "nlohmann-json", "onednn", "xxhash", "zlib-api", "zstd", "simdjson",
                    "pcre2", "utf8proc", "openssl", "hdf5~mpi", "mpi", "pmix", "munge"):
        depends_on(library)
    depends_on("slurm", when="+slurm")
    depends_on("curl", when="+curl")
    depends_on("cuda@12.4:", when="+cuda")
    depends_on("cudnn@9.8:", when="+cuda")
    depends_on("nccl", when="+cuda")

    generator("ninja")
    build_targets = ["installed"]

    def cmake_args(self):
        args = [self.define("MS_TESTS", False), self.define("MS_WERROR", False)]
        args += [self.define(f"MS_{name.upper()}", "ON" if f"+{name}" in self.spec else "OFF")
                 for name in ("cuda", "slurm", "curl")]
        if "+slurm" in self.spec:
            args.append(self.define("MS_SLURM_INCLUDE", self.spec["slurm"].prefix.include))
        return args
