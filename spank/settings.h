// SPDX-License-Identifier: GPL-2.0-or-later
// The arguments of the plugin's line in plugstack.conf. A line with a mistake in it gives no settings, and a plugin
// without settings does nothing.
#pragma once

#include <string>

namespace ms::spank {

// Longer than ms-diag takes with the policy's defaults (health/act/prolog_time.h), shorter than Slurm's own time-outs,
// of which the shortest, BatchStartTimeout, comes as 10 s.
inline constexpr int kDeadlineS = 9;
inline constexpr int kLongestDeadlineS = 600;
inline constexpr char kPolicy[] = "/etc/ms/ms-diag.toml";
inline constexpr char kNotes[] = "/run/ms-diag";

struct Settings {
  std::string config;   // the policy of ms-diag; must be given
  std::string program;  // ms-diag; empty: beside the plugin
  std::string notes = kNotes;
  int deadline_s = kDeadlineS;
  std::string problem;  // not empty: what is wrong with the line, and nothing else here counts
};

// count texts "key=value", as Slurm hands them to every callback.
Settings read_settings(int count, char** arguments);

}  // namespace ms::spank
