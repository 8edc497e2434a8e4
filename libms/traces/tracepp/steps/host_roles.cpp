#include "tracepp/steps/host_roles.h"

#include <algorithm>
#include <initializer_list>

namespace ms::tracepp {
namespace {

bool any_of(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

bool is_library(std::string_view name) {
  return name.starts_with('<') || name.starts_with("torch/") || name.find(".py(") == std::string_view::npos ||
         any_of(name, {"site-packages/", "dist-packages/", "/lib/python", "multiprocessing/", "concurrent/"}) ||
         std::ranges::any_of(
             std::initializer_list<std::string_view>{"threading.py(", "contextlib.py(", "functools.py(", "runpy.py(",
                                                     "queue.py(", "selectors.py(", "copy.py("},
             [&](std::string_view file) { return name.starts_with(file); });
}

bool collects(std::string_view name) {
  return name.starts_with("<built-in function collect>") || name.starts_with("<built-in method collect of module") ||
         name == "Python GC" || name == "gc.collect";
}

// Running what was compiled goes through files of torch._dynamo and torch._inductor too: these only compile.
bool compiles(std::string_view name) {
  return name.ends_with(" (dynamo_timed)") ||
         any_of(name,
                {"torch/_dynamo/convert_frame.py(", "torch/_dynamo/symbolic_convert.py(", "torch/_inductor/graph.py(",
                 "torch/_inductor/async_compile.py(", "torch/_inductor/scheduler.py(", "triton/compiler/compiler.py(",
                 "torch/utils/cpp_extension.py("});
}

}  // namespace

HostRole host_role(const EventInfo& info, std::string_view name) {
  switch (info.origin) {
    case Origin::op:
      return HostRole::op;
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
    default:
      return HostRole::none;
  }
}

std::optional<IdleCause> cause_of(HostRole role) {
  switch (role) {
    case HostRole::data:
      return IdleCause::data;
    case HostRole::save:
      return IdleCause::save;
    case HostRole::collection:
      return IdleCause::collection;
    case HostRole::compilation:
      return IdleCause::compilation;
    default:
      return std::nullopt;
  }
}

}  // namespace ms::tracepp
