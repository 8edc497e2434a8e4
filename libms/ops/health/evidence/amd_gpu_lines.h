// Lines of the kernel's log in which the driver amdgpu reports a GPU as faulty.
#pragma once

#include "health/evidence/scan.h"

namespace ms::health {

bool read_amd_gpu(Scan line, LogTally& tally);  // false: the line is not one

}  // namespace ms::health
