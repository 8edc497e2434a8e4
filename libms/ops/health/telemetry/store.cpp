#include "health/telemetry/store.h"

#include <unistd.h>

#include <filesystem>

#include "base/lock_file.h"
#include "base/safe_file.h"
#include "base/text.h"
#include "base/utc.h"
#include "health/evidence/growth.h"
#include "health/telemetry/day_file.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

constexpr double kTelemetryLock_s = 5;
constexpr std::string_view kDaySuffix = ".tlm";
constexpr std::string_view kBeginning = "MSTELEM1";

constexpr Refusal kTelemetryRefusal{.kind = "telemetry.write", .blame = Blame::node};

// The bytes to append, and behind how many.
struct Appending {
  std::string bytes;
  std::size_t behind = 0;
};

Appending appending(const std::string& before, const std::string& name, const std::string& node, const Sample& sample) {
  const DayFile file = parse_day_file(before);
  if (file.segments.empty() && !kBeginning.starts_with(before.substr(0, kBeginning.size()))) {
    throw Error("telemetry.write", Blame::node, fmt::format("'{}' holds something else than samples", name),
                "move it away; nothing is appended to it");
  }
  const Layout* last = file.segments.empty() ? nullptr : &file.segments.back().layout;
  const Layout layout = layout_for(sample, node, last);
  const bool same = last != nullptr && layout == *last;
  return {(same ? std::string() : encode_header(layout)) + encode_record(layout, sample), file.whole_bytes};
}

std::size_t remove_old_days(const UniqueFd& directory, const std::string& path, double before_s) {
  std::size_t removed = 0;
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    const std::string name = file.path().filename();
    const std::optional<double> day_s = day_of_file(name);
    if (day_s && *day_s + kDay_s <= before_s && ::unlinkat(directory.get(), name.c_str(), 0) == 0) ++removed;
  }
  return removed;
}

}  // namespace

std::string day_file_name(double wall_s) { return utc_text(wall_s).substr(0, 10) + std::string(kDaySuffix); }

std::optional<double> day_of_file(std::string_view name) {
  if (name.size() != 10 + kDaySuffix.size() || !name.ends_with(kDaySuffix)) return std::nullopt;
  return utc_seconds(fmt::format("{}T00:00:00Z", name.substr(0, 10)));
}

KeptSample keep_sample(const std::string& directory, const std::string& node, const Sample& sample,
                       const TelemetryConfig& config) {
  constexpr mode_t kReadable = 0755;
  const Refusal& refusal = kTelemetryRefusal;
  if (!slurm::is_host_name(node)) throw Error("telemetry.write", Blame::node, "the node has no name for a directory");
  const UniqueFd site = open_own_directory(directory, kReadable, 0022, refusal);
  const std::string path = directory + "/" + node;
  const UniqueFd own = open_own_directory_at(site, node, path, kReadable, 0022, refusal);
  const UniqueFd lock = lock_at(own, ".lock", kTelemetryLock_s, refusal);
  const std::string name = day_file_name(sample.wall_s);
  const auto most = static_cast<std::size_t>(config.day_size_bytes);
  const std::string before = read_at(own, name, most, refusal).value_or("");
  const Appending next = appending(before, path + "/" + name, node, sample);
  if (next.behind + next.bytes.size() > most) {
    throw Error("telemetry.write", Blame::node,
                fmt::format("'{}/{}' holds {}, the most that telemetry.day_size allows: this sample is not kept", path,
                            name, format_size(static_cast<double>(next.behind))),
                "raise telemetry.day_size, or collect less often");
  }
  append_at(own, name, next.bytes, refusal, {.behind = next.behind, .mode = 0644});
  KeptSample kept{.file = path + "/" + name, .bytes = next.bytes.size(), .dropped_bytes = before.size() - next.behind};
  const double oldest_s = sample.wall_s - static_cast<double>(config.days) * kDay_s;
  if (before.empty()) kept.removed_days = remove_old_days(own, path, oldest_s);
  return kept;
}

}  // namespace ms::health
