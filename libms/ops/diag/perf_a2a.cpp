// perf.a2a: every rank has a block for every other one. Ranks are threads of this process; in each round of a
// tournament they exchange in pairs. What arrived in the last turn is verified word by word.
#include <algorithm>
#include <future>
#include <map>
#include <memory>

#include "base/clock.h"
#include "base/text.h"
#include "comm/thread_world.h"
#include "diag/rates.h"
#include "diag/works.h"
#include "net/measure/pattern.h"
#include "tensor/cpu_device.h"

namespace ms::diag {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kMostWords = kA2aWork.most / 4;
constexpr milliseconds kDeadline{10000};  // of an operation: sooner than the check's own

struct Exchanged {
  Pace pace{kA2aWork};  // the same for all ranks
  std::size_t num_wrong = 0;
};

class Rank {
 public:
  Rank(comm::World& world, tensor::CpuPool& pool, tensor::MatmulCache& matmuls, const health::Evidence& evidence)
      : rank_(world.rank()), ranks_(world.size()), evidence_(evidence), device_(pool, matmuls) {
    stream_ = device_.make_stream("a2a", tensor::StreamKind::comm);
    std::vector<int> everybody;
    for (int other = 0; other < ranks_; ++other) everybody.push_back(other);
    all_ = world.open({"a2a", 0, everybody}, *stream_);
    memory_ = device_.allocate(static_cast<std::size_t>((2 * ranks_ + 1) * kMostWords * 4), "blocks");
    tensor::Arena arena(*memory_);
    for (int other = 0; other < ranks_; ++other) {
      out_.push_back(arena.take(tensor::DType::i32, 1, kMostWords));
      in_.push_back(arena.take(tensor::DType::i32, 1, kMostWords));
      if (other == rank_) continue;
      const int low = std::min(rank_, other), high = std::max(rank_, other);
      pairs_[other] = world.open({fmt::format("a2a {}-{}", low, high), 1 + low * ranks_ + high, {low, high}}, *stream_);
    }
    agreed_ = arena.take(tensor::DType::f32, 1, 2);
  }

  Exchanged run() {
    Exchanged result;
    Pace& pace = result.pace;
    std::int64_t words = 0;
    while (pace.more()) {
      const double begun_s = monotonic_s();
      if (words != pace.size() / 4) {
        words = pace.size() / 4;
        for (int other = 0; other < ranks_; ++other)
          net::fill_block(words_of(out_, other, words), rank_, other, kRound);
      }
      const double turn_s = turn(words);
      // The slowest decides, for all alike; what comes before a turn is part of the rounds that find their size.
      agreed_.as<float>()[0] = static_cast<float>(pace.is_counted() ? turn_s : monotonic_s() - begun_s);
      agreed_.as<float>()[1] = static_cast<float>(-evidence_.left_s());
      all_->all_reduce(agreed_, comm::ReduceKind::max);
      stream_->synchronize();
      pace.ended(agreed_.as<float>()[0], -agreed_.as<float>()[1]);
    }
    for (int other = 0; other < ranks_; ++other) {
      if (other != rank_) result.num_wrong += net::count_wrong_words(words_of(in_, other, words), other, rank_, kRound);
    }
    return result;
  }

 private:
  static constexpr int kRound = 1;  // of the pattern
  static std::span<std::uint32_t> words_of(const std::vector<tensor::Tensor>& blocks, int other, std::int64_t words) {
    return {blocks[static_cast<std::size_t>(other)].as<std::uint32_t>(), static_cast<std::size_t>(words)};
  }

