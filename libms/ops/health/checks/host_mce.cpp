// The check host.mce (check.h): machine checks and memory errors in the kernel's log, and the counters of the memory
// controllers (EDAC), for what the log has forgotten. Lines are read strictly (scan.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/growth.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr const char* kControllers = "/sys/devices/system/edac/mc";
constexpr double kCorrectedPerHour = 100;  // a healthy DIMM corrects a few errors a year, a dying one thousands an hour
constexpr std::uint64_t kStatusUncorrected = std::uint64_t{1} << 61;  // UC of IA32_MCi_STATUS, the same on AMD

constexpr std::string_view kUnknownDimm =
    "The board's event log (ipmitool sel list) says which DIMM it is, or rasdaemon (ras-mc-ctl --errors). If neither "
    "does, test the DIMMs of that controller one by one. Power the node off when no job runs, replace the DIMM, "
    "and boot the node. A boot without that hides the fault, as it clears the counters.";

constexpr std::string_view kUnnamedPart =
    "The kernel does not name the part. Look for the same time in the BMC's event log (ipmitool sel list) and in "
    "rasdaemon's (ras-mc-ctl --errors); replace the DIMM or processor that they name. Without a name, reboot the node, "
    "and have the processor and its DIMMs tested if the error recurs.";

// "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400": one bank of a machine check.
bool read_bank(Scan line, LogTally& tally) {
  if (!line.literal("mce: [Hardware Error]: CPU ")) return false;
  const auto cpu = line.number();
  if (!cpu || !line.literal(": Machine Check")) return false;
  line.literal(" Exception");
  if (!line.literal(": ") || !line.hex() || !line.literal(" Bank ")) return false;
  const auto bank = line.number();
  if (!bank || !line.literal(": ")) return false;
  const auto status = line.hex();
  if (!status || !line.at_end()) return false;
  if ((*status & kStatusUncorrected) == 0) return true;
  tally.add(Severity::critical, fmt::format("cpu {} bank {}", *cpu, *bank),
            fmt::format("uncorrected machine check, status {:#x}", *status), kUnnamedPart);
  return true;
}

// Whole lines, as the decoder for AMD (edac/mce_amd.c) and the machine check code itself write them. Notes:
// corrected errors, which need no action.
constexpr KnownLine kWholeLines[] = {
    {"[Hardware Error]: System Fatal error.", Severity::critical, "fatal machine check"},
    {"[Hardware Error]: Uncorrected, software restartable error.", Severity::critical, "uncorrected machine check"},
    {"[Hardware Error]: Uncorrected, software containable error.", Severity::critical, "uncorrected machine check"},
    {"[Hardware Error]: Deferred error, no action required.", Severity::warning,
     "uncorrected error found before its data was used"},
    {"[Hardware Error]: Corrected error, no action required.", Severity::note, {}},
    {"mce: [Hardware Error]: Machine check events logged", Severity::note, {}},
};

bool read_whole_line(std::string_view text, LogTally& tally) {
  for (const KnownLine& line : kWholeLines) {
    if (text != line.text) continue;
    if (line.severity != Severity::note)
      tally.add(line.severity, "machine check", std::string(line.message), kUnnamedPart);
    return true;
  }
  Scan scan(text);
  if (scan.literal("mce: Uncorrected hardware memory error in user-access at ") && scan.hex() && scan.at_end()) {
    tally.add(Severity::critical, "memory", "uncorrected memory error in a program's data", kUnnamedPart);
    return true;
  }
  return false;
}

constexpr std::size_t kMostPerDay = 10;  // corrected errors of one DIMM: mcelog's own limit

// EDAC's words where its driver cannot tell.
bool is_named(std::string_view dimm) { return !dimm.starts_with("unknown") && !dimm.starts_with("any memory"); }

// Corrected errors that EDAC logged of one DIMM.
struct CorrectedOfDimm {
  std::map<std::string, int> by_page;  // lines
  std::vector<double> times_s;         // of each error, since boot, in the order of the log
};
using Corrected = std::map<std::pair<std::uint64_t, std::string>, CorrectedOfDimm>;  // controller and DIMM

