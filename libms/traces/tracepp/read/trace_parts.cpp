#include "tracepp/read/trace_parts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/error.h"
#include "base/escape.h"
#include "base/hash.h"
#include "base/number.h"
#include "tracepp/read/trace_names.h"
#include "tracepp/read/trace_reader.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp::parts {
namespace {

using namespace trace::format;  // NOLINT: this file's vocabulary

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

// Whoever exports strings may rely on it.
void make_utf8(std::span<std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_bytes(text.substr(i, 4));
    if (length == 0) bytes[i] = std::byte{'?'};
    i += std::max<std::size_t>(length, 1);
  }
}

struct Range {
  std::int64_t first = 0, last = 0, step = 1;
  std::uint64_t count() const { return last < first ? 0 : static_cast<std::uint64_t>((last - first) / step + 1); }
};

std::optional<std::vector<Range>> parse_ranges(std::string_view text) {
  std::vector<Range> ranges;
  const auto number = [&](std::int64_t& to) {
    to = take_number<int>(text).value_or(-1);
    return to >= 0;
  };
  const auto skip = [&](char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  };
  while (!text.empty()) {
    Range range;
    if (!number(range.first)) return std::nullopt;
    range.last = range.first;
    if (skip('-') && !number(range.last)) return std::nullopt;
    if (skip(':') && (!number(range.step) || range.step == 0)) return std::nullopt;
    if (!text.empty() && !skip(',')) return std::nullopt;
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace

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

Headers newest_header(Bytes file, const std::string& path) {
  const std::optional<Header> first = sound_header(file, 0), second = sound_header(file, kPageBytes);
  if (first && second) return {.newest = first->flushes > second->flushes ? *first : *second, .both_sound = true};
  if (first || second) return {.newest = first ? *first : *second};
  std::uint32_t version = 0;
  if (file.size() >= 12) std::memcpy(&version, file.data() + 8, sizeof version);
  if (version != kVersion && version != 0 && is_trace_file({reinterpret_cast<const char*>(file.data()), 8})) {
    throw user_error("trace.version", fmt::format("{} is of version {} of the format, this program reads version {}",
                                                  path, version, kVersion));
  }
  throw user_error("trace.file", fmt::format("{} has no sound header: it is no trace, or it was damaged", path));
}

std::vector<std::string_view> split_strings(std::span<std::byte> bytes, std::uint64_t& too_long) {
  std::vector<std::string_view> strings;
  for (std::size_t at = 0; at + sizeof(std::uint16_t) <= bytes.size() && strings.size() < kNone16;) {
    std::uint16_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    at += sizeof length;
    if (length > bytes.size() - at) break;
    const bool fits = length <= kMostStringBytes;
    if (!fits) ++too_long;
    const std::span<std::byte> text = bytes.subspan(at, fits ? length : 0);
    make_utf8(text);
    strings.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
    at += length;
  }
  return strings;
}

std::optional<std::vector<int>> parse_members(std::string_view text, std::size_t room) {
  const std::optional<std::vector<Range>> ranges = parse_ranges(text);
  if (!ranges) return std::nullopt;
  std::uint64_t count = 0;
  for (const Range& range : *ranges) count += range.count();
  if (count > room) return std::nullopt;
  std::vector<int> ranks;
  ranks.reserve(count);
  for (const Range& range : *ranges)
    for (std::int64_t rank = range.first; rank <= range.last; rank += range.step)
      ranks.push_back(static_cast<int>(rank));
  return ranks;
}

bool is_time(std::int64_t time_ns) { return time_ns >= -kFarNs && time_ns <= kFarNs; }
bool is_step(std::int64_t step) { return step >= kNoStep && step <= std::numeric_limits<std::int32_t>::max(); }

Kept kept(const Area& area) {
  return {area.capacity == 0 || area.used <= area.capacity ? 0 : area.used - area.capacity, area.used};
}

bool is_plausible(const Area& area, std::uint64_t entry_bytes) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 48;
  return area.offset < kLimit && area.capacity < kLimit / entry_bytes && area.used < kLimit / entry_bytes &&
         (area.capacity > 0 || area.used == 0);
}

bool is_plausible(const Header& header) {
  constexpr std::uint32_t kMostRanks = 1 << 24;
  // By division: a * b * c could overflow.
  const std::uint64_t stages = std::uint64_t{header.dp} * header.pp;
  const bool is_mesh = stages > 0 && header.world > 0 && header.world <= kMostRanks && header.world % stages == 0 &&
                       header.world / stages == header.tp && header.rank < header.world;
  return is_mesh && is_plausible(header.strings, 1) &&
         is_plausible(header.descriptors, sizeof(trace::format::EventDescriptor)) &&
         is_plausible(header.groups, sizeof(trace::format::GroupEntry)) &&
         is_plausible(header.probes, sizeof(trace::format::Probe)) && is_plausible(header.sums, sizeof(Sum)) &&
         is_plausible(header.pages, sizeof(Page));
}

}  // namespace ms::tracepp::parts
