// The check host.mce (check.h): machine checks and memory errors in the kernel's log, and the counters of the memory
// controllers (EDAC), for what the log has forgotten. Lines are read strictly (scan.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/firmware_reports.h"
#include "health/evidence/growth.h"
#include "health/evidence/scan.h"
#include "health/evidence/storage_lines.h"

namespace ms::health {
namespace {

constexpr const char* kControllers = "/sys/devices/system/edac/mc";
constexpr double kCorrectedPerHour = 100;  // a healthy DIMM corrects a few errors a year, a dying one thousands an hour
constexpr std::uint64_t kStatusUncorrected = std::uint64_t{1} << 61;  // UC of IA32_MCi_STATUS, the same on AMD
// PCC, S and AR. Without them an Intel processor found the error before its data were used (UCNA); an AMD one has other
// bits there, and a bit for deferred errors.
constexpr std::uint64_t kStatusUsed = std::uint64_t{7} << 55;
constexpr std::string_view kUnused = "uncorrected error found before its data was used";

constexpr std::string_view kUnknownDimm =
    "The board's event log (ipmitool sel list) says which DIMM it is, or rasdaemon (ras-mc-ctl --errors). If neither "
    "does, test the DIMMs of that controller one by one. Power the node off when no job runs, replace the DIMM, "
    "and boot the node. A boot without that hides the fault, as it clears the counters.";

constexpr std::string_view kUnnamedPart =
    "The kernel does not name the part. Look for the same time in the BMC's event log (ipmitool sel list) and in "
    "rasdaemon's (ras-mc-ctl --errors); replace the DIMM or processor that they name. Without a name, reboot the node, "
    "and have the processor and its DIMMs tested if the error recurs.";

constexpr std::string_view kNamedInLog =
    "The report in the kernel's log ([Hardware Error] lines) names the device; reseat or replace that, and reboot the "
    "node.";
constexpr std::string_view kPageGone =
    "The kernel took the page out of use. rasdaemon (ras-mc-ctl --errors) or the BMC's event log (ipmitool sel list) "
    "names the DIMM; replace it if this recurs.";

constexpr std::string_view kMadeUp =
    "Somebody wrote to fake_inject of the memory controller: see who tests here. Write to its reset_counters then.";

constexpr double kBootEnds_s = 120;  // also on machines with hundreds of processors

constexpr std::string_view kLeftBehind =
    "The processor's banks held this record when this boot began. If the node crashed before it, find the part in the "
    "BMC's event log (ipmitool sel list). If the record comes with each boot, the firmware leaves it there: update "
    "that.";
constexpr std::string_view kInjected =
    "An injector of errors was loaded by hand before it: see who tests here. If it was no test, look for the part in "
    "the BMC's event log (ipmitool sel list).";

// How an error comes to be in the log, where that speaks against a fault of this boot.
enum class Origin { hardware, earlier_boot, test };

Severity severity_by(Origin origin) { return origin == Origin::hardware ? Severity::critical : Severity::warning; }
std::string_view remedy_by(Origin origin, std::string_view otherwise) {
  return origin == Origin::hardware ? otherwise : origin == Origin::test ? kInjected : kLeftBehind;
}
std::string_view words_of(Origin origin) {
  return origin == Origin::hardware ? ""
         : origin == Origin::test   ? ", after an injector was loaded"
                                    : " of an earlier boot";
}

// Tests of error handling by mce-inject and by the firmware (EINJ). Kernels that have these built in load them at boot,
// which is no sign of a test.
class Injectors {
 public:
  void read(const KernelLine& line) {
    const bool is_injector =
        line.text == "mce: Machine check injector initialized" || line.text == "EINJ: Error INJection is initialized.";
    if (is_injector && line.since_boot_s > kBootEnds_s) loaded_s_ = line.since_boot_s;
  }
  bool may_have_caused(double when_s) const { return loaded_s_ && when_s - *loaded_s_ < kHour_s; }

