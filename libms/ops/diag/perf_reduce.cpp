// perf.reduce: all processes of one launch add up the same vector, over MPI. Sums are known exactly and verified in
// every turn.
#include <chrono>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/text.h"
#include "comm/mpi_world.h"
#include "diag/rates.h"
#include "diag/works.h"
#include "net/measure/pattern.h"
#include "slurm/launch.h"
#include "tensor/cpu_device.h"

namespace ms::diag {
namespace {

constexpr std::chrono::milliseconds kDeadline{12000};  // until all others are at it, too
constexpr std::int64_t kElements = kReduceWork.most / 4;

struct Reduced {
  Pace pace{kReduceWork};  // of whole turns, the same for all
  double seconds = 0;      // of the reductions in turns that count
  int turns = 0;           // of any size
  std::size_t num_wrong = 0;
};

class Reducer {
 public:
  Reducer(comm::World& world, const Share& share, const health::Evidence& evidence)
      : world_(world),
        evidence_(evidence),
        pool_({.workers = 1, .threads_per_op = static_cast<int>(share.cpus.size())}),
        device_(pool_, matmuls_),
        memory_(device_.allocate(kElements * sizeof(float) + tensor::Arena::kAlignment * 2, "the vector")),
        stream_(device_.make_stream("reduce", tensor::StreamKind::comm)) {
    std::vector<int> everybody;
    for (int rank = 0; rank < world.size(); ++rank) everybody.push_back(rank);
    all_ = world.open({"reduce", 0, everybody}, *stream_);
    tensor::Arena arena(*memory_);
    x_ = arena.take(tensor::DType::f32, 1, kElements);
    agreed_ = arena.take(tensor::DType::f32, 1, 2);
  }

  Reduced run() {
    Reduced result;
    Pace& pace = result.pace;
    while (pace.more()) {
      const bool is_counted = pace.is_counted();
      const double begun_s = monotonic_s();
      const double reduce_s = turn(result, pace.size() / 4);
      if (is_counted) result.seconds += reduce_s;
      // The slowest decides, with filling and verifying, for all alike.
      agreed_.as<float>()[0] = static_cast<float>(monotonic_s() - begun_s);
      agreed_.as<float>()[1] = static_cast<float>(-evidence_.left_s());
      all_->all_reduce(agreed_, comm::ReduceKind::max);
      stream_->synchronize();
      pace.ended(agreed_.as<float>()[0], -agreed_.as<float>()[1]);
    }
    return result;
  }

 private:
  double turn(Reduced& result, std::int64_t elements) {
    const std::span<float> values(x_.as<float>(), static_cast<std::size_t>(elements));
    net::fill_summand(values, world_.rank());
    all_->barrier();
    stream_->synchronize();
    const double begun_s = monotonic_s();
    all_->all_reduce(x_.slice_cols(0, elements));
    stream_->synchronize();
    const double elapsed_s = monotonic_s() - begun_s;
    result.num_wrong += net::count_wrong_sums(values, world_.size());
    ++result.turns;
    return elapsed_s;
  }

  comm::World& world_;
  const health::Evidence& evidence_;
  tensor::MatmulCache matmuls_;
  tensor::CpuPool pool_;
  tensor::CpuDevice device_;
  std::unique_ptr<tensor::Memory> memory_;
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<comm::Communicator> all_;
  tensor::Tensor x_;
  tensor::Tensor agreed_;  // the seconds of a turn, and those that are left, negative
};

std::size_t count_nodes(const comm::World& world) {
  std::set<std::string> nodes;
  for (int rank = 0; rank < world.size(); ++rank) nodes.insert(world.node(rank));
  return nodes.size();
}

health::Result judge(const Reduced& reduced, const comm::World& world, const Share& share,
                     const health::ActiveConfig& expect) {
  const std::string among = fmt::format("{} processes on {} nodes", world.size(), count_nodes(world));
  if (reduced.num_wrong > 0) {
    return health::judged(
        {{.entity = among,
          .message = fmt::format("{} sums of {} vectors are not what they must be", reduced.num_wrong, reduced.turns),
          .measured = static_cast<double>(reduced.num_wrong),
          .limit = 0,
          .unit = "words"}});
  }
  const Pace& pace = reduced.pace;
  pace.require_measured();
  const double size = world.size(), bytes = static_cast<double>(pace.size());
  const double algorithm_gbps = bytes * pace.rounds() / reduced.seconds / 1e9;
  return judge_rates({{"all-reduce", algorithm_gbps * 2 * (size - 1) / size, expect.reduce_gbps, "GB/s"}},
                     expect.min_fraction, share, Scope::whole, fmt::format("CPU, {}, {}", among, format_size(bytes)));
}

health::Result measure_reduce(health::Evidence& evidence) {
  if (slurm::this_launch().size <= 1) {
    return health::skipped("one process: start it with srun over the nodes to compare");
  }
  if (!comm::mpi_built_in()) return health::skipped("this ms was built without MPI");
  const Share share = this_share();
  const OnCpus bound(share.cpus);
  const std::unique_ptr<comm::World> world = comm::make_mpi_world(kDeadline);
  try {
    const Reduced reduced = Reducer(*world, share, evidence).run();
    world->close();
    return judge(reduced, *world, share, evidence.policy().active);
  } catch (const Error& error) {
    world->abort(error);  // the others need not wait for their deadline
    throw;
  }
}

}  // namespace

extern constinit const health::Check kPerfReduce = {
    .code = "perf.reduce",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "all-reduce between nodes slower than expected, or wrong",
    .needs = "several processes, started by srun or mpirun",
    .deadline_s = 30,
    .blame = Blame::fabric,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .on_hang = std::nullopt,
    .explain =
        "All processes started together, as in srun -N4 --ntasks-per-node=1 --mpi=pmix ms-diag run --level 2, "
        "all-reduce 16 MiB for some seconds, or 4 MiB on slow networks. The inputs have an exactly known sum, and "
        "every element is verified.\n\n"
        "The result is the bus bandwidth, bytes per second times 2 (n-1) / n. It is the rate on a link, which does not "
        "depend on the number of processes n. All processes see the same rate, so a low one blames the fabric between "
        "them; repeat the check with halves of the nodes to find the cause. The limit is active.reduce_gbps.",
    .remedy = "Bisect: repeat it with halves of the nodes until you find the node that makes a pair slow.",
    .run = measure_reduce};

}  // namespace ms::diag
