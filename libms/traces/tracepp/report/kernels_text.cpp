// Implements what text.h and json.h say of kernels.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "base/text.h"
#include "tracepp/report/json.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostKernels = 8, kMostOps = 6, kKernelBytes = 56;
constexpr std::size_t kAllRows = std::numeric_limits<std::size_t>::max();

double part_of(double part, double whole) { return whole > 0 ? part / whole : 0; }
std::string percent_cell(double part) { return fmt::format("{:.1f}%", 100 * part); }
std::string ms_cell(double ns) { return fmt::format("{:.3f}", 1e-6 * ns); }
std::string us_cell(double ns) { return fmt::format("{:.1f}", 1e-3 * ns); }
std::string rate_cell(double value) { return value > 0 ? fmt::format("{:.3g}", value) : "-"; }
std::string count_cell(std::uint64_t number) { return format_count(static_cast<double>(number)); }

bool may_use_cores(Kind kind) { return kind == Kind::matmul || kind == Kind::attention || kind == Kind::other_compute; }

std::size_t steps_of(const std::vector<RankKernels>& ranks) {
  std::size_t steps = 0;
  for (const RankKernels& rank : ranks) steps += rank.steps.size();
  return std::max<std::size_t>(steps, 1);
}

// The rows of all ranks with the same name, the longest first.
std::vector<KernelTime> all_of(const std::vector<RankKernels>& ranks, std::vector<KernelTime> RankKernels::*rows) {
  std::map<std::uint32_t, KernelTime> by_name;
  for (const RankKernels& rank : ranks) {
    for (const KernelTime& row : rank.*rows) {
      const auto [at, is_new] = by_name.try_emplace(row.name, row);
      if (!is_new) at->second.add(row);
    }
  }
  std::vector<KernelTime> all;
  for (const auto& [name, row] : by_name) all.push_back(row);
  std::ranges::stable_sort(all, std::greater<>{}, [](const KernelTime& kernel) { return kernel.time.ns; });
  return all;
}

// "1.250 38.2% 120 3.1 10.4 17.0 312 1.9e+03": of kernels of a name, or of a kind.
std::vector<std::string> time_cells(const KernelTime& of, double steps, double whole_ns) {
  const auto ns = static_cast<double>(of.time.ns);
  return {ms_cell(ns / steps),
          percent_cell(part_of(ns, whole_ns)),
          count_cell(of.time.count),
          us_cell(static_cast<double>(of.time.least_ns)),
          us_cell(of.time.mean_ns()),
          us_cell(static_cast<double>(of.time.most_ns)),
          rate_cell(of.achieved.tflops()),
          rate_cell(of.achieved.gb_s())};
}
constexpr const char* kTimeTitles = "ms a step>|share>|count>|min us>|mean>|max>|TFLOP/s>|GB/s>";
std::vector<std::string> joined(std::vector<std::string> cells, const std::vector<std::string>& more) {
  cells.insert(cells.end(), more.begin(), more.end());
  return cells;
}

std::string kernel_kinds_text(const std::vector<RankKernels>& ranks, double steps) {
  struct OfKind {
    KernelTime all;
    std::int64_t with_cores_ns = 0;
  };
  std::map<Kind, OfKind> kinds;
  double whole_ns = 0;
  for (const KernelTime& kernel : all_of(ranks, &RankKernels::kernels)) {
    OfKind& of = kinds[kernel.kind];
    of.all.add(kernel);
    if (kernel.cores == TensorCores::used) of.with_cores_ns += kernel.time.ns;
    whole_ns += static_cast<double>(kernel.time.ns);
  }
  std::vector<std::pair<Kind, OfKind>> rows(kinds.begin(), kinds.end());
  std::ranges::stable_sort(rows, std::greater<>{}, [](const auto& row) { return row.second.all.time.ns; });
  ReportTable table{columns(fmt::format("kernels of|tensor cores>|{}", kTimeTitles))};
  for (const auto& [kind, of] : rows) {
    const double with_cores = part_of(static_cast<double>(of.with_cores_ns), static_cast<double>(of.all.time.ns));
    table.rows.push_back(joined({std::string(to_string(kind)), may_use_cores(kind) ? percent_cell(with_cores) : "-"},
                                time_cells(of.all, steps, whole_ns)));
  }
  return table.text();
}

