#include "driver/command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/handle.h"
#include "base/number.h"
#include "base/safe_file.h"
#include "base/text.h"
#include "driver/tasks.h"

extern char** environ;

namespace ms::driver {
namespace {

// The shell only waits and writes: signals to the group end the command, not it. What it would say of a file that it
// cannot write would be read as the command's last words.
constexpr const char* kScript =
    "trap : HUP INT TERM USR1 USR2; \"$@\"; code=$?; { echo $code >\"$0.new\" && mv \"$0.new\" \"$0\"; } 2>/dev/null; "
    "exit $code";

constexpr std::size_t kMostRead_bytes = std::size_t{256} << 10, kMostLine_bytes = 8192;
constexpr std::int64_t kMostLast_bytes = std::int64_t{4} << 20;  // read in a second, however short the lines are

std::vector<char*> words_of(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

LongCommand LongCommand::start(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                               const std::string& output_file, const std::string& status_file,
                               const std::string& error_file) {
  const auto failed = [&](const std::string& why) {
    return Error("driver.start", Blame::node,
                 fmt::format("cannot start {} with its output in {}: {}", argv[0], output_file, why));
  };
  const ToWrite output = open_to_write(AT_FDCWD, output_file, O_APPEND);
  if (!output.fd) throw failed(output.why);
  const ToWrite errors = error_file.empty() ? ToWrite{} : open_to_write(AT_FDCWD, error_file, O_APPEND);
  if (!error_file.empty() && !errors.fd) throw failed(errors.why);
  unlink(status_file.c_str());
  std::vector<std::string> words{"/bin/sh", "-c", kScript, status_file};
  words.insert(words.end(), argv.begin(), argv.end());
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output.fd.get(), 1);
  posix_spawn_file_actions_adddup2(&files, errors.fd ? errors.fd.get() : output.fd.get(), 2);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, words[0].c_str(), &files, &attributes, words_of(words).data(), words_of(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw failed(errno_text(error));
  return LongCommand({.pid = pid, .started = process_stat(Sysroot(), pid).started, .status_file = status_file});
}

LongCommand::LongCommand(Place place)
    : place_(std::move(place)), end_(static_cast<int>(syscall(SYS_pidfd_open, place_.pid, 0))) {}

bool LongCommand::ended() {
  if (ended_) return true;
  int wait_status = 0;
  if (waitpid(place_.pid, &wait_status, WNOHANG) == place_.pid && WIFEXITED(wait_status))
    status_ = WEXITSTATUS(wait_status);  // a full disk takes no file; a driver that resumes has only that
  const ProcessStat stat = process_stat(Sysroot(), place_.pid);
  ended_ = stat.state == 'X' || stat.state == 'Z' || stat.started != place_.started;
  if (!ended_ || access(place_.status_file.c_str(), R_OK) != 0) return ended_;
  if (const auto status = leading_number<int>(trim(read_file(place_.status_file)))) status_ = status;
  return true;
}

void LongCommand::signal(int number) const {
  // A state file that is broken must not name all processes, nor this one's group.
  const ProcessStat stat = process_stat(Sysroot(), place_.pid);
  if (place_.pid > 1 && stat.state != 'X' && stat.started == place_.started) kill(-place_.pid, number);
}

std::optional<Json> document_in(std::string_view output) {
  const std::size_t begin = output.starts_with("{\n") ? 0 : output.find("\n{\n");
  const std::size_t end = output.rfind("\n}");
  if (begin == output.npos || end == output.npos || end < begin) return std::nullopt;
  std::optional<Json> json = Json::try_parse(output.substr(begin, end + 2 - begin), {.max_depth = 12});
  return json && json->is_object() ? std::move(json) : std::nullopt;
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::none_of(changes, [&](const auto& change) { return change.first == name; })) {
      result.emplace_back(text);
    }
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) result.push_back(fmt::format("{}={}", name, value));
  }
  return result;
}

std::vector<std::string> Tail::lines(bool last) {
  const UniqueFd fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<std::string> lines;
  if (!fd) return lines;
  struct stat file {};
  if (last && fstat(fd.get(), &file) == 0 && file.st_size - offset_ > kMostLast_bytes) {
    const std::int64_t newest = file.st_size - kMostLast_bytes;
    lines.push_back(fmt::format("{} bytes of output are not shown: see {}", newest - offset_, path_));
    offset_ = newest;
    begun_.clear();
  }
  std::string text(kMostRead_bytes, '\0');
  const ssize_t got = pread(fd.get(), text.data(), text.size(), offset_);
  if (got > 0) {
    offset_ += got;
    begun_.append(text, 0, static_cast<std::size_t>(got));
  }
  std::size_t at = 0;
  while (at < begun_.size()) {
    const std::size_t left = begun_.size() - at, end = std::min(begun_.find('\n', at) - at, left);
    if (end == left && left < kMostLine_bytes && !last) break;
    const std::size_t size = std::min(end, kMostLine_bytes);
    lines.push_back(begun_.substr(at, size));
    at += size + (size == end && end < left ? 1 : 0);
  }
  begun_.erase(0, at);
  return lines;
}

}  // namespace ms::driver
