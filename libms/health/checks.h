// The functions of the passive checks (level 1), which the rows of the registry name, and the parts of the registry. A
// function looks at evidence and returns what it found; it changes nothing and asks nobody else.
#pragma once

#include <vector>

#include "health/check.h"

namespace ms::health {

// checks_gpu.cpp
Result check_gpu_driver(Evidence& evidence);
Result check_gpu_count(Evidence& evidence);
Result check_gpu_lost(Evidence& evidence);
Result check_gpu_ecc(Evidence& evidence);
Result check_gpu_remap(Evidence& evidence);
Result check_gpu_recovery(Evidence& evidence);
Result check_gpu_xid(Evidence& evidence);
Result check_gpu_pcie(Evidence& evidence);
Result check_gpu_nvlink(Evidence& evidence);
Result check_gpu_thermal(Evidence& evidence);
Result check_gpu_busy(Evidence& evidence);

// checks_log.cpp and, from check_host_memory on, checks_host.cpp
Result check_host_mce(Evidence& evidence);
Result check_host_hung(Evidence& evidence);
Result check_host_memory(Evidence& evidence);
Result check_host_cpus(Evidence& evidence);
Result check_host_clock(Evidence& evidence);
Result check_host_space(Evidence& evidence);

// checks_mounts.cpp and, for the log, checks_disk.cpp
Result check_disk_mounts(Evidence& evidence);
Result check_disk_errors(Evidence& evidence);
Result check_disk_readonly(Evidence& evidence);

// checks_net.cpp and, for PCI Express, checks_pci.cpp
Result check_net_link(Evidence& evidence);
Result check_net_flaps(Evidence& evidence);
Result check_net_errors(Evidence& evidence);
Result check_net_pcie(Evidence& evidence);

// checks_slurm.cpp
Result check_slurm_gres(Evidence& evidence);

// The rows, each list beside its functions: registry_gpu.cpp, registry_host.cpp, registry_active.cpp.
const std::vector<Check>& gpu_checks();
const std::vector<Check>& host_checks();
const std::vector<Check>& active_check_rows();  // level 2: run == nullptr, the functions are in the room diag

}  // namespace ms::health
