#include "tracepp/read/trace_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/number.h"

namespace ms::tracepp {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

using NamePart = std::pair<std::string_view, Kind>;

template <std::size_t count>
Kind by_part(std::string_view name, const std::array<NamePart, count>& parts, Kind otherwise) {
  const auto* const found = std::ranges::find_if(
      parts, [&](const NamePart& part) { return name.find(part.first) != std::string_view::npos; });
  return found == parts.end() ? otherwise : found->second;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string plain_name(std::string_view name) {
  std::string letters;
  for (const char c : name.substr(0, 512)) {
    if (c >= 'A' && c <= 'Z') letters += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || is_digit(c)) letters += c;
  }
  return letters;
}

Kind comm_kind(std::string_view name) {
  // The order matters: "all_reduce_barrier", "reduce_scatter" and "sendrecv" contain other names.
  static constexpr std::array<NamePart, 11> kParts{{{"barrier", Kind::barrier},
                                                    {"allreduce", Kind::all_reduce},
                                                    {"reducescatter", Kind::reduce_scatter},
                                                    {"allgather", Kind::all_gather},
                                                    {"alltoall", Kind::all_to_all},
                                                    {"broadcast", Kind::broadcast},
                                                    {"sendrecv", Kind::other_comm},
                                                    {"coalesced", Kind::other_comm},
                                                    {"send", Kind::send},
                                                    {"recv", Kind::recv},
                                                    {"", Kind::other_comm}}};
  // The text in brackets is the arguments of a kernel.
  return by_part(plain_name(name.substr(0, name.find('('))), kParts, Kind::other_comm);
}

EventRow row_of_category(std::string_view category) {
  static constexpr std::array<std::pair<std::string_view, EventRow>, 38> kRows{{
      {"kernel", EventRow::work},
      {"Kernel", EventRow::work},
      {"concurrent_kernel", EventRow::work},
      {"gpu_memcpy", EventRow::work},
      {"gpu_memset", EventRow::work},
      {"Memcpy", EventRow::work},
      {"Memset", EventRow::work},
      {"mtia_ccp_events", EventRow::work},
      {"collective_comm", EventRow::communication},
      {"gpu_user_annotation", EventRow::ignored},
      {"cuda_sync", EventRow::ignored},
      {"cuda_event", EventRow::ignored},
      {"cuda_profiler_range", EventRow::ignored},
      {"hardware_counters", EventRow::ignored},
      {"mtia_counters", EventRow::ignored},
      {"mtia_insight", EventRow::ignored},
      {"xpu_sync", EventRow::ignored},
      {"xpu_scope_profiler", EventRow::ignored},
      {"async_gpu", EventRow::ignored},
      {"cpu_op", EventRow::host_operator},
      {"Operator", EventRow::host_operator},
      {"user_annotation", EventRow::host},
      {"python_function", EventRow::host},
      {"cpu_instant_event", EventRow::host},
      {"external_correlation", EventRow::host},
      {"overhead", EventRow::host},
      {"cuda_runtime", EventRow::host},
      {"cuda_driver", EventRow::host},
      {"Runtime", EventRow::host},
      {"xpu_runtime", EventRow::host},
      {"xpu_driver", EventRow::host},
      {"mtia_runtime", EventRow::host},
      {"glow_runtime", EventRow::host},
      {"hpu_op", EventRow::host},
      {"privateuse1_runtime", EventRow::host},
      {"privateuse1_driver", EventRow::host},
      {"enqueue", EventRow::host},
      {"dequeue", EventRow::host},
  }};
  const auto* const found = std::ranges::find(kRows, category, &std::pair<std::string_view, EventRow>::first);
  return found == kRows.end() ? EventRow::unknown : found->second;
}

EventRow row_of_process(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, EventRow>, 9> kRows{
      {{"CUDA functions", EventRow::work},
       {"CPU functions", EventRow::host_operator},
       {"Ascend Hardware", EventRow::work},
       {"HCCL", EventRow::communication},
       {"Communication", EventRow::communication},
       {"Overlap Analysis", EventRow::host},
       {"CANN", EventRow::host},
       {"AscendCL", EventRow::host},
       {"Python", EventRow::host}}};
  const auto* const found = std::ranges::find(kRows, name, &std::pair<std::string_view, EventRow>::first);
  return found == kRows.end() ? EventRow::unknown : found->second;
}

bool is_comm_kernel(std::string_view name, bool thorough) {
  static constexpr std::array<std::string_view, 14> kBegins{"nccl",  "rccl",   "msccl",   "oneccl", "hccl",
                                                            "hcom",  "cncl",   "mccl",    "bccl",   "xccl",
                                                            "ixccl", "flagcx", "deep_ep", "nvshmem"};
  static constexpr std::array<std::string_view, 7> kParts{
      "nccldevkernel",       "ncclkernel",          "mscclkernel",        "one_shot_all_reduce",
      "two_shot_all_reduce", "multimem_all_reduce", "cross_device_reduce"};
  constexpr std::size_t kNamed = 256;
  name = name.substr(0, std::min(name.find('('), kNamed));  // the rest is arguments
  if (name.starts_with("void ")) name.remove_prefix(5);
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  if (std::ranges::any_of(kBegins, [&](std::string_view begin) {
        return name.size() >= begin.size() && std::ranges::equal(name.substr(0, begin.size()), begin, same);
      })) {
    return true;
  }
  return thorough && std::ranges::any_of(kParts, [&](std::string_view part) {
           return std::search(name.begin(), name.end(), part.begin(), part.end(), same) != name.end();
         });
}

Kind kernel_kind(std::string_view name) {
  static constexpr std::array<NamePart, 36> kParts{{{"flash", Kind::attention},
                                                    {"fmha", Kind::attention},
                                                    {"attention", Kind::attention},
                                                    {"attn", Kind::attention},
                                                    {"gemm", Kind::matmul},
                                                    {"gemv", Kind::matmul},
                                                    {"cutlass", Kind::matmul},
                                                    {"cublas", Kind::matmul},
                                                    {"nvjet", Kind::matmul},
                                                    {"cijk", Kind::matmul},
                                                    {"convol", Kind::matmul},
                                                    {"scudnn", Kind::matmul},
                                                    {"winograd", Kind::matmul},
                                                    {"fprop", Kind::matmul},
                                                    {"dgrad", Kind::matmul},
                                                    {"wgrad", Kind::matmul},
                                                    {"matmul", Kind::matmul},
                                                    {"addmm", Kind::matmul},
                                                    {"atenmm", Kind::matmul},
                                                    {"atenbmm", Kind::matmul},
                                                    {"layernorm", Kind::norm},
                                                    {"rmsnorm", Kind::norm},
                                                    {"batchnorm", Kind::norm},
                                                    {"bnbw", Kind::norm},
                                                    {"bnfw", Kind::norm},
                                                    {"adam", Kind::update},
                                                    {"multitensorapply", Kind::update},
                                                    {"embedding", Kind::embedding},
                                                    {"nllloss", Kind::loss},
                                                    {"crossentropy", Kind::loss},
                                                    {"gelu", Kind::activation},
                                                    {"silu", Kind::activation},
                                                    {"swiglu", Kind::activation},
                                                    {"relu", Kind::activation},
                                                    {"elementwise", Kind::elementwise},
                                                    {"triton", Kind::other_compute}}};
  return by_part(plain_name(name), kParts, Kind::other_compute);
}

Kind host_kind(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name.starts_with("enumerate(DataLoader)")) return Kind::data_wait;
  // "torch/utils/data/dataloader.py(701): __next__"
  const std::size_t colon = name.rfind("): ");
  const std::string_view function = colon == std::string_view::npos ? name : name.substr(colon + 3);
  if (function == "__next__" && has("/dataloader.py(")) return Kind::data_wait;
  if (function.ends_with("save_checkpoint") || function == "save_pretrained") return Kind::save;
  const bool saves = function == "save" || function == "async_save" || function == "save_file";
  return saves && (has("torch/serialization.py(") || has("/checkpoint/") || has("/checkpoint.py(") ||
                   has("/checkpointing.py(") || has("safetensors/torch.py("))
             ? Kind::save
             : Kind::other;
}

