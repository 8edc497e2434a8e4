#include "net/agents/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "base/text.h"
#include "slurm/beside.h"

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

Launcher::Launcher(std::string how, std::vector<std::string> agent, Invitation invitation)
    : how_(std::move(how)), agent_(std::move(agent)), invitation_(std::move(invitation)) {
  if (how_ != "srun" && how_.find("{agent}") == std::string::npos) {
    throw user_error("net.launch", fmt::format("'{}' does not say where the agent's command goes", how_),
                     "for example: --launch 'ssh -o BatchMode=yes {node} {agent}'");
  }
}

void Launcher::start(const std::vector<std::string>& nodes) {
  if (how_ == "srun") {
    const std::size_t each = nodes.size() <= kAloneUpTo ? 1 : kAloneUpTo;
    for (std::size_t first = 0; first < nodes.size(); first += each) {
      const auto begin = nodes.begin() + static_cast<std::ptrdiff_t>(first);
      const std::vector<std::string> some(begin,
                                          begin + static_cast<std::ptrdiff_t>(std::min(each, nodes.size() - first)));
      start(slurm::srun_beside(some, agent_, true), some, invitation_);
    }
    return;
  }
  for (const std::string& node : nodes) {
    std::vector<std::string> argv;
    for (const std::string& word : split(how_, ' ')) {
      if (word.empty()) continue;
      if (word == "{agent}") {
        argv.insert(argv.end(), agent_.begin(), agent_.end());
        continue;
      }
      std::string filled = word;
      for (std::size_t at = filled.find("{node}"); at != std::string::npos;
           at = filled.find("{node}", at + node.size()))
        filled.replace(at, 6, node);
      argv.push_back(std::move(filled));
    }
    Invitation to_node = invitation_;
    to_node.node = node;
    start(argv, {node}, to_node);
  }
}

void Launcher::start(const std::vector<std::string>& argv, const std::vector<std::string>& nodes,
                     const Invitation& invitation) {
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
  fcntl(read_errors.get(), F_SETFL, O_NONBLOCK);
  processes_.push_back({.pid = pid, .nodes = nodes, .errors = std::move(read_errors), .said = {}});
  // Shorter than a pipe holds; a command that ended at once is found out by its agents not coming.
  const std::string input = to_json(invitation) + "\n";
  const auto ignored = write(write_input.get(), input.data(), input.size());
  static_cast<void>(ignored);
}

void Launcher::listen(Process& process) {
  constexpr std::size_t kKept = 4096;
  std::array<char, 4096> text;
  while (process.errors) {
    const ssize_t got = read(process.errors.get(), text.data(), text.size());
    if (got <= 0) return;
    process.said.append(text.data(), static_cast<std::size_t>(got));
    if (process.said.size() > kKept) process.said.erase(0, process.said.size() - kKept);
  }
}

std::string Launcher::complaint(const std::vector<std::string>& nodes) {
  std::string last;
  for (Process& process : processes_) {
    listen(process);
    const bool is_of_them = std::ranges::any_of(
        process.nodes, [&](const std::string& node) { return std::ranges::find(nodes, node) != nodes.end(); });
    if (!is_of_them) continue;
    for (const std::string& line : split(process.said, '\n')) {
      // Said by every srun where Slurm binds nothing; that is what we wanted.
      if (line.empty() || line.find("lacks support for cpu binding") != std::string::npos) continue;
      last = plain_text(line, 200);
    }
  }
  return last;
}

Launcher::~Launcher() {
  using Clock = std::chrono::steady_clock;
  std::vector<int> running;
  for (const Process& process : processes_) running.push_back(process.pid);
  const auto wait_for_all = [&](double seconds) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (true) {
      for (Process& process : processes_) listen(process);  // so that no process waits for this one to read
      std::erase_if(running, [](int pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
      if (running.empty() || Clock::now() >= end) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  wait_for_all(kGrace_s);
  for (const int signal : {SIGTERM, SIGKILL}) {
    for (const int pid : running) {
      kill(-pid, signal);
      kill(-pid, SIGCONT);  // one that wants a terminal is stopped
    }
    wait_for_all(1);
  }
}

}  // namespace ms::net