std::string launches_text(const RunTrace& trace, const std::vector<RankKernels>& ranks, double steps, bool all) {
  ShortKernels short_ones;
  LaunchTimes launches;
  std::uint64_t kernels = 0;
  const RankKernels* worst = nullptr;
  std::size_t worst_rank = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankKernels& rank = ranks[r];
    for (const KernelTime& kernel : rank.kernels) kernels += kernel.time.count;
    short_ones.count += rank.short_ones.count;
    short_ones.ns += rank.short_ones.ns;
    short_ones.idle_before_ns += rank.short_ones.idle_before_ns;
    launches.count += rank.launches.count;
    launches.late += rank.launches.late;
    launches.calls_ns += rank.launches.calls_ns;
    if (rank.launches.count == 0 || (worst && worst->launches.median_ns >= rank.launches.median_ns)) continue;
    worst = &rank;
    worst_rank = r;
  }
  std::string text = fmt::format(
      "kernels under 5 us: {} of {}, {} ms a step; the device is idle before them for {} ms\n",
      count_cell(short_ones.count), count_cell(kernels), ms_cell(static_cast<double>(short_ones.ns) / steps),
      ms_cell(static_cast<double>(short_ones.idle_before_ns) / steps));
  if (worst != nullptr) {
    text += fmt::format(
        "launches: {}, {} ms of the host a step; {} kernels began over 100 us after their launch; on rank {}, half "
        "begin within {}, 90 % within {}, all within {}\n",
        count_cell(launches.count), ms_cell(static_cast<double>(launches.calls_ns) / steps), count_cell(launches.late),
        trace.ranks[worst_rank].rank, format_duration(seconds(worst->launches.median_ns)),
        format_duration(seconds(worst->launches.p90_ns)), format_duration(seconds(worst->launches.most_ns)));
  }
  TextTable queues(columns("rank>|queue of|mean>|most>"));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const QueueLength& queue : ranks[r].queues) {
      queues.row({std::to_string(trace.ranks[r].rank),
                  plain_text(trace.strings.text(trace.ranks[r].lanes[queue.lane]), 32),
                  fmt::format("{:.1f}", queue.mean), std::to_string(queue.most)});
    }
  }
  return all && worst != nullptr ? text + "\n" + queues.str() : text;
}

Json lengths_json(const Lengths& time) {
  return {{"count", time.count},
          {"ms", 1e-6 * static_cast<double>(time.ns)},
          {"min_us", 1e-3 * static_cast<double>(time.least_ns)},
          {"mean_us", 1e-3 * time.mean_ns()},
          {"max_us", 1e-3 * static_cast<double>(time.most_ns)}};
}

Json known_cell(double value) { return value > 0 ? Json(value) : Json(nullptr); }