bool compiles(std::string_view name) {
  // Running what was compiled goes through files of torch._dynamo and torch._inductor too: these only compile.
  static constexpr std::array<std::string_view, 7> kParts{
      "torch/_dynamo/convert_frame.py(",   "torch/_dynamo/symbolic_convert.py(", "torch/_inductor/graph.py(",
      "torch/_inductor/async_compile.py(", "torch/_inductor/scheduler.py(",      "triton/compiler/compiler.py(",
      "torch/utils/cpp_extension.py("};
  return name.ends_with(" (dynamo_timed)") ||
         std::ranges::any_of(kParts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

int type_bytes(std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, int>, 27> kTypes{
      {{"float", 4},          {"float32", 4},      {"half", 2},         {"float16", 2},
       {"bfloat16", 2},       {"double", 8},       {"float64", 8},      {"long", 8},
       {"int64", 8},          {"int", 4},          {"int32", 4},        {"short", 2},
       {"int16", 2},          {"char", 1},         {"int8", 1},         {"byte", 1},
       {"uint8", 1},          {"bool", 1},         {"float8e4m3fn", 1}, {"float8e5m2", 1},
       {"float8e4m3fnuz", 1}, {"complexfloat", 8}, {"uint16", 2},       {"uint32", 4},
       {"uint64", 8},         {"f32", 4},          {"bf16", 2}}};
  const std::string name = plain_name(type);
  const auto* const found = std::ranges::find(kTypes, name, &std::pair<std::string_view, int>::first);
  return found == kTypes.end() ? 0 : found->second;
}

GroupAxis axis_of_description(std::string_view description) {
  const std::string name = plain_name(description);
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("tensor") || name == "tp" || has("meshtp")) return GroupAxis::tp;
  if (has("pipeline") || has("embedding") || name == "pp" || has("meshpp")) return GroupAxis::pp;
  if (has("data") || name == "dp" || has("meshdp") || has("fsdp") || has("shard") || has("replicate")) {
    return GroupAxis::dp;
  }
  return has("default") || name == "world" ? GroupAxis::world : GroupAxis::other;
}

std::vector<int> parse_ranks(std::string_view text) {
  std::vector<int> ranks;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return ranks;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size() - 1;
  const auto skip = [&](std::string_view characters) {
    while (at < end && characters.find(*at) != std::string_view::npos) ++at;
  };
  for (skip(" \n\t\r"); at < end; skip(", \n\t\r")) {
    int rank = -1;
    const auto [stop, error] = std::from_chars(at, end, rank);
    if (error != std::errc{} || rank < 0) return {};
    ranks.push_back(rank);
    at = stop;
  }
  return ranks;
}

std::optional<int> rank_of_file(std::string_view path) {
  const std::string_view name = file_name(path);
  const auto number = [&](std::size_t from) {
    const auto rank = leading_number<int>(name.substr(from));
    return rank >= 0 ? rank : std::nullopt;
  };
  std::size_t at = name.rfind("rank");
  if (at != std::string_view::npos) {
    at += 4;
    while (at < name.size() && (name[at] == '_' || name[at] == '-' || name[at] == '.' || name[at] == '=')) ++at;
    if (at < name.size() && is_digit(name[at])) return number(at);
  }
  if (!host_of_file(path).empty()) return std::nullopt;  // its last numbers are a process and a time
  std::string_view stem = name;
  for (const std::string_view ending : {".gz", ".zst", ".json", ".trace", ".pt"}) {
    if (stem.ends_with(ending)) stem.remove_suffix(ending.size());
  }
  at = stem.size();
  while (at > 0 && is_digit(stem[at - 1])) --at;
  return at < stem.size() ? number(at) : std::nullopt;
}

int rank_of_process(const std::string& name) {
  return name.starts_with("rank ") ? rank_of_file(name.substr(0, name.find(' ', 5))).value_or(-1) : -1;
}

std::string host_of_file(std::string_view path) {
  std::string_view name = file_name(path);
  const std::size_t end = name.find(".pt.trace.json");
  if (end == std::string_view::npos) return {};
  name = name.substr(0, end);
  const auto drop_digits_behind = [&](char mark) {
    std::size_t at = name.size();
    while (at > 0 && is_digit(name[at - 1])) --at;
    if (at == name.size() || at == 0 || name[at - 1] != mark) return false;
    name = name.substr(0, at - 1);
    return true;
  };
  return drop_digits_behind('.') && drop_digits_behind('_') ? std::string(name) : std::string();
}

}  // namespace ms::tracepp
