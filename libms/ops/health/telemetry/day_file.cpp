#include "health/telemetry/day_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include "base/hash.h"
#include "base/text.h"
#include "health/telemetry/columns.h"

namespace ms::health {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kDayMagic = "MSTELEM1";
constexpr std::uint32_t kRecordMark = 0x5a317e1e;
constexpr std::size_t kHeaderBytes = 24;    // before the text
constexpr std::size_t kRecordExtras = 16;   // mark, time, hash
constexpr std::size_t kMaxNameBytes = 128;  // of a device, a column, a fact

template <class T>
void put_plain(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T>
T get_plain(std::string_view bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }
std::size_t record_bytes(std::size_t columns) { return kRecordExtras + columns * sizeof(float); }

std::string text_of_layout(const Layout& layout) {
  std::string text = fmt::format("node\t{}\n", layout.node);
  for (const auto& [device, facts] : layout.facts) {
    for (const auto& [key, fact] : facts) text += fmt::format("fact\t{}\t{}\t{}\n", device, key, fact);
  }
  for (const LayoutColumn& column : layout.columns) {
    text += fmt::format("column\t{}\t{}\t{}\n", column.device, column.name, column.unit);
  }
  return text;
}

bool is_plain(const std::vector<std::string>& fields) {
  return std::all_of(fields.begin(), fields.end(), [](const std::string& field) {
    return field.size() <= kMaxNameBytes && ms::printable(field, kMaxNameBytes) == field;
  });
}

std::optional<Layout> layout_in(std::string_view text) {
  Layout layout;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::vector<std::string> fields = split(text.substr(0, end), '\t');
    text.remove_prefix(end + 1);
    if (fields.empty() || !is_plain(fields)) return std::nullopt;
    if (fields[0] == "node" && fields.size() == 2) {
      layout.node = fields[1];
    } else if (fields[0] == "fact" && fields.size() == 4) {
      layout.facts[fields[1]][fields[2]] = fields[3];
    } else if (fields[0] == "column" && fields.size() == 4) {
      layout.columns.push_back({fields[1], fields[2], fields[3]});
    } else {
      return std::nullopt;
    }
  }
  if (layout.columns.size() > kMaxColumns) return std::nullopt;
  return layout;
}

// Walks through a file.
class DayReader {
 public:
  explicit DayReader(std::string_view bytes) : bytes_(bytes) {}

  DayFile read() {
    while (at_ < bytes_.size()) {
      if (take_header() || take_record()) {
        file_.whole_bytes = at_;
      } else {
        skip();
      }
    }
    return std::move(file_);
  }

 private:
  // At `at_`, where a header is there.
  bool take_header() {
    if (!bytes_.substr(at_).starts_with(kDayMagic) || bytes_.size() - at_ < kHeaderBytes) return false;
    if (++headers_ > kMaxSegments) return false;  // each is hashed
    const std::size_t text_bytes = get_plain<std::uint32_t>(bytes_, at_ + 8);
    const std::size_t columns = get_plain<std::uint32_t>(bytes_, at_ + 12);
    const auto hash = get_plain<std::uint64_t>(bytes_, at_ + 16);
    if (text_bytes > kMaxHeaderText || padded(text_bytes) > bytes_.size() - at_ - kHeaderBytes) return false;
    const std::string_view text = bytes_.substr(at_ + kHeaderBytes, text_bytes);
    if (xxh64(text) != hash) return false;
    std::optional<Layout> layout = layout_in(text);
    if (!layout || layout->columns.size() != columns) return false;
    file_.segments.push_back({.layout = std::move(*layout)});
    seed_ = hash;
    at_ += kHeaderBytes + padded(text_bytes);
    return true;
  }

