// Each part of a sample is a row for the runner of the checks, so that a driver or sensor that hangs or crashes takes
// nothing else with it. A value travels as Result::measured: the device is its entity, the column its unit; facts
// travel as lines of the note.
#include "health/telemetry/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/text.h"
#include "health/checks/registry.h"
#include "health/evidence/links.h"
#include "health/evidence/scan.h"
#include "health/evidence/xid.h"
#include "health/run/runner.h"
#include "health/telemetry/columns.h"

namespace ms::health {
namespace {

constexpr double kPartDeadline_s = 10;
constexpr std::string_view kPciPrefix = "pci:";  // a device of the part "log" whose number only the part "gpus" knows

void put_value(Result& result, std::string device, std::string_view column, const std::optional<double>& value) {
  if (value) result.measured.push_back({std::move(device), *value, std::string(column)});
}

void put_files(Result& result, const Sysroot& root, std::string_view kind, const std::string& name,
               const std::string& directory) {
  for (const ColumnRow& row : telemetry_columns()) {
    if (row.device != kind) continue;
    const auto value = root.read_int(fmt::format("{}/{}", directory, row.file));
    // Links that are down have the speed -1.
    if (value && *value >= 0)
      put_value(result, fmt::format("{}/{}", kind, name), row.name, static_cast<double>(*value) * row.scale);
  }
}

Result collect_gpus(Evidence& evidence) {
  const GpuSnapshot snapshot = read_gpus(evidence.policy().paths.nvml, kNvmlDirectories, Ask::sensors_too);
  if (!snapshot.library_found) return passed();  // a node without GPUs
  if (!snapshot.error.empty()) return skipped(snapshot.error);
  Result result = passed();
  for (const Gpu& gpu : snapshot.gpus) {
    const std::string device = fmt::format("gpu{}", gpu.index);
    for (const ColumnRow& row : telemetry_columns()) {
      if (row.of_gpu != nullptr) put_value(result, device, row.name, row.of_gpu(gpu));
    }
    for (const auto& [key, text] : {std::pair("model", gpu.name), {"pci", gpu.pci}, {"uuid", gpu.uuid}}) {
      if (!text.empty()) result.note += fmt::format("{}\t{}\t{}\n", device, key, printable(text));
    }
  }
  return result;
}

Result collect_host(Evidence& evidence) {
  Result result = passed();
  for (const ColumnRow& row : telemetry_columns()) {
    if (row.of_host != nullptr) put_value(result, "", row.name, row.of_host(evidence.root()));
  }
  return result;
}

Result collect_devices(Evidence& evidence) {
  Result result = passed();
  const Sysroot& root = evidence.root();
  for (const Link& link : watched_links(evidence)) {
    put_files(result, root, link.is_port ? "ib" : "net", link.name, link.directory);
  }
  for (const std::string& name : root.list("/sys/block")) {
    if (name.starts_with("sd")) put_files(result, root, "disk", name, "/sys/block/" + name);
  }
  for (const std::string& name : root.list("/sys/class/hwmon")) {
    const std::string directory = "/sys/class/hwmon/" + name;
    const std::string controller = root.link_name(directory + "/device");  // "nvme0"
    if (controller.starts_with("nvme")) put_files(result, root, "disk", controller, directory);
  }
  return result;
}

// Counts what the checks find in the kernel's log, by check, and the Xids of each GPU.
Result collect_log(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped(log.error);
  Result result = passed();
  for (const Check& check : passive_checks()) {
    if (check.lane != Lane::kernel) continue;
    const Result found = check.run(evidence);
    double lines = 0;
    for (const Finding& finding : found.findings) {
      if (finding.unit == "lines") lines += finding.measured.value_or(0);
    }
    if (found.outcome != Outcome::skip) put_value(result, "", log_column(check.code), lines);
  }
  std::map<std::string, std::pair<double, double>> xids;  // by PCI address: how many, the last
  for (const KernelLine& line : log.lines) {
    const std::optional<XidLine> xid = parse_xid(line.text);
    if (!xid) continue;
    xids[xid->pci].first += 1;
    xids[xid->pci].second = xid->number;
  }
  for (const auto& [pci, seen] : xids) {
    put_value(result, std::string(kPciPrefix) + pci, kXids, seen.first);
    put_value(result, std::string(kPciPrefix) + pci, kLastXid, seen.second);
  }
  return result;
}

const std::vector<Check>& sample_parts() {
  static const std::vector<Check> kParts = {
      {.code = "gpus", .lane = Lane::gpu, .deadline_s = kPartDeadline_s, .run = collect_gpus},
      {.code = "host", .lane = Lane::files, .deadline_s = kPartDeadline_s, .run = collect_host},
      {.code = "devices", .lane = Lane::files, .deadline_s = kPartDeadline_s, .run = collect_devices},
      {.code = "log", .lane = Lane::kernel, .deadline_s = kPartDeadline_s, .run = collect_log}};
  return kParts;
}

std::map<std::string, Facts> facts_in(std::string_view note) {
  std::map<std::string, Facts> facts;
  for (const std::string& line : split(note, '\n')) {
    const std::vector<std::string> words = split(line, '\t');
    if (words.size() == 3) facts[words[0]][words[1]] = words[2];
  }
  return facts;
}

// The GPU at a PCI address; empty: it is none of ours.
std::string gpu_at(const Sample& sample, std::string_view pci) {
  for (const auto& [device, facts] : sample.facts) {
    const auto found = facts.find("pci");
    if (found != facts.end() && found->second == pci) return device;
  }
  return {};
}

}  // namespace

Sample take_sample(const Policy& policy, double deadline_s) {
  Sample sample{.wall_s = SystemClock().wall_s()};
  const std::vector<Result> results = run_checks(sample_parts(), policy, {.deadline_s = deadline_s});
  bool has_log = false;
  for (const Result& result : results) {  // the part "gpus" comes first
    if (result.outcome != Outcome::pass) {
      const std::string why = result.findings.empty() ? result.note : result.findings[0].message;
      sample.missing.push_back(result.code + ": " + why);
      continue;
    }
    if (result.code == "gpus") sample.facts = facts_in(result.note);
    has_log = has_log || result.code == "log";
    for (const Measured& measured : result.measured) {
      std::string device = measured.entity;
      if (device.starts_with(kPciPrefix)) {
        device = gpu_at(sample, device.substr(kPciPrefix.size()));
        if (device.empty()) continue;
      }
      if (std::isfinite(measured.value))
        sample.values.push_back({std::move(device), measured.unit, static_cast<float>(measured.value)});
    }
  }
  // A log that was read and says nothing of a GPU is a count, too.
  for (const auto& [device, facts] : sample.facts) {
    const bool told =
        std::any_of(sample.values.begin(), sample.values.end(),
                    [&gpu = device](const SampleValue& value) { return value.device == gpu && value.column == kXids; });
    if (has_log && !told) sample.values.push_back({device, std::string(kXids), 0});
  }
  std::stable_sort(sample.values.begin(), sample.values.end(),
                   [](const SampleValue& a, const SampleValue& b) { return a.device < b.device; });
  return sample;
}

}  // namespace ms::health
