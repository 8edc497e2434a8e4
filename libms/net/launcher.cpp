#include "net/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "base/text.h"
#include "slurm/hostlist.h"

extern char** environ;

namespace ms::net {
namespace {

constexpr double kGrace_s = 3;  // for agents to see that the coordinator is gone

std::pair<UniqueFd, UniqueFd> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) throw Error("net.launch", Blame::node, fmt::format("no pipe: {}", errno_text(errno)));
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace

Launcher::Launcher(const std::string& how, const std::vector<std::string>& nodes, const std::vector<std::string>& agent,
                   const Invitation& invitation) {
  if (how == "srun") {
    // Nobody else's step waits for us, a node that is down does not end it, and every task hears the invitation.
    std::vector<std::string> argv{"srun",
                                  "--overlap",
                                  "--no-kill",
                                  "--wait=0",
                                  "--kill-on-bad-exit=0",
                                  "--mpi=none",
                                  "--input=all",
                                  "--cpu-bind=none",
                                  fmt::format("--nodes={}", nodes.size()),
                                  fmt::format("--ntasks={}", nodes.size()),
                                  "--ntasks-per-node=1",
                                  "--nodelist=" + slurm::fold_hostlist(nodes)};
    argv.insert(argv.end(), agent.begin(), agent.end());
    start(argv, to_json(invitation) + "\n");
    return;
  }
  const std::vector<std::string> words = split(how, ' ');
  for (const std::string& node : nodes) {
    std::vector<std::string> argv;
    bool has_agent = false;
    for (const std::string& word : words) {
      if (word.empty()) continue;
      if (word == "{agent}") {
        argv.insert(argv.end(), agent.begin(), agent.end());
        has_agent = true;
        continue;
      }
      std::string filled = word;
      for (std::size_t at = filled.find("{node}"); at != std::string::npos; at = filled.find("{node}"))
        filled.replace(at, 6, node);
      argv.push_back(std::move(filled));
    }
    if (!has_agent) {
      throw user_error("net.launch", fmt::format("'{}' does not say where the agent's command goes", how),
                       "for example: --launch 'ssh {node} {agent}'");
    }
    Invitation to_node = invitation;
    to_node.node = node;
    start(argv, to_json(to_node) + "\n");
  }
}

void Launcher::start(const std::vector<std::string>& argv, const std::string& input) {
  auto [read_input, write_input] = make_pipe();
  auto [read_errors, write_errors] = make_pipe();
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, read_input.get(), 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_errors.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  int pid = -1;
  const int error = posix_spawnp(&pid, words[0], &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw Error("net.launch", Blame::node, fmt::format("cannot start {}: {}", argv[0], errno_text(error)));
  }
  processes_.push_back({.pid = pid, .errors = std::move(read_errors)});
  // Shorter than a pipe holds; a command that ended at once is found out by its agents not coming.
  const auto ignored = write(write_input.get(), input.data(), input.size());
  static_cast<void>(ignored);
}

std::string Launcher::complaint() {
  for (Process& process : processes_) {
    pollfd poll{.fd = process.errors.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, 0) <= 0) continue;
    std::array<char, 4096> text;
    const ssize_t got = read(process.errors.get(), text.data(), text.size());
    if (got <= 0) continue;
    for (const std::string& line : split(std::string_view(text.data(), static_cast<std::size_t>(got)), '\n'))
      if (!line.empty()) return plain_text(line, 200);
  }
  return {};
}

Launcher::~Launcher() {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(kGrace_s);
  for (const Process& process : processes_) {
    bool ended = false;
    while (!ended && Clock::now() < end) {
      ended = waitpid(process.pid, nullptr, WNOHANG) != 0;
      if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (const int signal : {SIGTERM, SIGKILL}) {
      if (ended) break;
      kill(-process.pid, signal);
      for (int i = 0; i < 100 && !ended; ++i) {
        ended = waitpid(process.pid, nullptr, WNOHANG) != 0;
        if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }
}

}  // namespace ms::net
