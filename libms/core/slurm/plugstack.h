// plugstack.conf, read as Slurm reads it: what loads which SPANK plugin, and our own plugin's line in it. Pure
// functions over text: health/act/site_check.h reads the files and follows the includes, site.h judges.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/records.h"

namespace ms::slurm {

struct PlugstackLine {
  std::string include;  // a pattern of file names, or empty: the line is a plugin's
  bool required = false;
  std::string path;
  std::vector<std::string> arguments;
};

// Lines that Slurm would ignore, with its complaint, are left out.
std::vector<PlugstackLine> parse_plugstack(std::string_view text);

// Where Slurm reads it: as PlugStackConfig says, else beside slurm.conf.
std::string plugstack_path(const Config& config);

// The files that a plugin's path may mean: itself, or in each directory of PluginDir if it does not begin with '/'.
std::vector<std::string> plugin_files(const std::string& path, const Config& config);

// The time after which the caller of ms-diag in a prolog ends it, unless the plugin's line sets one (spank/settings.h).
inline constexpr double kPluginDeadline_s = 9;

// The settings in the line of ms_spank.so.
struct PluginLine {
  bool required = false;
  std::string path;
  std::string program;                    // ms-diag; empty: beside the plugin
  std::string policy = {};                // empty: at its usual place
  double deadline_s = kPluginDeadline_s;  // 0: what is written there is no such time, and the plugin does nothing
};

std::optional<PluginLine> our_plugin(const std::vector<PlugstackLine>& stack);  // the first such line

}  // namespace ms::slurm
