#include "train/simulate/fault_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/user_path.h"

namespace ms::train {
namespace {

constexpr double kMostDays = 36'500;
constexpr std::size_t kMaxFaultBytes = std::size_t{1} << 28;
constexpr std::array kKinds{FaultKind::crash, FaultKind::lost, FaultKind::hang, FaultKind::slow};

// How a job sees what InfiniteHBD's trace calls a class or a description. Whatever is not named here ends a rank.
struct KnownFault {
  std::string_view text;
  FaultKind kind;
};
constexpr std::array kKnownFaults{KnownFault{"Power Supply Failure detected", FaultKind::lost},
                                  KnownFault{"Motherboard Failed", FaultKind::lost},
                                  KnownFault{"Server down", FaultKind::lost},
                                  KnownFault{"Kernel Panic", FaultKind::lost},
                                  KnownFault{"Link Down", FaultKind::hang},
                                  KnownFault{"nvidia-smi Timeout", FaultKind::hang},
                                  KnownFault{"NIC Lost", FaultKind::hang},
                                  KnownFault{"GPU PCI link width low", FaultKind::slow},
                                  KnownFault{"GPU P2P Bandwidth Low", FaultKind::slow},
                                  KnownFault{"GPU Temperature High", FaultKind::slow},
                                  KnownFault{"NIC Link Speed low", FaultKind::slow},
                                  KnownFault{"NIC PCI link Width low", FaultKind::slow},
                                  KnownFault{"Speed Critical (Sensor)", FaultKind::slow}};

FaultKind kind_of_description(std::string_view text) {
  const auto* known = std::ranges::find(kKnownFaults, text, &KnownFault::text);
  return known == kKnownFaults.end() ? FaultKind::crash : known->kind;
}

[[noreturn]] void refuse_faults(const std::string& where, const std::string& what, const std::string& hint = {}) {
  throw user_error("faults.file", fmt::format("{}: {}", where, what), hint);
}

// A node is out from the first of overlapping faults until all of them are ended; it is of the first one's kind.
class Outages {
 public:
  void begin(const std::string& node, double at_s, FaultKind kind) {
    Node& known = nodes_[node];
    if (known.open++ == 0) known.faults.push_back({.begin_s = at_s, .repair_s = -1, .kind = kind});
    last_s_ = std::max(last_s_, at_s);
  }
  // false: none had begun
  bool end(const std::string& node, double at_s) {
    const auto known = nodes_.find(node);
    if (known == nodes_.end() || known->second.open == 0) return false;
    if (--known->second.open == 0) known->second.faults.back().repair_s = at_s - known->second.faults.back().begin_s;
    last_s_ = std::max(last_s_, at_s);
    return true;
  }
  // A fault that is not ended lasts until the trace's end.
  FaultSource source() && {
    FaultSource source{.span_s = last_s_};
    for (auto& [name, node] : nodes_) {
      for (Fault& fault : node.faults) {
        if (fault.repair_s < 0) fault.repair_s = last_s_ - fault.begin_s;
      }
      source.histories.push_back(std::move(node.faults));
    }
    return source;
  }

 private:
  struct Node {
    std::vector<Fault> faults;
    int open = 0;
  };
  std::map<std::string, Node> nodes_;
  double last_s_ = 0;
};

FaultSource read_json_trace(const std::string& path, std::string_view text) {
  Outages outages;
  try {
    const Json events = Json::parse(text, {.max_depth = 8});
    double before = 0;
    std::size_t number = 0;
    for (const Json& event : events) {
      const std::string where = fmt::format("{}, event {}", path, ++number);
      const auto node = event.get<std::string>("node_id"), type = event.get<std::string>("event_type");
      const auto day = event.get<double>("event_time");
      if (!(day >= 0 && day <= kMostDays))
        refuse_faults(where, fmt::format("day {} is not from 0 to {}", day, kMostDays));
      if (day < before) refuse_faults(where, "the events are not in the order of time");
      before = day;
      if (type == "fault_start") {
        outages.begin(node, day * kSecondsPerDay, kind_of_description(event.at("fault_type").get<std::string>("Desc")));
      } else if (type != "fault_end") {
        refuse_faults(where, fmt::format("'{}' is neither fault_start nor fault_end", plain_text(type, 60)));
      } else if (!outages.end(node, day * kSecondsPerDay)) {
        refuse_faults(where, "the fault that ends had not begun");
      }
    }
  } catch (const JsonError& error) {
    refuse_faults(path, fmt::format("no such trace: {}", error.what()),
                  "it is a list of {node_id, event_time in days, event_type, fault_type}, or CSV; see ms-train(1)");
  }
  return std::move(outages).source();
}

class FaultTable {
 public:
  FaultTable(const std::string& path, std::string_view text) : path_(path) {
    for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = trim(text.substr(begin, end - begin));
      begin = end + 1;
      if (line.empty() || line[0] == '#') continue;
      std::vector<std::string> cells = split(line, ',');
      if (names_.empty()) {
        names_ = std::move(cells);
        continue;
      }
      if (cells.size() != names_.size()) {
        refuse_faults(fmt::format("{}:{}", path, number),
                      fmt::format("{}, but the first line names {}", plural(cells.size(), "cell"), names_.size()));
      }
      rows_.push_back({.number = number, .cells = std::move(cells)});
    }
  }