Json rank_kernels_json(const RunTrace& trace, std::size_t r, const RankKernels& of,
                       const std::map<std::uint32_t, std::size_t>& places) {
  const auto text = [&](std::uint32_t id) { return trace.strings.text(id); };
  Json rank = rank_json(trace, r);
  rank["device"] = trace.ranks[r].device.empty() ? Json(nullptr) : Json(trace.ranks[r].device);
  Json& kernels = rank["kernels"] = Json::array();
  for (const KernelTime& kernel : of.kernels) {
    Json row = lengths_json(kernel.time);
    row["name"] = places.at(kernel.name);
    row["tflops"] = known_cell(kernel.achieved.tflops());
    row["gb_s"] = known_cell(kernel.achieved.gb_s());
    kernels.push_back(std::move(row));
  }
  Json& copies = rank["copies"] = Json::array();
  for (const KernelTime& copy : of.copies) {
    Json row = lengths_json(copy.time);
    row["name"] = text(copy.name);
    row["bytes"] = copy.achieved.bytes_ns > 0 ? Json(copy.achieved.bytes) : Json(nullptr);
    row["gb_s"] = known_cell(copy.achieved.gb_s());
    copies.push_back(std::move(row));
  }
  Json& ops = rank["operators"] = Json::array();
  for (const OpTime& op : of.ops) {
    ops.push_back({{"name", text(op.name)},
                   {"calls", op.host.count},
                   {"host_ms", 1e-6 * static_cast<double>(op.host.ns)},
                   {"kernels", op.kernels},
                   {"device_ms", 1e-6 * static_cast<double>(op.device_ns)},
                   {"flops", op.flops}});
  }
  rank["launches"] = {{"count", of.launches.count},
                      {"calls_ms", 1e-6 * static_cast<double>(of.launches.calls_ns)},
                      {"late", of.launches.late},
                      {"delay_median_us", 1e-3 * static_cast<double>(of.launches.median_ns)},
                      {"delay_p90_us", 1e-3 * static_cast<double>(of.launches.p90_ns)},
                      {"delay_max_us", 1e-3 * static_cast<double>(of.launches.most_ns)}};
  rank["short_kernels"] = {{"count", of.short_ones.count},
                           {"ms", 1e-6 * static_cast<double>(of.short_ones.ns)},
                           {"idle_before_ms", 1e-6 * static_cast<double>(of.short_ones.idle_before_ns)}};
  Json& queues = rank["queues"] = Json::array();
  for (const QueueLength& queue : of.queues)
    queues.push_back({{"stream", text(trace.ranks[r].lanes[queue.lane])}, {"mean", queue.mean}, {"most", queue.most}});
  const Mfu mfu = mfu_of(trace, r, of);
  Json& json = rank["mfu"] = {{"mfu", known_cell(mfu.mfu)},
                              {"peak_flops", known_cell(mfu.peak)},
                              {"fp8_peak_flops", known_cell(mfu.fp8_peak)},
                              {"withheld", mfu.why.empty() ? Json(nullptr) : Json(mfu.why)},
                              {"is_lower_bound", mfu.is_lower_bound},
                              {"shaped_share", of.has_device ? Json(of.shaped_share()) : Json(nullptr)},
                              {"recomputed_flops", of.recomputed_flops},
                              {"may_recompute", of.may_recompute}};
  Json& types = json["flops"] = Json::object();
  for (const auto& [type, flops] : of.flops_by_type) types[std::string(text(type))] = flops;
  Json& steps = json["steps"] = Json::array();
  for (const StepFlops& step : of.steps) {
    steps.push_back({{"step", step.step == kNoStep ? Json(nullptr) : Json(step.step)},
                     {"step_ms", 1e-6 * static_cast<double>(step.length_ns)},
                     {"flops", step.flops}});
  }
  return rank;
}

// The kernels of all ranks, by short names, the longest first.
struct NamedKernel {
  std::string name;
  KernelTime of;
};
std::vector<NamedKernel> named_kernels(const RunTrace& trace, const std::vector<RankKernels>& ranks) {
  std::map<std::string, NamedKernel> by_name;
  for (const KernelTime& kernel : all_of(ranks, &RankKernels::kernels)) {
    std::string name = short_kernel_name(trace.strings.text(kernel.name));
    const auto [at, is_new] = by_name.try_emplace(name, NamedKernel{name, kernel});
    if (is_new) continue;
    KernelTime& of = at->second.of;
    of.add(kernel);
    if (of.cores != kernel.cores) of.cores = TensorCores::unknown;
  }
  std::vector<NamedKernel> kernels;
  for (auto& [name, kernel] : by_name) kernels.push_back(std::move(kernel));
  std::ranges::stable_sort(kernels, [](const auto& a, const auto& b) { return a.of.time.ns > b.of.time.ns; });
  return kernels;
}