// "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1ba8c25 ...)". Drivers
// without words of their own (AMD's) write "1 UE on mc#0csrow#2channel#0 (csrow:2 ...)".
bool read_edac(Scan line, double when_s, LogTally& tally, Corrected& corrected) {
  if (!line.literal("EDAC MC")) return false;
  const auto controller = line.number();
  const auto errors = controller && line.literal(": ") ? line.number() : std::nullopt;
  if (!errors) return false;
  const bool uncorrected = line.literal(" UE");
  if (!uncorrected && !line.literal(" CE")) return false;
  const std::size_t on = line.rest().find(" on ");
  const std::size_t place = line.rest().find(" (");
  if (on == std::string_view::npos || place == std::string_view::npos || place < on) return false;
  const std::string_view words = line.rest().substr(0, on);
  // " memory read error": words only, so that a process name before "[12]: segfault" is no match.
  if (words == " " || (!words.empty() && words[0] != ' ') ||
      words.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ -") != std::string_view::npos) {
    return false;
  }
  const std::string dimm = printable(trim(line.rest().substr(on + 4, place - on - 4)));
  if (uncorrected) {
    tally.add(Severity::critical, fmt::format("memory controller {}", *controller),
              fmt::format("uncorrected memory error on {}", dimm), is_named(dimm) ? "" : kUnknownDimm);
    return true;
  }
  CorrectedOfDimm& of_dimm = corrected[{*controller, dimm}];
  of_dimm.times_s.resize(of_dimm.times_s.size() + std::min<std::size_t>(*errors, kMostPerDay + 1), when_s);
  constexpr std::string_view kPage = "page:";
  const std::size_t page = line.rest().find(kPage, place);
  if (page != std::string_view::npos) {
    const std::string_view number = Scan(line.rest().substr(page + kPage.size())).name();
    if (number != "0x0") ++of_dimm.by_page[std::string(number)];  // 0x0: it is not known
  }
  return true;
}

// A healthy DIMM corrects an error now and then, each at another place. The same page again means a cell that is stuck.
void judge_corrected(const Corrected& corrected, std::vector<Finding>& findings) {
  for (const auto& [place, of_dimm] : corrected) {
    const auto& [controller, dimm] = place;
    const bool is_stuck =
        is_named(dimm) && std::ranges::any_of(of_dimm.by_page, [](const auto& page) { return page.second > 1; });
    const auto& times = of_dimm.times_s;
    bool is_often = false;
    for (std::size_t i = kMostPerDay; i < times.size(); ++i) is_often |= times[i] - times[i - kMostPerDay] < kDay_s;
    if (!is_stuck && !is_often) continue;
    findings.push_back({.severity = Severity::warning,
                        .entity = fmt::format("memory controller {}", controller),
                        .message = fmt::format("{} on {}{}", plural(times.size(), "corrected memory error"), dimm,
                                               is_stuck ? ", some at the same page" : ""),
                        .measured = static_cast<double>(times.size()),
                        .limit = is_stuck ? 1.0 : static_cast<double>(kMostPerDay),
                        .unit = "errors",
                        .remedy = std::string(is_named(dimm) ? "" : kUnknownDimm)});
  }
}

// Firmware (APEI) reports are several lines with one number: "{3}[Hardware Error]: event severity: recoverable", then
// "{3}[Hardware Error]:   section_type: memory error". Those without a number tell of a boot that is over (BERT).
struct FirmwareReport {
  std::string_view severity;
  bool memory_or_processor = false;
  bool pcie = false;
};

std::optional<std::uint64_t> firmware_number(Scan line) {
  const auto number = line.literal("{") ? line.number() : std::nullopt;
  return line.literal("}[Hardware Error]:") ? number : std::nullopt;
}

void read_firmware(Scan line, std::map<std::uint64_t, FirmwareReport>& reports) {
  const auto number = firmware_number(line);
  if (!number) return;
  line.literal(line.rest().substr(0, line.rest().find(':') + 1));
  line.blanks();
  if (line.literal("event severity: ")) {
    for (const std::string_view severity : {"fatal", "recoverable", "corrected"}) {
      if (line.rest() == severity) reports[*number].severity = severity;
    }
  } else if (line.literal("section_type: ") && reports.contains(*number)) {
    for (const std::string_view section :
         {"memory error", "general processor error", "IA32/X64 processor error", "ARM processor error"}) {
      if (line.rest() == section) reports[*number].memory_or_processor = true;
    }
    if (line.rest() == "PCIe error") reports[*number].pcie = true;
  }
}

// A recoverable error of a PCIe device can be a driver's or a device's mishap; one of memory or processor is not.
std::vector<Finding> firmware_findings(const std::map<std::uint64_t, FirmwareReport>& reports) {
  LogTally memory_or_processor, other;
  for (const auto& [number, report] : reports) {
    if (report.severity == "corrected") continue;
    const bool critical =
        report.severity == "fatal" || (report.severity == "recoverable" && report.memory_or_processor);
    (report.memory_or_processor ? memory_or_processor : other)
        .add(critical ? Severity::critical : Severity::warning, "firmware",
             fmt::format("{} hardware error{}", report.severity,
                         report.memory_or_processor ? " of memory or processor"
                         : report.pcie              ? " of a PCIe device"
                                                    : ""));
  }
  std::vector<Finding> findings = memory_or_processor.findings();
  for (Finding& finding : findings) finding.remedy = kUnnamedPart;
  for (Finding& finding : other.findings()) {
    finding.remedy =
        "The report in the kernel's log ([Hardware Error] lines) names the device; reseat or replace that, and reboot "
        "the node.";
    findings.push_back(std::move(finding));
  }
  return findings;
}

