// Our requests to Slurm, through its own commands scontrol and, for jobs, squeue (records.h says why) and scancel,
// which lie beside it: by absolute path, without a shell, in a clean environment, with a deadline on every call.
// Nothing outside spank/ links libslurm. Every method throws Error("slurm.command", slurm) with the command's own words
// if it cannot be run or fails, and Error(kNoAnswer, slurm) if Slurm does not answer, in time or at all: the same
// request may work later, and may have been obeyed. If the caller ignores SIGTERM, the commands do too: a job that
// requeues itself gets one. For one thread at a time. Virtual for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slurm/records.h"

namespace ms::slurm {

// A node kills a job for good ("Job credential revoked", FAILED) when it starts there in the second in which its
// earlier run ended, or in an earlier one by clocks that differ. Slurm's own delay, cred_expire + 1 s, is there for
// that.
inline constexpr int kRestartDelay_s = 3;

inline constexpr const char* kNoAnswer = "slurm.no_answer";

struct CommandOptions {
  std::string scontrol = "/usr/bin/scontrol";
  std::string conf;         // SLURM_CONF for it; empty: Slurm's own default
  double deadline_s = 2.0;  // of one command
  // Returns the seconds that all commands together still have: no command gets more, and none starts at 0.
  std::function<double()> left_s = {};
};

class Commands {
 public:
  explicit Commands(CommandOptions options) : options_(std::move(options)) {}
  virtual ~Commands() = default;

  virtual double left_s() const;  // infinity without a bound
  virtual Config config() const;
  virtual Node node(const std::string& name) const;
  virtual std::vector<Node> nodes() const;
  // The jobs that squeue names there. The state of a node with nothing but suspended jobs is idle.
  virtual std::vector<std::uint32_t> jobs_on(const std::string& node) const;
  virtual Job job(std::uint32_t id) const;  // two calls; also Error where there is no such job

  // The comment that its user wrote, which may be anything.
  std::string comment_of(std::uint32_t job) const;

  // The files of the batch script's output; none: it has no script.
  std::vector<std::string> outputs_of(std::uint32_t job) const;

  virtual Partition partition(const std::string& name) const;
  // Those of the partition that are on nodes or that wait; without what only job() asks for (batch, requeue, restarts).
  virtual std::vector<Job> jobs_of(const std::string& partition) const;
  // How long the jobs of the partition that have begun had waited for their last start.
  virtual std::vector<Wait> waits_of(const std::string& partition) const;
  // The demands of those that are pending.
  virtual std::vector<Request> requests_of(const std::string& partition) const;

  // Needs root, SlurmUser or an operator; an empty list leaves the partition without nodes. Running jobs stay.
  virtual void set_partition_nodes(const std::string& partition, const std::string& hostlist) const;
  // To the job's batch script alone, as sbatch --signal=B: does. Needs the job's owner, or an operator, as requeue().
  virtual void signal_batch(std::uint32_t job, const std::string& signal) const;
  virtual void requeue(std::uint32_t job) const;

  // Needs root or SlurmUser. Replaces a reason that is there: look first.
  virtual void drain(const std::string& node, const std::string& reason) const;
  // Removes the drain and its reason and nothing else: State=RESUME would also cancel a requested reboot.
  virtual void resume(const std::string& node) const;
  // Puts a node that is DOWN or drained into service: State=RESUME. Look first: it removes whatever reason there is.
  virtual void set_up(const std::string& node) const;
  // Reboots the node as soon as it has no job, and leaves it DOWN then (not in service, not drained) with the reason.
  virtual void reboot(const std::string& node, const std::string& reason) const;
  // Needs root, SlurmUser or an operator. Until slurmctld starts again or reads its configuration again.
  virtual void set_weight(const std::string& node, std::uint32_t weight) const;
  virtual void set_admin_comment(std::uint32_t job, const std::string& text) const;
  // Needs root or SlurmUser. The srun or salloc that waits for the job prints the text to its user; a batch job that
  // runs prints it to its standard error, and nobody learns it of one that does not run yet.
  virtual void notify(std::uint32_t job, const std::string& text) const;

  // These need the job's owner, or root. The comment is what squeue's "%k" shows. requeue_hold works on running jobs;
  // set_excluded_nodes only on jobs that no longer run. In a job array they mean this one task (job() is called for it
  // first unless it was before).
  virtual void set_comment(std::uint32_t job, const std::string& text) const;
  virtual void requeue_hold(std::uint32_t job) const;
  // Whether Slurm (25.11) itself starts the job again, or holds it, when its script fails: sbatch --requeue=expedite.
  // A user who writes that into the job's name means it.
  virtual bool is_expedited(std::uint32_t job) const;
  // From now on neither a node that fails, nor the end of the script, nor a command starts the job again.
  virtual void forbid_requeue(std::uint32_t job) const;
  virtual void set_excluded_nodes(std::uint32_t job, const std::string& hostlist) const;
  virtual void release(std::uint32_t job) const;
  // Takes all other nodes out of a running job; that of its batch script cannot go. scontrol leaves
  // slurm_job_ID_resize.sh and .csh in the current directory.
  void set_job_nodes(std::uint32_t job, const std::string& hostlist) const;
  // Cuts the requeue delay short, to kRestartDelay_s; the job must be pending.
  virtual void start_now(std::uint32_t job) const;

 private:
  std::string run(const std::string& program, std::vector<std::string> arguments) const;  // standard output
  std::string scontrol(std::vector<std::string> arguments) const;
  std::string squeue(std::vector<std::string> arguments) const;
  std::string partition_rows(const std::string& partition, std::string_view state, std::string format) const;
  std::string sibling(const std::string& program) const;
  std::string reference(std::uint32_t job) const;

  CommandOptions options_;
  mutable std::map<std::uint32_t, std::string> references_;  // of jobs asked about: a job's never changes
};

}  // namespace ms::slurm
