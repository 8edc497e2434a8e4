#include "net/measure/nccl_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/number.h"

namespace ms::net {
namespace {

// Collectives that all ranks of a communicator call alike.
constexpr std::array<std::string_view, 9> kCalledAlike{"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce",
                                                       "AlltoAll",  "AllToAll",  "Gather",        "Scatter"};

// The word behind " NAME ", or "" where there is none.
std::string_view field(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if (at == 0 || text[at - 1] != ' ' || end >= text.size() || text[end] != ' ') continue;
    return text.substr(end + 1, std::min<std::size_t>(text.find(' ', end + 1) - end - 1, 32));
  }
  return {};
}

}  // namespace

void NcclCalls::take(const std::string& process, std::string_view comm, std::string_view text) {
  const std::string_view kind = text.substr(0, text.find(':'));
  if (std::ranges::find(kCalledAlike, kind) == kCalledAlike.end()) return;
  const std::string_view digits = field(text, "opCount"), address = field(text, "comm");
  const auto op = whole_number<std::uint64_t>(digits, 16);
  const std::size_t ranks = text.find("[nranks=");
  if (!op || ranks == std::string_view::npos) return;
  const std::string_view size = text.substr(ranks, text.find(']', ranks) - ranks).substr(0, 32);

  Comm& of = comms_[comm.empty() ? std::string(size) : std::string(comm)];
  const std::string caller = fmt::format("{} {}", process, address);
  const auto before = of.last.lower_bound(process + " ");
  const bool is_new = !of.last.contains(caller);
  if (comm.empty() && is_new && before != of.last.end() && before->first.starts_with(process + " "))
    of.is_ambiguous = true;
  Position at{.op = *op};
  if (!is_new) {
    const Position last = of.last[caller];
    // A counter that begins anew: the log of another attempt, which is not compared with this one.
    if (op < last.op) of.is_ambiguous = true;
    if (op == last.op) at.nth = last.nth + 1;
  }
  if (of.is_ambiguous) {
    ++unknown_;
    return;
  }
  of.last[caller] = at;
  if (!of.calls.contains(at) && ++calls_ > kMostCalls) {
    is_cut_ = true;
    return;
  }
  const bool has_root = kind == "Broadcast" || kind == "Reduce" || kind == "Gather" || kind == "Scatter";
  const bool reduces = kind == "AllReduce" || kind == "ReduceScatter" || kind == "Reduce";
  std::string what = fmt::format("{} of {}, datatype {}", kind, field(text, "count"), field(text, "datatype"));
  if (reduces) what += fmt::format(", op {}", field(text, "op"));
  if (has_root) what += fmt::format(", root {}", field(text, "root"));
  NcclDifference::Called& called = of.calls[at][what];
  called.what = what;
  ++called.count;
  if (called.processes.size() < kMostNamed) called.processes.push_back(process);
}

std::vector<NcclDifference> NcclCalls::differences() const {
  std::vector<NcclDifference> differences;
  for (const auto& [name, comm] : comms_) {
    if (comm.is_ambiguous) continue;
    const auto first = std::ranges::find_if(comm.calls, [](const auto& call) { return call.second.size() > 1; });
    if (first == comm.calls.end()) continue;
    NcclDifference& difference = differences.emplace_back(NcclDifference{.op = first->first.op, .called = {}});
    for (const auto& [what, called] : first->second) difference.called.push_back(called);
    std::ranges::stable_sort(difference.called, std::greater<>(), &NcclDifference::Called::count);
  }
  return differences;
}

}  // namespace ms::net
