// The check site.checks (check.h): executables of the site, run as root. Their contract is in ms-diag(1), SITE CHECKS.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "base/safe_file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "health/checks/check.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxChecks = 32;
constexpr std::size_t kMaxLine = 300;
constexpr std::size_t kMaxOutputBytes = 64 << 10;
constexpr double kLongest_s = 20;  // also outside a prolog
constexpr double kShare = 0.8;     // of the time that is left; the rest is for programs that have to be killed
constexpr double kKillGrace_s = 0.1;

struct Status {
  int exit_status;
  Severity severity;
  std::string_view word;  // in a line of plain text
};
constexpr Status kStatuses[] = {{1, Severity::warning, "WARNING"}, {2, Severity::critical, "CRITICAL"}};

std::string first_line(std::string_view text) {
  for (const std::string& line : split(text, '\n')) {
    if (!line.empty()) return line;
  }
  return {};
}

// Parses {"severity": "critical", "message": "...", "entity": "...", "remedy": "..."}. JsonError: it is not that.
Finding from_json(const std::string& line, const Status& status) {
  const Json json = Json::parse(line);
  Finding finding{.severity = status.severity, .blame = Blame::node};
  for (const auto& [key, value] : json.items()) {
    const std::string text = plain_text(value.text(), kMaxLine);
    if (key == "entity") {
      finding.entity = text;
    } else if (key == "message") {
      finding.message = text;
    } else if (key == "remedy") {
      finding.remedy = text;
    } else if (key != "severity") {
      throw JsonError(fmt::format("'{}' is no member of a finding", plain_text(key, kMaxLine)));
    }
  }
  if (json.at("severity").text() != to_string(status.severity)) throw JsonError("its severity is another one");
  if (finding.message.empty()) throw JsonError("it has no message");
  return finding;
}

// Judges what a check of the site did. A finding takes both the exit status and a line that states the same: a script
// that ends by an error of its own exits 1 or 2, too.
Result judge(const SubprocessResult& done) {
  const std::string line = first_line(done.out);
  const std::string said = plain_text(line.empty() ? first_line(done.err) : line, kMaxLine);
  const std::string how = fmt::format("{}{}{}", done.describe(), said.empty() ? "" : ": ", said);
  if (done.ok()) return passed();
  if (done.timed_out || done.signal != 0) return broken(how);
  if (done.exit_status == 3) return skipped(how);
  const auto status = std::ranges::find(kStatuses, done.exit_status, &Status::exit_status);
  if (status == std::end(kStatuses)) return broken(how);
  if (line.starts_with('{')) {
    try {
      return judged({from_json(line, *status)});
    } catch (const JsonError& error) { return broken(fmt::format("{} ({})", how, plain_text(error.what(), kMaxLine))); }
  }
  const std::string message = plain_text(line.substr(0, line.find('|')), kMaxLine);  // then the data of Nagios plugins
  if (message.find(status->word) == std::string::npos) {
    return broken(fmt::format("{} (its first line is not JSON and lacks the word {})", how, status->word));
  }
  return judged({{.severity = status->severity, .blame = Blame::node, .message = message}});
}

// Throws ms::Error where the file is not root's alone.
Result run_one(const std::string& path, double deadline_s) {
  const Refusal refusal{.kind = "site.checks", .blame = Blame::user};
  const UniqueFd file = open_trusted_file(path, 0, refusal);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || (status.st_mode & S_IXUSR) == 0) return broken("it is not executable");
  std::vector<std::string> environment{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"};
  if (const char* node = std::getenv("SLURMD_NODENAME")) environment.push_back(fmt::format("SLURMD_NODENAME={}", node));
  return judge(run_subprocess({path}, {.deadline_s = deadline_s,
                                       .kill_grace_s = kKillGrace_s,
                                       .max_output_bytes = kMaxOutputBytes,
                                       .environment = environment}));
}

