// The table follows NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors, as of October 2025): what it answers with
// "restart the application" a program can cause; "reset the GPU" or "restart the machine" without a doubt is critical;
// what has to be looked at by a person is a warning. On drivers from 570 on, Xid 154 says itself what is to be done.
#include "health/evidence/xid.h"

#include <algorithm>

#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr bool kJob = true;
constexpr bool kMachine = false;
constexpr bool kOutlivesReset = true;
constexpr Severity kNote = Severity::note;
constexpr Severity kWarning = Severity::warning;
constexpr Severity kCritical = Severity::critical;

constexpr std::string_view kActionChanged = "GPU recovery action changed from ";

// "0x1 (GPU Reset Required)": the number.
std::optional<int> take_action(Scan& scan) {
  if (!scan.literal("0x")) return std::nullopt;
  const std::optional<std::uint64_t> number = scan.hex();
  if (!number || *number > 0xff || !scan.literal(" (")) return std::nullopt;
  const std::size_t end = scan.rest().find(')');
  if (end == std::string_view::npos) return std::nullopt;
  scan.literal(scan.rest().substr(0, end + 1));
  return static_cast<int>(*number);
}

// The end of an Xid 154's line is the driver's own text; what stands before it may hold the name of a process.
std::optional<RecoveryAction> parse_action(std::string_view text) {
  const std::size_t begin = text.rfind(kActionChanged);
  if (begin == std::string_view::npos) return std::nullopt;
  Scan scan(text.substr(begin + kActionChanged.size()));
  if (!take_action(scan) || !scan.literal(" to ")) return std::nullopt;
  const std::optional<int> action = take_action(scan);
  scan.literal(".");
  return action && scan.at_end() ? std::optional(static_cast<RecoveryAction>(*action)) : std::nullopt;
}

// The catalog promotes three errors of RLW_RXPIPE to a reset of the GPU by one bit of the first register: bit 7 from
// driver 575 on, bit 10 before. The bits below are the unit's number in each form.
bool is_promoted(std::uint64_t info, std::uint64_t status) {
  constexpr std::uint64_t kPromotable = 0x7;
  const bool bit = (info & 0x7f) == 0x06 ? (info & 0x80) != 0 : (info & 0x3ff) == 0xc2 && (info & 0x400) != 0;
  return bit && (status & kPromotable) != 0;
}

// The form changed with driver 575: "XC0 i0" was "XC 0 i 0", and the registers stood in brackets. Some drivers write
// "pid=7, name=python3, " before it; a name is too short to hold the whole form.
std::optional<NvlinkError> parse_nvlink(int xid, Scan scan) {
  constexpr std::string_view kComma = ", ";
  if (scan.literal("pid=")) {
    const std::size_t end = scan.rest().rfind(kComma);
    if (end == std::string_view::npos) return std::nullopt;
    scan = Scan(scan.rest().substr(end + kComma.size()));
  }
  NvlinkError error{.unit = std::string(scan.device())};
  scan.blanks();
  error.fatal = scan.literal("Fatal");
  if (error.unit.empty() || (!error.fatal && !scan.one_of({"Nonfatal", "Non-fatal"}))) return std::nullopt;
  for (const std::string_view word : {"XC", "i", "Link"}) {
    scan.blanks();
    if (!scan.literal(word)) return std::nullopt;
    scan.blanks();
    const bool is_none = scan.literal("-");
    const auto number = scan.number();
    if (!number || *number > 999) return std::nullopt;
    if (word == "i") error.injected = *number != 0;
    error.link = is_none ? -1 : static_cast<int>(*number);
  }
  scan.blanks();
  const bool has_registers = scan.one_of({"(0x", "[0x"});
  const std::uint64_t info = has_registers ? scan.hex().value_or(0) : 0;
  const std::uint64_t status = scan.literal(" 0x") ? scan.hex().value_or(0) : 0;
  if (xid == 149 && error.unit.starts_with("NETIR_LINK") && has_registers)
    error.subcode = static_cast<int>(info >> 20 & 0x3f);
  error.needs_reset = xid == 145 && error.unit == "RLW_RXPIPE" && is_promoted(info, status);
  return error;
}

struct SubcodeRow {
  int first, last;
  NvlinkAdvice advice;
};
constexpr NvlinkAdvice kReset = {kCritical, {}};
constexpr NvlinkAdvice kSignal = {
    kCritical,
    "Reset the GPU when no job runs. The signal of this link is bad: if it recurs, reseat or replace the cable, "
    "cartridge or tray of the link."};
constexpr NvlinkAdvice kPeer = {
    kWarning,
    "The other end of this link, a GPU or an NVSwitch, took it down: look there first (its Xids and SXids, the fabric "
    "manager's log); then reset this GPU when no job runs."};
