#include "health/commands/remote.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/escape.h"
#include "base/json.h"
#include "base/print.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

constexpr std::size_t kAtATime = 64;  // as clush: a thousand nodes that take half a second each are asked within ten
constexpr double kConnect_s = 5;
constexpr double kRemoteGrace_s = 3;  // for ssh itself on top of connecting and the command's own deadline

// ssh hands its words to a shell there: only what no shell reads as anything but itself, but for the patterns of
// --only, which go in quotes.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "/._+-,:=@";
  constexpr std::string_view kPattern = "*?[]";
  bool quoted = word.empty();
  for (const char c : word) {
    const bool pattern = kPattern.find(c) != std::string_view::npos;
    quoted = quoted || pattern;
    if (std::isalnum(static_cast<unsigned char>(c)) || pattern || kPlain.find(c) != std::string_view::npos) continue;
    throw user_error("remote.words", fmt::format("'{}' cannot be handed to other nodes", word));
  }
  return quoted ? "'" + word + "'" : word;
}

std::string this_program() {
  char path[4096] = {};
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "ms-diag";
}

RemoteAnswer ask(const std::string& node, const std::vector<std::string>& words, const RemoteCommand& command) {
  SystemClock clock;
  std::vector<std::string> argv{"ssh", "-n", "-o", "BatchMode=yes", "-o", fmt::format("ConnectTimeout={}", kConnect_s)};
  if (!command.ssh_config.empty()) argv.insert(argv.end(), {"-F", command.ssh_config});
  argv.insert(argv.end(), {"--", node});
  argv.insert(argv.end(), words.begin(), words.end());
  RemoteAnswer answer{.node = node, .asked_wall_s = clock.wall_s()};
  const SubprocessResult done = run_subprocess(argv, {.deadline_s = kConnect_s + command.deadline_s + kRemoteGrace_s});
  answer.answered_wall_s = clock.wall_s();
  answer.out = done.out;
  if (done.timed_out || done.signal != 0) {
    answer.why = done.describe();
  } else if (done.out.empty()) {
    answer.why = std::string(trim(done.err.empty() ? done.describe() : done.err));
  } else {
    answer.status = done.exit_status;
  }
  return answer;
}

Report unreachable(const RemoteAnswer& answer, std::string why) {
  Result result = broken(std::move(why));
  result.code = "ssh";
  return {.node = answer.node, .results = {std::move(result)}};
}

Report report_of(const RemoteAnswer& answer) {
  if (!answer.why.empty()) return unreachable(answer, answer.why);
  try {
    Report report = from_json(answer.out);
    report.node = answer.node;  // as it was asked for, whatever it calls itself
    return report;
  } catch (const Error& error) { return unreachable(answer, error.message()); }
}

Json said(const RemoteAnswer& answer) {
  if (!answer.why.empty()) return nullptr;
  if (const auto whole = Json::try_parse(answer.out)) return *whole;
  Json lines = Json::array();
  for (const std::string& line : split(answer.out, '\n')) {
    if (const auto json = Json::try_parse(line)) lines.push_back(*json);
  }
  return lines;
}

}  // namespace

std::vector<RemoteAnswer> ask_nodes(const std::vector<std::string>& nodes, const RemoteCommand& command) {
  for (const std::string& node : nodes) {
    if (!slurm::is_host_name(node) || node.starts_with('-')) {
      throw user_error("remote.words", fmt::format("'{}' is no host name", node));
    }
  }
  std::vector<std::string> words{shell_word(command.program.empty() ? this_program() : command.program)};
  for (const std::string& word : command.words) words.push_back(shell_word(word));
  std::vector<RemoteAnswer> answers(nodes.size());
  std::atomic<std::size_t> next{0};
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < std::min(kAtATime, nodes.size()); ++i) {
      workers.emplace_back([&] {
        for (std::size_t node = next++; node < nodes.size(); node = next++) {
          try {
            answers[node] = ask(nodes[node], words, command);
          } catch (const std::exception& error) { answers[node] = {.node = nodes[node], .why = error.what()}; }
        }
      });
    }
  }
  return answers;
}

std::vector<Report> run_remote(const std::vector<std::string>& nodes, const RemoteOptions& options) {
  std::vector<std::string> words{"run",        "--json",
                                 "--level",    std::to_string(options.level),
                                 "--deadline", fmt::format("{}s", options.deadline_s),
                                 "--only",     options.only};
  if (options.level == 3) {
    words.insert(words.end(), {"--soak", fmt::format("{}s", options.asked.soak_s)});
    if (options.asked.memory_bytes >= 0) {
      words.insert(words.end(), {"--memory", fmt::format("{}B", options.asked.memory_bytes)});
    }
    if (!options.asked.directory.empty()) words.insert(words.end(), {"--directory", options.asked.directory});
  }
  if (options.since_wall_s > 0) words.insert(words.end(), {"--since", fmt::format("{:.0f}", options.since_wall_s)});
  if (!options.config.empty()) words.insert(words.end(), {"--config", options.config});
  std::vector<Report> reports;
  for (const RemoteAnswer& answer : ask_nodes(nodes, {.program = options.program,
                                                     .ssh_config = options.ssh_config,
                                                     .words = words,
                                                     .deadline_s = options.deadline_s})) {
    reports.push_back(report_of(answer));
    if (answer.why.empty()) reports.back().at_wall_s = answer.answered_wall_s;
    if (reports.back().wall_s == 0) reports.back().wall_s = answer.answered_wall_s - answer.asked_wall_s;
  }
  return reports;
}

int print_remote(const std::vector<std::string>& nodes, const RemoteCommand& command, bool json) {
  Json all = Json::array();
  std::vector<int> statuses;
  for (const RemoteAnswer& answer : ask_nodes(nodes, command)) {
    statuses.push_back(answer.status);
    if (json) {
      all.push_back({{"node", answer.node}, {"status", answer.status}, {"said", said(answer)}, {"error", answer.why}});
      continue;
    }
    if (!answer.why.empty()) print_out("{}: no answer: {}\n", answer.node, safe_line(answer.why));
    for (const std::string& line : split(answer.why.empty() ? answer.out : "", '\n')) {
      if (!line.empty()) print_out("{}: {}\n", answer.node, safe_line(line));
    }
  }
  if (json) write_out(all.dump(2) + "\n");
  return worst_status(statuses);
}

}  // namespace ms::health
