// The kernel's log, /dev/kmsg: what the kernel itself said since boot. Lines that programs wrote into it (facility not
// "kern") are left out: they prove nothing. With a fake root, dev/kmsg is a plain file of the same records.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/sysroot.h"

namespace ms::health {

struct KernelLine {
  double since_boot_s = 0;
  int level = 0;  // 0 emergency .. 7 debug
  std::string text;
};

struct KernelLog {
  std::string error;  // why it could not be read; empty: it was
  std::vector<KernelLine> lines;
};

// Records as /dev/kmsg gives them: "6,339,5140900,-;NVRM: ...", continuation lines begin with a blank. Pure.
std::vector<KernelLine> parse_kernel_log(std::string_view records);

// Lines from `not_before_s` (since boot) on. Never waits.
KernelLog read_kernel_log(const Sysroot& root, double not_before_s);

}  // namespace ms::health
