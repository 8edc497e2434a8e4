#include "data/loader_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/system_error.h"
#include "base/unexpected.h"
#include "data/encode_workers.h"
#include "data/fill_ring.h"

namespace ms::data {
namespace {

constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;
// A loader that dies so often without one batch in between will not live.
constexpr int kMostDeaths = 3;

// Messages: a letter for the kind, then fields.
enum class MessageKind : char { open = 'o', run = 'r', facts = 'f', error = 'e' };

bool send_message(int socket, MessageKind kind, std::string_view fields) {
  std::string message(1, static_cast<char>(kind));
  message += fields.substr(0, kMaxMessageBytes - 1);
  return ::send(socket, message.data(), message.size(), MSG_NOSIGNAL) == std::ssize(message);
}

// Empty: the other end is gone.
std::string receive_message(int socket) {
  std::string message(kMaxMessageBytes, '\0');
  ssize_t size = -1;
  do { size = ::recv(socket, message.data(), message.size(), 0); } while (size < 0 && errno == EINTR);
  message.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return message;
}

constexpr char kSeparator = '\0';

std::string error_fields(const Error& error) {
  std::string fields(1, static_cast<char>(error.blame()));
  for (const std::string& field : {error.kind(), error.hint(), error.message()}) fields += field + kSeparator;
  return fields;
}

Error parse_error(std::string_view fields) {
  const auto blame = static_cast<Blame>(fields.front());
  fields.remove_prefix(1);
  const auto next = [&] {
    const std::string field(fields.substr(0, fields.find(kSeparator)));
    fields.remove_prefix(std::min(fields.size(), field.size() + 1));
    return field;
  };
  std::string kind = next(), hint = next();  // the message last: a long one may have been cut
  return {std::move(kind), blame, next(), std::move(hint)};
}

// A task as a message: both ends are one program. The parts' dp ranks, the skips and the ring's address follow.
struct TaskHead {
  RingShape ring;
  BatchOrder order;
  std::int64_t first_sample;
  std::size_t parts, skips;
  Division division;
  bool has_digests;
  int most_loaders;
};
static_assert(std::is_trivially_copyable_v<TaskHead>);

template <class T>
void append_all(std::string& bytes, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
template <class T>
std::vector<T> take_all(std::string_view& bytes, std::size_t count) {
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
  return values;
}

std::string encode(const BatchRing& ring, const LoaderTask& task) {
  const TaskHead head{ring.shape(),      task.order,    task.first_sample, task.dp_ranks.size(),
                      task.skips.size(), task.division, task.has_digests,  task.most_loaders};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  append_all(bytes, task.dp_ranks);
  append_all(bytes, task.skips);
  return bytes + ring.address();
}

struct Assignment {
  RingShape shape;
  std::string address;
  LoaderTask task;
};

Assignment decode(std::string_view bytes) {
  const TaskHead head = take_all<TaskHead>(bytes, 1).front();
  std::vector<int> dp_ranks = take_all<int>(bytes, head.parts);
  std::vector<Skip> skips = take_all<Skip>(bytes, head.skips);
  return {head.ring,
          std::string(bytes),
          {.order = head.order,
           .first_sample = head.first_sample,
           .dp_ranks = std::move(dp_ranks),
           .division = head.division,
           .has_digests = head.has_digests,
           .skips = std::move(skips),
           .most_loaders = head.most_loaders}};
}

Error start_error(int err) {
  return system_error("data.loader", Blame::user, fmt::format("cannot start the loader's process: {}", errno_text(err)),
                      err, "'ulimit -u' limits the processes of a user");
}

// The process goes with its parent, and not with the signals that launchers send to all processes of a run.
void belong_to(pid_t parent, const char* name) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_NAME, name);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // it was faster
}

// Runs `work` to the end of this process; what it throws is told to the rank.
[[noreturn]] void run_to_the_end(int socket, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& thrown) {
    send_message(socket, MessageKind::error, error_fields(error_of(thrown, "data.bug")));
  }
  ::_exit(0);
}

// Waits for the end of a loader. One that is stopped may never go on, and would hold up all ranks: it is ended.
void wait_or_kill(pid_t loader, int& status) {
  const auto wait = [&](int options) {
    while (::waitpid(loader, &status, options) < 0 && errno == EINTR) {}
  };
  wait(WUNTRACED);
  if (!WIFSTOPPED(status)) return;
  log::warn("data", "the loader, process {}, was stopped by signal {}", loader, WSTOPSIG(status));
  ::kill(loader, SIGKILL);
  wait(0);
}

