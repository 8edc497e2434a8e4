#include "tracepp/read/trace_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/handle.h"
#include "base/hash.h"
#include "trace/format.h"
#include "tracepp/read/trace_parts.h"

namespace ms::tracepp {
namespace {

using namespace trace::format;  // NOLINT: this file's vocabulary; What, Group, Probe of the disk are named in full
using namespace parts;          // NOLINT

constexpr std::uint32_t kMostRounds = 1 << 30;  // of clock probes
// One behind the other: then nothing comes any more, and the file may be a terabyte of holes.
constexpr std::uint64_t kMostDamagedPages = 1 << 14;
constexpr std::uint64_t kPagesAtOnce = 64;

Ending ending_of(trace::format::Ending ending) {
  switch (ending) {
    case trace::format::Ending::done: return Ending::done;
    case trace::format::Ending::failed: return Ending::failed;
    case trace::format::Ending::timed_out: return Ending::timed_out;
    case trace::format::Ending::stopped: return Ending::stopped;
    default: return Ending::running;
  }
}

class FileReader {
 public:
  FileReader(RunTrace& trace, Tables& tables, std::unordered_map<std::string, std::int32_t>& groups,
             const std::string& path)
      : trace_(trace), tables_(tables), known_groups_(groups), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!file_) throw user_error("file.open", fmt::format("cannot open {}: {}", path, errno_text(errno)));
    rank_.file = path;
    const std::vector<std::byte> headers = read_bytes(file_.get(), 0, std::uint64_t{2} * kPageBytes, path);
    const Headers found = newest_header(headers, path);
    header_ = found.newest;
    if (!is_plausible(header_))
      throw user_error("trace.file", fmt::format("{} has a header that cannot be true", path));
    if (!found.both_sound) problem("header damaged");
    struct stat status {};
    if (fstat(file_.get(), &status) == 0) file_bytes_ = static_cast<std::uint64_t>(status.st_size);
  }

  RankTrace read() {
    std::vector<std::byte> strings = load(header_.strings, 1);
    std::uint64_t too_long = 0;
    strings_ = split_strings(strings, too_long);
    problem("string that is too long", too_long);
    identity();
    groups();
    infos();
    probes();
    sums();
    events();
    run_ = text(header_.run);
    return std::move(rank_);
  }

  const Header& header() const { return header_; }
  const std::string& run() const { return run_; }

 private:
  std::vector<std::byte> load(const Area& area, std::uint64_t entry_bytes) const {
    const std::uint64_t there = file_bytes_ < area.offset ? 0 : file_bytes_ - area.offset;
    const std::uint64_t bytes = std::min({there, std::min(area.used, area.capacity) * entry_bytes, kMostTableBytes});
    return read_bytes(file_.get(), area.offset, bytes, rank_.file);
  }
  std::string_view text(std::uint16_t id) const { return id < strings_.size() ? strings_[id] : std::string_view(); }
  void problem(const char* kind, std::uint64_t count = 1) {
    if (count > 0) trace_.problems[kind] += count;
  }

  void identity() {
    rank_.rank = static_cast<int>(header_.rank);
    rank_.host = text(header_.host);
    rank_.device = text(header_.device);
    rank_.pid = static_cast<int>(header_.pid);
    for (std::int64_t* const time_ns : {&header_.clock_ns, &header_.realtime_ns, &header_.flushed_ns}) {
      if (is_time(*time_ns)) continue;
      problem("header with a time that cannot be");
      *time_ns = 0;
    }
    rank_.clock_ns = header_.clock_ns;
    rank_.realtime_ns = header_.realtime_ns;
    rank_.ending = ending_of(header_.ending);
    rank_.ending_text = text(header_.ending_text);
    rank_.ending_rank = header_.ending_rank;
    rank_.dropped = header_.dropped;
    rank_.last_flush_ns = std::max(header_.clock_ns, header_.flushed_ns);
  }