// The DIMMs of a controller whose own counter `file` is not 0, by the board's label where EDAC has one. Many drivers
// count for the controller alone.
std::vector<std::string> dimms_with(const Sysroot& root, const std::string& controller, std::string_view file) {
  std::vector<std::string> dimms;
  for (const std::string& name : root.list(controller)) {
    if (!name.starts_with("dimm")) continue;
    const std::string directory = fmt::format("{}/{}", controller, name);
    if (root.read_int(fmt::format("{}/{}", directory, file)).value_or(0) <= 0) continue;
    const std::string label = root.read(directory + "/dimm_label", 256).value_or("");
    dimms.push_back(label.empty() ? name : printable(label));
  }
  return dimms;
}

// Completes a finding about memory errors of a controller.
Finding on_dimms(Finding finding, const std::vector<std::string>& dimms) {
  if (dimms.empty()) {
    finding.message += "; only the controller is known, not the DIMM";
    finding.remedy = kUnknownDimm;
  } else {
    finding.message += fmt::format(" on DIMM {}", fmt::join(dimms, ", "));
  }
  return finding;
}

// Since the driver was loaded, or somebody wrote reset_counters.
std::size_t read_controllers(Evidence& evidence, std::vector<Finding>& findings, Counters& keep) {
  std::size_t controllers = 0;
  for (const std::string& name : evidence.root().list(kControllers)) {
    if (!name.starts_with("mc")) continue;
    const std::string directory = fmt::format("{}/{}", kControllers, name);
    const auto uncorrected = evidence.root().read_int(directory + "/ue_count");
    const auto corrected = evidence.root().read_int(directory + "/ce_count");
    controllers += uncorrected || corrected ? 1u : 0u;
    if (uncorrected && *uncorrected > 0) {
      findings.push_back(on_dimms(about("memory controller " + name, Severity::critical,
                                        plural(static_cast<std::size_t>(*uncorrected), "uncorrected memory error"),
                                        *uncorrected, 0.0, "errors"),
                                  dimms_with(evidence.root(), directory, "dimm_ue_count")));
    }
    if (!corrected) continue;
    const auto rate =
        growth_per_window(evidence, "host.mce corrected " + name, static_cast<double>(*corrected), kHour_s, keep);
    if (rate && *rate > kCorrectedPerHour) {
      findings.push_back(on_dimms(
          about("memory controller " + name, Severity::warning,
                fmt::format("{:.0f} corrected memory errors an hour", *rate), *rate, kCorrectedPerHour, "errors/h"),
          dimms_with(evidence.root(), directory, "dimm_ce_count")));
    }
  }
  return controllers;
}

Result check_host_mce(Evidence& evidence) {
  Counters keep;
  std::vector<Finding> findings;
  const KernelLog& log = evidence.kernel_log();
  LogTally tally;
  Corrected corrected;
  std::map<std::uint64_t, FirmwareReport> reports;
  for (const KernelLine& line : log.lines) {
    const Scan scan(line.text);
    if (read_bank(scan, tally) || read_whole_line(line.text, tally) ||
        read_edac(scan, line.since_boot_s, tally, corrected)) {
      evidence.mark_judged(line);
    } else {
      read_firmware(scan, reports);
    }
  }
  std::erase_if(reports, [](const auto& report) { return report.second.severity.empty(); });
  for (const KernelLine& line : log.lines) {
    if (const auto number = firmware_number(Scan(line.text)); number && reports.contains(*number)) {
      evidence.mark_judged(line);
    }
  }
  findings = tally.findings();
  judge_corrected(corrected, findings);
  for (Finding& finding : firmware_findings(reports)) findings.push_back(std::move(finding));
  const std::size_t controllers = read_controllers(evidence, findings, keep);
  if (!log.error.empty() && controllers == 0) {
    return skipped(fmt::format("neither the kernel's log ({}) nor memory controllers (EDAC) can be read", log.error));
  }
  Result result = judged(std::move(findings), plural(controllers, "memory controller"));
  result.counters = std::move(keep);
  return result;
}

}  // namespace

extern constinit const Check kHostMce = {
    .code = "host.mce",
    .lane = Lane::kernel,
    .summary = "machine checks and memory errors",
    .needs = "/dev/kmsg or EDAC",
    .explain =
        "Reads machine checks, EDAC lines and firmware (APEI) reports in the kernel log, and ue_count and ce_count of "
        "every memory controller. An uncorrected error is critical: data were lost, and the fault will recur. "
        "Corrected errors are normal, also in the processor and in firmware reports. Corrected memory errors are a "
        "warning if there are more than 100 per hour of one controller, more than 10 per day of one DIMM, or two at "
        "the same page: failing DIMMs start this way. The DIMM is named if EDAC counts per DIMM; otherwise only the "
        "controller is known.\n\n"
        "Log lines from before the last undrain do not count, but ue_count remains until the node reboots or someone "
        "writes to reset_counters next to it.",
    .remedy = "Replace the DIMM or processor that is named; then reboot the node, which also clears the counters.",
    .run = check_host_mce};

}  // namespace ms::health
