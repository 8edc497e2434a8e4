#include "diag/nccl_exchange.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <memory>

#include "base/text.h"
#include "comm/nccl_plugin.h"
#include "comm/thread_world.h"
#include "diag/gpu.h"
#include "diag/gpu_pairs.h"
#include "diag/rates.h"
#include "fabric/staged.h"
#include "net/measure/pattern.h"
#include "tensor/cpu_device.h"

namespace ms::diag {
namespace {

using Time = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kNcclDeadline{15000};  // of one operation; the first ones start NCCL
constexpr std::int64_t kTrialBytes = 256 << 10;            // of the message that tells how long one takes
constexpr std::int64_t kMostPieceBytes = 16 << 20;         // NVLink carries 4 MiB in 10 us
constexpr double kRound_s = 0.2;
constexpr int kLeastPieces = 4;
constexpr int kMostPieces = 256;
constexpr int kTrials = 2;  // of which the first one finds the memory
constexpr int kPasses = 2;

// One GPU's part: a thread, with a host device for the barriers.
class GpuRank {
 public:
  GpuRank(comm::World& world, tensor::Device& host, TestGpu& gpu, std::int64_t piece_bytes, GpuPairs& pairs,
          std::vector<double>& trials_s)
      : world_(world),
        piece_bytes_(piece_bytes),
        pairs_(pairs),
        trials_s_(trials_s),
        out_(*gpu.device, piece_bytes, "messages"),
        in_(*gpu.device, piece_bytes, "messages"),
        meet_stream_(host.make_stream("nccl", tensor::StreamKind::comm)),
        out_stream_(gpu.device->make_stream("nccl out", tensor::StreamKind::comm)),
        in_stream_(gpu.device->make_stream("nccl in", tensor::StreamKind::comm)) {
    std::vector<int> everybody;
    for (int rank = 0; rank < world.size(); ++rank) everybody.push_back(rank);
    all_ = world.open({"all GPUs", 0, everybody}, *meet_stream_);
  }

  void run(int pass) {
    const int even = world_.size() + world_.size() % 2;
    for (int round = 0; round + 1 < even; ++round) exchange(net::partner_of(world_.rank(), round, even), pass);
  }

 private:
  void meet() {
    all_->barrier();
    meet_stream_->synchronize();
  }

  std::unique_ptr<comm::Communicator> open(int from, int to) {
    const auto name = [&](int rank) { return pairs_.gpus[static_cast<std::size_t>(rank)]; };
    auto way = world_.open({fmt::format("{} to {}", name(from), name(to)), 1 + from * world_.size() + to, {from, to}},
                           from == world_.rank() ? *out_stream_ : *in_stream_);
    way->connect();
    return way;
  }

  // A round with this partner; one behind the last rank is none, and this GPU has nothing to do.
  void exchange(int other, int pass) {
    const int me = world_.rank();
    const bool takes_part = other < world_.size();
    std::unique_ptr<comm::Communicator> to, from;
    if (takes_part) {  // the lower one's way first, for both
      for (const int sender : {std::min(me, other), std::max(me, other)})
        (sender == me ? to : from) = open(sender, sender == me ? other : me);
      const std::int64_t words = piece_bytes_ / 4;
      net::fill_block(words_of(out_), me, other, pass);
      std::ranges::fill(words_of(in_), 0xdeadbeefU);
      out_.push(*out_stream_, 0, words * 4);
      in_.push(*in_stream_, 0, words * 4);
    }
    double& trial_s = trials_s_[static_cast<std::size_t>(me)];
    for (int i = 0; i < kTrials; ++i) trial_s = transfer(to.get(), from.get(), std::min(kTrialBytes, piece_bytes_), 1);
    meet();  // both of a pair come to the same numbers
    const double slower_s = takes_part ? std::max(trial_s, trials_s_[static_cast<std::size_t>(other)]) : trial_s;
    const double wanted =
        static_cast<double>(std::min(kTrialBytes, piece_bytes_)) / std::max(slower_s, 1e-9) * kRound_s;
    const std::int64_t bytes = std::clamp(static_cast<std::int64_t>(wanted) / kLeastPieces / 4 * 4,
                                          std::min(kTrialBytes, piece_bytes_), piece_bytes_);
    const int pieces = std::clamp(static_cast<int>(wanted / static_cast<double>(bytes)), kLeastPieces, kMostPieces);
    const double seconds = transfer(to.get(), from.get(), bytes, pieces);
    if (takes_part) {
      const auto sender = static_cast<std::size_t>(other), receiver = static_cast<std::size_t>(me);
      double& gbps = pairs_.gbps[sender][receiver];
      gbps = std::max(gbps, static_cast<double>(bytes) * pieces / seconds / 1e9);
      in_.pull(*in_stream_, 0, bytes);
      pairs_.wrong[sender][receiver] +=
          net::count_wrong_words(words_of(in_).first(static_cast<std::size_t>(bytes / 4)), other, me, pass);
      for (comm::Communicator* way : {to.get(), from.get()}) dynamic_cast<comm::Retiring&>(*way).retire();
    }
    meet();  // so everybody has retired theirs
  }

  // Seconds until all pieces were here.
  double transfer(comm::Communicator* to, comm::Communicator* from, std::int64_t bytes, int pieces) {
    meet();
    const Time::time_point begin = Time::now();
    for (int i = 0; i < pieces && to != nullptr; ++i) {
      to->send(out_.words(0, bytes));
      from->recv(in_.words(0, bytes));
    }
    in_stream_->synchronize();
    const double seconds = std::chrono::duration<double>(Time::now() - begin).count();
    out_stream_->synchronize();
    return seconds;
  }