// The results of all checks, which run at the same time. One that hangs in the kernel cannot be killed: it is left
// behind, and the others count.
struct Runs {
  std::mutex mutex;
  std::condition_variable one_ended;
  std::vector<std::optional<Result>> results;
  std::size_t ended = 0;
};

std::vector<Result> run_all(const std::string& directory, const std::vector<std::string>& names, double left_s) {
  const auto runs = std::make_shared<Runs>();
  runs->results.resize(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::thread([runs, i, path = directory + "/" + names[i], deadline_s = kShare * left_s] {
      Result result;
      try {
        result = run_one(path, deadline_s);
      } catch (const std::exception& error) { result = broken(error.what()); }
      const std::lock_guard lock(runs->mutex);
      runs->results[i] = std::move(result);
      ++runs->ended;
      runs->one_ended.notify_one();
    }).detach();
  }
  std::unique_lock lock(runs->mutex);
  runs->one_ended.wait_for(lock, std::chrono::duration<double>(left_s), [&] { return runs->ended == names.size(); });
  std::vector<Result> results;
  for (const std::optional<Result>& result : runs->results) {
    results.push_back(result ? *result : broken("it hangs, and cannot be killed"));
  }
  return results;
}

// The findings of all, named. If a check could not judge, only a critical finding of another one counts: what a node
// was drained for has not been looked at then.
Result together(const std::vector<std::string>& names, std::vector<Result> results) {
  std::vector<Finding> findings;
  std::string notes;
  Outcome worst = Outcome::pass, unjudged = Outcome::pass;
  for (std::size_t i = 0; i < names.size(); ++i) {
    Result& result = results[i];
    const std::string name = plain_text(names[i], kMaxLine);
    const bool is_judged = !result.findings.empty();
    if (!is_judged && result.outcome != Outcome::pass) {
      unjudged = std::max(unjudged, result.outcome);
      result.findings = {{.severity = Severity::note, .blame = Blame::user, .message = result.note}};
    } else {
      worst = std::max(worst, result.outcome);
    }
    for (Finding& finding : result.findings) {
      finding.entity = name + (finding.entity.empty() ? "" : " " + finding.entity);
      notes += fmt::format("{}{}: {}", notes.empty() ? "" : "; ", finding.entity, finding.message);
      findings.push_back(std::move(finding));
    }
  }
  if (unjudged != Outcome::pass && worst != Outcome::critical) return {.outcome = unjudged, .note = notes};
  return judged(std::move(findings), plural(names.size(), "check"));
}

Result check_site_checks(Evidence& evidence) {
  const std::string& directory = evidence.policy().paths.checks;
  if (directory.empty()) return skipped("paths.checks names no directory");
  if (::geteuid() != 0) return skipped("permission denied: only root runs the site's checks");
  const Refusal refusal{.kind = "site.checks", .blame = Blame::user};
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0) return broken(fmt::format("there is no '{}'", directory));
  open_own_directory(directory, 0755, 022, refusal);
  std::vector<std::string> names = Sysroot().list(directory);
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  if (names.empty()) return skipped(fmt::format("'{}' is empty", directory));
  if (names.size() > kMaxChecks) return broken(fmt::format("more than {} checks in '{}'", kMaxChecks, directory));
  return together(names, run_all(directory, names, std::min(kLongest_s, evidence.left_s())));
}

}  // namespace

extern constinit const Check kSiteChecks = {
    .code = "site.checks",
    .lane = Lane::site,
    .summary = "checks of the site's own",
    .needs = "root, and executables in paths.checks",
    .deadline_s = 30,
    .on_hang = std::nullopt,
    .explain =
        "Runs every executable in paths.checks, all at the same time. Exit status 1 is a warning and 2 is critical, if "
        "the first line of standard output states the same; SITE CHECKS in ms-diag(1) has the contract. An "
        "executable that fails in another way, takes too long, or could be changed by someone else than root is "
        "broken, which does not count against the node.",
    .remedy = "See what the executable in paths.checks looks at.",
    .run = check_site_checks};

}  // namespace ms::health
