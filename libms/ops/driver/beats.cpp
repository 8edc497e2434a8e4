#include "driver/beats.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "watch/beat.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostProcesses = 4096;

// Returns whether there is a directory of this user alone: in another one, others could lay a socket of their own.
bool own_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return true;
  struct stat status {};
  if (errno != EEXIST || lstat(path.c_str(), &status) != 0) return false;
  errno = EPERM;
  return S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

}  // namespace

Beats::Beats(const std::string& path, Sysroot root) : path_(path), root_(std::move(root)), unheard_(listen()) {}

std::string Beats::listen() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string directory = parent_directory(path_);
  if (path_.size() >= sizeof address.sun_path) return path_ + " is too long for a socket";
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  if (!own_directory(directory)) return fmt::format("{} is not this user's alone: {}", directory, errno_text(errno));
  struct stat before {};  // of an agent before this one
  if (lstat(path_.c_str(), &before) == 0 && S_ISSOCK(before.st_mode)) unlink(path_.c_str());
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, room = 1 << 20;
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
    return fmt::format("{}: {}", path_, errno_text(errno));
  }
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  fd_ = std::move(fd);
  return "";
}

Beats::~Beats() {
  if (!fd_) return;
  unlink(path_.c_str());
  rmdir(parent_directory(path_).c_str());
}

std::vector<int> Beats::fds() const {
  std::vector<int> fds{fd_.get()};
  for (const auto& [pid, process] : processes_) {
    if (process.alive && process.end) fds.push_back(process.end.get());
  }
  return fds;
}

Beats::Process* Beats::process(int pid, double now_s) {
  if (const auto found = processes_.find(pid); found != processes_.end() && found->second.alive) return &found->second;
  const std::optional<Task> task = task_of(root_, pid);
  if (!task || processes_.size() >= kMostProcesses) return nullptr;
  Process process{.attempt = task->attempt,
                  .rank = task->rank,
                  .ticks = process_stat(root_, pid).ticks,
                  .ticks_s = now_s,
                  .end = {}};
  process.end = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (process.attempt > attempt_) {
    attempt_ = process.attempt;
    ranks_.clear();
    took_.clear();
    processes_.clear();
  }
  return &(processes_[pid] = std::move(process));
}

void Beats::hear(int pid, std::string_view text, double now_s) {
  const std::optional<watch::Beat> beat = watch::parse_beat(text);
  Process* sender = beat ? process(pid, now_s) : nullptr;
  if (sender == nullptr || sender->attempt != attempt_) return;
  const int number = beat->rank >= 0 ? beat->rank : sender->rank;
  if (number < 0 || (ranks_.size() >= kMostProcesses && !ranks_.contains(number))) return;
  Rank& rank = ranks_[number];
  if (!rank.section.empty() && took_.size() < watch::kMaxBeatNumbers) {
    double& longest_s = took_[rank.section];
    longest_s = std::max(longest_s, now_s - rank.since_s);
  }
  rank.pid = pid;
  if (beat->step >= 0) rank.step = beat->step;
  if (!beat->section.empty() || rank.section.empty())
    rank.section = beat->section.empty() ? kUnnamedSection : beat->section;
  rank.since_s = now_s;
  for (const auto& [name, value] : beat->numbers) {
    if (rank.numbers.size() < watch::kMaxBeatNumbers || rank.numbers.contains(name)) rank.numbers[name] = value;
  }
}

bool Beats::take(double now_s) {
  while (true) {
    std::array<char, watch::kMaxBeatBytes + 1> text;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
    iovec part{text.data(), text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(fd_.get(), &message, 0);
    if (got < 0) break;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_CREDENTIALS) continue;
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
      if (sender.uid == geteuid()) hear(sender.pid, {text.data(), static_cast<std::size_t>(got)}, now_s);
    }
  }
  bool ended = false;
  for (auto& [pid, process] : processes_) {
    if (!process.alive || !process.end) continue;
    pollfd poll{.fd = process.end.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, 0) > 0) {
      process.alive = false;
      ended = true;
    }
  }
  return ended;
}

Report Beats::report(double now_s) {
  Report report{.number = 0, .attempt = attempt_, .ranks = {}, .took = std::exchange(took_, {})};
  std::map<int, std::pair<char, double>> seen;  // state and processors of each process
  for (auto& [pid, process] : processes_) {
    const ProcessStat stat = process.alive ? process_stat(root_, pid) : ProcessStat{};
    const double spent_s =
        stat.state == 'X' ? 0
                          : static_cast<double>(stat.ticks - process.ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
    const double since_s = now_s - process.ticks_s;
    seen[pid] = {stat.state, since_s > 0 ? spent_s / since_s : 0};
    if (stat.state == 'X') continue;
    process.ticks = stat.ticks;
    process.ticks_s = now_s;
  }
  for (const auto& [number, rank] : ranks_) {
    const auto [state, cpu] = seen[rank.pid];
    report.ranks.push_back({.rank = number,
                            .pid = rank.pid,
                            .alive = processes_.at(rank.pid).alive,
                            .state = state,
                            .step = rank.step,
                            .section = rank.section,
                            .section_s = now_s - rank.since_s,
                            .cpu = cpu,
                            .numbers = rank.numbers});
  }
  return report;
}

}  // namespace ms::driver