constexpr NvlinkAdvice kSoftware = {
    kWarning,
    "Software took this link down, as at a reset or an end of the driver, or an administrator did. See what was done "
    "at that time; if a link stays down (nvidia-smi nvlink -s), reset the GPU when no job runs."};
constexpr NvlinkAdvice kPromoted = {
    kWarning,
    "NVIDIA's catalog asks for a reset of the GPU after this error: reset it when no job runs. If it recurs, contact "
    "NVIDIA's support.",
    "promoted"};
constexpr NvlinkAdvice kInjected = {
    kWarning, "A test injected this error, see who runs one. Reset the GPU when no job runs, if the test did not.",
    "injected"};
constexpr SubcodeRow kSubcodes[] = {
    {2, 4, kSignal},     {10, 10, kSignal},   {42, 43, kSignal},  // INVESTIGATE_LINK_SI, ..._AND_CABLES
    {21, 21, kPeer},     {32, 37, kPeer},                         // INVESTIGATE_PEER_DEVICE
    {16, 16, kReset},    {18, 18, kReset},                        // INVESTIGATE_SW_USER_LINK_SI
    {15, 17, kSoftware}, {22, 22, kSoftware},                     // INVESTIGATE_SW_USER: Xid 154 asks for the reset
    {38, 38, kSoftware}, {40, 40, kSoftware},                     // no reset; INVESTIGATE_SW/USER, ..._HOST
};

}  // namespace

NvlinkAdvice advice_for(const NvlinkError& error) {
  if (!error.fatal && !error.needs_reset) return {kNote, {}};
  if (error.injected) return kInjected;
  if (!error.fatal) return kPromoted;
  const auto row = std::ranges::find_if(
      kSubcodes, [&](const SubcodeRow& each) { return each.first <= error.subcode && error.subcode <= each.last; });
  return row == std::end(kSubcodes) ? kReset : row->advice;
}

const std::vector<XidRow>& xid_rows() {
  static const std::vector<XidRow> kRows = {
      {8, 8, "GPU stopped processing", kWarning, kJob},
      {11, 11, "invalid or corrupted push buffer stream", kWarning, kJob},
      {13, 13, "graphics engine exception", kWarning, kJob},
      {25, 25, "invalid or illegal push buffer stream", kWarning, kJob},
      {31, 31, "GPU memory page fault", kWarning, kJob},
      {32, 32, "invalid or corrupted push buffer stream", kWarning, kJob},
      {37, 38, "driver firmware error", kWarning, kJob},
      {39, 41, "copy engine exception", kWarning, kJob},
      {43, 43, "GPU stopped processing", kWarning, kJob},
      {44, 44, "graphics engine fault during a context switch", kWarning, kJob},
      {45, 45, "preemptive cleanup, because of earlier errors", kWarning, kJob},
      {46, 46, "GPU stopped processing, a reset is needed", kWarning, kMachine},
      {48, 48, "double-bit ECC error", kCritical, kMachine},
      {54, 54, "auxiliary power is not connected", kCritical, kMachine, kOutlivesReset},
      {57, 58, "unstable video memory", kWarning, kMachine},
      {60, 60, "video processor exception", kWarning, kJob},
      {61, 61, "internal micro-controller breakpoint", kWarning, kMachine},
      {62, 62, "internal micro-controller halt", kCritical, kMachine},
      {63, 63, "a row remapping or page retirement was recorded", kNote, kMachine},  // gpu.remap says what is pending
      {64, 64, "a row remapping or page retirement could not be recorded", kCritical, kMachine, kOutlivesReset},
      {66, 67, "illegal access by the driver", kWarning, kJob},
      {68, 68, "video decoder exception", kWarning, kJob},
      {69, 69, "graphics engine class error", kWarning, kJob},
      {70, 72, "copy engine error", kWarning, kJob},
      {74, 74, "NVLink error", kWarning, kMachine},
      {75, 77, "copy engine error", kWarning, kJob},
      {78, 78, "virtual GPU start error", kWarning, kMachine},
      {79, 79, "GPU has fallen off the bus", kCritical, kMachine, kOutlivesReset},
      {80, 80, "corrupted data sent to the GPU", kWarning, kJob},
      {82, 84, "video decoder or JPEG error", kWarning, kJob},
      {85, 85, "copy engine error", kWarning, kJob},
      {86, 86, "optical flow accelerator exception", kWarning, kJob},
      {88, 89, "video decoder error", kWarning, kJob},
      {92, 92, "high rate of single-bit ECC errors", kWarning, kMachine},
      {93, 93, "the InfoROM was written too often", kNote, kMachine},
      {94, 94, "contained memory error", kWarning, kMachine},  // gpu.ecc and gpu.remap judge what it left behind
      {95, 95, "uncontained memory error", kCritical, kMachine},
      {96, 105, "video decoder or JPEG error", kWarning, kJob},
      {106, 107, "test message", kNote, kMachine},
      {109, 109, "context switch timeout", kWarning, kJob},
      {110, 110, "security fault", kWarning, kMachine},
      {119, 119, "the GPU's system processor did not answer", kCritical, kMachine},
      {120, 120, "error of the GPU's system processor", kCritical, kMachine},
      {121, 121, "corrected chip-to-chip link error", kNote, kMachine},
      {122, 124, "SPI flash access failed", kWarning, kMachine},
      {125, 125, "InfoROM file system error", kWarning, kMachine},
      {126, 135, "copy engine error", kWarning, kJob},
      {136, 136, "NVLink training failed", kWarning, kMachine},
      {137, 137, "NVLink privilege error", kWarning, kJob},
      {139, 139, "optical flow accelerator error", kWarning, kJob},
      {140, 140, "unrecovered ECC error", kCritical, kMachine},
      {141, 141, "CUDA fast path error", kWarning, kJob},
      {142, 142, "video encoder error", kWarning, kJob},
      {143, 143, "GPU initialisation failed", kCritical, kMachine},
      {144, 150, "NVLink error", kWarning, kMachine},  // where the line does not say whether it is fatal
      {151, 151, "key rotation error", kWarning, kMachine},
      {154, 154, "the driver asks for a recovery action", kCritical, kMachine},  // only if its text names one
      {155, 155, "NVLink software error", kWarning, kMachine},
      {156, 156, "resource retirement", kWarning, kMachine},
      {157, 157, "resource retirement failed", kWarning, kMachine},
      {158, 158, "fatal timeout of the GPU", kCritical, kMachine},
      {159, 159, "coherent interface error", kWarning, kMachine},
      {160, 161, "memory channel retirement", kWarning, kMachine},
      {162, 163, "power smoothing switched", kNote, kMachine},
      {164, 165, "power smoothing is worn out", kWarning, kMachine},
      {166, 166, "NVLink encryption error", kWarning, kMachine},
      {167, 167, "fatal PCIe timeout", kWarning, kMachine},
      {168, 168, "reduced memory capacity", kWarning, kMachine},
      {169, 169, "halt of the security processor", kWarning, kMachine},
      {170, 170, "NVLink interrupt in confidential mode", kWarning, kMachine},
      {171, 171, "uncorrectable DRAM error", kWarning, kMachine},  // comes with Xid 48, which is critical
      {172, 172, "uncorrectable SRAM error", kWarning, kMachine},
  };
  return kRows;
}