  void groups() {
    const std::vector<std::byte> table = load(header_.groups, sizeof(trace::format::GroupEntry));
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(header_.groups.used, kNone16); ++i) {
      const auto group = entry<trace::format::GroupEntry>(table, i);
      if (!group) return problem("group table cut off");
      const std::string key = fmt::format("{}\n{}", text(group->name), hash_hex(xxh64(text(group->ranks))));
      auto known = known_groups_.find(key);
      if (known == known_groups_.end()) {
        std::optional<std::vector<int>> ranks = parse_members(text(group->ranks), tables_.room());
        const auto is_outside = [&](int rank) { return static_cast<std::uint32_t>(rank) >= header_.world; };
        if (ranks && std::ranges::any_of(*ranks, is_outside)) ranks.reset();
        if (!ranks) problem("group with unreadable members");
        const std::string_view name = text(group->name);
        const std::int32_t index = tables_.group({.name = std::string(name),
                                                  .ranks = std::move(ranks).value_or(std::vector<int>()),
                                                  .axis = trace::axis_of(name)});
        known = known_groups_.emplace(key, index).first;
      }
      groups_.push_back(known->second);
    }
  }

  void infos() {
    const std::vector<std::byte> table = load(header_.descriptors, sizeof(trace::format::EventDescriptor));
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(header_.descriptors.used, kNone16); ++i) {
      const auto info = entry<trace::format::EventDescriptor>(table, i);
      if (!info) return problem("table of event kinds cut off");
      const auto string = [&](std::uint16_t id) { return trace_.strings.id(text(id)); };
      const bool known = info->kind < trace::kKinds && info->purpose < trace::kPurposes;
      if (!known) problem("event kind of a newer version");
      const std::uint32_t index = tables_.info({.kind = known ? static_cast<Kind>(info->kind) : Kind::other,
                                                .purpose = known ? static_cast<Purpose>(info->purpose) : Purpose::none,
                                                .chunk = std::max<std::int16_t>(info->chunk, -1),
                                                .group = info->group < groups_.size() ? groups_[info->group] : -1,
                                                .name = string(info->name),
                                                .type = string(info->type),
                                                .root = info->root == kNone16 ? -1 : info->root,
                                                .size_bytes = info->size_bytes});
      infos_.push_back({index, known && static_cast<Kind>(info->kind) == Kind::step});
    }
  }

  void probes() {
    const std::vector<std::byte> table = load(header_.probes, sizeof(trace::format::Probe));
    const auto [first, end] = kept(header_.probes);
    for (std::uint64_t i = first; i < end; ++i) {
      const auto probe = entry<trace::format::Probe>(table, i % header_.probes.capacity);
      if (!probe) return problem("clock probes cut off");
      if (!is_time(probe->asked_ns) || !is_time(probe->answered_ns) || !is_time(probe->peer_heard_ns) ||
          !is_time(probe->peer_replied_ns) || probe->peer >= header_.world || probe->round > kMostRounds) {
        problem("clock probe that cannot be");
        continue;
      }
      rank_.probes.push_back({.peer = static_cast<int>(probe->peer),
                              .round = static_cast<int>(probe->round),
                              .asked_ns = probe->asked_ns,
                              .answered_ns = probe->answered_ns,
                              .peer_heard_ns = probe->peer_heard_ns,
                              .peer_replied_ns = probe->peer_replied_ns});
      seen(probe->answered_ns);
    }
  }

  void sums() {
    const std::vector<std::byte> table = load(header_.sums, sizeof(Sum));
    const auto [first, end] = kept(header_.sums);
    for (std::uint64_t i = first; i < end; ++i) {
      const auto sum = entry<Sum>(table, i % header_.sums.capacity);
      if (!sum) return problem("sums of steps cut off");
      const auto step = static_cast<std::int64_t>(sum->step);
      if (!is_step(step) || step == kNoStep || !is_time(sum->begin_ns) || !is_time(sum->end_ns) ||
          !std::ranges::all_of(sum->seconds, [](float seconds) { return std::isfinite(seconds); })) {
        problem("sums of a step that cannot be");
        continue;
      }
      rank_.sums.push_back({.step = step,
                            .begin_ns = sum->begin_ns,
                            .end_ns = sum->end_ns,
                            .events = sum->events,
                            .unfinished = sum->unfinished,
                            .seconds = {sum->seconds.begin(), sum->seconds.end()}});
      seen(sum->end_ns);
    }
    // A writer that was killed may have overwritten the oldest with newer ones than its header says.
    std::ranges::stable_sort(rank_.sums, {}, &StepSum::step);
    const auto same_step = [](const StepSum& a, const StepSum& b) { return a.step == b.step; };
    const auto twice = std::unique(rank_.sums.begin(), rank_.sums.end(), same_step);
    problem("sums of a step that was there already", static_cast<std::uint64_t>(rank_.sums.end() - twice));
    rank_.sums.erase(twice, rank_.sums.end());
  }

  void events() {
    const auto [first, end] = kept(header_.pages);
    const std::uint64_t capacity = header_.pages.capacity;
    rank_.events.reserve(std::min({end - first, file_bytes_ / kPageBytes, kMostDamagedPages}) * kRecordsAPage);
    std::uint64_t damaged = 0;
    for (std::uint64_t number = first; number < end;) {
      const std::uint64_t place = number % capacity;
      const std::uint64_t count = std::min({kPagesAtOnce, end - number, capacity - place});
      const std::vector<std::byte> pages =
          read_bytes(file_.get(), header_.pages.offset + place * kPageBytes, count * kPageBytes, rank_.file);
      const std::uint64_t there = pages.size() / kPageBytes;
      for (std::uint64_t i = 0; i < there; ++i)
        damaged = note(page(Bytes(pages).subspan(i * kPageBytes, kPageBytes), number + i)) ? 0 : damaged + 1;
      problem("page of events cut off", count - there);
      if (there < count) lose(count - there);
      damaged += count - there;
      number += count;
      if (damaged < kMostDamagedPages) continue;
      problem("page of events damaged", end - number);
      lose(end - number);
      break;
    }
    if (is_losing_) rank_.lost.back().last = std::numeric_limits<std::int32_t>::max();
  }

  void lose(std::uint64_t pages) {
    rank_.lost_pages += pages;
    if (!std::exchange(is_losing_, true))
      rank_.lost.push_back({.first = rank_.events.empty() ? kNoStep : rank_.events.back().step});
  }

  // Keeps between which steps pages are lost. The step in which the next sound page begins may have had a part there.
  bool note(bool is_sound) {
    if (!is_sound) lose(1);
    if (is_sound && is_losing_ && rank_.events.size() > events_before_) {
      rank_.lost.back().last = rank_.events[events_before_].step;
      is_losing_ = false;
    }
    events_before_ = rank_.events.size();
    return is_sound;
  }

  // False: it is damaged.
  bool page(Bytes bytes, std::uint64_t number) {
    PageHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    const std::uint64_t checksum = std::exchange(header.checksum, 0);
    if (header.magic != PageHeader::kPageMagic || header.count > kRecordsAPage || header.shift > 31) {
      problem("page of events damaged");
      return false;
    }
    const std::size_t size = header.count * sizeof(Record);
    Hasher hasher;
    hasher.update(std::as_bytes(std::span(&header, 1)));
    hasher.update(bytes.subspan(sizeof header, size));
    if (hasher.digest() != checksum) {
      problem("page of events damaged");
      return false;
    }
    // A page that was being replaced when the writer was killed.
    const bool is_other = header.number != number;
    if (is_other || !is_time(header.base_ns) || !is_step(header.step)) {
      problem(is_other ? "page of events of another time" : "page of events that cannot be");
      return true;
    }
    std::int64_t step = header.step;
    for (std::size_t i = 0; i < header.count; ++i) {
      Record record;
      std::memcpy(&record, bytes.data() + sizeof header + i * sizeof record, sizeof record);
      if (record.descriptor >= infos_.size()) {
        problem("event of an unknown kind");
        continue;
      }
      const auto [info, begins_step] = infos_[record.descriptor];
      const std::int64_t offset_ns = record.begin == kNone32 ? 0 : std::int64_t{record.begin} << header.shift;
      const std::int64_t duration_ns = record.duration == kNone32 ? 0 : std::int64_t{record.duration} << header.shift;
      if (offset_ns > kFarNs || duration_ns > kFarNs || !is_time(header.base_ns + offset_ns) ||
          !is_time(header.base_ns + offset_ns + duration_ns) || (begins_step && !is_step(record.detail))) {
        problem("event that cannot be");
        continue;
      }
      if (begins_step) step = record.detail;
      Event event{.detail = record.detail,
                  .info = info,
                  .step = static_cast<std::int32_t>(step),
                  .microbatch = record.microbatch,
                  .state = State::issued};
      if (record.begin != kNone32) {
        event.state = State::begun;
        event.begin_ns = header.base_ns + offset_ns;
        if (record.duration != kNone32) {
          event.state = State::ended;
          event.duration_ns = duration_ns;
        }
        seen(event.end_ns());
      }
      rank_.events.push_back(event);
    }
    return true;
  }

  void seen(std::int64_t time_ns) { rank_.last_flush_ns = std::max(rank_.last_flush_ns, time_ns); }

  struct KnownInfo {
    std::uint32_t index;
    bool begins_step;
  };
  RunTrace& trace_;
  Tables& tables_;
  std::unordered_map<std::string, std::int32_t>& known_groups_;
  UniqueFd file_;
  std::uint64_t file_bytes_ = 0;
  std::string run_;
  Header header_;
  RankTrace rank_;
  std::vector<std::string_view> strings_;
  std::vector<std::int32_t> groups_;  // [the file's group] -> the run's
  std::vector<KnownInfo> infos_;      // [the file's event descriptor]
  bool is_losing_ = false;            // the page before is lost
  std::size_t events_before_ = 0;     // that pages up to that one had
};

}  // namespace