std::vector<OpTime> all_ops(const std::vector<RankKernels>& ranks) {
  const bool has_device = std::ranges::any_of(ranks, &RankKernels::has_device);
  std::map<std::uint32_t, OpTime> by_name;
  for (const RankKernels& rank : ranks) {
    for (const OpTime& op : rank.ops) {
      OpTime& into = by_name[op.name];
      into.name = op.name;
      into.host.add(op.host);
      into.kernels += op.kernels;
      into.device_ns += op.device_ns;
      into.flops += op.flops;
    }
  }
  std::vector<OpTime> ops;
  for (const auto& [name, op] : by_name) ops.push_back(op);
  std::ranges::stable_sort(ops, std::greater<>{},
                           [&](const OpTime& op) { return has_device ? op.device_ns : op.host.ns; });
  return ops;
}

// "aten::linear"; without what autograd puts before the names of backward operators.
std::string op_text(std::string_view name) {
  for (const std::string_view prefix : {"autograd::engine::evaluate_function: ", "torch::autograd::"})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return plain_text(name, kKernelBytes);
}

}  // namespace

std::string ReportTable::text() const {
  TextTable table(columns);
  for (const std::vector<std::string>& row : rows) table.row(row);
  return table.str() + (left_out > 0 ? fmt::format("and {} more: --all\n", left_out) : "");
}

ReportTable kernels_table(const RunTrace& trace, const std::vector<RankKernels>& ranks, std::size_t most) {
  const std::vector<NamedKernel> kernels = named_kernels(trace, ranks);
  double whole_ns = 0;
  for (const NamedKernel& kernel : kernels) whole_ns += static_cast<double>(kernel.of.time.ns);
  ReportTable table{columns(fmt::format("kernel|kind|tensor cores|{}", kTimeTitles))};
  for (const auto& [name, of] : kernels) {
    if (table.rows.size() == most) break;
    const std::string_view cores = !may_use_cores(of.kind)             ? "-"
                                   : of.cores == TensorCores::used     ? "yes"
                                   : of.cores == TensorCores::not_used ? "no"
                                                                       : "?";
    table.rows.push_back(joined({plain_text(name, kKernelBytes), std::string(to_string(of.kind)), std::string(cores)},
                                time_cells(of, static_cast<double>(steps_of(ranks)), whole_ns)));
  }
  table.left_out = kernels.size() - table.rows.size();
  return table;
}

ReportTable ops_table(const RunTrace& trace, const std::vector<RankKernels>& ranks, std::size_t most) {
  const std::vector<OpTime> ops = all_ops(ranks);
  const auto steps = static_cast<double>(steps_of(ranks));
  const bool has_device = std::ranges::any_of(ranks, &RankKernels::has_device);
  ReportTable table{
      columns(has_device ? "operator|host ms a step>|calls>|device ms>|kernels>" : "operator|host ms a step>|calls>")};
  for (const OpTime& op : ops) {
    if (table.rows.size() == most) break;
    std::vector<std::string> row{op_text(trace.strings.text(op.name)), ms_cell(static_cast<double>(op.host.ns) / steps),
                                 count_cell(op.host.count)};
    if (has_device) row = joined(row, {ms_cell(static_cast<double>(op.device_ns) / steps), count_cell(op.kernels)});
    table.rows.push_back(std::move(row));
  }
  table.left_out = ops.size() - table.rows.size();
  return table;
}

