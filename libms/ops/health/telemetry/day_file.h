// The file of a node and a day: segments, each a header with the columns and then a record a sample. Pure functions
// over bytes, little-endian:
//
//   header: "MSTELEM1", u32 bytes of text, u32 columns, u64 XXH64 of the text; the text; blanks up to a multiple of 8.
//           Lines of the text, fields between tabs: "node NAME", "fact DEVICE KEY TEXT", "column DEVICE NAME UNIT".
//   record: u32 0x5a317e1e, f64 seconds since 1970, a f32 a column (NaN: not known), u32: the lower half of the XXH64
//   of
//           all before it, with that of the header's text as the seed.
//
// A sample with columns, or a device with facts, that the segment lacks begins a new one. A record that was cut off or
// damaged is known by its hash.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "health/telemetry/sample.h"

namespace ms::health {

struct LayoutColumn {
  std::string device = {}, name = {}, unit = {};
  bool operator==(const LayoutColumn&) const = default;
};

struct Layout {
  std::string node = {};
  std::map<std::string, Facts> facts = {};  // by device
  std::vector<LayoutColumn> columns = {};
  bool operator==(const Layout&) const = default;
};

struct Segment {
  Layout layout = {};
  std::vector<double> times = {};  // in the order of the file
  std::vector<float> values = {};  // times x columns
};

struct DayFile {
  std::vector<Segment> segments = {};
  std::size_t whole_bytes = 0;  // up to the end of the last whole record or header
  std::size_t lost_bytes = 0;   // damaged, or cut off at the end
};

inline constexpr std::size_t kMaxColumns = 8192;
inline constexpr std::size_t kMaxHeaderText = std::size_t{1} << 20;
inline constexpr std::size_t kMaxSegments = 256;  // of a file; what comes behind them counts as lost

// Never throws, whatever the bytes are; its work is linear in their number.
DayFile parse_day_file(std::string_view bytes);

// The layout for a sample behind segments of `last`: that itself where it has all of the sample's columns, else one
// with both. Where a device is another one now, it begins anew. Names keep only printable characters.
Layout layout_for(const Sample& sample, const std::string& node, const Layout* last);

std::string encode_header(const Layout& layout);
std::string encode_record(const Layout& layout, const Sample& sample);

}  // namespace ms::health
