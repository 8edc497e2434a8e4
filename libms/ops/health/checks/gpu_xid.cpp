// The check gpu.xid (check.h): Xids in the kernel's log.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"
#include "health/evidence/scan.h"
#include "health/evidence/xid.h"

namespace ms::health {
namespace {

constexpr std::string_view kMended =
    "The driver was loaded again since, or reports that the reset which it asked for was done. Run a test (ms-diag run "
    "--level 2); if the Xid recurs, have the GPU replaced.";
constexpr std::string_view kNotStarted =
    "See what the driver logged before this line. Reboot the node; if it recurs, check the GPU's power and seating.";

// Lines of the driver about one GPU that have no Xid: "NVRM: GPU 0000:12:00.0: RmInitAdapter failed! (0x62:0x40:2393)".
constexpr KernelText kWithoutXid[] = {
    {"GPU has fallen off the bus", Severity::critical, "has fallen off the bus"},
    {"RmInitAdapter failed!", Severity::warning, "the driver could not start it"},
};

struct DriverLine {
  std::string pci;
  const KernelText* kind;
};

// A driver that is being loaded prints three lines about a GPU that is gone, which may be one record.
std::optional<DriverLine> read_without_xid(const std::vector<KernelLine>& lines, std::size_t at) {
  Scan scan(lines[at].text);
  if (scan.literal("NVRM: The NVIDIA GPU ")) {
    constexpr std::string_view kFallen = "NVRM: fallen off the bus and is not responding to commands";
    constexpr std::size_t kLines = 3;
    const std::string pci(scan.name().substr(0, std::string_view("0000:12:00.0").size()));
    for (std::size_t i = at; i < std::min(at + kLines, lines.size()); ++i) {
      if (i > at && lines[i].text.starts_with("NVRM: The NVIDIA GPU ")) break;
      if (lines[i].text.find(kFallen) != std::string::npos) return DriverLine{pci, &kWithoutXid[0]};
    }
    return std::nullopt;
  }
  if (!scan.literal("NVRM: GPU ")) return std::nullopt;
  const std::string_view pci = scan.name();
  if (!pci.ends_with(':') || !scan.literal(" ")) return std::nullopt;
  const auto kind = std::ranges::find_if(kWithoutXid, [&](const KernelText& each) { return scan.literal(each.text); });
  if (kind == std::end(kWithoutXid)) return std::nullopt;
  return DriverLine{std::string(pci.substr(0, pci.size() - 1)), kind};
}

// Since when the GPUs have been reset, as far as the log shows it: an earlier Xid whose remedy is a reset is closed.
class Resets {
 public:
  explicit Resets(const KernelLog& log) {
    constexpr double kLoad_s = 30;  // the driver prints its version at the end of a load, behind Xids of the same load
    std::map<std::string, RecoveryAction> asked;
    for (const KernelLine& line : log.lines) {
      if (line.text.starts_with("NVRM: loading NVIDIA UNIX ")) loaded_s_ = line.since_boot_s - kLoad_s;
      const std::optional<XidLine> xid = parse_xid(line.text);
      if (!xid || !xid->action) continue;
      const auto before = asked.find(xid->pci);
      const bool was_reset = before != asked.end() && is_mended_by_reset(before->second);
      if (was_reset && xid->action == RecoveryAction::none) reset_s_[xid->pci] = line.since_boot_s;
      asked[xid->pci] = *xid->action;
    }
  }
  bool are_behind(const std::string& pci, const KernelLine& line) const {
    const auto reset = reset_s_.find(pci);
    return line.since_boot_s < loaded_s_ || (reset != reset_s_.end() && line.since_boot_s < reset->second);
  }

 private:
  double loaded_s_ = 0;
  std::map<std::string, double> reset_s_;  // by PCI address
};

class XidTally {
 public:
  explicit XidTally(Evidence& evidence)
      : evidence_(evidence), on_bus_(gpus_on_bus(evidence.root())), resets_(evidence.kernel_log()) {}

  // Returns whether the line is an Xid.
  bool read(const KernelLine& line) {
    const std::optional<XidLine> xid = parse_xid(line.text);
    if (!xid) return false;
    if (xid->number == 154) {
      actions_[xid->pci].push_back({&line, xid->action});
    } else if (xid->nvlink) {
      add_nvlink(line, *xid);
    } else {
      const XidRow* row = find_xid(xid->number);
      if (row != nullptr && (row->user_can_cause || row->severity == Severity::note)) return true;
      if (xid->number == 79) off_bus_.insert(xid->pci);
      add(line, xid->pci, row ? row->severity : Severity::warning,
          fmt::format("Xid {}: {}", xid->number, row ? row->meaning : "not known to us"), {},
          row == nullptr || !row->outlives_reset);
    }
    return true;
  }

