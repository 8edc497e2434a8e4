#include "tracepp/export/sharded_files.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "tracepp/export/perfetto.h"
#include "tracepp/read/command.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kSampledEvents = 512;  // of a rank, unless one step has more
constexpr std::int64_t kNotBegun = std::numeric_limits<std::int64_t>::max();

// Leaves the operations of some steps: of those whose numbers are multiples of a power of two, so that a rank with more
// operations keeps some of the steps that others keep.
void leave_sample(const RunTrace& tables, RankTrace& rank) {
  const auto is_operation = [&](const Event& event) {
    return event.state == State::ended && event.step != kNoStep && trace::is_comm(tables.info(event).kind);
  };
  std::map<std::int32_t, std::size_t> operations;  // by step
  for (const Event& event : rank.events)
    if (is_operation(event)) ++operations[event.step];
  struct Kept {
    std::size_t steps = 0, operations = 0;
  };
  const auto kept_at = [&](std::int32_t stride) {
    Kept kept;
    for (const auto& [step, count] : operations)
      if (step % stride == 0) kept = {kept.steps + 1, kept.operations + count};
    return kept;
  };
  std::int32_t stride = 1;
  constexpr std::int32_t kMost = 1 << 30;
  while (stride < kMost && kept_at(stride).operations > kSampledEvents && kept_at(2 * stride).steps > 0) stride *= 2;
  std::erase_if(rank.events, [&](const Event& event) { return !is_operation(event) || event.step % stride != 0; });
}

}  // namespace

ShardedFiles::ShardedFiles(const std::vector<std::string>& paths, const ExportOptions& options) {
  std::mutex mutex;  // guards counted_, steps, first_begins and is_thinned
  std::map<std::int32_t, std::uint64_t> steps;
  std::map<int, std::int64_t> first_begins;  // by rank, on its own clock
  bool is_thinned = false;
  const auto thin = [&](const RunTrace& tables, RankTrace& rank) {
    {
      const std::scoped_lock lock(mutex);
      is_thinned = true;
      counted_.add(rank, options);
      std::int64_t& first = first_begins.try_emplace(rank.rank, kNotBegun).first->second;
      for (const Event& event : rank.events) {
        if (options.has_step(event.step) && options.has_rank(rank.rank)) ++steps[event.step];
        if (event.state != State::issued) first = std::min(first, event.begin_ns);
      }
    }
    leave_sample(tables, rank);
  };
  outline_ = read_with_progress(paths, {.thin = thin});
  clocks_ = align(outline_, match_operations(outline_));
  run_ = sharded(outline_, options);
  if (!is_thinned) {
    for (const RankTrace& rank : outline_.ranks) counted_.add(rank, options);
    return;
  }
  run_.steps = std::move(steps);
  std::int64_t origin_ns = kNotBegun;
  for (const auto& [rank, begin_ns] : first_begins)
    if (begin_ns != kNotBegun) origin_ns = std::min(origin_ns, clocks_.clocks.at(rank).to_run(begin_ns));
  run_.origin_ns = origin_ns == kNotBegun ? 0 : origin_ns;
  for (RankTrace& rank : outline_.ranks) rank.events = {};
  run_.read = [this](const std::vector<int>& ranks, std::int32_t first_step,
                     std::int32_t last_step) -> const RunTrace& { return read(ranks, first_step, last_step); };
}

const RunTrace& ShardedFiles::read(const std::vector<int>& ranks, std::int32_t first_step, std::int32_t last_step) {
  shard_ = {};  // before there is another one
  std::vector<std::string> files;
  for (const int rank : ranks) files.push_back(outline_.rank(rank)->file);
  const ExportOptions wanted{.ranks = {}, .first_step = first_step, .last_step = last_step};
  shard_ = read_run(files, {.thin = [&](const RunTrace&, RankTrace& rank) {
                      std::erase_if(rank.events, [&](const Event& event) { return !wanted.has_step(event.step); });
                    }});
  std::erase_if(shard_.ranks, [&](const RankTrace& rank) { return !clocks_.clocks.contains(rank.rank); });  // new since
  align_like(shard_, clocks_);
  return shard_;
}

}  // namespace ms::tracepp
