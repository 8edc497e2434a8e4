// The calls themselves: which arguments, in which environment, and what a failure says.
#include "slurm/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/number.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::slurm {
namespace {

// After the deadline nothing that scontrol could still say is of use: it is killed almost at once.
constexpr double kKillGrace_s = 0.1;
constexpr std::size_t kMaxOutputBytes = std::size_t{64} << 20;  // about 60000 nodes
constexpr std::size_t kMaxWordsChars = 300;

constexpr std::array<std::string_view, 3> kUnreachable{"configuration source", "resolve_ctls_from_dns_srv",
                                                       "Unable to contact slurm controller"};
// Slurm's words (src/common/slurm_errno.c) for a controller that is there, and too busy or in its standby.
constexpr std::array<std::string_view, 5> kTooBusy{
    "Socket timed out on send/recv operation", "Zero Bytes were transmitted or received",
    "Slurm backup controller in standby mode", "temporarily unable to accept job", "Connection refused"};

Error command_error(const std::string& what, std::string_view words) {
  return Error("slurm.command", Blame::slurm, fmt::format("{}: {}", what, words));
}

// The command as a person would type it: without the formats that we read its answer by.
std::string typed(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& word : arguments) {
    if (word.starts_with("--format=") || word.starts_with("--Format=")) continue;
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

// The first line that says something, on its own line in our log whatever it holds.
std::string first_line(std::string_view text) {
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    return printable(line, kMaxWordsChars);
  }
  return {};
}

// "ALL" would be every node, a hostlist several, and "-x" an option.
const std::string& one_node(const std::string& name) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (!is_host_name(name) || name.front() == '-' || upper == "ALL") {
    throw command_error("node", fmt::format("'{}' is not one node", name));
  }
  return name;
}

// A list of several, or an option, is none.
const std::string& one_partition(const std::string& name) {
  if (name.empty() || name.front() == '-' || name.find_first_of(", =") != std::string::npos) {
    throw command_error("partition", fmt::format("'{}' is not one partition", printable(name, kMaxWordsChars)));
  }
  return name;
}

Error cut_off(const std::string& partition) {
  return command_error("squeue --partition=" + partition, "the answer is not one of Slurm's, or is cut off");
}

}  // namespace

double Commands::left_s() const {
  return options_.left_s ? options_.left_s() : std::numeric_limits<double>::infinity();
}

std::string Commands::run(const std::string& program, std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), program);
  const std::string what = first_line(typed(arguments));
  if (!program.starts_with('/')) throw command_error(what, "it is not an absolute path");
  SubprocessOptions options;
  options.deadline_s = std::min(options_.deadline_s, left_s());
  if (options.deadline_s <= 0) throw command_error(what, "no time is left to ask Slurm");
  options.kill_grace_s = kKillGrace_s;
  options.max_output_bytes = kMaxOutputBytes;
  options.environment.emplace();
  if (!options_.conf.empty()) options.environment->push_back("SLURM_CONF=" + options_.conf);
  options.inherit_ignored_sigterm = true;
  SubprocessResult result;
  try {
    result = run_subprocess(arguments, options);
  } catch (const Error& error) { throw command_error(what, error.message()); }
  if (result.timed_out)
    throw Error(kNoAnswer, Blame::slurm, fmt::format("{}: no answer within {} s", what, options.deadline_s));
  if (!result.ok()) {
    const std::string words = first_line(result.err).empty() ? first_line(result.out) : first_line(result.err);
    // Slurm's clients have a dozen sentences for a controller that they do not find or reach.
    const auto says = [&](std::string_view sign) { return result.err.find(sign) != std::string::npos; };
    const bool unreachable = std::ranges::any_of(kUnreachable, says);
    throw Error(unreachable || std::ranges::any_of(kTooBusy, says) ? kNoAnswer : "slurm.command", Blame::slurm,
                fmt::format("{}: {}", what,
                            words.empty() ? result.describe() : fmt::format("{} ({})", words, result.describe())),
                unreachable ? "run it where scontrol works; SLURM_CONF may name the cluster's slurm.conf" : "");
  }
  if (result.truncated) throw command_error(what, fmt::format("more than {}", format_size(kMaxOutputBytes)));
  return std::move(result.out);
}

std::string Commands::scontrol(std::vector<std::string> arguments) const {
  return run(options_.scontrol, std::move(arguments));
}

std::string Commands::sibling(const std::string& program) const {
  return options_.scontrol.substr(0, options_.scontrol.rfind('/') + 1) + program;
}

std::string Commands::squeue(std::vector<std::string> arguments) const {
  return run(sibling("squeue"), std::move(arguments));
}

std::string Commands::reference(std::uint32_t job) const {
  const auto known = references_.find(job);
  return known != references_.end() ? known->second : this->job(job).reference();
}

Config Commands::config() const { return parse_config(scontrol({"show", "config"})); }

Node Commands::node(const std::string& name) const {
  const std::string text = scontrol({"--oneliner", "--all", "show", "node", one_node(name)});
  for (Node& node : parse_nodes(text)) {
    if (node.name == name) return std::move(node);
  }
  throw command_error("scontrol show node " + name, "the answer does not name this node");
}

std::vector<std::uint32_t> Commands::jobs_on(const std::string& node) const {
  std::vector<std::uint32_t> jobs;
  const std::string text = squeue({"--noheader", "--local", "--all", "--nodelist=" + one_node(node), "--format=%A"});
  for (const std::string& line : split(trim(text), '\n')) {
    const auto job = leading_number<std::uint32_t>(line);
    if (!job) throw Error("slurm.command", Blame::slurm, fmt::format("squeue printed '{}'", plain_text(line, 80)));
    jobs.push_back(*job);
  }
  return jobs;
}

