// Implements measures_data and hang_data of page.h: what is known of every rank.
#include <fmt/format.h>

#include <map>

#include "base/escape.h"
#include "tracepp/hang/blame.h"
#include "tracepp/page/page.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

// Numbers the distinct texts of a page, each shortened.
class Texts {
 public:
  std::uint32_t id(std::string_view text) {
    constexpr std::size_t kMostBytes = 300;
    std::string shown(text.substr(0, kMostBytes));
    if (shown.size() < text.size()) {
      shown.resize(whole_utf8_bytes(shown));
      shown += "...";
    }
    const auto [at, is_new] = ids_.try_emplace(safe_line(shown), static_cast<std::uint32_t>(list_.size()));
    if (is_new) list_.push_back(at->first);
    return at->second;
  }
  const Json& list() const { return list_; }

 private:
  std::map<std::string, std::uint32_t, std::less<>> ids_;
  Json list_ = Json::array();
};

// The role of a kind of work: scripts add up the measures of a role.
std::string_view role_of(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return "forward";
    case Kind::backward:
    case Kind::backward_input:
    case Kind::backward_weight:
      return "backward";
    default:
      return "";
  }
}

struct Part {
  std::string_view name, role;
  std::int64_t (*of)(const StepTime& sum);
};
template <GroupAxis kAxis>
std::int64_t waiting(const StepTime& sum) {
  return sum.axis(kAxis).waiting_ns;
}
// The parts of a step; together they are its length.
constexpr Part kParts[] = {
    {"computing", "", [](const StepTime& sum) { return sum.busy_ns; }},
    {"stalled", "", [](const StepTime& sum) { return sum.stalled_other_ns; }},
    {"waiting for tp", "waiting", waiting<GroupAxis::tp>},
    {"waiting for pp", "waiting", waiting<GroupAxis::pp>},
    {"waiting for dp", "waiting", waiting<GroupAxis::dp>},
    {"waiting for world", "waiting", waiting<GroupAxis::world>},
    {"waiting for other", "waiting", waiting<GroupAxis::other>},
    {"save", "", [](const StepTime& sum) { return sum.save_ns; }},
    {"data wait", "", [](const StepTime& sum) { return sum.data_wait_ns; }},
    {"idle", "waiting", [](const StepTime& sum) { return sum.idle_ns; }},
};

}  // namespace

std::vector<StepShare> shares_of(const Breakdown& breakdown) {
  const StepTime sum = sum_of(breakdown.steps);
  std::vector<StepShare> shares;
  for (const Part& part : kParts) {
    const auto ns = static_cast<double>(part.of(sum));
    if (ns <= 0 || sum.length_ns <= 0) continue;
    shares.push_back({.name = part.name,
                      .s = 1e-9 * ns / static_cast<double>(breakdown.steps.size()),
                      .share = ns / static_cast<double>(sum.length_ns)});
  }
  return shares;
}

Json measures_data(const RunTrace& trace, const Breakdown& breakdown, Columns& columns) {
  const std::size_t ranks = trace.ranks.size();
  std::vector<double> steps(ranks);
  std::vector<StepTime> sums(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    steps[r] = static_cast<double>(breakdown.of_rank(r).size());
    sums[r] = sum_of(breakdown.of_rank(r));
  }
  Json measures = Json::array();
  // Seconds of a step, mean; a measure that is 0 on all ranks is left out.
  const auto add = [&](const std::string& name, std::string_view role, bool is_part, const auto& ns_of) {
    std::vector<float> values(ranks);
    double all = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      values[r] = steps[r] > 0 ? static_cast<float>(seconds(ns_of(r)) / steps[r]) : 0.0F;
      all += values[r];
    }
    if (all <= 0) return;
    const std::string column = fmt::format("measure{}", measures.size());
    columns.add(column, std::span<const float>(values));
    measures.push_back({{"name", name}, {"role", role}, {"part", is_part}, {"column", column}});
  };
  for (const Part& part : kParts)
    add(std::string(part.name), part.role, true, [&](std::size_t r) { return part.of(sums[r]); });
  for (std::size_t k = 0; k < breakdown.kinds.size(); ++k) {
    const KindOfWork& work = breakdown.kinds[k];
    const bool is_twice = trace::to_string(work.kind) == trace::to_string(work.purpose);  // "forward forward"
    add(is_twice ? std::string(trace::to_string(work.kind)) : work_text(work), role_of(work.kind), false,
        [&](std::size_t r) { return breakdown.kinds_of_rank(r)[k].time_ns; });
  }

  Texts texts;
  std::vector<std::int32_t> numbers;
  std::vector<std::uint32_t> hosts, errors;
  for (const RankTrace& rank : trace.ranks) {
    numbers.push_back(rank.rank);
    hosts.push_back(texts.id(rank.host));
    errors.push_back(texts.id(has_error(rank.ending) ? rank.ending_text : to_string(rank.ending)));
  }
  columns.add("ranks", std::span<const std::int32_t>(numbers));
  columns.add("hosts", std::span<const std::uint32_t>(hosts));
  columns.add("endings", std::span<const std::uint32_t>(errors));
  return {{"measures", std::move(measures)}, {"texts", texts.list()}};
}

Json hang_data(const RunTrace& trace, const Hang& hang, Columns& columns) {
  if (hang.state == RunState::ended || hang.state == RunState::cut_off) return nullptr;
  const HangScan scan(trace);
  Texts texts;
  std::vector<std::uint32_t> last;
  for (std::size_t r = 0; r < scan.count(); ++r) last.push_back(texts.id(doing(scan, r)));
  columns.add("last", std::span<const std::uint32_t>(last));
  std::vector<std::uint8_t> cells;
  for (const Cell cell : hang.cells) cells.push_back(static_cast<std::uint8_t>(cell));
  columns.add("cells", std::span<const std::uint8_t>(cells));
  return {{"state", to_string(hang.state)}, {"texts", texts.list()}};
}

}  // namespace ms::tracepp
