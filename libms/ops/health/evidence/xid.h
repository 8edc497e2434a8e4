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
  Severity severity;    // note: never a finding
  bool user_can_cause;  // by its own program: never counted
};

const std::vector<XidRow>& xid_rows();
const XidRow* find_xid(int number);  // nullptr: not in the table

struct XidLine {
  std::string pci;  // "0000:9b:00.0", lower case
  int number = 0;
  std::optional<RecoveryAction> action;  // Xid 154: what the driver asks for now
};

// The meaning of a recovery action other than none, requested by Xid 154 or through NVML: "a reset of the GPU".
struct RecoveryAdvice {
  Severity severity;
  std::string_view words;
};
RecoveryAdvice advice_for(RecoveryAction action);

// "NVRM: Xid (PCI:0000:9b:00): 79, pid=..., GPU has fallen off the bus."; nullopt: the line is none.
std::optional<XidLine> parse_xid(std::string_view line);

}  // namespace ms::health
