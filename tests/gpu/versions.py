#!/usr/bin/env python3
"""Says what a GPU and its libraries are: a line each, "name value". Exits with 1 if one is missing.
usage: versions.py      the libraries are found through LD_LIBRARY_PATH"""
import ctypes
import sys

PROCESSORS, MEMORY_POOLS = 16, 115  # cudaDeviceAttr


def number(library, function, *arguments):
    """What function(&number, arguments...) says."""
    value = ctypes.c_int(0)
    status = getattr(ctypes.CDLL(library), function)(ctypes.byref(value), *arguments)
    if status != 0:
        raise OSError(f"error {status}")
    return value.value


def result(library, function):
    call = getattr(ctypes.CDLL(library), function)
    call.restype = ctypes.c_size_t
    return call()


def main():
    runtime = next((name for name in ("libcudart.so.13", "libcudart.so.12") if exists(name)), "libcudart.so")
    blas = next((name for name in ("libcublasLt.so.13", "libcublasLt.so.12") if exists(name)), "libcublasLt.so")
    missing = False
    for name, ask in (("driver", lambda: number(runtime, "cudaDriverGetVersion")),
                      ("runtime", lambda: number(runtime, "cudaRuntimeGetVersion")),
                      ("cublasLt", lambda: result(blas, "cublasLtGetVersion")),
                      ("cudnn", lambda: result("libcudnn.so.9", "cudnnGetVersion")),
                      ("nccl", lambda: number("libnccl.so.2", "ncclGetVersion")),
                      ("multiprocessors", lambda: number(runtime, "cudaDeviceGetAttribute", PROCESSORS, 0)),
                      ("memory_pools", lambda: number(runtime, "cudaDeviceGetAttribute", MEMORY_POOLS, 0))):
        try:
            print(name, ask(), flush=True)
        except (OSError, AttributeError) as error:
            missing = True
            print(name, f"missing: {error}", flush=True)
    return 1 if missing else 0


def exists(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
