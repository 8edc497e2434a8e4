#include "trace/recorder.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "base/hash.h"

namespace ms::trace {
namespace {

using format::kNone16;
using format::kNone32;
using format::kRecordsAPage;
using format::SumOf;

// Returns the column of an event's duration; busy and stalled are computed separately.
SumOf sum_of(Kind kind, Purpose purpose, GroupAxis axis) {
  switch (kind) {
    case Kind::forward: return SumOf::forward;
    case Kind::backward:
    case Kind::backward_input:
    case Kind::backward_weight: return SumOf::backward;
    case Kind::optimizer:
    case Kind::other_compute: return SumOf::optimizer;
    case Kind::data_wait: return SumOf::data_wait;
    case Kind::save: return SumOf::save;
    default: break;
  }
  if (axis == GroupAxis::tp) return SumOf::tp;
  if (purpose == Purpose::params) return SumOf::params;
  if (purpose == Purpose::grads) return SumOf::grads;
  if (axis == GroupAxis::pp && purpose == Purpose::forward) return SumOf::pp_forward;
  if (axis == GroupAxis::pp && purpose == Purpose::backward) return SumOf::pp_backward;
  return SumOf::other_comm;
}

// The first descriptor of every file, so that index 0 identifies step events.
constexpr format::EventDescriptor kStepDescriptor{.kind = static_cast<std::uint8_t>(Kind::step)};

}  // namespace

Level level_of(std::string_view name) {
  return name == "sections" ? Level::sections : name == "ops" ? Level::ops : Level::messages;
}

std::size_t Recorder::DescriptorHash::operator()(const format::EventDescriptor& descriptor) const {
  const auto words = std::bit_cast<std::array<std::uint64_t, 3>>(descriptor);
  std::uint64_t hash = words[0] * 0x9e3779b97f4a7c15 ^ words[1] * 0xc2b2ae3d27d4eb4f ^ words[2] * 0x165667b19e3779f9;
  return hash ^ hash >> 32;
}
bool Recorder::DescriptorEqual::operator()(const format::EventDescriptor& a, const format::EventDescriptor& b) const {
  using Words = std::array<std::uint64_t, 3>;
  return std::bit_cast<Words>(a) == std::bit_cast<Words>(b);
}

Recorder::Recorder(const std::string& dir, const Identity& identity, std::int64_t max_bytes, Level level,
                   std::size_t slots)
    : level_(level), slots_(slots), file_(dir, identity, max_bytes) {
  MS_ASSERT(std::has_single_bit(slots) && slots >= 4 * kRecordsAPage, "a ring of {} events", slots);
  descriptor_id(kStepDescriptor);
}

std::uint16_t Recorder::string_id(std::string_view text) {
  if (text.empty()) return 0;
  const auto found = strings_.find(text);
  if (found != strings_.end()) return found->second;
  const std::lock_guard lock(mutex_);
  return strings_.emplace(text, file_.add_string(text)).first->second;
}

// A linear search by address: few types, each used often.
std::uint16_t Recorder::type_id(std::string_view type) {
  for (const auto& [address, id] : types_) {
    if (address == type.data()) return id;
  }
  types_.emplace_back(type.data(), string_id(type));
  return types_.back().second;
}

int Recorder::group(std::string_view name, int id, std::span<const int> ranks) {
  const auto found = groups_.find(id);
  if (found != groups_.end()) return found->second;
  const std::uint16_t name_id = string_id(name), ranks_id = string_id(ranks_text(ranks));
  const std::lock_guard lock(mutex_);
  const int index = file_.add_group({.id = static_cast<std::uint32_t>(id), .name = name_id, .ranks = ranks_id});
  groups_.emplace(id, index);
  if (index != kNone16) group_axes_.push_back(axis_of(name));
  return index;
}

Ticket Recorder::issue_comm(const CommOp& op) {
  const bool known = op.group >= 0 && static_cast<std::size_t>(op.group) < group_axes_.size();
  const GroupAxis axis = known ? group_axes_[static_cast<std::size_t>(op.group)] : GroupAxis::other;
  if (level_ == Level::sections && axis == GroupAxis::tp) return kNoTicket;
  format::EventDescriptor descriptor;
  descriptor.kind = static_cast<std::uint8_t>(op.kind);
  descriptor.purpose = static_cast<std::uint8_t>(context_.purpose);
  descriptor.chunk = static_cast<std::int16_t>(context_.chunk);
  descriptor.group = known ? static_cast<std::uint16_t>(op.group) : kNone16;
  descriptor.type = type_id(op.type);
  descriptor.root = op.root < 0 ? kNone16 : static_cast<std::uint16_t>(op.root);
  descriptor.size_bytes = op.size_bytes;
  return issue(descriptor, static_cast<std::uint32_t>(op.sequence));
}

Ticket Recorder::issue(Kind kind, std::string_view name) {
  format::EventDescriptor descriptor;
  descriptor.kind = static_cast<std::uint8_t>(kind);
  descriptor.purpose = static_cast<std::uint8_t>(context_.purpose);
  descriptor.chunk = static_cast<std::int16_t>(context_.chunk);
  descriptor.name = string_id(name);
  return issue(descriptor, is_section(kind) ? kNone32 : 0);
}

std::uint16_t Recorder::descriptor_id(const format::EventDescriptor& descriptor) {
  const auto found = descriptors_.find(descriptor);
  if (found != descriptors_.end()) return found->second;
  const std::lock_guard lock(mutex_);
  const std::uint16_t id = file_.add_descriptor(descriptor);
  descriptors_.emplace(descriptor, id);
  if (id == kNone16) return id;
  const Kind kind = static_cast<Kind>(descriptor.kind);
  const GroupAxis axis = descriptor.group < group_axes_.size() ? group_axes_[descriptor.group] : GroupAxis::other;
  counted_.push_back({kind, sum_of(kind, static_cast<Purpose>(descriptor.purpose), axis)});
  return id;
}

Ticket Recorder::issue(const format::EventDescriptor& descriptor, std::uint32_t detail) {
  const std::uint16_t id = descriptor_id(descriptor);
  const Ticket ticket = head_.load(std::memory_order_relaxed);
  const auto is_full = [&] { return ticket - written_.load(std::memory_order_acquire) >= slots_.size(); };
  // Flushes here if the ring is full; if that does not help, not again for every event.
  if (is_full() && dropped() % kRecordsAPage == 0) {
    const std::unique_lock lock(mutex_, std::try_to_lock);  // its holder may wait for a disk
    if (lock && !closed_) flush_locked();
  }
  if (id == kNone16 || is_full()) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return kNoTicket;
  }
  Slot& place = slot(ticket);
  place.descriptor = id;
  place.microbatch = context_.microbatch < 0 ? kNone16 : static_cast<std::uint16_t>(context_.microbatch);
  place.detail.store(detail, std::memory_order_relaxed);
  place.begin_ns.store(0, std::memory_order_relaxed);
  place.end_ns.store(0, std::memory_order_relaxed);
  head_.store(ticket + 1, std::memory_order_release);
  return ticket;
}

