// Is this site's Slurm set up so that pre-flight may act? Pure rules over "scontrol show config": with a prolog that
// drains and fails on a site that holds requeued jobs, or that runs prologs lazily, jobs would be hurt.
#pragma once

#include <string>
#include <vector>

#include "base/finding.h"
#include "slurm/records.h"

namespace ms::slurm {

struct SiteFacts {
  Config config = {};
  double prolog_deadline_s = 0;  // ours, from the policy
  // The plugin's SLURM_VERSION_NUMBER (0xMMmmpp) as its file says; 0: no plugin is configured, Prolog= is used.
  unsigned plugin_version = 0;
  std::string plugin_path = {};
  std::string plugstack = {};   // the text of plugstack.conf, includes followed
  std::string ms_version = {};  // of this program
};

// Empty: ready. critical: `act` is refused. warning: works, but costs something; every finding says what to write
// where.
std::vector<Finding> site_problems(const SiteFacts& facts);

// "22.05.8" -> 0x160508; 0 where it is no version.
unsigned version_number(std::string_view text);

}  // namespace ms::slurm