  bool has(std::string_view name) const { return std::ranges::find(names_, name) != names_.end(); }
  std::size_t rows() const { return rows_.size(); }
  const std::string& cell(std::size_t row, std::string_view name) const {
    return rows_[row].cells[static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin())];
  }
  double number(std::size_t row, std::string_view name, double most) const {
    const std::optional<double> value = parse_fault_number(cell(row, name));
    if (!value || *value < 0 || *value > most)
      refuse_cell(row, name, fmt::format("is not a number from 0 to {:g}", most));
    return *value;
  }
  FaultKind kind(std::size_t row) const {
    for (const FaultKind kind : kKinds) {
      if (cell(row, "kind") == to_string(kind)) return kind;
    }
    refuse_cell(row, "kind", "is not one of crash, lost, hang, slow");
  }

 private:
  [[noreturn]] void refuse_cell(std::size_t row, std::string_view name, const std::string& what) const {
    refuse_faults(fmt::format("{}:{}", path_, rows_[row].number),
                  fmt::format("{} '{}' {}", name, plain_text(cell(row, name), 60), what));
  }

  struct Row {
    std::size_t number;  // of its line
    std::vector<std::string> cells;
  };
  std::string path_;
  std::vector<std::string> names_;
  std::vector<Row> rows_;
};

FaultSource trace_of(const FaultTable& table) {
  struct Change {
    double at_s;
    bool begins;
    std::string node;
    FaultKind kind;
  };
  std::vector<Change> changes;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const double begin_s = table.number(row, "begin", kMostDays) * kSecondsPerDay;
    const double end_s = begin_s + table.number(row, "repair", kMostDays) * kSecondsPerDay;
    const FaultKind kind = table.has("kind") ? table.kind(row) : FaultKind::crash;
    changes.push_back({.at_s = begin_s, .begins = true, .node = table.cell(row, "node"), .kind = kind});
    changes.push_back({.at_s = end_s, .begins = false, .node = table.cell(row, "node"), .kind = kind});
  }
  std::ranges::stable_sort(changes, {}, &Change::at_s);
  Outages outages;
  for (const Change& change : changes) {
    if (change.begins) {
      outages.begin(change.node, change.at_s, change.kind);
    } else {
      outages.end(change.node, change.at_s);
    }
  }
  return std::move(outages).source();
}

FaultSource hazards_of(const FaultTable& table) {
  FaultSource source;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    source.hazards.push_back({.kind = table.kind(row),
                              .per_node_day = table.number(row, "per_node_day", 1000),
                              .repair_s = table.number(row, "repair", kMostDays) * kSecondsPerDay});
  }
  return source;
}

}  // namespace

std::optional<double> parse_fault_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

FaultSource read_fault_file(const std::string& path) {
  const std::string text = read_user_file(path, kMaxFaultBytes);
  const std::string_view content = trim(text);
  FaultSource source;
  if (content.starts_with('[') || content.starts_with('{')) {
    source = read_json_trace(path, content);
  } else {
    const FaultTable table(path, text);
    const bool is_trace = table.has("node") && table.has("begin") && table.has("repair");
    if (!is_trace && !(table.has("kind") && table.has("per_node_day") && table.has("repair"))) {
      refuse_faults(path, "its first line names neither node, begin, repair nor kind, per_node_day, repair");
    }
    source = is_trace ? trace_of(table) : hazards_of(table);
  }
  if (source.hazards.empty() && source.histories.empty()) refuse_faults(path, "it has no faults");
  if (source.hazards.empty() && source.span_s <= 0) refuse_faults(path, "all of its faults are at its very beginning");
  return source;
}

}  // namespace ms::train
