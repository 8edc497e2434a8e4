// perf.a2a: every rank has a block for every other one. Ranks are threads of this process; in each round of a
// tournament they exchange in pairs. What arrived in the last turn is verified word by word.
#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>

#include "base/text.h"
#include "comm/thread_world.h"
#include "diag/rates.h"
#include "net/measure/pattern.h"
#include "tensor/cpu_device.h"

namespace ms::diag {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kDeadline{8000};
constexpr double kAllToAll_s = 1;
constexpr int kMostRanks = 16;
constexpr std::int64_t kBlockWords = 1 << 20;  // 4 MiB

struct Exchanged {
  double seconds = 0;  // of all turns
  int turns = 0;
  std::size_t num_wrong = 0;
};

class Rank {
 public:
  Rank(comm::ThreadHub& hub, tensor::CpuPool& pool, tensor::MatmulCache& matmuls, int rank, int ranks)
      : rank_(rank), ranks_(ranks), world_(hub.world(rank)), device_(pool, matmuls) {
    stream_ = device_.make_stream("a2a", tensor::StreamKind::comm);
    std::vector<int> everybody;
    for (int other = 0; other < ranks; ++other) everybody.push_back(other);
    all_ = world_->open({"a2a", 0, everybody}, *stream_);
    memory_ = device_.allocate(static_cast<std::size_t>((2 * ranks + 1) * kBlockWords * 4), "blocks");
    tensor::Arena arena(*memory_);
    for (int other = 0; other < ranks; ++other) {
      out_.push_back(arena.take(tensor::DType::i32, 1, kBlockWords));
      in_.push_back(arena.take(tensor::DType::i32, 1, kBlockWords));
      if (other == rank) continue;
      const int low = std::min(rank, other), high = std::max(rank, other);
      pairs_[other] =
          world_->open({fmt::format("a2a {}-{}", low, high), 1 + low * ranks + high, {low, high}}, *stream_);
    }
    elapsed_ = arena.take(tensor::DType::f32, 1, 1);
  }

  Exchanged run() {
    turn(0);  // finds the memory, and how many turns fill the time: the slowest decides, for all alike
    elapsed_.as<float>()[0] = static_cast<float>(std::min({turn(1), turn(1), turn(1)}));
    all_->all_reduce(elapsed_, comm::ReduceKind::max);
    stream_->synchronize();
    Exchanged result;
    result.turns = std::clamp(static_cast<int>(kAllToAll_s / elapsed_.as<float>()[0]), 1, 1000);
    for (int i = 0; i < result.turns; ++i) result.seconds += turn(2);
    for (int other = 0; other < ranks_; ++other) {
      if (other == rank_) continue;
      result.num_wrong += net::count_wrong_words(
          {in_[static_cast<std::size_t>(other)].as<std::uint32_t>(), kBlockWords}, other, rank_, 2);
    }
    world_->close();
    return result;
  }

 private:
  // Seconds of one turn, for which all set out together.
  double turn(int number) {
    if (number != filled_) {
      for (int other = 0; other < ranks_; ++other) {
        net::fill_block({out_[static_cast<std::size_t>(other)].as<std::uint32_t>(), kBlockWords}, rank_, other, number);
      }
      filled_ = number;
    }
    all_->barrier();
    stream_->synchronize();
    const Clock::time_point start = Clock::now();
    for (int round = 0; round < ranks_ - 1; ++round) {
      const int other = net::partner_of(rank_, round, ranks_);
      comm::Communicator& pair = *pairs_.at(other);
      const tensor::Tensor &out = out_[static_cast<std::size_t>(other)], &in = in_[static_cast<std::size_t>(other)];
      if (rank_ < other) pair.send(out);
      pair.recv(in);
      if (rank_ > other) pair.send(out);
    }
    all_->barrier();
    stream_->synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  int rank_, ranks_;
  int filled_ = -1;
  std::unique_ptr<comm::World> world_;
  tensor::CpuDevice device_;
  std::unique_ptr<tensor::Memory> memory_;  // outlives the stream, which outlives the communicators
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<comm::Communicator> all_;
  std::map<int, std::unique_ptr<comm::Communicator>> pairs_;
  std::vector<tensor::Tensor> out_, in_;
  tensor::Tensor elapsed_;
};

health::Result measure_a2a(health::Evidence& evidence) {
  const Share share = this_share();
  const OnCpus bound(share.cpus);
  const int ranks = std::clamp(static_cast<int>(share.cpus.size()) / 2 * 2, 2, kMostRanks);
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool({.workers = ranks, .threads_per_op = 1});
  comm::ThreadHub hub(ranks, kDeadline);
  std::vector<std::future<Exchanged>> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.push_back(
        std::async(std::launch::async, [&, rank] { return Rank(hub, pool, matmuls, rank, ranks).run(); }));
  }
  std::vector<Finding> findings;
  Exchanged slowest;
  for (int rank = 0; rank < ranks; ++rank) {
    const Exchanged got = threads[static_cast<std::size_t>(rank)].get();
    if (got.seconds > slowest.seconds) slowest = got;
    if (got.num_wrong == 0) continue;
    findings.push_back({.entity = fmt::format("rank {} of {}", rank, ranks),
                        .message = fmt::format("{} words that arrived are not what was sent", got.num_wrong),
                        .measured = static_cast<double>(got.num_wrong),
                        .limit = 0,
                        .unit = "words",
                        .remedy = "Take the node out of service and test its memory."});
  }
  if (!findings.empty()) return health::judged(std::move(findings));
  const double bytes = static_cast<double>(kBlockWords) * 4 * ranks * (ranks - 1) * slowest.turns;
  const health::ActiveConfig& expect = evidence.policy().active;
  return judge_rates({{"all-to-all", bytes / slowest.seconds / 1e9, expect.a2a_gbps, "GB/s"}}, expect.min_fraction,
                     share, Scope::cores, fmt::format("{}, {} ranks as threads", share.str(), ranks));
}

}  // namespace

extern constinit const health::Check kPerfA2a = {
    .code = "perf.a2a",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "all-to-all inside the node slower than expected, or wrong",
    .deadline_s = 15,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .explain =
        "Ranks that are threads of one process, at most sixteen, exchange blocks pairwise until everybody has one "
        "from everybody, over and over for a second. Every word that arrives is verified.\n\nThe number is what all "
        "ranks send together. Slow is what perf.memory is slow for, or cores that are busy; wrong is never normal. "
        "Judged against active.a2a_gbps.",
    .remedy = kLooksSlow,
    .run = measure_a2a};

}  // namespace ms::diag