  std::span<std::uint32_t> words_of(const fabric::Staged& buffer) const {
    return {reinterpret_cast<std::uint32_t*>(buffer.host(0)), static_cast<std::size_t>(piece_bytes_ / 4)};
  }

  comm::World& world_;
  std::int64_t piece_bytes_;
  GpuPairs& pairs_;                // each rank writes the pairs that it receives from
  std::vector<double>& trials_s_;  // of all ranks, read behind a barrier
  fabric::Staged out_, in_;
  std::unique_ptr<tensor::Stream> meet_stream_, out_stream_, in_stream_;  // which drain before their memory goes
  std::unique_ptr<comm::Communicator> all_;
};

// The finding for the first cause of a failure. An error of NCCL about a peer, whose process is ours and lives, accuses
// no rank.
Finding failure_of(const comm::World::Cause& cause, const std::vector<std::string>& gpus) {
  std::optional<int> named = cause.accused();
  if (cause.error.blame() == Blame::peer && cause.error.kind() != "comm.deadline") named.reset();
  return {.severity = kUnseen,
          .entity = named ? gpus.at(static_cast<std::size_t>(*named)) : "all-to-all",
          .message = "it failed: " + cause.error.message(),
          .remedy =
              "NCCL_DEBUG=WARN ms-diag run --level 2 --only 'perf.nccl*' shows more; gpu.xid, gpu.nvlink and "
              "gpu.fabric show whether the GPUs have lost each other."};
}

std::optional<Finding> exchange_once(const std::vector<TestGpu*>& gpus, std::int64_t piece_bytes, int pass,
                                     GpuPairs& pairs) {
  const int ranks = static_cast<int>(gpus.size());
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool({.workers = ranks, .threads_per_op = 1});
  comm::ThreadHub hub(ranks, kNcclDeadline);
  std::vector<double> trials_s(gpus.size());
  std::vector<std::future<void>> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.push_back(std::async(std::launch::async, [&, rank] {
      const std::unique_ptr<comm::World> world = hub.world(rank);
      tensor::CpuDevice host(pool, matmuls);
      try {
        GpuRank(*world, host, *gpus[static_cast<std::size_t>(rank)], piece_bytes, pairs, trials_s).run(pass);
        world->close();
      } catch (const Error& error) { world->abort(error); }
    }));
  }
  for (std::future<void>& thread : threads) thread.get();
  const std::optional<comm::World::Cause> cause = hub.world(0)->cause();
  return cause ? std::optional(failure_of(*cause, pairs.gpus)) : std::nullopt;
}

std::string slowest_pair(const GpuPairs& pairs) {
  std::size_t a = 0, b = 1;
  for (std::size_t i = 0; i < pairs.gpus.size(); ++i) {
    for (std::size_t j = i + 1; j < pairs.gpus.size(); ++j) {
      if (pairs.slower_way(i, j) < pairs.slower_way(a, b)) a = i, b = j;
    }
  }
  return fmt::format("slowest pair {} and {} at {:.3g}", pairs.gpus[a], pairs.gpus[b], pairs.slower_way(a, b));
}

}  // namespace

health::Result exchange_by_nccl(health::Evidence& evidence, double expected_gbps) {
  const Share share = this_share();
  GpuSet set = find_gpus(evidence, share);
  if (set.nothing) return *set.nothing;
  if (!comm::has_nccl()) return health::skipped("libms_cuda.so was built without NCCL");
  ::setenv("NCCL_DEBUG_FILE", "/dev/stderr", 0);  // standard output is the report's
  std::vector<Finding> failed = on_each_gpu(set.gpus, [](TestGpu&) {});
  std::vector<TestGpu*> gpus;
  std::vector<std::string> names;
  std::int64_t piece_bytes = kMostPieceBytes;
  for (TestGpu& gpu : set.gpus) {
    if (gpu.device == nullptr) continue;
    gpus.push_back(&gpu);
    names.push_back(gpu.entity);
    piece_bytes = std::min(piece_bytes, test_bytes(*gpu.device, kMostPieceBytes));
  }
  if (gpus.size() < 2) {
    return failed.empty() ? health::skipped("this process sees one GPU, which has no other to exchange with")
                          : health::judged(std::move(failed));
  }
  GpuPairs pairs(std::move(names));
  std::vector<Finding> slow;
  const double before_s = evidence.left_s();
  for (int pass = 0; pass < kPasses && (pass == 0 || !slow.empty()); ++pass) {
    if (pass > 0 && before_s - evidence.left_s() > evidence.left_s()) {  // once is not enough to name a GPU
      slow.clear();
      break;
    }
    if (std::optional<Finding> failure = exchange_once(gpus, piece_bytes, pass, pairs)) {
      failed.push_back(std::move(*failure));
      return health::judged(std::move(failed));
    }
    slow = slow_gpus(pairs);
  }
  std::vector<Rate> rates;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu)
    rates.push_back({pairs.gpus[gpu], typical_gbps(pairs, gpu), expected_gbps, "GB/s"});
  health::Result result =
      judge_rates(rates, evidence.policy().active.min_fraction, share, Scope::whole,
                  fmt::format("NCCL, each way between {} GPUs, {}", gpus.size(), slowest_pair(pairs)), kUnseen);
  for (std::vector<Finding> more : {std::move(slow), wrong_gpus(pairs)})
    failed.insert(failed.end(), more.begin(), more.end());
  return with_findings(std::move(result), std::move(failed));
}

}  // namespace ms::diag