 private:
  std::optional<double> loaded_s_;
};

// Banks that are read at boot have no time stamp: "mce: [Hardware Error]: TSC 0 ADDR 1ffffb51181c0" in the next lines.
bool has_no_time(const std::vector<KernelLine>& lines, std::size_t at) {
  constexpr std::size_t kLines = 3;
  for (std::size_t i = at + 1; i < std::min(at + 1 + kLines, lines.size()); ++i) {
    Scan scan(lines[i].text);
    if (scan.literal("mce: [Hardware Error]: TSC ")) return scan.hex() == 0;
  }
  return false;
}

Origin origin_of(const std::vector<KernelLine>& lines, std::size_t at, const Injectors& injectors) {
  const double when_s = lines[at].since_boot_s;
  if (injectors.may_have_caused(when_s)) return Origin::test;
  // A kernel does not survive a fatal machine check of its own.
  const bool is_left = has_no_time(lines, at) || lines[at].text == "[Hardware Error]: System Fatal error.";
  return is_left && when_s < kBootEnds_s ? Origin::earlier_boot : Origin::hardware;
}

// "mce: [Hardware Error]: PROCESSOR 2:a00f11 TIME ..." in the lines behind a bank names AMD, as /proc/cpuinfo does.
bool is_amd(const std::vector<KernelLine>& lines, std::size_t at, const Sysroot& root) {
  constexpr std::size_t kLines = 4, kCpuinfoBytes = 256;
  for (std::size_t i = at + 1; i < std::min(at + 1 + kLines, lines.size()); ++i) {
    Scan scan(lines[i].text);
    if (scan.literal("mce: [Hardware Error]: PROCESSOR ")) return scan.literal("2:");
  }
  return root.read("/proc/cpuinfo", kCpuinfoBytes).value_or("").find("AuthenticAMD") != std::string::npos;
}

// "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400": one bank of a machine check.
bool read_bank(const std::vector<KernelLine>& lines, std::size_t at, const Sysroot& root, Origin origin,
               LogTally& tally) {
  Scan line(lines[at].text);
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
  const bool unused = (*status & kStatusUsed) == 0 && !is_amd(lines, at, root);
  tally.add(
      unused ? Severity::warning : severity_by(origin), fmt::format("cpu {} bank {}", *cpu, *bank),
      fmt::format("{}{}, status {:#x}", unused ? kUnused : "uncorrected machine check", words_of(origin), *status),
      remedy_by(origin, kUnnamedPart));
  return true;
}

// Whole lines, as the decoder for AMD (edac/mce_amd.c) and the machine check code itself write them. Notes:
// corrected errors, which need no action.
constexpr KernelText kWholeLines[] = {
    {"[Hardware Error]: System Fatal error.", Severity::critical, "fatal machine check"},
    {"[Hardware Error]: Uncorrected, software restartable error.", Severity::critical, "uncorrected machine check"},
    {"[Hardware Error]: Uncorrected, software containable error.", Severity::critical, "uncorrected machine check"},
    {"[Hardware Error]: Deferred error, no action required.", Severity::warning, kUnused},
    {"[Hardware Error]: Corrected error, no action required.", Severity::note, {}},
    {"mce: [Hardware Error]: Machine check events logged", Severity::note, {}},
};

bool read_whole_line(std::string_view text, Origin origin, LogTally& tally) {
  for (const KernelText& line : kWholeLines) {
    if (text != line.text) continue;
    if (line.severity != Severity::note)
      tally.add(std::min(line.severity, severity_by(origin)), "machine check",
                fmt::format("{}{}", line.message, words_of(origin)), remedy_by(origin, kUnnamedPart));
    return true;
  }
  Scan scan(text);
  if (scan.literal("Memory failure: 0x") && scan.hex() && scan.one_of({": Killing ", ": Sending SIGBUS to "}) &&
      scan.rest().ends_with(" due to hardware memory corruption")) {
    tally.add(Severity::warning, "memory", "a process was killed: a page of its memory was damaged", kPageGone);
    return true;
  }
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
using Fakes = std::map<std::uint64_t, std::int64_t>;  // uncorrected errors that somebody made up, by controller

// "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1ba8c25 ...)". Drivers
// without words of their own (AMD's) write "1 UE on mc#0csrow#2channel#0 (csrow:2 ...)".
bool read_edac(Scan line, double when_s, LogTally& tally, Corrected& corrected, Fakes& fakes) {
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
  // " memory read error", " ie31200 UE": words only, so that a process name before "[12]: segfault" is no match.
  if (words == " " || (!words.empty() && words[0] != ' ') ||
      words.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ -") !=
          std::string_view::npos) {
    return false;
  }
  const std::string dimm = printable(trim(line.rest().substr(on + 4, place - on - 4)));
  if (words == " FAKE ERROR" && line.rest().ends_with(" - for EDAC testing only)")) {
    if (uncorrected) {
      ++fakes[*controller];
      tally.add(Severity::warning, fmt::format("memory controller {}", *controller),
                "a test of EDAC made an uncorrected error up", kMadeUp);
    }
    return true;
  }
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

// A recoverable error of a PCIe device can be a driver's or a device's mishap; one of memory or processor is not.
std::vector<Finding> firmware_findings(const std::vector<FirmwareSection>& sections) {
  LogTally memory_or_processor, other;
  for (const FirmwareSection& section : sections) {
    const bool is_core = section.kind == FirmwareSection::Kind::memory_or_processor;
    const bool critical = section.severity == "fatal" || (section.severity == "recoverable" && is_core);
    if (!critical && section.severity != "recoverable") continue;
    const Origin origin = section.is_test ? Origin::test : Origin::hardware;
    (is_core ? memory_or_processor : other)
        .add(critical ? severity_by(origin) : Severity::warning, "firmware",
             fmt::format("{} hardware error{}{}", section.severity,
                         is_core                                       ? " of memory or processor"
                         : section.kind == FirmwareSection::Kind::pcie ? " of a PCIe device"
                                                                       : "",
                         words_of(origin)),
             remedy_by(origin, is_core ? kUnnamedPart : kNamedInLog));
  }
  std::vector<Finding> findings = memory_or_processor.findings();
  for (Finding& finding : other.findings()) findings.push_back(std::move(finding));
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
std::size_t read_controllers(Evidence& evidence, const Fakes& fakes, std::vector<Finding>& findings, Counters& keep) {
  std::size_t controllers = 0;
  for (const std::string& name : evidence.root().list(kControllers)) {
    if (!name.starts_with("mc")) continue;
    const std::string directory = fmt::format("{}/{}", kControllers, name);
    auto uncorrected = evidence.root().read_int(directory + "/ue_count");
    for (const auto& [number, count] : fakes) {
      if (uncorrected && name == fmt::format("mc{}", number)) *uncorrected -= count;
    }
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
  Fakes fakes;
  FirmwareReports reports;
  Injectors injectors;
  for (std::size_t i = 0; i < log.lines.size(); ++i) {
    const KernelLine& line = log.lines[i];
    const Scan scan(line.text);
    injectors.read(line);
    const Origin origin = origin_of(log.lines, i, injectors);
    if (read_bank(log.lines, i, evidence.root(), origin, tally) || read_whole_line(line.text, origin, tally) ||
        read_edac(scan, line.since_boot_s, tally, corrected, fakes) || read_amd_gpu(scan, tally)) {
      evidence.mark_judged(line);
    } else {
      reports.read(scan, origin == Origin::test);
    }
  }
  for (const KernelLine& line : log.lines) {
    if (reports.has(Scan(line.text))) evidence.mark_judged(line);
  }
  findings = tally.findings();
  judge_corrected(corrected, findings);
  for (Finding& finding : firmware_findings(reports.sections())) findings.push_back(std::move(finding));
  const std::size_t controllers = read_controllers(evidence, fakes, findings, keep);
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
        "It is a warning if it was found before its data was used, if an earlier boot left the record in the "
        "processor's banks, if it follows within an hour on an injector of errors (mce-inject, EINJ) that was loaded "
        "by hand, if EDAC's fake_inject made it up, if all that is known is that the kernel killed a process and took "
        "its page out of use, or if it is one of an AMD GPU. Sections of a firmware report count by their own "
        "severity. AMD GPUs are also warned of for a failed reset or start, consumed poison, and more bad pages than "
        "their limit. "
        "Corrected errors are normal, also in the processor and in firmware reports. Corrected memory errors are a "
        "warning if there are more than 100 per hour of one controller, more than 10 per day of one DIMM, or two at "
        "the same page: failing DIMMs start this way. The DIMM is named if EDAC counts per DIMM; otherwise only the "
        "controller is known.\n\n"
        "Log lines from before the last undrain do not count, but ue_count remains until the node reboots or someone "
        "writes to reset_counters next to it.",
    .remedy = "Replace the DIMM or processor that is named; then reboot the node, which also clears the counters.",
    .run = check_host_mce};

}  // namespace ms::health
