// The words of ms-driver to ms-loan about an elastic run, in the comment of its job: neither tool has to know where the
// other runs. The way back is SIGUSR1, at which the driver looks at the job's partition: nodes of the job that have
// left it are asked back, and idle ones in it are there to be taken. No text goes that way, because Slurm without
// slurmdbd updates nothing of a job that has shrunk (22.05: "waited 5 seconds for JobId=1 to get a db_index").
#pragma once

#include <string_view>

namespace ms::slurm {

// The comment begins so, before the number of nodes that the run needs at least.
inline constexpr std::string_view kElasticComment = "ms-driver: elastic from ";
// Where the job may be queued again to grow it goes on so: kStartComment, the job's restarts, kSizesComment, the
// numbers of nodes that the run could use, in order and with commas between. A comment of an earlier start says
// nothing: the driver of this one may not listen yet. kElasticEnd ends it in any case.
inline constexpr std::string_view kStartComment = ", start ";
inline constexpr std::string_view kSizesComment = " takes ";
// Where the run's speed is known, by simulation on the machines of run.cluster, it goes on so: kSpeedsComment and
// NODES:SPEED with commas between, nodes of the job in order, speed in tokens/s. At most kMostSpeeds of them: a comment
// may have 1,024 characters.
inline constexpr std::string_view kSpeedsComment = ", speeds ";
inline constexpr std::size_t kMostSpeeds = 24;
inline constexpr std::string_view kElasticEnd = "; ";

}  // namespace ms::slurm
