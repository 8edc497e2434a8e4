#include "health/commands/remote.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

constexpr std::size_t kAtATime = 32;
constexpr double kConnect_s = 5;
constexpr double kRemoteGrace_s = 3;  // for ssh itself on top of connecting and the checks' own deadline

// ssh hands its words to a shell there: only what no shell reads as anything but itself, but for the patterns of
// --only, which go in quotes.
void require_plain(const std::string& text, std::string_view what, std::string_view more) {
  const bool plain = std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || more.find(c) != std::string_view::npos;
  });
  if (!plain || text.starts_with('-')) {
    throw user_error("remote.words", fmt::format("{} '{}' cannot be handed to other nodes", what, text));
  }
}

Report unreachable(const std::string& node, std::string_view why) {
  Result result = broken(std::string(trim(why)));
  result.code = "ssh";
  return {.node = node, .results = {std::move(result)}};
}

Report ask(const std::string& node, const RemoteOptions& options) {
  std::vector<std::string> argv{"ssh", "-n", "-o", "BatchMode=yes", "-o", fmt::format("ConnectTimeout={}", kConnect_s)};
  if (!options.ssh_config.empty()) argv.insert(argv.end(), {"-F", options.ssh_config});
  argv.insert(argv.end(), {"--", node, options.program, "run", "--json", "--level", std::to_string(options.level),
                           "--deadline", fmt::format("{}s", options.deadline_s), "--only", "'" + options.only + "'"});
  if (!options.config.empty()) argv.insert(argv.end(), {"--config", options.config});
  const SubprocessResult answer =
      run_subprocess(argv, {.deadline_s = kConnect_s + options.deadline_s + kRemoteGrace_s});
  if (answer.timed_out) return unreachable(node, answer.describe());
  if (answer.out.empty()) return unreachable(node, answer.err.empty() ? answer.describe() : answer.err);
  try {
    Report report = from_json(answer.out);
    report.node = node;  // as it was asked for, whatever it calls itself
    return report;
  } catch (const Error& error) { return unreachable(node, error.message()); }
}

}  // namespace

std::vector<Report> run_remote(const std::vector<std::string>& nodes, const RemoteOptions& options) {
  for (const std::string& node : nodes) {
    if (!slurm::is_host_name(node) || node.starts_with('-')) {
      throw user_error("remote.words", fmt::format("'{}' is no host name", node));
    }
  }
  require_plain(options.only, "the pattern", ".*?,-_[]");
  require_plain(options.config, "the path", "/._+-");
  require_plain(options.program, "the path", "/._+-");
  std::vector<Report> reports(nodes.size());
  std::atomic<std::size_t> next{0};
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < std::min(kAtATime, nodes.size()); ++i) {
      workers.emplace_back([&] {
        for (std::size_t node = next++; node < nodes.size(); node = next++) {
          try {
            SystemClock clock;
            const double before_s = clock.now_s();
            reports[node] = ask(nodes[node], options);
            if (reports[node].wall_s == 0) reports[node].wall_s = clock.now_s() - before_s;
          } catch (const std::exception& error) { reports[node] = unreachable(nodes[node], error.what()); }
        }
      });
    }
  }
  return reports;
}

}  // namespace ms::health
