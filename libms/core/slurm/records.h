// Parses the output of Slurm's commands: nodes, jobs and the configuration. Pure functions over text, so that tests
// need no Slurm; commands.h asks for the text. Fields that a version of Slurm does not print keep their defaults.
//
// Only administrators write nodes and the configuration, so scontrol's text of them is good enough. The text of
// "scontrol show job" is not: names, accounts, comments and paths appear unquoted among the fields. A job
// called "x Requeue=0" cannot be told from a field, before or behind the real one. Jobs are therefore queried with
// squeue, which prints only the fields that we request: none that a user can write, each closed by a control character.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::slurm {

// Keys of "scontrol show config" as it writes them ("PrologFlags"), values trimmed; "(null)" is an empty value.
using Config = std::map<std::string, std::string, std::less<>>;
// The number that a value such as "300 sec" begins with; `otherwise`: there is none.
int number_of(const Config& config, std::string_view key, int otherwise);

struct Node {
  std::string name;
  std::string host;                 // NodeHostName: what its machine calls itself, short or with its domain
  std::string address;              // NodeAddr: a number or a name
  int port = 0;                     // of its slurmd; 0: SlurmdPort
  std::uint32_t weight = 1;         // jobs get the nodes with the lowest first
  std::vector<std::string> states;  // "IDLE+DRAIN" -> {"IDLE", "DRAIN"}; suffixes such as '*' are removed
  std::vector<std::string> partitions;
  int slurm_year = 0;        // 24: its slurmd is a 24.05 or a 24.11; 0: it never answered
  std::string reason;        // without the "[root@2026-11-21T11:45:00]" that scontrol appends
  std::string reason_user;   // "root"
  double reason_wall_s = 0;  // when the reason was set, by this machine's time zone; 0: not known

  // Weights from here on are those that ms-diag avoid raised.
  static constexpr std::uint32_t kKeptForLast = 1'000'000;
  bool is_kept_for_last() const { return weight >= kKeptForLast; }
  bool has_state(std::string_view state) const;
  bool is_drained_or_draining() const { return has_state("DRAIN") || has_state("DRAINED") || has_state("DRAINING"); }
};

// State of a job of sbatch --requeue=expedite (25.11) that Slurm itself starts again, at once: it takes no change of
// it.
inline constexpr std::string_view kExpediting = "EXPEDITING";

struct Job {
  std::uint32_t id = 0;
  std::string state;  // "RUNNING"
  std::uint32_t user_id = 0;
  bool batch = false;
  bool requeue = false;
  int restarts = 0;
  std::string nodes;           // hostlist it runs on, may be empty
  std::string excluded_nodes;  // ExcNodeList, may be empty
  std::string reason;          // why it is pending
  std::string admin_comment;
  std::uint64_t priority = 1;    // 0: held
  std::uint32_t het_leader = 0;  // the job that has the script, where this is a component of a heterogeneous one, or 0
  std::uint32_t array_id = 0;    // of the array that it is a task of, or 0
  std::uint32_t array_task = 0;

  // How commands must call it: "12", or "12_3" because the last task of array 12 has the number 12 too, and "12" means
  // all of them.
  std::string reference() const;
  bool runs() const;     // has nodes and processes: running, suspended, starting
  bool pending() const;  // waits, with nothing of it left on a node
  bool held() const;     // waits until somebody releases it
};

struct Wait {
  std::uint32_t id = 0;  // of the job
  int restarts = 0;
  double seconds = 0;
  double left_s = std::numeric_limits<double>::infinity();  // of its time limit, where it has one
};

// A pending job's demand.
struct Request {
  std::uint32_t id = 0;
  int nodes = 1;  // at least
  double limit_s = std::numeric_limits<double>::infinity();
  bool any_nodes = true;  // false: it names nodes or features, or is a component of a heterogeneous job
};

struct Partition {
  std::string name;
  std::string nodes;  // hostlist, may be empty
};

Config parse_config(std::string_view text);            // scontrol show config
std::vector<Node> parse_nodes(std::string_view text);  // scontrol --oneliner show node

// StdOut and StdErr of "scontrol show job", if they have names: paths without patterns, each once.
std::vector<std::string> parse_outputs(std::string_view text);

// The partition of this name in "scontrol --oneliner show partition"; nullopt: it is not there.
std::optional<Partition> parse_partition(std::string_view text, std::string_view name);

// Seconds of "1-02:03:04", "2:03:04" or "3:04", as Slurm writes times; nullopt: it is none ("UNLIMITED", "NOT_SET").
std::optional<double> parse_time_s(std::string_view text);

// The formats for "squeue --format" and "squeue --Format": Slurm 22.05 has some of the fields in each only. Jobs come
// with all tasks of their array, one row each.
std::string job_format();
std::string job_long_format();
std::string wait_format();  // for "squeue --Format", read by parse_waits(); nullopt: as parse_jobs()
std::optional<std::vector<Wait>> parse_waits(std::string_view answer);
std::string request_format();  // the same
std::optional<std::vector<Request>> parse_requests(std::string_view answer);
// The job `id` in the answers to both; nullopt: not in both of them, or it is not in the format asked for.
// All jobs in an answer in the format of job_format(); what only the other one has keeps its default. nullopt: a row is
// cut off, or is none.
std::optional<std::vector<Job>> parse_jobs(std::string_view answer);
std::optional<Job> parse_job(std::string_view answer, std::string_view long_answer, std::uint32_t id);

}  // namespace ms::slurm
