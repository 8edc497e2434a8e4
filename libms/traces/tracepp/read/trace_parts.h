// Reads and validates single parts of a rank's trace file: any program may have written them. Pure except for
// read_bytes(); trace_reader.cpp combines the parts. Allocates no more than a file really holds.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/format.h"

namespace ms::tracepp::parts {

using Bytes = std::span<const std::byte>;

// Limit for a table; entries beyond count as cut off. The largest tables of ms-train are the sums of steps, with 8 MiB.
inline constexpr std::uint64_t kMostTableBytes = 256 << 20;
inline constexpr std::size_t kMostStringBytes = 4096;          // longer ones are left empty
inline constexpr std::int64_t kFarNs = std::int64_t{1} << 61;  // 73 years; differences of two stay in range

// Returns so many bytes, fewer if the file ends. Throws Error("file.read").
std::vector<std::byte> read_bytes(int file, std::uint64_t offset, std::uint64_t size, const std::string& path);

// Returns entry `index` of a table, if the table has it.
template <class T>
std::optional<T> entry(Bytes table, std::uint64_t index) {
  if (index >= table.size() / sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, table.data() + index * sizeof(T), sizeof value);
  return value;
}

struct Headers {
  trace::format::Header newest;
  bool both_sound = false;
};
// Returns the newest header of a file that begins with these bytes. Throws user errors: "trace.version", "trace.file".
Headers newest_header(Bytes file, const std::string& path);

// Returns the strings of the table, by id. Makes them UTF-8 in place; `too_long` counts those that become empty.
std::vector<std::string_view> split_strings(std::span<std::byte> bytes, std::uint64_t& too_long);

// "0,3" "0-63:8" "0-3,8"; nothing where it says anything else, or has more than `room` members.
std::optional<std::vector<int>> parse_members(std::string_view text, std::size_t room);

bool is_time(std::int64_t time_ns);
bool is_step(std::int64_t step);

// Returns the numbers of a ring's entries that are still there.
struct Kept {
  std::uint64_t first, end;
};
Kept kept(const trace::format::Area& area);

// Returns whether an area's values are plausible, so that there is no division by zero and no overflow.
bool is_plausible(const trace::format::Area& area, std::uint64_t entry_bytes);
bool is_plausible(const trace::format::Header& header);

}  // namespace ms::tracepp::parts
