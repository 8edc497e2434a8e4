#include "fabric/collectives.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <span>

#include "fabric/staged.h"
#include "net/measure/pattern.h"

namespace ms::fabric {
namespace {

using net::Collective;
using net::CollectiveOptions;
using net::CollectiveRow;
using net::Split;
using tensor::DType;
using tensor::Tensor;
using Time = std::chrono::steady_clock;

constexpr int kPairWidth = 8;  // as of the ring of a tp group, see Group::width: a rank has one with each other

// One group of a split, as one of its ranks sees it.
class Member {
 public:
  Member(comm::World& world, tensor::Device& device, const Split& split, int first_id, const CollectiveOptions& options,
         std::int64_t most_bytes)
      : out_(device, most_bytes, "messages"),
        in_(device, most_bytes, "messages"),
        stream_(device.make_stream("netcheck data", tensor::StreamKind::comm)) {
    const auto does = [&](Collective what) { return std::ranges::find(options.what, what) != options.what.end(); };
    const int me = world.rank(), everybody = world.size();
    for (std::size_t g = 0; g < split.groups.size(); ++g) {
      const std::vector<int>& ranks = split.groups[g];
      const auto at = std::ranges::find(ranks, me);
      if (at == ranks.end()) continue;
      size_ = static_cast<int>(ranks.size());
      rank_ = static_cast<int>(at - ranks.begin());
      group_ = world.open({fmt::format("{} {}", split.name, g), first_id + static_cast<int>(g), ranks}, *stream_);
      for (int other = 0; other < size_; ++other) {
        const bool exchanges = does(Collective::all_to_all) || (does(Collective::send_recv) && other == partner());
        if (other == rank_ || !exchanges) continue;
        const int low = std::min(me, ranks[static_cast<std::size_t>(other)]),
                  high = std::max(me, ranks[static_cast<std::size_t>(other)]);
        const int id = first_id + everybody + low * everybody + high;
        pairs_[other] =
            world.open({fmt::format("{} {}-{}", split.name, low, high), id, {low, high}, kPairWidth}, *stream_);
      }
    }
  }

  int size() const { return size_; }

  // Fills what is sent, runs, and counts what is wrong with what came.
  double iterate(Collective what, std::int64_t bytes, int round, std::int64_t& wrong) {
    const std::int64_t words = bytes / 4, part = words / size_;
    fill(what, words, part, round);
    out_.push(*stream_, 0, bytes);
    in_.push(*stream_, 0, bytes);
    group_->barrier();
    stream_->synchronize();
    const Time::time_point begin = Time::now();
    issue(what, words, part);
    stream_->synchronize();
    const double seconds = std::chrono::duration<double>(Time::now() - begin).count();
    in_.pull(*stream_, 0, bytes);
    wrong += static_cast<std::int64_t>(count_wrong(what, words, part, round));
    return seconds;
  }

 private:
  // Parts of both buffers, in words; sums are of f32 in the same memory. The host's side of them.
  Tensor out(std::int64_t from, std::int64_t count, DType dtype = DType::i32) const {
    return out_.words(from * 4, count * 4, dtype);
  }
  Tensor in(std::int64_t from, std::int64_t count, DType dtype = DType::i32) const {
    return in_.words(from * 4, count * 4, dtype);
  }
  template <class T = std::uint32_t>
  static std::span<T> words_of(const Staged& buffer, std::int64_t from, std::int64_t count) {
    return {reinterpret_cast<T*>(buffer.host(from * 4)), static_cast<std::size_t>(count)};
  }
  static std::span<float> floats_of(const Staged& buffer, std::int64_t from, std::int64_t count) {
    return words_of<float>(buffer, from, count);
  }
  int partner() const { return rank_ ^ 1; }  // of send_recv

