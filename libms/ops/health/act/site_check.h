// Gathers what slurm/site.h judges: asks Slurm for its configuration, reads plugstack.conf and the plugin's file.
#pragma once

#include <string>

#include "health/policy.h"
#include "slurm/commands.h"
#include "slurm/site.h"

namespace ms::health {

// Throws Error("slurm.command", slurm) where Slurm does not answer. Files that cannot be read count as absent.
slurm::SiteFacts site_facts(const Policy& policy, const slurm::Commands& commands);

// The SLURM_VERSION_NUMBER that an ms_spank.so was built with, from the mark in the file; 0: it holds none.
unsigned plugin_version_of(const std::string& path);

}  // namespace ms::health