  bool is_record(std::size_t at) const {
    if (file_.segments.empty()) return false;
    const std::size_t width = record_bytes(file_.segments.back().layout.columns.size());
    if (at > bytes_.size() || width > bytes_.size() - at) return false;
    if (get_plain<std::uint32_t>(bytes_, at) != kRecordMark) return false;
    const auto hash = static_cast<std::uint32_t>(xxh64(bytes_.substr(at, width - 4), seed_));
    return hash == get_plain<std::uint32_t>(bytes_, at + width - 4);
  }

  bool take_record() {
    if (!is_record(at_)) return false;
    Segment& segment = file_.segments.back();
    const std::size_t columns = segment.layout.columns.size();
    segment.times.push_back(get_plain<double>(bytes_, at_ + 4));
    const std::size_t before = segment.values.size();
    segment.values.resize(before + columns);
    if (columns > 0) std::memcpy(&segment.values[before], bytes_.data() + at_ + 12, columns * sizeof(float));
    at_ += record_bytes(columns);
    return true;
  }

  // Over a damaged record, where another stands behind it; else to the next header.
  void skip() {
    const std::size_t from = at_;
    const std::size_t width = file_.segments.empty() ? 0 : record_bytes(file_.segments.back().layout.columns.size());
    if (width > 0 && is_record(at_ + width)) {
      at_ += width;
    } else {
      at_ = std::min(bytes_.find(kDayMagic, at_ + 1), bytes_.size());
      if (headers_ > kMaxSegments) at_ = bytes_.size();
    }
    file_.lost_bytes += at_ - from;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::uint64_t seed_ = 0;
  std::size_t headers_ = 0;
  DayFile file_;
};

}  // namespace

DayFile parse_day_file(std::string_view bytes) { return DayReader(bytes).read(); }

Layout layout_for(const Sample& sample, const std::string& node, const Layout* last) {
  Layout layout;
  if (last != nullptr) layout = *last;
  layout.node = node;
  const auto plain = [](std::string_view text) { return std::string(trim(ms::printable(text, kMaxNameBytes))); };
  for (const auto& [device, facts] : sample.facts) {
    Facts& known = layout.facts[plain(device)];
    const auto before = known.find("uuid");
    const auto now = facts.find("uuid");
    const bool is_another = before != known.end() && now != facts.end() && before->second != plain(now->second);
    if (is_another) known.clear();  // else one that tells less of itself this time, as a lost GPU does
    for (const auto& [key, fact] : facts) known[plain(key)] = plain(fact);
  }
  std::map<std::pair<std::string, std::string>, bool> known;
  for (const LayoutColumn& column : layout.columns) known[{column.device, column.name}] = true;
  for (const SampleValue& value : sample.values) {
    const std::string device = plain(value.device), name = plain(value.column);
    if (layout.columns.size() >= kMaxColumns || std::exchange(known[{device, name}], true)) continue;
    layout.columns.push_back({device, name, std::string(column_of(device, name).first)});
  }
  return layout;
}

std::string encode_header(const Layout& layout) {
  const std::string text = text_of_layout(layout);
  std::string bytes(kDayMagic);
  put_plain(bytes, static_cast<std::uint32_t>(text.size()));
  put_plain(bytes, static_cast<std::uint32_t>(layout.columns.size()));
  put_plain(bytes, xxh64(text));
  bytes += text;
  bytes.append(padded(text.size()) - text.size(), ' ');
  return bytes;
}

std::string encode_record(const Layout& layout, const Sample& sample) {
  std::map<std::pair<std::string_view, std::string_view>, float> values;
  for (const SampleValue& value : sample.values) values[{value.device, value.column}] = value.value;
  std::string bytes;
  put_plain(bytes, kRecordMark);
  put_plain(bytes, sample.wall_s);
  for (const LayoutColumn& column : layout.columns) {
    const auto found = values.find({column.device, column.name});
    put_plain(bytes, found == values.end() ? std::numeric_limits<float>::quiet_NaN() : found->second);
  }
  put_plain(bytes, static_cast<std::uint32_t>(xxh64(bytes, xxh64(text_of_layout(layout)))));
  return bytes;
}

}  // namespace ms::health
