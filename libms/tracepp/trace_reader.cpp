#include "tracepp/trace_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/handle.h"
#include "base/hash.h"
#include "trace/format.h"

namespace ms::tracepp {
namespace {

using namespace trace::format;  // NOLINT: this file's vocabulary; What, Group, Probe of the disk are named in full

using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kMaxMembers = 1 << 24;  // of all groups' lists in a file together

// The used bytes of an area, as far as the file goes: most of a file are holes.
std::vector<std::byte> read_bytes(int file, std::uint64_t offset, std::uint64_t size, const std::string& path) {
  std::vector<std::byte> bytes(size);
  std::size_t filled = 0;
  while (filled < size) {
    const ssize_t count = pread(file, bytes.data() + filled, size - filled, static_cast<off_t>(offset + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error("file.read", Blame::storage, fmt::format("cannot read {}: {}", path, errno_text(errno)));
    }
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

// Entry `index` of a table, if the table goes so far.
template <class T>
std::optional<T> entry(Bytes table, std::uint64_t index) {
  if (index >= table.size() / sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, table.data() + index * sizeof(T), sizeof value);
  return value;
}

std::optional<Header> sound_header(Bytes file, std::uint64_t offset) {
  if (file.size() < offset + sizeof(Header)) return std::nullopt;
  Header header;
  std::memcpy(&header, file.data() + offset, sizeof header);
  if (header.magic != kMagic || header.version != kVersion || header.header_bytes != sizeof header) return std::nullopt;
  Header blank = header;
  blank.checksum = 0;
  if (xxh64(std::as_bytes(std::span(&blank, 1))) != header.checksum) return std::nullopt;
  return header;
}

Header newest_header(Bytes file, const std::string& path) {
  const std::optional<Header> first = sound_header(file, 0), second = sound_header(file, kPageBytes);
  if (first && second) return first->flushes > second->flushes ? *first : *second;
  if (first) return *first;
  if (second) return *second;
  std::uint32_t version = 0;
  if (file.size() >= 12) std::memcpy(&version, file.data() + 8, sizeof version);
  if (version != kVersion && version != 0 && is_trace_file({reinterpret_cast<const char*>(file.data()), 8})) {
    throw user_error("trace.version", fmt::format("{} is of version {} of the format, this program reads version {}",
                                                  path, version, kVersion));
  }
  throw user_error("trace.file", fmt::format("{} has no sound header: it is no trace, or it was damaged", path));
}

std::vector<std::string_view> split_strings(Bytes bytes) {
  std::vector<std::string_view> strings;
  for (std::size_t at = 0; at + sizeof(std::uint16_t) <= bytes.size();) {
    std::uint16_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    at += sizeof length;
    if (length > bytes.size() - at) break;
    strings.emplace_back(reinterpret_cast<const char*>(bytes.data() + at), length);
    at += length;
  }
  return strings;
}

// "0,3" "0-63:8" "0-3,8"; nothing where it says anything else.
std::optional<std::vector<int>> parse_ranks(std::string_view text) {
  std::vector<int> ranks;
  const auto number = [&](int& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  const auto skip = [&](char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  };
  while (!text.empty()) {
    int first = 0, last = 0, step = 1;
    if (!number(first)) return std::nullopt;
    last = first;
    if (skip('-') && !number(last)) return std::nullopt;
    if (skip(':') && (!number(step) || step == 0)) return std::nullopt;
    for (std::int64_t rank = first; rank <= last; rank += step) {
      if (ranks.size() == kMaxMembers) return std::nullopt;
      ranks.push_back(static_cast<int>(rank));
    }
    if (!text.empty() && !skip(',')) return std::nullopt;
  }
  return ranks;
}

// The numbers of a ring's entries that are still there.
struct Kept {
  std::uint64_t first, end;
};
Kept kept(const Area& area) {
  return {area.capacity == 0 || area.used <= area.capacity ? 0 : area.used - area.capacity, area.used};
}

// Whether an area can be what it says, so that nothing below divides by zero or overflows.
bool plausible(const Area& area, std::uint64_t entry_bytes) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 48;
  return area.offset < kLimit && area.capacity < kLimit / entry_bytes && area.used < kLimit / entry_bytes &&
         (area.capacity > 0 || area.used == 0);
}

class FileReader {
 public:
  FileReader(RunTrace& trace, Tables& tables, std::unordered_map<std::string, std::int32_t>& groups,
             const std::string& path)
      : trace_(trace), tables_(tables), known_groups_(groups), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!file_) throw user_error("file.open", fmt::format("cannot open {}: {}", path, errno_text(errno)));
    rank_.file = path;
    const std::vector<std::byte> headers = read_bytes(file_.get(), 0, std::uint64_t{2} * kPageBytes, path);
    header_ = newest_header(headers, path);
    if (!sound_header(headers, 0) || !sound_header(headers, kPageBytes)) problem("header damaged");
    struct stat status {};
    if (fstat(file_.get(), &status) == 0) file_bytes_ = static_cast<std::uint64_t>(status.st_size);
  }

  RankTrace read() {
    for (const auto& [area, bytes] : {std::pair{header_.strings, std::size_t{1}},
                                      {header_.whats, sizeof(trace::format::What)},
                                      {header_.groups, sizeof(trace::format::Group)},
                                      {header_.probes, sizeof(trace::format::Probe)},
                                      {header_.sums, sizeof(Sum)},
                                      {header_.pages, sizeof(Page)}}) {
      if (!plausible(area, bytes)) {
        throw user_error("trace.file", fmt::format("{} has a header that cannot be true", rank_.file));
      }
    }
    const std::vector<std::byte> strings = load(header_.strings, 1);
    strings_ = split_strings(strings);
    identity();
    groups();
    whats();
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
    return read_bytes(file_.get(), area.offset, std::min(there, std::min(area.used, area.capacity) * entry_bytes),
                      rank_.file);
  }
  std::string_view text(std::uint16_t id) const { return id < strings_.size() ? strings_[id] : std::string_view(); }
  void problem(const char* what, std::uint64_t count = 1) {
    if (count > 0) trace_.problems[what] += count;
  }

  void identity() {
    rank_.rank = static_cast<int>(std::min<std::uint32_t>(header_.rank, 1 << 24));
    rank_.host = text(header_.host);
    rank_.pid = static_cast<int>(header_.pid);
    rank_.clock_ns = header_.clock_ns;
    rank_.realtime_ns = header_.realtime_ns;
    rank_.ending = header_.ending == trace::format::Ending::done     ? Ending::done
                   : header_.ending == trace::format::Ending::failed ? Ending::failed
                                                                     : Ending::running;
    rank_.ending_text = text(header_.ending_text);
    rank_.dropped = header_.dropped;
    rank_.last_flush_ns = std::max(header_.clock_ns, header_.flushed_ns);
  }

  void groups() {
    const std::vector<std::byte> table = load(header_.groups, sizeof(trace::format::Group));
    for (std::uint64_t i = 0; i < header_.groups.used; ++i) {
      const auto group = entry<trace::format::Group>(table, i);
      if (!group) return problem("group table cut off");
      const std::string key = fmt::format("{}\n{}", text(group->name), text(group->ranks));
      auto known = known_groups_.find(key);
      if (known == known_groups_.end()) {
        std::optional<std::vector<int>> ranks = parse_ranks(text(group->ranks));
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

  void whats() {
    const std::vector<std::byte> table = load(header_.whats, sizeof(trace::format::What));
    for (std::uint64_t i = 0; i < header_.whats.used; ++i) {
      const auto what = entry<trace::format::What>(table, i);
      if (!what) return problem("table of event kinds cut off");
      const auto string = [&](std::uint16_t id) { return trace_.strings.id(text(id)); };
      const bool known = what->kind < trace::kKinds && what->purpose < trace::kPurposes;
      if (!known) problem("event kind of a newer version");
      const std::uint32_t index = tables_.what({.kind = known ? static_cast<Kind>(what->kind) : Kind::other,
                                                .purpose = known ? static_cast<Purpose>(what->purpose) : Purpose::none,
                                                .chunk = what->chunk,
                                                .group = what->group < groups_.size() ? groups_[what->group] : -1,
                                                .name = string(what->name),
                                                .type = string(what->type),
                                                .root = what->root == kNone16 ? -1 : what->root,
                                                .size_bytes = what->size_bytes});
      whats_.push_back({index, known && static_cast<Kind>(what->kind) == Kind::step});
    }
  }

  void probes() {
    const std::vector<std::byte> table = load(header_.probes, sizeof(trace::format::Probe));
    const auto [first, end] = kept(header_.probes);
    for (std::uint64_t i = first; i < end; ++i) {
      const auto probe = entry<trace::format::Probe>(table, i % header_.probes.capacity);
      if (!probe) return problem("clock probes cut off");
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
      if (!rank_.sums.empty() && step <= rank_.sums.back().step) {
        problem("sums of a step out of order");
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
  }

  void events() {
    const auto [first, end] = kept(header_.pages);
    const std::vector<std::byte> pages = load(header_.pages, kPageBytes);
    const std::uint64_t there = pages.size() / kPageBytes;
    rank_.events.reserve(std::min(end - first, there) * kRecordsAPage);
    for (std::uint64_t number = first; number < end; ++number) {
      const std::uint64_t place = number % header_.pages.capacity;
      if (place >= there) {
        problem("page of events cut off");
        continue;
      }
      page(Bytes(pages).subspan(place * kPageBytes, kPageBytes), number);
    }
  }

  void page(Bytes bytes, std::uint64_t number) {
    PageHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    const std::uint64_t checksum = std::exchange(header.checksum, 0);
    if (header.magic != PageHeader::kPageMagic || header.count > kRecordsAPage || header.shift > 31) {
      return problem("page of events damaged");
    }
    const std::size_t size = header.count * sizeof(Record);
    Hasher hasher;
    hasher.update(std::as_bytes(std::span(&header, 1)));
    hasher.update(bytes.subspan(sizeof header, size));
    if (hasher.digest() != checksum) return problem("page of events damaged");
    // A page that was being replaced when the writer was killed.
    if (header.number != number) return problem("page of events of another time");
    std::int64_t step = header.step;
    for (std::size_t i = 0; i < header.count; ++i) {
      Record record;
      std::memcpy(&record, bytes.data() + sizeof header + i * sizeof record, sizeof record);
      if (record.what >= whats_.size()) {
        problem("event of an unknown kind");
        continue;
      }
      const auto [what, is_step] = whats_[record.what];
      if (is_step) step = record.detail;
      Event event{.detail = record.detail,
                  .what = what,
                  .step = static_cast<std::int32_t>(step),
                  .microbatch = record.microbatch,
                  .state = State::issued};
      if (record.begin != kNone32) {
        event.state = State::begun;
        event.begin_ns = header.base_ns + (static_cast<std::int64_t>(record.begin) << header.shift);
        if (record.duration != kNone32) {
          event.state = State::ended;
          event.duration_ns = static_cast<std::int64_t>(record.duration) << header.shift;
        }
        seen(event.end_ns());
      }
      rank_.events.push_back(event);
    }
  }

  void seen(std::int64_t time_ns) { rank_.last_flush_ns = std::max(rank_.last_flush_ns, time_ns); }

  struct KnownWhat {
    std::uint32_t index;
    bool is_step;
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
  std::vector<KnownWhat> whats_;      // [the file's what]
};

}  // namespace

bool is_trace_file(std::string_view beginning) {
  return beginning.starts_with(std::string_view(kMagic.data(), kMagic.size()));
}

TraceFileReader::TraceFileReader(RunTrace& trace) : trace_(trace), tables_(trace) {}

void TraceFileReader::read(const std::string& path) {
  FileReader reader(trace_, tables_, groups_, path);
  const Header& header = reader.header();
  const mesh::Mesh mesh{
      .dp = static_cast<int>(header.dp), .pp = static_cast<int>(header.pp), .tp = static_cast<int>(header.tp)};
  RankTrace rank = reader.read();
  const bool sound = header.dp > 0 && header.pp > 0 && header.tp > 0 &&
                     std::uint64_t{header.dp} * header.pp * header.tp == header.world && header.world <= 1U << 24 &&
                     header.rank < header.world;
  if (!sound) throw user_error("trace.file", fmt::format("{} has a header that cannot be true", path));
  rank.at = mesh.coord(rank.rank);
  const std::string& run = reader.run();
  if (!trace_.has_mesh && trace_.ranks.empty()) {
    trace_.source = "ms-trace";
    trace_.mesh = mesh;
    trace_.has_mesh = true;
    trace_.run = run;
    trace_.microbatches = static_cast<int>(header.microbatches);
    trace_.chunks = static_cast<int>(header.chunks);
    trace_.flops_per_step = header.flops_per_step;
    trace_.peak_flops = header.peak_flops;
  } else if (!(mesh == trace_.mesh) || run != trace_.run) {
    throw user_error("trace.run", fmt::format("{} and {} are of different runs", trace_.ranks.front().file, path),
                     "give the files of one run; those of the run before end in .previous");
  }
  trace_.ranks.push_back(std::move(rank));
}

}  // namespace ms::tracepp
