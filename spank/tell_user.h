// SPDX-License-Identifier: GPL-2.0-or-later
// A job that Slurm has restarted, or that runs on in spite of a finding, learns why: root's ms-diag leaves a note on
// the node, and the first task there says it on the job's standard error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ms::spank {

// Whose turn is it? Of a job with a script the batch step tells what lies on its node, on all other nodes step 0 does.
struct Teller {
  bool is_batch_step = false;
  bool is_first_step = false;  // step 0
  bool has_script = false;     // the job has a batch step
  bool on_batch_host = false;  // of the job's nodes this is the first
  int local_task = 0;
};
bool is_told_here(const Teller& teller);

// "node[02-04,7]" -> "node02"
std::string first_host(std::string_view nodes);

// The lines of the note about this job in the directory, fit for a terminal; none if there is no note, or if it is no
// regular file of root's own, or too long.
std::vector<std::string> read_note(const std::string& directory, std::uint32_t job_id);

}  // namespace ms::spank
