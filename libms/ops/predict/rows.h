// Rows for models: what was known of a unit at a moment, and whether it failed afterwards. A row only looks at what had
// happened by then; its label only at the time from `lead` to `lead + horizon` behind it, and where the data do not
// reach that far the row has none. Telemetry is seen beside that of all other units at the same moment: what changes
// for all of them, as a new driver's way of counting, foretells no failure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "predict/dataset.h"

namespace ms::predict {

inline constexpr std::size_t kSeriesBins = 24;  // of a channel, the last of them the moment's own

enum class Holds : std::uint8_t {
  value,     // x
  log,       // log(1 + x)
  distance,  // of x from the median of the units that have rows at that moment, in standard deviations
};

struct Column {
  std::string name = {};    // for people: "faults in the last 30 days"
  std::uint32_t group = 0;  // columns that are explained together
  Holds holds = Holds::value;
  bool operator==(const Column&) const = default;
};

// The columns, in order: those of tables, which all models but the 1D-CNN see, then kSeriesBins for each channel of the
// series, which the 1D-CNN sees: each bin's distance from the median of all units that have a sample in it. It depends
// only on these names, so that a model finds its columns in other files.
struct Layout {
  std::vector<std::string> kinds = {}, facts = {}, metrics = {};
  double bin_days = 1;

  std::vector<Column> columns() const;
  std::size_t table_columns() const;
  std::size_t channels() const { return 1 + metrics.size(); }  // faults, and each metric's mean
  std::size_t width() const { return table_columns() + channels() * kSeriesBins; }
};
// The layout that these data have. `hidden` is a metric that no model may see; empty: there is none.
Layout layout_of(const Dataset& data, const std::string& hidden);

struct Task {
  double lead_days = 0, horizon_days = 30;
  std::string target = "*";  // the kinds of faults that are to be foreseen: "GPU", "DBE,OTB"
};

enum class Label : std::uint8_t { healthy, fails, unknown };

struct RowInfo {
  std::uint32_t unit = 0;  // of Dataset::units
  double day = 0;
  Label label = Label::unknown;
  float days_to_failure = kUnknown;
};

struct Rows {
  std::vector<RowInfo> info = {};
  std::vector<float> values = {};  // rows x width
  std::size_t width = 0;

  std::size_t size() const { return info.size(); }
  std::span<const float> row(std::size_t i) const { return {values.data() + i * width, width}; }
};

// The rows of every unit that is in service at these moments (ascending days). No value is infinite. Throws
// Error("predict.columns", user) where the data lack a fact or metric of the layout, Error("predict.target", user)
// where no kind of fault matches.
Rows rows_at(const Dataset& data, const Layout& layout, const Task& task, std::span<const double> days);

// The mean of a metric of Dataset::metrics over the unit's last bin that had ended by then.
float last_level(const Dataset& data, const Unit& unit, std::size_t metric, double day);

}  // namespace ms::predict