std::vector<Node> Commands::nodes() const { return parse_nodes(scontrol({"--oneliner", "--all", "show", "node"})); }

Job Commands::job(std::uint32_t id) const {
  const std::vector<std::string> which = {"--noheader", "--local", "--all", "--states=all",
                                          fmt::format("--jobs={}", id)};
  std::vector<std::string> arguments = which;
  arguments.push_back("--format=" + job_format());
  const std::string answer = squeue(std::move(arguments));
  arguments = which;
  arguments.push_back("--Format=" + job_long_format());
  std::optional<Job> job = parse_job(answer, squeue(std::move(arguments)), id);
  if (!job) throw command_error("squeue", fmt::format("there is no job {}", id));
  references_[id] = job->reference();
  return std::move(*job);
}

// By itself, so that whatever it says forges no other field.
std::string Commands::comment_of(std::uint32_t job) const {
  return squeue({"--noheader", "--local", "--all", "--jobs=" + reference(job), "--format=%k"});
}

std::vector<std::string> Commands::outputs_of(std::uint32_t job) const {
  return parse_outputs(scontrol({"show", "job", reference(job)}));
}

Partition Commands::partition(const std::string& name) const {
  const std::string text = scontrol({"--oneliner", "--all", "show", "partition", one_partition(name)});
  if (std::optional<Partition> partition = parse_partition(text, name)) return std::move(*partition);
  throw command_error("scontrol show partition " + name, "the answer does not name this partition");
}

std::vector<Job> Commands::jobs_of(const std::string& partition) const {
  std::optional<std::vector<Job>> jobs =
      parse_jobs(squeue({"--noheader", "--local", "--all", "--array", "--partition=" + one_partition(partition),
                         "--format=" + job_format()}));
  // Half an answer would be taken for jobs that have ended.
  if (!jobs) throw cut_off(partition);
  for (const Job& job : *jobs) references_[job.id] = job.reference();
  return std::move(*jobs);
}

std::vector<Wait> Commands::waits_of(const std::string& partition) const {
  std::optional<std::vector<Wait>> waits = parse_waits(partition_rows(partition, "running", wait_format()));
  if (!waits) throw cut_off(partition);
  return std::move(*waits);
}

std::vector<Request> Commands::requests_of(const std::string& partition) const {
  std::optional<std::vector<Request>> requests = parse_requests(partition_rows(partition, "pending", request_format()));
  if (!requests) throw cut_off(partition);
  return std::move(*requests);
}

std::string Commands::partition_rows(const std::string& partition, std::string_view state, std::string format) const {
  return squeue({"--noheader", "--local", "--all", "--array", "--noconvert", fmt::format("--states={}", state),
                 "--partition=" + one_partition(partition), "--Format=" + std::move(format)});
}

void Commands::set_partition_nodes(const std::string& partition, const std::string& hostlist) const {
  scontrol({"update", "PartitionName=" + one_partition(partition), "Nodes=" + hostlist});
}

void Commands::signal_batch(std::uint32_t job, const std::string& signal) const {
  run(sibling("scancel"), {"--batch", "--signal=" + signal, reference(job)});
}

void Commands::requeue(std::uint32_t job) const { scontrol({"requeue", reference(job)}); }

void Commands::drain(const std::string& node, const std::string& reason) const {
  scontrol({"update", "NodeName=" + one_node(node), "State=DRAIN", "Reason=" + reason});
}

void Commands::resume(const std::string& node) const {
  scontrol({"update", "NodeName=" + one_node(node), "State=UNDRAIN"});
}

void Commands::set_up(const std::string& node) const {
  scontrol({"update", "NodeName=" + one_node(node), "State=RESUME"});
}

void Commands::reboot(const std::string& node, const std::string& reason) const {
  scontrol({"reboot", "ASAP", "nextstate=DOWN", "reason=" + reason, one_node(node)});
}

void Commands::set_weight(const std::string& node, std::uint32_t weight) const {
  scontrol({"update", "NodeName=" + one_node(node), fmt::format("Weight={}", weight)});
}

bool Commands::is_expedited(std::uint32_t job) const {
  const std::vector<std::string> words = split(scontrol({"--oneliner", "show", "job", reference(job)}), ' ');
  return std::ranges::find(words, "ExpeditedRequeue=Yes") != words.end();
}

void Commands::forbid_requeue(std::uint32_t job) const { scontrol({"update", "JobId=" + reference(job), "Requeue=0"}); }

void Commands::set_admin_comment(std::uint32_t job, const std::string& text) const {
  scontrol({"update", "JobId=" + reference(job), "AdminComment=" + text});
}

void Commands::notify(std::uint32_t job, const std::string& text) const { scontrol({"notify", reference(job), text}); }

void Commands::set_comment(std::uint32_t job, const std::string& text) const {
  scontrol({"update", "JobId=" + reference(job), "Comment=" + text});
}

void Commands::requeue_hold(std::uint32_t job) const { scontrol({"requeuehold", reference(job)}); }

void Commands::set_excluded_nodes(std::uint32_t job, const std::string& hostlist) const {
  scontrol({"update", "JobId=" + reference(job), "ExcNodeList=" + hostlist});
}

void Commands::release(std::uint32_t job) const { scontrol({"release", reference(job)}); }

void Commands::set_job_nodes(std::uint32_t job, const std::string& hostlist) const {
  scontrol({"update", "JobId=" + reference(job), "NodeList=" + hostlist});
}

void Commands::start_now(std::uint32_t job) const {
  scontrol({"update", "JobId=" + reference(job), fmt::format("StartTime=now+{}", kRestartDelay_s)});
}

}  // namespace ms::slurm
