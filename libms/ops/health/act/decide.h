// Decides how the prolog and the epilog act on findings. Pure: findings, policy, job and Slurm's records go in, a
// decision with its reason comes out. act.h carries it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.h"
#include "health/policy.h"
#include "slurm/job_env.h"
#include "slurm/records.h"

namespace ms::health {

inline constexpr std::string_view kReasonPrefix = "ms-diag:";  // drains whose reason begins so are ours
inline constexpr std::size_t kMaxReason = 200;
inline constexpr std::string_view kCommentPrefix = "ms-diag: ";  // our pieces of a job's AdminComment
inline constexpr std::size_t kMaxComment = 1024;

// The findings that may drain: critical, of a check of the node or its GPUs, on the allow-list, nothing that a user can
// cause, and, where the job has only some of the node's GPUs, not of another's GPU. In the order of the allow-list.
// `job` nullptr: the whole node. `jobs_run`: at work there; they may be what is waited for, and nothing that took too
// long counts.
std::vector<Finding> draining(const std::vector<Finding>& findings, const Policy& policy, const slurm::JobEnv* job,
                              bool jobs_run = false);
bool has_jobs(const slurm::Node& node);

// "ms-diag:gpu.ecc gpu 3: 4 uncorrectable errors; also gpu.lost gpu 5": at most kMaxReason characters, printable ASCII
// without quotes, brackets, backslashes, '=' or '|'. Of no findings: a bug of the caller.
std::string drain_reason(const std::vector<Finding>& findings);

bool is_ours(const slurm::Node& node);  // drained or draining with our reason

// Returns the users whose words on a node are ours or Slurm's own: root, SlurmUser and SlurmdUser.
std::vector<std::string> drain_users(const slurm::Config& config);
// Whether no person's words are in the reason: it is in the form of drain_reason() and was set by one of `users`, or is
// 'ms-diag:CODE' alone, by which people ask for a repair. `reason`: the node's, without what Slurm appends.
bool is_free_of_people(std::string_view reason, const slurm::Node& node, const std::vector<std::string>& users);

// Decides from Slurm's record of a node whether it may be drained now. A reason that somebody wrote is never replaced,
// not even if the node is not drained; but a newer Slurm leaves reasons behind when a node is back in service, and
// those mean nothing any more.
enum class DrainStep { drain, stands_already, somebody_elses };
DrainStep drain_step(const slurm::Node& node);

// After the node is drained: whether the job is to be failed so that Slurm requeues it elsewhere. A batch job that was
// started again `max_requeues` times (Slurm's MaxBatchRequeue) would be held: it runs here, unless it insists.
struct JobStep {
  bool fail = false;
  bool ends = false;  // failed, and Slurm does not start it again
  std::string why;
};
JobStep job_step(const slurm::Job& job, slurm::Preflight preflight, int max_requeues);

// MaxBatchRequeue of Slurm's configuration, or Slurm's default.
int max_batch_requeues(const slurm::Config& config);

// How many nodes are drained by us.
std::int64_t count_ours(const std::vector<slurm::Node>& nodes);

// Returns the job's AdminComment on a drain: "ms-diag: node02 was drained before start 1: gpu.ecc gpu 3: ...".
// `restarts`: how often the job was started again before; `reason`: the drain's.
std::string drain_note(const std::string& node, bool before_start, int restarts, std::string_view reason);
// Returns what the user of a job that JobStep::ends reads beside that; `why`: the step's.
std::string end_note(std::string_view why);
// The comment with the note appended; nullopt where it is there already, or would be longer than kMaxComment.
std::optional<std::string> appended_comment(const std::string& comment, const std::string& note);
// Returns our notes in a comment, a line each, as a restarted job shows them.
std::vector<std::string> notes_in(std::string_view comment);

}  // namespace ms::health