  void read_lines_without_xid(const std::vector<KernelLine>& lines) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto found = read_without_xid(lines, i);
      if (!found) continue;
      const bool is_gone = found->kind->severity == Severity::critical;
      if (is_gone && off_bus_.contains(found->pci)) {
        evidence_.mark_judged(lines[i]);
      } else {
        add(lines[i], found->pci, found->kind->severity, std::string(found->kind->message),
            is_gone ? std::string_view() : kNotStarted, false);
      }
    }
  }

  // A later Xid 154 of a GPU takes back an earlier one.
  void judge_actions() {
    for (const auto& [pci, lines] : actions_) {
      const auto& [last, action] = lines.back();
      if (action == RecoveryAction::none) continue;
      const RecoveryAdvice advice = action ? advice_for(*action) : RecoveryAdvice{Severity::warning, "something"};
      add(*last, pci, advice.severity, fmt::format("Xid 154: the driver asks for {}", advice.words), {},
          action && is_mended_by_reset(*action));
      for (const auto& line : lines) evidence_.mark_judged(*line.first);
    }
  }

  std::vector<Finding> findings() const { return tally_.findings(); }
  bool has_gpus() const { return !on_bus_.empty(); }

 private:
  void add_nvlink(const KernelLine& line, const XidLine& xid) {
    const NvlinkAdvice advice = advice_for(*xid.nvlink);
    evidence_.mark_judged(line);
    if (advice.severity == Severity::note) return;
    const NvlinkError& error = *xid.nvlink;
    add(line, xid.pci, advice.severity,
        fmt::format("Xid {}: {} NVLink error{} ({}{})", xid.number, advice.what,
                    error.link < 0 ? "" : fmt::format(" of link {}", error.link), error.unit,
                    error.subcode < 0 ? "" : fmt::format(", subcode {}", error.subcode)),
        advice.remedy, true);
  }

  void add(const KernelLine& line, const std::string& pci, Severity severity, std::string message,
           std::string_view remedy, bool is_mended_by_reset) {
    const auto found = std::ranges::find(on_bus_, pci);
    const std::string entity =
        found == on_bus_.end() ? "gpu " + pci : fmt::format("gpu {} ({})", found - on_bus_.begin(), pci);
    if (severity == Severity::critical && is_mended_by_reset && resets_.are_behind(pci, line)) {
      tally_.add(Severity::warning, entity, message + ", before the GPU was reset", kMended);
    } else {
      tally_.add(severity, entity, std::move(message), remedy);
    }
    evidence_.mark_judged(line);
  }

  Evidence& evidence_;
  std::vector<std::string> on_bus_;
  Resets resets_;
  LogTally tally_;
  std::set<std::string> off_bus_;  // by Xid 79
  std::map<std::string, std::vector<std::pair<const KernelLine*, std::optional<RecoveryAction>>>> actions_;
};

Result check_gpu_xid(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped(log.error);
  XidTally tally(evidence);
  const auto seen = static_cast<std::size_t>(
      std::ranges::count_if(log.lines, [&](const KernelLine& line) { return tally.read(line); }));
  tally.read_lines_without_xid(log.lines);
  tally.judge_actions();
  std::vector<Finding> findings = tally.findings();
  if (findings.empty() && seen == 0 && !tally.has_gpus()) return skipped("no NVIDIA GPU here, and no Xid in the log");
  return judged(std::move(findings), seen == 0 ? "no Xid" : "nothing against a GPU in " + plural(seen, "Xid"));
}

}  // namespace

extern constinit const Check kGpuXid = {
    .code = "gpu.xid",
    .lane = Lane::kernel,
    .summary = "Xids in the kernel log that indicate a GPU fault",
    .needs = "/dev/kmsg",
    .blame = Blame::gpu,
    .explain =
        "The driver writes an Xid to the kernel log when something goes wrong on a GPU. Xids for broken hardware or a "
        "required reset are critical (48, 54, 62, 64, 79, 95, 119, 120, 140, 143, 158); Xids that need a closer look "
        "are warnings (46, 74, 94 and others). Xids 144 to 150 are judged by the severity in their text: nonfatal ones "
        "do not count, and fatal ones are critical. Xid 149 is only a warning if its subcode shows that the other end "
        "or software took the link down, and injected errors are warnings too. Xid 154 is judged by the action in its "
        "text, and the last one "
        "of a GPU counts.\n\n"
        "Xids that a program can cause never count: 13, 31, 43, 45, 109 and similar ones. Only lines that the kernel "
        "itself wrote since the boot of the node and its last undrain count. After a reset of the GPU, undrain the "
        "node. A critical Xid whose remedy is a reset becomes a warning if the driver was loaded again since, or if "
        "Xid 154 took back the request for a reset. Lines without an Xid count too: a GPU that fell off the bus "
        "(critical), and one that the driver could not start.",
    .remedy =
        "Reset the GPU (nvidia-smi --gpu-reset -i N), or reboot the node after Xid 79; if the Xid recurs, have the GPU "
        "replaced. See NVIDIA's Xid catalog for the number.",
    .run = check_gpu_xid};

}  // namespace ms::health
