#include "health/commands/history.h"

#include <ctime>

#include "base/json.h"
#include "base/text.h"

namespace ms::health {

std::string when(double wall_s) {
  const auto seconds = static_cast<std::time_t>(wall_s);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &local)};
}

std::string history_text(const std::vector<HistoryEntry>& entries) {
  if (entries.empty()) return "nothing was decided on this node\n";
  TextTable table(columns("WHEN|WHAT|CODE|JOB>|STRIKES>|WHY"));
  for (const HistoryEntry& entry : entries) {
    table.row({when(entry.wall_s), entry.event, entry.code.empty() ? "-" : entry.code,
               entry.job_id == 0 ? "-" : std::to_string(entry.job_id),
               entry.strikes == 0 ? "-" : std::to_string(entry.strikes), entry.message});
  }
  return table.str();
}

std::string history_json(const std::vector<HistoryEntry>& entries) {
  std::string lines;
  for (const HistoryEntry& entry : entries) {
    const Json json{{"schema", 1},         {"time", entry.wall_s},     {"event", entry.event},    {"code", entry.code},
                    {"job", entry.job_id}, {"strikes", entry.strikes}, {"message", entry.message}};
    lines += json.dump() + "\n";
  }
  return lines;
}

}  // namespace ms::health