  void fill(Collective what, std::int64_t words, std::int64_t part, int round) {
    std::ranges::fill(words_of(in_, 0, words), 0xdeadbeefU);
    switch (what) {
      case Collective::all_reduce: return net::fill_summand(floats_of(in_, 0, words), rank_);
      case Collective::all_gather: return net::fill_block(words_of(out_, 0, part), rank_, 0, round);
      case Collective::reduce_scatter:
        for (int r = 0; r < size_; ++r) net::fill_summand(floats_of(out_, r * part, part), rank_);
        return;
      case Collective::all_to_all:
        for (int r = 0; r < size_; ++r) net::fill_block(words_of(out_, r * part, part), rank_, r, round);
        return;
      case Collective::broadcast:
        if (rank_ == 0) net::fill_block(words_of(in_, 0, words), 0, 0, round);
        return;
      case Collective::send_recv: return net::fill_block(words_of(out_, 0, words), rank_, partner(), round);
    }
  }

  void issue(Collective what, std::int64_t words, std::int64_t part) {
    switch (what) {
      case Collective::all_reduce: return group_->all_reduce(in(0, words, DType::f32));
      case Collective::all_gather: return group_->all_gather(in(0, part * size_), out(0, part));
      case Collective::reduce_scatter:
        return group_->reduce_scatter(in(0, part, DType::f32), out(0, part * size_, DType::f32));
      case Collective::all_to_all: {
        const int even = size_ + size_ % 2;
        for (int round = 0; round + 1 < even; ++round) {
          const int other = net::partner_of(rank_, round, even);
          if (other < size_) exchange(other, out(other * part, part), in(other * part, part));
        }
        stream_->submit(tensor::Copy{.dst = in(rank_ * part, part), .src = out(rank_ * part, part)});
        return;
      }
      case Collective::broadcast: return group_->broadcast(in(0, words), 0);
      case Collective::send_recv:  // from the even ones to the odd ones
        if (partner() >= size_) return;
        if (rank_ % 2 == 0) {
          pairs_.at(partner())->send(out(0, words));
        } else {
          pairs_.at(partner())->recv(in(0, words));
        }
        return;
    }
  }
  void exchange(int other, const Tensor& send, const Tensor& receive) {
    comm::Communicator& pair = *pairs_.at(other);
    if (rank_ < other) {
      pair.send(send);
      pair.recv(receive);
    } else {
      pair.recv(receive);
      pair.send(send);
    }
  }

  std::size_t count_wrong(Collective what, std::int64_t words, std::int64_t part, int round) const {
    switch (what) {
      case Collective::all_reduce: return net::count_wrong_sums(floats_of(in_, 0, words), size_);
      case Collective::reduce_scatter: return net::count_wrong_sums(floats_of(in_, 0, part), size_);
      case Collective::all_gather:
      case Collective::all_to_all: {
        std::size_t wrong = 0;
        for (int r = 0; r < size_; ++r)
          wrong += net::count_wrong_words(words_of(in_, r * part, part), r, what == Collective::all_gather ? 0 : rank_,
                                          round);
        return wrong;
      }
      case Collective::broadcast: return net::count_wrong_words(words_of(in_, 0, words), 0, 0, round);
      case Collective::send_recv:
        return rank_ % 2 == 1 ? net::count_wrong_words(words_of(in_, 0, words), partner(), rank_, round) : 0;
    }
    return 0;
  }