// Forks loaders, one after another, until one has come to its end.
void keep_a_loader(int socket, const BatchSource& source, BatchRing& ring, const LoaderTask& task) {
  int deaths = 0;
  while (true) {
    const pid_t self = ::getpid();
    const std::uint64_t before = ring.published();
    const pid_t child = ::fork();
    if (child == 0) {
      belong_to(self, "ms-loader");
      // Never destroyed: an error is told while other threads may wait for storage that does not answer.
      SourceLoaders loaders(source, LoaderCount(task.most_loaders > 0 ? task.most_loaders : default_workers()));
      run_to_the_end(socket, [&] { fill_ring(loaders, ring, task); });
    }
    int status = 0;
    if (child < 0) throw start_error(errno);
    wait_or_kill(child, status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    SubprocessResult end;  // for its words
    (WIFSIGNALED(status) ? end.signal : end.exit_status) = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    const std::string how = end.describe();
    deaths = ring.published() == before ? deaths + 1 : 0;
    if (deaths == kMostDeaths) {
      throw Error(
          "data.loader", Blame::node,
          fmt::format("the loader of this node has died {} times in a row without reading a batch, the last time "
                      "with {}",
                      deaths, how));
    }
    log::warn("data", "the loader, process {}, has ended: {}; another takes over after {} batches", child, how,
              ring.published());
  }
}

// The life of the standby.
void stand_by(int socket, const OpenBatches& open) {
  if (receive_message(socket).empty()) return;
  const std::unique_ptr<BatchSource> source = open();
  send_message(socket, MessageKind::facts, source->facts());
  const std::string message = receive_message(socket);
  if (message.empty()) return;
  const Assignment assignment = decode(std::string_view(message).substr(1));
  source->begin(assignment.task);
  BatchRing ring(assignment.shape, assignment.address);
  keep_a_loader(socket, *source, ring, assignment.task);
  receive_message(socket);  // until the rank needs it no more
}

}  // namespace

LoaderProcess::LoaderProcess(const OpenBatches& open) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) throw start_error(errno);
  socket_ = UniqueFd(ends[0]);
  const UniqueFd other(ends[1]);
  const pid_t self = ::getpid();
  standby_ = ::fork();
  if (standby_ < 0) throw start_error(errno);
  if (standby_ > 0) return;
  belong_to(self, "ms-load-standby");
  socket_.reset();
  run_to_the_end(other.get(), [&] { stand_by(other.get(), open); });
}

LoaderProcess::~LoaderProcess() { dismiss(); }

void LoaderProcess::dismiss() {
  if (standby_ < 0) return;
  socket_.reset();
  ::kill(standby_, SIGKILL);
  // A process that waits for a disk ends when that answers; its zombie then goes with this process.
  constexpr double kMostWait_s = 1;
  const double begin = monotonic_s();
  while (::waitpid(standby_, nullptr, WNOHANG) == 0 && monotonic_s() - begin < kMostWait_s) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  standby_ = -1;
}

// nullopt: there is none yet. Throws where the other end is gone.
std::optional<std::string> LoaderProcess::receive(int patience_ms) {
  pollfd polled{socket_.get(), POLLIN, 0};
  if (::poll(&polled, 1, patience_ms) <= 0) return std::nullopt;
  std::string message = receive_message(socket_.get());
  if (message.empty()) {
    throw Error(
        "data.loader", Blame::node,
        fmt::format("the process that loads data for this node, {}, has ended, and its standby with it", standby_),
        "something has killed it: the kernel's log says whether memory was short");
  }
  if (message.front() == static_cast<char>(MessageKind::error)) throw parse_error(std::string_view(message).substr(1));
  return message.substr(1);
}

std::string LoaderProcess::open(double timeout_s, const std::function<void()>& check) {
  constexpr int kCheckEvery_ms = 20;
  send_message(socket_.get(), MessageKind::open, "");
  const double begin = monotonic_s();
  while (true) {
    if (const std::optional<std::string> facts = receive(kCheckEvery_ms)) return *facts;
    check();
    if (monotonic_s() - begin < timeout_s) continue;
    throw Error(
        "data.timeout", Blame::storage,
        fmt::format("the files of data.train were not opened within {} s, their storage does not answer", timeout_s));
  }
}

void LoaderProcess::run(const BatchRing& ring, const LoaderTask& task) {
  send_message(socket_.get(), MessageKind::run, encode(ring, task));
}

void LoaderProcess::check() { receive(0); }

}  // namespace ms::data
