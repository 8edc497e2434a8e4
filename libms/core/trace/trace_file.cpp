#include "trace/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/safe_file.h"
#include "base/system_error.h"

namespace ms::trace {
namespace {

using namespace format;  // NOLINT: this file's vocabulary

constexpr std::uint64_t kStringBytes = 64 << 10;
constexpr std::uint64_t kDescriptors = 4096;
constexpr std::uint64_t kGroups = 512;
constexpr std::uint64_t kProbes = 4096;

std::int64_t now_ns(auto clock) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(decltype(clock)::now().time_since_epoch()).count();
}

// Places the areas one after the other, each beginning on a page; unused parts are holes in the file.
std::uint64_t lay_out(Header& header, std::uint64_t max_bytes) {
  std::uint64_t offset = std::uint64_t{2} * kPageBytes;
  const auto place = [&](Area& area, std::uint64_t capacity, std::uint64_t entry_bytes) {
    area = {.offset = offset, .capacity = capacity, .used = 0};
    offset += (capacity * entry_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  };
  place(header.strings, kStringBytes, 1);
  place(header.descriptors, kDescriptors, sizeof(EventDescriptor));
  place(header.groups, kGroups, sizeof(GroupEntry));
  place(header.probes, kProbes, sizeof(Probe));
  place(header.sums, max_bytes / 8 / sizeof(Sum), sizeof(Sum));
  place(header.pages, (max_bytes - offset) / kPageBytes, kPageBytes);
  return offset;
}

// Returns whether a file is a trace without events, of a start that did nothing. Of its two headers one may be older.
bool is_empty_trace(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  for (const off_t at : {off_t{0}, static_cast<off_t>(kPageBytes)}) {
    Header header;
    if (!file || pread(file.get(), &header, sizeof header, at) != static_cast<ssize_t>(sizeof header)) return false;
    if (header.magic != kMagic || header.version != kVersion || header.pages.used > 0 || header.sums.used > 0)
      return false;
  }
  return true;
}

}  // namespace

std::string trace_file_name(int rank) { return fmt::format("rank-{:05}.mst", rank); }

std::string ranks_text(std::span<const int> ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    // Finds a run with a constant stride; runs of three or more are written as a range.
    std::size_t end = i + 1;
    const int step = end < ranks.size() ? ranks[end] - ranks[i] : 0;
    while (step > 0 && end < ranks.size() && ranks[end] - ranks[end - 1] == step) ++end;
    if (end - i < 3) end = i + 1;
    if (i > 0) text += ',';
    text += std::to_string(ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
    if (end - i > 1 && step > 1) text += fmt::format(":{}", step);
    i = end;
  }
  return text;
}

TraceFile::TraceFile(const std::string& dir, const Identity& identity, std::int64_t max_bytes)
    : path_(dir + "/" + trace_file_name(identity.rank)),
      previous_(path_ + ".previous"),
      real_(identity.clock_ns == 0 && identity.realtime_ns == 0) {
  if (!is_empty_trace(path_) && std::rename(path_.c_str(), previous_.c_str()) != 0 && errno != ENOENT) {
    throw Error("file.rename", Blame::storage, fmt::format("cannot set aside {}: {}", path_, errno_text(errno)));
  }
  ToWrite file = open_to_write(AT_FDCWD, path_, O_RDWR | O_TRUNC, 0644);
  if (!file.fd) {
    throw system_error("file.open", Blame::storage, fmt::format("cannot create {}: {}", path_, file.why), file.error);
  }
  file_ = std::move(file.fd);
  lay_out(header_, static_cast<std::uint64_t>(max_bytes));
  header_.rank = static_cast<std::uint32_t>(identity.rank);
  header_.world = static_cast<std::uint32_t>(identity.world);
  header_.dp = static_cast<std::uint32_t>(identity.dp);
  header_.pp = static_cast<std::uint32_t>(identity.pp);
  header_.tp = static_cast<std::uint32_t>(identity.tp);
  header_.ranks_on_node = static_cast<std::uint32_t>(identity.ranks_on_node);
  header_.pid = static_cast<std::uint32_t>(getpid());
  header_.clock_ns = real_ ? now_ns(std::chrono::steady_clock()) : identity.clock_ns;
  header_.realtime_ns = real_ ? now_ns(std::chrono::system_clock()) : identity.realtime_ns;
  header_.microbatches = static_cast<std::uint32_t>(identity.microbatches);
  header_.chunks = static_cast<std::uint32_t>(identity.chunks);
  header_.flops_per_step = identity.flops_per_step;
  header_.peak_flops = identity.peak_flops;
  add_string("");
  header_.host = add_string(identity.host);
  header_.run = add_string(identity.run);
  header_.device = add_string(identity.device);
  commit(0, 0);
  commit(0, 0);  // the other header
}

TraceFile::~TraceFile() {
  if (real_ && header_.ending == Ending::done && is_empty()) std::rename(previous_.c_str(), path_.c_str());
}

void TraceFile::write(const void* data, std::size_t size, std::uint64_t offset) {
  const auto* bytes = static_cast<const std::byte*>(data);
  while (size > 0 && !failed_) {
    const ssize_t written = pwrite(file_.get(), bytes, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      failed_ = true;
      log::warn("trace", "cannot write to {}: {}; this rank's trace ends here, the run continues", path_,
                errno_text(errno));
      return;
    }
    bytes += written;
    size -= static_cast<std::size_t>(written);
    offset += static_cast<std::uint64_t>(written);
  }
}

std::uint16_t TraceFile::add_string(std::string_view text) {
  const auto length = static_cast<std::uint16_t>(std::min<std::size_t>(text.size(), 4096));
  if (strings_ >= kNone16 || header_.strings.used + sizeof length + length > header_.strings.capacity) return 0;
  std::string entry(sizeof length, '\0');
  std::memcpy(entry.data(), &length, sizeof length);
  entry += text.substr(0, length);
  write(entry.data(), entry.size(), header_.strings.offset + header_.strings.used);
  header_.strings.used += entry.size();
  return static_cast<std::uint16_t>(strings_++);
}

std::uint16_t TraceFile::add_descriptor(const EventDescriptor& descriptor) {
  if (header_.descriptors.used == header_.descriptors.capacity) return kNone16;
  write(&descriptor, sizeof descriptor, header_.descriptors.offset + header_.descriptors.used * sizeof descriptor);
  return static_cast<std::uint16_t>(header_.descriptors.used++);
}

std::uint16_t TraceFile::add_group(const GroupEntry& group) {
  if (header_.groups.used == header_.groups.capacity) return kNone16;
  write(&group, sizeof group, header_.groups.offset + header_.groups.used * sizeof group);
  return static_cast<std::uint16_t>(header_.groups.used++);
}

template <class T>
void TraceFile::append(Area& area, const T& entry) {
  write(&entry, sizeof entry, area.offset + area.used++ % area.capacity * sizeof entry);
}
void TraceFile::add_probe(const Probe& probe) { append(header_.probes, probe); }
void TraceFile::add_sum(const Sum& sum) { append(header_.sums, sum); }

void TraceFile::write_pages(std::span<const Page> pages) {
  const std::uint64_t capacity = header_.pages.capacity;
  while (!pages.empty()) {
    const std::uint64_t place = pages.front().header.number % capacity;
    const std::size_t count = std::min<std::size_t>(pages.size(), capacity - place);
    write(pages.data(), count * kPageBytes, header_.pages.offset + place * kPageBytes);
    header_.pages.used = std::max(header_.pages.used, pages[count - 1].header.number + 1);
    pages = pages.subspan(count);
  }
}

void TraceFile::commit(std::uint64_t dropped, std::int64_t newest_ns) {
  header_.dropped = dropped;
  header_.flushed_ns = real_ ? now_ns(std::chrono::steady_clock()) : std::max(header_.flushed_ns, newest_ns);
  ++header_.flushes;
  header_.checksum = 0;
  header_.checksum = xxh64(std::as_bytes(std::span(&header_, 1)));
  write(&header_, sizeof header_, header_.flushes % 2 * kPageBytes);
}

void TraceFile::end(Ending ending, std::string_view text, int blamed_rank) {
  header_.ending = ending;
  header_.ending_rank = blamed_rank;
  if (!text.empty()) header_.ending_text = add_string(text);
}

}  // namespace ms::trace
