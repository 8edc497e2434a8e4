// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm tells an epilog that a job ended with 0 also where it was cancelled or requeued, as jobs are that hang. So the
// plugin remembers on the node that tasks of the job were ended by a signal, and its epilog has ms-diag look at the
// node.
#pragma once

#include <cstdint>
#include <string>

namespace ms::spank {

// Leaves an empty file "killed-<id>" in the directory, which is made if it is not there, and used only if it is root's
// and nobody else may write into it. What cannot be written is left out: the mark is a hint.
void mark_killed(const std::string& directory, std::uint32_t job_id);
// Removes the file. Returns whether it was there.
bool take_mark(const std::string& directory, std::uint32_t job_id);

}  // namespace ms::spank
