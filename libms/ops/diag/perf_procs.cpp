// perf.procs: an all-to-all between processes of this node, through shared memory.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "diag/rates.h"
#include "diag/works.h"
#include "net/measure/pattern.h"

namespace ms::diag {
namespace {

constexpr std::int64_t kSlotWords = kProcsWork.most / 4;

struct Shared {
  std::atomic<int> arrived{0};
  std::atomic<int> turn{0};
  std::atomic<std::int64_t> num_wrong{0};
  Pace pace{kProcsWork};  // changed by process 0 before all meet, and read behind that
};

// Memory that forked processes have in common: the counters, and a slot from everybody to everybody.
class Segment {
 public:
  explicit Segment(int processes)
      : bytes_(kHead + static_cast<std::size_t>(processes * processes) * kSlotWords * 4),
        data_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) throw Error("diag.memory", Blame::node, "cannot share memory: " + errno_text(errno));
    shared_ = new (data_) Shared;
  }
  ~Segment() { ::munmap(data_, bytes_); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  Shared& shared() const { return *shared_; }
  std::span<std::uint32_t> slot(int number) const {
    std::byte* const slots = static_cast<std::byte*>(data_) + kHead;
    return {reinterpret_cast<std::uint32_t*>(slots + static_cast<std::size_t>(number) * kSlotWords * 4), kSlotWords};
  }

 private:
  static constexpr std::size_t kHead = 4096;
  static_assert(sizeof(Shared) <= kHead);
  std::size_t bytes_;
  void* data_;
  Shared* shared_;
};

// All processes pass together. A process that dies leaves the others waiting: the check's deadline ends them.
void meet(Shared& shared, int processes) {
  const int turn = shared.turn.load();
  if (shared.arrived.fetch_add(1) + 1 == processes) {
    shared.arrived = 0;
    ++shared.turn;
    return;
  }
  while (shared.turn.load() == turn) std::this_thread::yield();
}

// In each process: fills blocks of its own, then in every turn puts one into everybody's slot and takes what everybody
// left for it, as MPI and NCCL do within a node.
void exchange(const Segment& segment, int rank, int processes, const health::Evidence& evidence) {
  Shared& shared = segment.shared();
  Pace& pace = shared.pace;
  std::vector<std::vector<std::uint32_t>> out(static_cast<std::size_t>(processes)), in(out.size());
  std::size_t words = 0;
  double begun_s = monotonic_s();
  while (pace.more()) {
    if (words != static_cast<std::size_t>(pace.size()) / 4) {
      words = static_cast<std::size_t>(pace.size()) / 4;
      for (int other = 0; other < processes; ++other) {
        const auto at = static_cast<std::size_t>(other);
        out[at].resize(words);
        in[at].resize(words);
        net::fill_block(out[at], rank, other, 0);
      }
    }
    for (int other = 0; other < processes; ++other) {
      std::memcpy(segment.slot(rank * processes + other).data(), out[static_cast<std::size_t>(other)].data(),
                  words * 4);
    }
    meet(shared, processes);
    for (int other = 0; other < processes; ++other) {
      std::memcpy(in[static_cast<std::size_t>(other)].data(), segment.slot(other * processes + rank).data(), words * 4);
    }
    if (rank == 0) {
      const double now_s = monotonic_s();
      pace.ended(now_s - begun_s, evidence.left_s());
      begun_s = now_s;
    }
    meet(shared, processes);
  }
  for (int other = 0; other < processes; ++other) {
    shared.num_wrong +=
        static_cast<std::int64_t>(net::count_wrong_words(in[static_cast<std::size_t>(other)], other, rank, 0));
  }
}

health::Result measure_procs(health::Evidence& evidence) {
  const Share share = this_share();
  const int processes = std::clamp(static_cast<int>(share.cpus.size()), 2, kMostRanks);
  const Segment segment(processes);
  const pid_t parent = ::getpid();
  std::vector<pid_t> children;
  for (int rank = 0; rank < processes; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) {
      for (const pid_t other : children) ::kill(other, SIGKILL);
      return health::broken("fork: " + errno_text(errno));
    }
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      const OnCpus bound({share.cpus[static_cast<std::size_t>(rank) % share.cpus.size()]});
      exchange(segment, rank, processes, evidence);
      ::_exit(0);
    }
    children.push_back(child);
  }
  bool died = false;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    if (::wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      died = true;
      for (const pid_t child : children) ::kill(child, SIGKILL);
    }
  }
  if (died) return health::broken("a process of the exchange ended early");
  const Shared& shared = segment.shared();
  const Pace& pace = shared.pace;
  const std::string how = fmt::format("{}, {} processes through shared memory, blocks of {}", share.str(), processes,
                                      format_size(static_cast<double>(pace.size())));
  if (const std::int64_t wrong = shared.num_wrong; wrong > 0) {
    return health::judged({{.entity = "all-to-all",
                            .message = fmt::format("{} words that arrived are not what was sent ({})", wrong, how),
                            .measured = static_cast<double>(wrong),
                            .limit = 0,
                            .unit = "words",
                            .remedy = "Take the node out of service and test its memory."}});
  }
  pace.require_measured();
  const double bytes = static_cast<double>(pace.size()) * processes * processes * pace.rounds();
  const health::ActiveConfig& expect = evidence.policy().active;
  return judge_rates({{"all-to-all", bytes / pace.total_s() / 1e9, expect.procs_gbps, "GB/s"}}, expect.min_fraction,
                     share, Scope::cores, how);
}

}  // namespace

extern constinit const health::Check kPerfProcs = {
    .code = "perf.procs",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "all-to-all between processes of the node slower than expected, or wrong",
    .deadline_s = 15,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .on_hang = std::nullopt,
    .explain =
        "Up to sixteen processes, one per core, exchange blocks all-to-all through shared memory for a second, as MPI "
        "and NCCL do within a node. The blocks are 1 MiB, or 256 KiB on slow nodes. The last blocks are verified word "
        "by word.\n\n"
        "Compared with perf.a2a, which uses threads, it shows the cost of processes: remote memory, small pages, "
        "kernel mitigations. The limit is active.procs_gbps.",
    .remedy = kLooksSlow,
    .run = measure_procs};

}  // namespace ms::diag