  // Seconds of one turn, for which all set out together.
  double turn(std::int64_t words) {
    all_->barrier();
    stream_->synchronize();
    const double begun_s = monotonic_s();
    for (int round = 0; round < ranks_ - 1; ++round) {
      const int other = net::partner_of(rank_, round, ranks_);
      comm::Communicator& pair = *pairs_.at(other);
      const tensor::Tensor out = out_[static_cast<std::size_t>(other)].slice_cols(0, words),
                           in = in_[static_cast<std::size_t>(other)].slice_cols(0, words);
      if (rank_ < other) pair.send(out);
      pair.recv(in);
      if (rank_ > other) pair.send(out);
    }
    all_->barrier();
    stream_->synchronize();
    return monotonic_s() - begun_s;
  }

  int rank_, ranks_;
  const health::Evidence& evidence_;
  tensor::CpuDevice device_;
  std::unique_ptr<tensor::Memory> memory_;  // outlives the stream, which outlives the communicators
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<comm::Communicator> all_;
  std::map<int, std::unique_ptr<comm::Communicator>> pairs_;
  std::vector<tensor::Tensor> out_, in_;
  tensor::Tensor agreed_;  // the seconds of a round, and those that are left, negative
};

std::vector<Exchanged> exchange(const Share& share, int ranks, const health::Evidence& evidence) {
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool({.workers = ranks, .threads_per_op = 1});
  comm::ThreadHub hub(ranks, kDeadline);
  const OnCpus bound(share.cpus);
  std::vector<std::future<Exchanged>> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.push_back(std::async(std::launch::async, [&, rank]() -> Exchanged {
      const std::unique_ptr<comm::World> world = hub.world(rank);
      try {
        Exchanged got = Rank(*world, pool, matmuls, evidence).run();
        world->close();
        return got;
      } catch (const Error& error) { world->abort(error); }
      return {};
    }));
  }
  std::vector<Exchanged> all;
  for (auto& thread : threads) all.push_back(thread.get());
  if (const std::optional<comm::World::Cause> cause = hub.world(0)->cause()) {
    // All ranks are threads of this process: only a lack of processors lets them wait.
    if (cause->error.kind() == "comm.deadline") throw health::NotMeasured(cause->error.message());
    throw cause->error;
  }
  return all;
}

health::Result measure_a2a(health::Evidence& evidence) {
  const Share share = this_share();
  const int ranks = std::clamp(static_cast<int>(share.cpus.size()) / 2 * 2, 2, kMostRanks);
  const std::vector<Exchanged> all = exchange(share, ranks, evidence);
  std::vector<Finding> findings;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t num_wrong = all[static_cast<std::size_t>(rank)].num_wrong;
    if (num_wrong == 0) continue;
    findings.push_back({.entity = fmt::format("rank {} of {}", rank, ranks),
                        .message = fmt::format("{} words that arrived are not what was sent", num_wrong),
                        .measured = static_cast<double>(num_wrong),
                        .limit = 0,
                        .unit = "words",
                        .remedy = "Take the node out of service and test its memory."});
  }
  if (!findings.empty()) return health::judged(std::move(findings));
  const Pace& pace = all.front().pace;
  pace.require_measured();
  const double bytes = static_cast<double>(pace.size()) * ranks * (ranks - 1) * pace.rounds();
  const health::ActiveConfig& expect = evidence.policy().active;
  return judge_rates({{"all-to-all", bytes / pace.total_s() / 1e9, expect.a2a_gbps, "GB/s"}}, expect.min_fraction,
                     share, Scope::cores,
                     fmt::format("{}, {} ranks as threads, blocks of {}", share.str(), ranks,
                                 format_size(static_cast<double>(pace.size()))));
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
    .on_hang = std::nullopt,
    .explain =
        "Up to sixteen ranks, as threads of one process, exchange blocks all-to-all for a second. The blocks are 4 "
        "MiB, or 1 MiB on slow nodes. Every received word is verified.\n\n"
        "The result is the total rate of all ranks. Low rates have the same causes as in perf.memory, or busy cores. "
        "Wrong data are never normal. The limit is active.a2a_gbps.",
    .remedy = kLooksSlow,
    .run = measure_a2a};

}  // namespace ms::diag
