// Is this site's Slurm set up so that pre-flight may act? Pure rules over "scontrol show config": with a prolog that
// drains and fails on a site that holds requeued jobs, or that runs prologs lazily, jobs would be hurt.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.h"
#include "slurm/plugstack.h"
#include "slurm/records.h"

namespace ms::slurm {

struct SiteFacts {
  Config config = {};
  double checks_s = 0;          // how long the checks of a prolog may take, by the policy
  double longest_prolog_s = 0;  // and all of the prolog in the worst case
  std::optional<PluginLine> plugin = {};
  unsigned plugin_version = 0;      // its SLURM_VERSION_NUMBER (0xMMmmpp) as its file says; 0: it cannot be told
  bool has_program = true;          // what the plugin's program= names is there
  std::string policy = {};          // the file that a prolog reads
  std::string policy_problem = {};  // why a prolog does not take it; empty: it does
  bool has_policy = false;          // the file is there
  bool is_slurmd_older = false;     // this node's slurmd began before plugstack.conf was changed, which it reads once
  std::string ms_version = {};      // of this program
  bool has_health_program = true;   // what HealthCheckProgram names can be run
  std::string own_plugin = {};  // the ms_spank.so that is installed beside this program; empty: none, or not looked for
  std::string node = {};        // this one's name in Slurm
  std::vector<std::string> gpu_files = {};  // its /dev/nvidia0, ...; empty: none, or not looked for
  bool gres_conf_has_gpus = false;          // for this node, or by AutoDetect
};

// Empty: ready. critical: `act` is refused. warning: works, but costs something; every finding says what to write
// where.
std::vector<Finding> site_problems(const SiteFacts& facts);
// The same as lines for slurm.conf, plugstack.conf and gres.conf, each under its file's name; what no line mends is a
// comment.
std::string site_fix_text(const SiteFacts& facts);

// "22.05.8" -> 0x160508; 0 where it is no version.
unsigned version_number(std::string_view text);

}  // namespace ms::slurm
