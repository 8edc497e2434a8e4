// Xids: what the NVIDIA driver writes into the kernel's log when something is wrong with a GPU. The table says what a
// number means and whether it speaks against the GPU; parsing is strict, because lines hold the names of processes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.h"
#include "health/evidence/gpus.h"

namespace ms::health {

struct XidRow {
  int first, last;  // numbers
  std::string_view meaning;
  Severity severity;            // note: never a finding
  bool user_can_cause;          // by its own program: never counted
  bool outlives_reset = false;  // a reset of the GPU does not mend it
};

const std::vector<XidRow>& xid_rows();
const XidRow* find_xid(int number);  // nullptr: not in the table

bool is_nvlink_xid(int number);  // 144 to 150: the line holds the severity

// The NVLink error in the line of an Xid 144 to 150: "NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x026001c6 0x0 ...)".
struct NvlinkError {
  bool fatal = false;
  bool needs_reset = false;  // though nonfatal
  bool injected = false;     // by a test
  std::string unit;          // "NETIR_LINK_EVT"
  int link = -1;             // -1: of none in particular
  int subcode = -1;          // of Xid 149: why the link went down; -1: none
};

// By NVIDIA's catalog, which knows subcodes of Xid 149. remedy: empty for that of any Xid.
struct NvlinkAdvice {
  Severity severity;
  std::string_view remedy;
  std::string_view what = "fatal";
};
NvlinkAdvice advice_for(const NvlinkError& error);

struct XidLine {
  std::string pci;  // "0000:9b:00.0", lower case
  int number = 0;
  std::optional<RecoveryAction> action;    // Xid 154: what the driver asks for now
  std::optional<NvlinkError> nvlink = {};  // Xid 144 to 150, where the line is of the known form
};

// The meaning of a recovery action other than none, requested by Xid 154 or through NVML: "a reset of the GPU".
struct RecoveryAdvice {
  Severity severity;
  std::string_view words;
};
RecoveryAdvice advice_for(RecoveryAction action);

bool is_mended_by_reset(RecoveryAction action);

// "NVRM: Xid (PCI:0000:9b:00): 79, pid=..., GPU has fallen off the bus."; nullopt: the line is none.
std::optional<XidLine> parse_xid(std::string_view line);

}  // namespace ms::health
