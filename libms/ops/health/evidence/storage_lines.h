// Lines of the kernel's log in which ZFS, or a RAID or SAS controller, reports a failure without naming a block device.
#pragma once

#include "health/evidence/scan.h"

namespace ms::health {

bool read_storage(Scan line, LogTally& tally);  // false: the line is not one

// The same of lines in which the driver amdgpu reports a GPU as faulty.
bool read_amd_gpu(Scan line, LogTally& tally);

}  // namespace ms::health