std::string mfu_text(const RunTrace& trace, const std::vector<RankKernels>& ranks) {
  std::size_t least = ranks.size(), most = ranks.size();
  std::vector<Mfu> found;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    found.push_back(mfu_of(trace, r, ranks[r]));
    if (found[r].mfu <= 0) continue;
    if (least == ranks.size() || found[r].mfu < found[least].mfu) least = r;
    if (most == ranks.size() || found[r].mfu > found[most].mfu) most = r;
  }
  if (most == ranks.size()) return found.empty() ? "" : fmt::format("no MFU: {}", found.front().why);
  const RankKernels& of = ranks[most];
  const Mfu& mfu = found[most];
  std::string text = fmt::format("MFU {}{:.1f} %", mfu.is_lower_bound ? "at least " : "", 100 * mfu.mfu);
  if (least != most)
    text += fmt::format(" on rank {}, {:.1f} % on rank {}", trace.ranks[most].rank, 100 * found[least].mfu,
                        trace.ranks[least].rank);
  double flops = 0, fp8 = 0;
  std::string types;
  for (const auto& [type, of_type] : of.flops_by_type) {
    const std::string_view name = trace.strings.text(type);
    flops += of_type;
    if (name.find("Float8") != std::string_view::npos) fp8 += of_type;
    types += fmt::format("{}{}", types.empty() ? "" : ", ", plain_text(name, 24));
  }
  text += fmt::format(" of a peak of {:.4g} TFLOP/s", 1e-12 * mfu.peak);
  if (trace.peak_flops <= 0) {
    text += fmt::format(" ({}, dense 16-bit)", plain_text(trace.ranks[most].device, 64));
    if (fp8 > 0)
      text += fmt::format(", {:.4g} for the {:.0f} % of FLOPs in FP8", 1e-12 * mfu.fp8_peak, 100 * fp8 / flops);
  }
  text +=
      fmt::format(": {:.3g} TFLOP a step, operands {}", 1e-12 * flops / static_cast<double>(of.steps.size()), types);
  if (of.has_device)
    text += fmt::format("; shapes are recorded for {:.0f} % of the time of GEMM, convolution and attention kernels",
                        100 * of.shaped_share());
  if (of.recomputed_flops > 0) text += "; recomputed activations do not count";
  if (of.may_recompute) text += ", though GEMMs among them may: record with_stack=True";
  return text;
}

std::string kernels_text(const RunTrace& trace, const std::vector<RankKernels>& ranks, bool all) {
  if (std::ranges::none_of(ranks, [](const RankKernels& rank) { return rank.has_device || !rank.ops.empty(); }))
    return {};
  const auto steps = static_cast<double>(steps_of(ranks));
  const ReportTable kernels = kernels_table(trace, ranks, all ? kAllRows : kMostKernels);
  std::string text;
  if (!kernels.rows.empty()) {
    text += kernels.text();
    if (all) text += "\n" + kernel_kinds_text(ranks, steps);
    text += "\n" + launches_text(trace, ranks, steps, all);
  }
  if (const std::vector<KernelTime> copies = all_of(ranks, &RankKernels::copies); !copies.empty()) {
    TextTable table(columns("copies|ms a step>|count>|size>|GB/s>"));
    for (const KernelTime& copy : copies) {
      table.row({plain_text(trace.strings.text(copy.name), kKernelBytes),
                 ms_cell(static_cast<double>(copy.time.ns) / steps), count_cell(copy.time.count),
                 copy.achieved.bytes_ns > 0 ? format_size(copy.achieved.bytes) : "?", rate_cell(copy.achieved.gb_s())});
    }
    text += "\n" + table.str();
  }
  const ReportTable ops = ops_table(trace, ranks, all ? kAllRows : kMostOps);
  if (!ops.rows.empty()) text += (text.empty() ? "" : "\n") + ops.text();
  const std::string mfu = mfu_text(trace, ranks);
  for (const std::string& line : lines_of("\n" + mfu + ".", 110)) text += line + "\n";
  return text;
}

Json kernels_json(const RunTrace& trace, const std::vector<RankKernels>& ranks) {
  Json json{{"names", Json::array()}, {"ranks", Json::array()}};
  std::map<std::uint32_t, std::size_t> places;
  for (const KernelTime& kernel : all_of(ranks, &RankKernels::kernels)) {
    Json row = lengths_json(kernel.time);
    const std::string_view name = trace.strings.text(kernel.name);
    row.update({{"name", name},
                {"short", short_kernel_name(name)},
                {"kind", to_string(kernel.kind)},
                {"tensor_cores",
                 kernel.cores == TensorCores::unknown ? Json(nullptr) : Json(kernel.cores == TensorCores::used)},
                {"tflops", known_cell(kernel.achieved.tflops())},
                {"gb_s", known_cell(kernel.achieved.gb_s())}});
    places.emplace(kernel.name, places.size());
    json["names"].push_back(std::move(row));
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) json["ranks"].push_back(rank_kernels_json(trace, r, ranks[r], places));
  return json;
}

}  // namespace ms::tracepp