  Staged out_, in_;
  std::unique_ptr<tensor::Stream> stream_;  // drains before its memory goes
  std::unique_ptr<comm::Communicator> group_;
  std::map<int, std::unique_ptr<comm::Communicator>> pairs_;  // with others of the group
  int rank_ = 0, size_ = 1;
};

double at_share(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

// Combines each rank's numbers elementwise by an all-reduce over all ranks. Collective over the world.
class Agreement {
 public:
  Agreement(comm::World& world, tensor::Device& device, tensor::Stream& stream) : device_(device), stream_(stream) {
    std::vector<int> everybody;
    for (int rank = 0; rank < world.size(); ++rank) everybody.push_back(rank);
    all_ = world.open({"netcheck", 0, everybody}, stream);
  }
  std::vector<double> combined(const std::vector<double>& values, comm::ReduceKind kind) {
    const auto count = static_cast<std::int64_t>(values.size());
    const auto memory = device_.allocate(values.size() * sizeof(float), "times");
    const Tensor x{memory->data(), 1, count, count, DType::f32};
    std::ranges::transform(values, reinterpret_cast<float*>(x.data), [](double v) { return static_cast<float>(v); });
    all_->all_reduce(x, kind);
    stream_.synchronize();
    const std::span<const float> result(reinterpret_cast<const float*>(x.data), values.size());
    return {result.begin(), result.end()};
  }

 private:
  tensor::Device& device_;
  tensor::Stream& stream_;
  std::unique_ptr<comm::Communicator> all_;
};

}  // namespace

std::vector<CollectiveRow> run_collectives(comm::World& world, const RankDevices& devices,
                                           const std::vector<Split>& splits, const CollectiveOptions& options,
                                           const std::function<void(const std::string& what)>& before) {
  std::vector<CollectiveRow> rows;
  const auto stream = devices.host.make_stream("netcheck", tensor::StreamKind::comm);
  Agreement agreement(world, devices.host, *stream);
  int first_id = 1;
  for (const Split& split : splits) {
    // Sizes are whole words for every rank.
    const auto ranks = static_cast<std::int64_t>(split.groups.front().size());
    const auto rounded = [&](std::int64_t bytes) { return std::max<std::int64_t>(1, bytes / (4 * ranks)) * 4 * ranks; };
    Member member(world, devices.data, split, first_id, options, rounded(options.most_bytes));
    first_id += world.size() * (world.size() + 2);
    const auto mine = static_cast<std::size_t>(
        std::ranges::find_if(split.groups,
                             [&](const auto& g) { return std::ranges::find(g, world.rank()) != g.end(); }) -
        split.groups.begin());
    for (const Collective what : options.what) {
      for (std::int64_t bytes = options.least_bytes; bytes <= options.most_bytes; bytes *= options.factor) {
        const std::int64_t size = rounded(bytes);
        if (world.rank() == 0 && before) before(fmt::format("{} {} of {} bytes", split.name, to_string(what), size));
        std::int64_t wrong = 0;
        int round = 0;
        // The slowest rank decides how many there is time for, for all alike.
        double warm_s = 0;
        const int warm_up = std::max(1, options.iterations / 4);
        for (int i = 0; i < warm_up; ++i) warm_s = member.iterate(what, size, round++, wrong);
        const double slowest_s = std::max(1e-9, agreement.combined({warm_s}, comm::ReduceKind::max).front());
        const int iterations = std::clamp(static_cast<int>(options.most_seconds / slowest_s),
                                          std::min(3, options.iterations), options.iterations);
        std::vector<double> seconds;
        for (int i = 0; i < iterations; ++i) seconds.push_back(member.iterate(what, size, round++, wrong));
        std::vector<double> by_group(split.groups.size(), 0);
        by_group[mine] = at_share(seconds, 0.5);
        CollectiveRow row;
        row.what = what;
        row.split = split.name;
        row.groups = static_cast<int>(split.groups.size());
        row.ranks = static_cast<int>(ranks);
        row.bytes = size;
        row.iterations = iterations;
        row.group_p50_s = agreement.combined(by_group, comm::ReduceKind::max);
        const std::vector<double> slowest = agreement.combined(seconds, comm::ReduceKind::max);
        row.least_s = std::ranges::min(slowest);
        row.p50_s = at_share(slowest, 0.5);
        row.p99_s = at_share(slowest, 0.99);
        row.wrong =
            static_cast<std::int64_t>(agreement.combined({static_cast<double>(wrong)}, comm::ReduceKind::sum).front());
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace ms::fabric