bool is_trace_file(std::string_view beginning, bool) {
  return beginning.starts_with(std::string_view(kMagic.data(), kMagic.size()));
}

TraceFileReader::TraceFileReader(RunTrace& trace) : trace_(trace), tables_(trace) {}

void TraceFileReader::read(const std::string& path) {
  FileReader reader(trace_, tables_, groups_, path);
  const Header& header = reader.header();
  const mesh::Mesh mesh{
      .dp = static_cast<int>(header.dp), .pp = static_cast<int>(header.pp), .tp = static_cast<int>(header.tp)};
  RankTrace rank = reader.read();
  trace_.source = &kOwnSource;
  rank.at = mesh.coord(rank.rank);
  const std::string& run = reader.run();
  if (!trace_.has_mesh && trace_.ranks.empty()) {
    trace_.mesh = mesh;
    trace_.has_mesh = true;
    trace_.run = run;
    constexpr std::uint32_t kMost = 1 << 24;
    const auto known = [](double flops) { return std::isfinite(flops) && flops > 0 ? flops : 0; };
    trace_.microbatches = static_cast<int>(std::min(header.microbatches, kMost));
    trace_.chunks = static_cast<int>(std::min(header.chunks, kMost));
    trace_.flops_per_step = known(header.flops_per_step);
    trace_.peak_flops = known(header.peak_flops);
  } else if (!(mesh == trace_.mesh) || run != trace_.run) {
    throw user_error("trace.run", fmt::format("{} and {} are of different runs", trace_.ranks.front().file, path),
                     "give the files of one run; those of the run before end in .previous");
  }
  trace_.ranks.push_back(std::move(rank));
}

}  // namespace ms::tracepp