void Recorder::begin(Ticket ticket, std::int64_t time_ns) {
  if (ticket != kNoTicket) slot(ticket).begin_ns.store(time_ns, std::memory_order_release);
}
void Recorder::end(Ticket ticket, std::int64_t time_ns) {
  if (ticket != kNoTicket) slot(ticket).end_ns.store(time_ns, std::memory_order_release);
}
void Recorder::end_section(Ticket ticket, std::int64_t time_ns, std::int64_t busy_ns) {
  if (ticket == kNoTicket) return;
  slot(ticket).detail.store(static_cast<std::uint32_t>(std::min<std::int64_t>(busy_ns / 1000, kNone32 - 1)),
                            std::memory_order_relaxed);
  end(ticket, time_ns);
}

void Recorder::begin_step(std::int64_t step, std::int64_t time_ns) {
  const Ticket ticket = issue(kStepDescriptor, static_cast<std::uint32_t>(step));
  begin(ticket, time_ns);
  if (ticket != kNoTicket) marks_.push_back({step, ticket});
}

void Recorder::end_step(std::int64_t step, std::int64_t time_ns, std::span<const double> op_seconds) {
  while (!marks_.empty() && marks_.front().step < step) marks_.pop_front();
  if (marks_.empty() || marks_.front().step != step) return;
  const Ticket first = marks_.front().first;
  const Ticket head = head_.load(std::memory_order_relaxed);
  const Ticket last = marks_.size() > 1 ? marks_[1].first : head;
  end(first, time_ns);
  format::Sum sum{.step = static_cast<std::uint64_t>(step),
                  .begin_ns = slot(first).begin_ns.load(std::memory_order_relaxed),
                  .end_ns = time_ns};
  const auto add = [&](SumOf to, double seconds) {
    sum.seconds[static_cast<std::size_t>(to)] += static_cast<float>(seconds);
  };
  for (Ticket ticket = first + 1; ticket < last; ++ticket) {
    const Slot& event = slot(ticket);
    const auto [kind, column] = counted_[event.descriptor];
    if (is_op(kind)) continue;
    ++sum.events;
    const std::int64_t begin_ns = event.begin_ns.load(std::memory_order_relaxed);
    const std::int64_t end_ns = event.end_ns.load(std::memory_order_acquire);
    if (begin_ns == 0 || end_ns == 0) {
      ++sum.unfinished;
      continue;
    }
    const double seconds = static_cast<double>(end_ns - begin_ns) * 1e-9;
    add(column, seconds);
    const std::uint32_t busy_us = event.detail.load(std::memory_order_relaxed);
    if (is_section(kind) && busy_us != kNone32) {
      add(SumOf::busy, busy_us * 1e-6);
      add(SumOf::stalled, std::max(0.0, seconds - busy_us * 1e-6));
    }
  }
  op_seconds_.resize(std::max(op_seconds_.size(), op_seconds.size()));
  for (std::size_t i = 0; i < op_seconds.size(); ++i) {
    const auto column = static_cast<std::size_t>(SumOf::matmul) + i;
    if (column < format::kSums) sum.seconds[column] = static_cast<float>(op_seconds[i] - op_seconds_[i]);
    op_seconds_[i] = op_seconds[i];
  }
  const std::lock_guard lock(queue_mutex_);
  sums_.push_back(sum);
}