const XidRow* find_xid(int number) {
  const std::vector<XidRow>& rows = xid_rows();
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const XidRow& row) { return row.first <= number && number <= row.last; });
  return found == rows.end() ? nullptr : &*found;
}

bool is_nvlink_xid(int number) { return number >= 144 && number <= 150; }

RecoveryAdvice advice_for(RecoveryAction action) {
  switch (action) {
    case RecoveryAction::none: return {Severity::note, "nothing"};
    case RecoveryAction::gpu_reset: return {Severity::critical, "a reset of the GPU"};
    case RecoveryAction::node_reboot: return {Severity::critical, "a reboot of the node"};
    case RecoveryAction::drain_p2p: return {Severity::warning, "an end of peer-to-peer traffic with it"};
    case RecoveryAction::drain_and_reset:
      return {Severity::critical, "an end of peer-to-peer traffic with it, then a reset"};
  }
  return {Severity::warning, "an action that is not known to us"};
}

bool is_mended_by_reset(RecoveryAction action) {
  return action == RecoveryAction::gpu_reset || action == RecoveryAction::drain_and_reset;
}

std::optional<XidLine> parse_xid(std::string_view line) {
  Scan scan(line);
  if (!scan.literal("NVRM: Xid (PCI:")) return std::nullopt;
  const std::optional<std::uint64_t> domain = scan.hex();
  if (!domain || *domain > 0xffffffff || !scan.literal(":")) return std::nullopt;
  const std::optional<std::uint64_t> bus = scan.hex();
  if (!bus || *bus > 0xff || !scan.literal(":")) return std::nullopt;
  const std::optional<std::uint64_t> device = scan.hex();
  if (!device || *device > 0x1f) return std::nullopt;
  if (scan.literal(" GPU-I:") && !scan.number()) return std::nullopt;  // the MIG instance
  if (!scan.literal("): ")) return std::nullopt;
  const std::optional<std::uint64_t> number = scan.number();
  if (!number || *number > 9999 || !(scan.literal(", ") || scan.at_end())) return std::nullopt;
  XidLine xid{.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", *domain, *bus, *device),
              .number = static_cast<int>(*number),
              .action = {}};
  if (xid.number == 154) xid.action = parse_action(scan.rest());
  if (is_nvlink_xid(xid.number)) xid.nvlink = parse_nvlink(xid.number, scan);
  return xid;
}

}  // namespace ms::health
