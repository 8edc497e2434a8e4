#include "tracepp/steps/host_roles.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

bool any_of(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// Profilers drop what all modules have in common from their paths: "json/encoder.py(224): floatstr". These are the
// packages and modules that users call, and rarely write, in order: of Python, and of others.
constexpr std::array<std::string_view, 85> kLibraries{"PIL",         "_weakrefset", "abc",          "accelerate",
                                                      "aiohttp",     "argparse",    "asyncio",      "bisect",
                                                      "codecs",      "collections", "concurrent",   "contextlib",
                                                      "copy",        "copyreg",     "csv",          "ctypes",
                                                      "cv2",         "dataclasses", "datasets",     "datetime",
                                                      "deepspeed",   "einops",      "email",        "encodings",
                                                      "enum",        "fsspec",      "functools",    "gzip",
                                                      "h5py",        "hashlib",     "http",         "importlib",
                                                      "inspect",     "io",          "json",         "lightning",
                                                      "logging",     "matplotlib",  "mlflow",       "multiprocessing",
                                                      "numpy",       "operator",    "os",           "pandas",
                                                      "pathlib",     "pickle",      "pkgutil",      "posixpath",
                                                      "pprint",      "psutil",      "pyarrow",      "pytorch_lightning",
                                                      "queue",       "random",      "re",           "requests",
                                                      "runpy",       "s3fs",        "safetensors",  "scipy",
                                                      "selectors",   "shutil",      "signal",       "sklearn",
                                                      "socket",      "ssl",         "statistics",   "string",
                                                      "struct",      "subprocess",  "tempfile",     "tensorboard",
                                                      "textwrap",    "threading",   "tokenizers",   "torch",
                                                      "torchvision", "tqdm",        "transformers", "triton",
                                                      "typing",      "urllib",      "wandb",        "webdataset",
                                                      "zipfile"};
static_assert(std::ranges::is_sorted(kLibraries));

bool is_library(std::string_view name) {
  const std::string_view first = name.substr(0, std::min(name.find('/'), name.find(".py(")));
  return name.starts_with('<') || name.find(".py(") == std::string_view::npos ||
         std::ranges::binary_search(kLibraries, first) ||
         any_of(name, {"site-packages/", "dist-packages/", "/lib/python"});
}

bool collects(std::string_view name) {
  return name.starts_with("<built-in function collect>") || name.starts_with("<built-in method collect of module") ||
         name == "Python GC" || name == "gc.collect";
}

}  // namespace

HostRole host_role(const EventInfo& info, std::string_view name) {
  switch (info.origin) {
    case Origin::op: return compiles(name) ? HostRole::compilation : HostRole::op;
    case Origin::call:
      // cudaStreamSynchronize, cuCtxSynchronize, hipDeviceSynchronize; a cudaMemcpy that is not asynchronous.
      return name.ends_with("Synchronize") || name == "cudaMemcpy" || name == "hipMemcpy" ||
                     name == "hipMemcpyWithStream"
                 ? HostRole::synchronises
                 : HostRole::call;
    case Origin::annotation:
    case Origin::python:
      if (info.kind == Kind::data_wait) return HostRole::data;
      if (info.kind == Kind::save) return HostRole::save;
      if (info.kind != Kind::other) return HostRole::none;
      if (collects(name)) return HostRole::collection;
      if (compiles(name)) return HostRole::compilation;
      if (info.origin == Origin::annotation || name.starts_with("nn.Module: ")) return HostRole::around;
      if (!is_library(name)) return HostRole::line;
      return name.starts_with('<') || any_of(name, {"wrap", "_call_impl", "torch/_tensor.py(", "torch/_ops.py("})
                 ? HostRole::none
                 : HostRole::around;
    default: return HostRole::none;
  }
}

std::optional<IdleCause> cause_of(HostRole role) {
  switch (role) {
    case HostRole::data: return IdleCause::data;
    case HostRole::save: return IdleCause::save;
    case HostRole::collection: return IdleCause::collection;
    case HostRole::compilation: return IdleCause::compilation;
    default: return std::nullopt;
  }
}

}  // namespace ms::tracepp
