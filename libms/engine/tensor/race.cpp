#include "tensor/race.h"

#include <algorithm>

namespace ms::tensor {
namespace {

std::uint64_t at(const StreamClock& clock, int stream) {
  return static_cast<std::size_t>(stream) < clock.size() ? clock[static_cast<std::size_t>(stream)] : 0;
}

void merge(StreamClock& into, const StreamClock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

}  // namespace

StreamClock& RaceChecker::clock_of(int stream) {
  const auto index = static_cast<std::size_t>(stream);
  if (clocks_.size() <= index) clocks_.resize(index + 1);
  StreamClock& clock = clocks_[index];
  merge(clock, host_);
  if (clock.size() <= index) clock.resize(index + 1);
  return clock;
}

void RaceChecker::split_at(std::uintptr_t address) {
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return;
  auto range = std::prev(next);
  if (range->first == address || range->second.end <= address) return;
  Range tail = range->second;
  range->second.end = address;
  ranges_.emplace_hint(next, address, std::move(tail));
}

void RaceChecker::check(const Touch& earlier, const StreamClock& clock, std::string_view who,
                        std::string_view what) const {
  MS_ASSERT(earlier.stream < 0 || earlier.time <= at(clock, earlier.stream),
            "race: {} {} bytes that {} on stream {} still uses, and no event orders the two", who, what, earlier.who,
            earlier.stream);
}

void RaceChecker::access(int stream, Access access, const Tensor& tensor, std::string_view who) {
  if (!enabled_ || tensor.numel() == 0) return;
  StreamClock& clock = clock_of(stream);
  const Touch touch{stream, ++clock[static_cast<std::size_t>(stream)], std::string(who)};
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data);
  const auto end = begin + static_cast<std::uintptr_t>(tensor.extent_bytes());
  split_at(begin);
  split_at(end);
  auto range = ranges_.lower_bound(begin);
  if (access == Access::read) {
    for (std::uintptr_t cursor = begin; cursor < end;) {
      if (range == ranges_.end() || range->first > cursor) {  // bytes without accesses so far
        const std::uintptr_t stop = range == ranges_.end() ? end : std::min(end, range->first);
        range = ranges_.emplace_hint(range, cursor, Range{stop, {}, {}});
      }
      Range& here = range->second;
      check(here.write, clock, who, "reads");
      std::erase_if(here.reads, [&](const Touch& read) { return read.stream == stream; });
      here.reads.push_back(touch);
      cursor = here.end;
      ++range;
    }
    return;
  }
  while (range != ranges_.end() && range->first < end) {
    check(range->second.write, clock, who, "writes");
    for (const Touch& read : range->second.reads) check(read, clock, who, "writes");
    range = ranges_.erase(range);
  }
  ranges_.emplace_hint(range, begin, Range{end, touch, {}});
}

StreamClock RaceChecker::record(int stream) { return enabled_ ? clock_of(stream) : StreamClock{}; }

void RaceChecker::wait(int stream, const StreamClock& clock) {
  if (enabled_) merge(clock_of(stream), clock);
}

void RaceChecker::host_sync(const StreamClock& clock) {
  if (enabled_) merge(host_, clock);
}

}  // namespace ms::tensor