void Recorder::probe(const format::Probe& probe) {
  const std::lock_guard lock(queue_mutex_);
  probes_.push_back(probe);
}

// Encodes a page: times are relative to its first one, in the finest unit in which the last one fits.
std::int64_t Recorder::encode(std::uint64_t number, std::uint64_t head, format::Page& page) {
  const Ticket first = number * kRecordsAPage;
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(head - first, kRecordsAPage));
  page.header = {.count = count, .number = number};
  page.header.dropped = dropped();
  std::array<std::int64_t, kRecordsAPage> begins{}, ends{};
  std::int64_t base = 0, last = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Slot& event = slot(first + i);
    // Reads the end first: an event that has ended has begun.
    ends[i] = event.end_ns.load(std::memory_order_acquire);
    begins[i] = event.begin_ns.load(std::memory_order_acquire);
    if (begins[i] != 0 && (base == 0 || begins[i] < base)) base = begins[i];
    last = std::max({last, begins[i], ends[i]});
  }
  page.header.base_ns = base;
  while ((last - base) >> page.header.shift >= kNone32) ++page.header.shift;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Slot& event = slot(first + i);
    format::Record& record = page.records[i];
    record = {.descriptor = event.descriptor,
              .microbatch = event.microbatch,
              .detail = event.detail.load(std::memory_order_relaxed)};
    if (begins[i] == 0) continue;
    record.begin = static_cast<std::uint32_t>((begins[i] - base) >> page.header.shift);
    if (ends[i] == 0) continue;
    record.duration = static_cast<std::uint32_t>(std::max<std::int64_t>(0, ends[i] - begins[i]) >> page.header.shift);
  }
  return last;
}

void Recorder::flush() {
  const std::lock_guard lock(mutex_);
  if (!closed_) flush_locked();
}

void Recorder::flush_locked() {
  std::vector<format::Sum> sums;
  std::vector<format::Probe> probes;
  {
    const std::lock_guard lock(queue_mutex_);
    sums.swap(sums_);
    probes.swap(probes_);
  }
  for (const format::Sum& sum : sums) file_.add_sum(sum);
  for (const format::Probe& probe : probes) file_.add_probe(probe);
  const std::uint64_t head = head_.load(std::memory_order_acquire);
  const std::uint64_t written = written_.load(std::memory_order_relaxed);
  const std::uint64_t first = written / kRecordsAPage;
  const std::uint64_t end = (head + kRecordsAPage - 1) / kRecordsAPage;
  pages_.resize(end - first);
  std::int64_t step = step_at_written_, newest_ns = 0;
  bool complete = true;  // every event so far has ended
  for (std::uint64_t number = first; number < end; ++number) {
    format::Page& page = pages_[number - first];
    newest_ns = std::max(newest_ns, encode(number, head, page));
    page.header.step = step;
    for (std::uint32_t i = 0; i < page.header.count; ++i) {
      const format::Record& record = page.records[i];
      if (record.descriptor == 0) step = record.detail;
      complete = complete && record.duration != kNone32;
    }
    complete = complete && page.header.count == kRecordsAPage;
    page.header.checksum = 0;
    page.header.checksum = xxh64(std::as_bytes(std::span(&page, 1))
                                     .first(sizeof(format::PageHeader) + page.header.count * sizeof(format::Record)));
    if (complete) {
      step_at_written_ = step;
      written_.store((number + 1) * kRecordsAPage, std::memory_order_release);
    }
  }
  // If the ring in the file is smaller than the events in progress, keeps the newest.
  const std::size_t room = std::min<std::size_t>(pages_.size(), file_.page_capacity());
  file_.write_pages(std::span(pages_).last(room));
  file_.commit(dropped(), newest_ns);
}

void Recorder::close(format::Ending ending, std::string_view text, int blamed_rank) {
  constexpr std::chrono::seconds kPatience(5);  // for a disk that hangs: then the run ends without its trace
  const std::unique_lock lock(mutex_, kPatience);
  if (!lock || closed_) return;
  file_.end(ending, text, blamed_rank);
  flush_locked();
  closed_ = true;
}

}  // namespace ms::trace
