// The commands of ms-driver that inspect a running job: inspect for people, and look, which it starts on the nodes.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/own_tool.h"
#include "base/print.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "base/user_path.h"
#include "driver/command.h"
#include "driver/commands.h"
#include "driver/flight.h"
#include "driver/inspect.h"
#include "driver/options.h"
#include "net/agents/agent.h"
#include "slurm/beside.h"
#include "slurm/commands.h"
#include "slurm/hostlist.h"
#include "slurm/job_env.h"

namespace ms::driver {
namespace {

namespace fs = std::filesystem;

constexpr double kInspectAnswer_s = 10, kJudge_s = 60;
constexpr std::size_t kMostJudged = 32768;  // files

// Returns the job, if this user can inspect it.
slurm::Job inspected_job(const slurm::Commands& slurm, std::uint32_t id) {
  const slurm::Job job = slurm.job(id);
  if (!job.runs())
    throw user_error("driver.inspect", fmt::format("job {} does not run: it is {}", id, job.state),
                     "its files tell what happened: ms-tracepp hang, ms-driver report");
  if (job.user_id != geteuid())
    throw user_error("driver.inspect", fmt::format("job {} is of user {}, not yours", id, job.user_id),
                     "Slurm lets only the job's user start something beside it: use sudo -u");
  return job;
}

// Has every node looked at, beside what runs there. Returns what srun said, where it did not end well.
std::string look_at_nodes(const Inspection& inspection, const Args& args) {
  std::vector<std::string> command{
      own_tool("ms-driver"), "look",   "--job",         std::to_string(inspection.job), "--into",
      inspection.dir,        "--diag", args.get("diag")};
  if (args.has("step")) command.insert(command.end(), {"--step", args.get("step")});
  std::vector<std::string> words = slurm::srun_beside(inspection.nodes, command);
  words.insert(words.begin() + 1, fmt::format("--jobid={}", inspection.job));
  const SubprocessResult result = run_subprocess(words, {.deadline_s = args.get_seconds("timeout")});
  return result.ok() ? "" : plain_text(result.describe() + ": " + result.err, 300);
}

// Copies the newest lines of what the job's script prints, with this user's rights, which are the job's. Returns the
// copies.
std::vector<std::string> copy_logs(const slurm::Commands& slurm, Inspection& inspection) {
  std::vector<std::string> copies;
  try {
    const std::vector<std::string> paths = slurm.outputs_of(static_cast<std::uint32_t>(inspection.job));
    if (paths.empty()) inspection.unread = "it has no batch script";
    for (const std::string& path : paths) {
      const std::string copy = fmt::format("{}/output-{}.log", inspection.dir, copies.size() + 1);
      copy_log(path, copy);
      copies.push_back(copy);
    }
  } catch (const Error& error) { inspection.unread = plain_text(error.message(), 200); }  // the rest tells without it
  return copies;
}

// The files that tell of the run: stacks, RAS, dumps, and logs.
std::vector<std::string> judged_files(const std::string& dir, const std::vector<std::string>& logs) {
  std::vector<std::string> files = logs;
  std::ranges::copy(evidence_files(dir, 0, 0), std::back_inserter(files));
  for (const std::string& name : Sysroot().list(dir + "/dumps")) files.push_back(dir + "/dumps/" + name);
  if (files.size() > kMostJudged) files.resize(kMostJudged);
  return files;
}

// Has ms-tracepp judge the files, so that the verdict is the one that it gives everywhere.
void judge(Inspection& inspection, const std::vector<std::string>& files, bool as_json) {
  if (files.empty()) return;
  std::vector<std::string> words{own_tool("ms-tracepp"), "hang"};
  words.insert(words.end(), files.begin(), files.end());
  const auto run = [&] {
    const SubprocessResult result = run_subprocess(words, {.deadline_s = kJudge_s});
    if (!result.ok()) inspection.unjudged = plain_text(result.describe() + ": " + result.err, 300);
    return result.ok() ? result.out : std::string();
  };
  if (!as_json) inspection.verdict_text = run();
  words.insert(words.begin() + 2, "--json");
  if (std::optional<Json> document = document_in(run())) inspection.verdict = *std::move(document);
}

int inspect(const Args& args) {
  const std::string own_job = environment("SLURM_JOB_ID");
  if (!args.has("JOB") && own_job.empty()) throw user_error("driver.inspect", "name the job: ms-driver inspect JOB");
  const std::int64_t id = args.has("JOB") ? args.get_int("JOB", 1, 0x7fffffff) : std::atoi(own_job.c_str());
  if (args.has("step")) args.get_int("step", -1, 0x7fffffff);
  const slurm::Commands slurm({.conf = environment("SLURM_CONF"), .deadline_s = kInspectAnswer_s});
  const slurm::Job job = inspected_job(slurm, static_cast<std::uint32_t>(id));
  const std::string dir = args.has("dir") ? args.get("dir") : fmt::format("ms-inspect-{}", id);
  if (fs::exists(dir))
    throw user_error("driver.inspect", dir + " exists: evidence of two times must not mix", "choose another --dir");
  make_user_directories(dir);
  Inspection inspection{.job = static_cast<int>(id),
                        .nodes = slurm::expand_hostlist_or_throw(job.nodes),
                        .dir = fs::absolute(dir).string(),
                        .looks = {},
                        .findings = {},
                        .verdict = {},
                        .verdict_text = {},
                        .unjudged = {},
                        .unread = {}};
  const std::string problem = look_at_nodes(inspection, args);
  read_looks(inspection);
  if (inspection.looks.empty())
    throw Error("driver.inspect", Blame::slurm, fmt::format("no node of job {} answered: {}", id, problem),
                fmt::format("{} must be on storage that all nodes share", inspection.dir));
  std::vector<std::string> logs = args.list("log");
  std::ranges::copy(copy_logs(slurm, inspection), std::back_inserter(logs));
  judge(inspection, judged_files(inspection.dir, logs), args.has("json"));
  if (args.has("json")) {
    write_out(to_json(inspection));
  } else {
    write_out(inspection_text(inspection));
  }
  return 0;
}

int look(const Args& args) {
  const std::string own_step = environment("SLURM_STEP_ID");
  LookOptions options{.job = static_cast<int>(args.get_int("job", 1, 0x7fffffff)),
                      .own_step = own_step.empty() ? -1 : std::atoi(own_step.c_str()),
                      .step = std::nullopt,
                      .node = slurm::this_node(),
                      .dir = args.get("into"),
                      .diag = args.get("diag"),
                      .root = Sysroot()};
  if (args.has("step")) options.step = static_cast<int>(args.get_int("step", -1, 0x7fffffff));
  look_into_node(options);
  return 0;
}

const Option kStep{"step", "N", "Number of the step that is the run; -1: the batch script (default: the newest)."};
const Option kDiag{"diag", "PROGRAM", "Path of ms-diag on the nodes.", "ms-diag"};

}  // namespace

Command inspect_command() {
  return {.name = "inspect",
          .summary = "find out from outside why a running job hangs",
          .positionals = {{.name = "JOB", .doc = "Number of the job (default: the one around).", .required = false}},
          .options = {{"dir", "DIR",
                       "New directory for the evidence, on storage that all nodes share (default: ms-inspect-JOB)."},
                      kStep,
                      {.name = "log", .value = "FILE", .doc = "Judge another log of the job, too.", .many = true},
                      {"timeout", "TIME", "Wait at most TIME for the nodes.", "60s"},
                      kDiag,
                      {"json", "", "Print one JSON document."}},
          .run = inspect,
          .description =
              "The job need not have prepared anything, and is not changed: nothing is stopped or started again. srun "
              "--overlap starts one task on each node of the job. It reads the stacks of the ranks (with py-spy if "
              "installed, else what the kernel tells), requests dumps of PyTorch's flight recorders where "
              "TORCH_NCCL_DEBUG_INFO_PIPE_FILE allows it and copies those that TORCH_FR_DUMP_TEMP_FILE names, asks "
              "NCCL's RAS if a rank listens, and runs ms-diag at level 1, which reads the kernel log. What the batch "
              "script printed last is read where Slurm writes it. ms-tracepp hang judges all of it. The output lists "
              "what could not be had, and on which nodes."};
}

Command look_command() {
  return {.name = "look",
          .summary = "gather the evidence of one node (started by inspect)",
          .options = {{.name = "job", .value = "ID", .doc = "ID of the job.", .required = true},
                      {.name = "into", .value = "DIR", .doc = "Directory for the evidence.", .required = true},
                      kStep,
                      kDiag},
          .run = look};
}

}  // namespace ms::driver
