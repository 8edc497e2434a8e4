#include "fabric/rank_part.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/thread_times.h"
#include "comm/nccl_plugin.h"
#include "fabric/staged.h"

namespace ms::fabric {
namespace {

using comm::Communicator;
using net::Pair;
using net::PairSpec;
using net::Round;
using tensor::DType;
using tensor::Tensor;
using Time = std::chrono::steady_clock;

constexpr std::int64_t kPing = 16;              // bytes
constexpr std::int64_t kTrial = 256 << 10;      // of the message that tells how long one takes
constexpr std::int64_t kLeastPiece = 64 << 10;  // of a stream
constexpr std::int64_t kMostPiece = 4 << 20;
constexpr std::int64_t kMostGpuPiece = 16 << 20;  // NVLink carries 4 MiB in 10 us
constexpr int kPieces = 16;                       // of a stream, at least, if it is to be long enough
constexpr int kWarmUp = 5;                        // round trips that do not count

double seconds_since(Time::time_point begin) { return std::chrono::duration<double>(Time::now() - begin).count(); }

constexpr int kReductions = 5;  // of which the fastest counts, after one that does not

// A phase of streams: with whom this rank is in it.
struct Phase {
  int to = -1, from = -1;  // ranks
};

// How a stream is cut, from how long a trial took: sender and receiver come to the same.
struct Cut {
  std::int64_t piece_bytes;
  int pieces;
  Cut(const PairSpec& spec, double trial_s, std::int64_t most_piece) {
    double bytes_per_s = static_cast<double>(kTrial) / std::max(trial_s, 1e-9);
    if (spec.max_gbps > 0) bytes_per_s = std::min(bytes_per_s, spec.max_gbps * 1e9 / 8);
    const double wanted = std::min(static_cast<double>(spec.bytes), bytes_per_s * spec.seconds);
    piece_bytes = std::clamp(static_cast<std::int64_t>(wanted) / kPieces / 64 * 64, kLeastPiece, most_piece);
    pieces = 2 + static_cast<int>(std::min(wanted / static_cast<double>(piece_bytes), 1e5));
  }
};

}  // namespace

class RankPart::Impl {
 public:
  Impl(comm::World& world, const RankDevices& devices, std::vector<std::string> nodes, std::vector<int> ranks)
      : world_(world),
        device_(devices.data),
        nodes_(std::move(nodes)),
        ranks_(std::move(ranks)),
        next_group_(1),
        most_piece_(device_.kind() == "cuda" ? kMostGpuPiece : kMostPiece),
        messages_(device_, 2 * most_piece_, "messages"),
        told_(devices.host.allocate(kMostTold, "orders")),
        tell_stream_(devices.host.make_stream("netcheck", tensor::StreamKind::comm)),
        out_stream_(device_.make_stream("netcheck out", tensor::StreamKind::comm)),
        in_stream_(device_.make_stream("netcheck in", tensor::StreamKind::comm)) {
    std::vector<int> everybody;
    for (int rank = 0; rank < world.size(); ++rank) everybody.push_back(rank);
    all_ = world.open({"netcheck", 0, everybody}, *tell_stream_);
  }

  void tell(Order& order, std::vector<int>& words) {
    order.words = static_cast<int>(words.size());
    share(&order, sizeof order);
    words.resize(static_cast<std::size_t>(order.words));
    const std::size_t most = kMostTold / sizeof(int);
    for (std::size_t at = 0; at < words.size(); at += most)
      share(&words[at], std::min(most, words.size() - at) * sizeof(int));
  }

  std::vector<Seen> run(const Round& round, const PairSpec& spec) {
    Seen seen;
    open_ways(round, spec);
    const Time::time_point begin = Time::now();
    if (spec.pings > 0) {
      const ThreadTimes before = thread_times(Sysroot(), ::getpid());
      for (const auto& [a, b] : round) {
        if (rank_of(a) == world_.rank()) ping(rank_of(b), spec, seen);
        if (rank_of(b) == world_.rank()) answer(rank_of(a), spec);
      }
      seen.cpu_wait_s = longest_wait_s(before, thread_times(Sysroot(), ::getpid()));
    }
    if (spec.seconds > 0) {
      std::vector<Phase> phases(spec.back && !spec.both_at_once ? 2 : 1);
      for (const auto& [a, b] : round) {
        const auto add = [&](int from, int to, Phase& phase) {
          if (rank_of(from) == world_.rank()) phase.to = rank_of(to);
          if (rank_of(to) == world_.rank()) phase.from = rank_of(from);
        };
        add(a, b, phases.front());
        if (spec.back) add(b, a, phases.back());
      }
      for (std::size_t p = 0; p < phases.size(); ++p) seen.gbps[p] = stream(phases[p], spec);
    }
    seen.seconds = seconds_since(begin);
    for (const auto& [ends, way] : ways_)
      if (auto* retiring = dynamic_cast<comm::Retiring*>(way.get())) retiring->retire();
    std::vector<Seen> all = all_of(seen);  // so everybody has retired theirs
    ways_.clear();
    return all;
  }

  std::vector<double> reduce(const std::vector<std::vector<int>>& groups, std::int64_t bytes) {
    const int first_id = next_group_;
    next_group_ += static_cast<int>(groups.size());
    double seconds = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::vector<int> ranks;
      for (const int node : groups[g]) ranks.push_back(rank_of(node));
      if (std::ranges::find(ranks, world_.rank()) == ranks.end()) continue;
      std::ranges::sort(ranks);
      const auto group = world_.open({fmt::format("group {}", g), first_id + static_cast<int>(g), ranks}, *out_stream_);
      if (!reduced_ || static_cast<std::int64_t>(reduced_->size_bytes()) < bytes)
        reduced_ = device_.allocate(static_cast<std::size_t>(bytes), "a sum");
      const Tensor sum{reduced_->data(), 1, bytes / 4, bytes / 4, DType::f32};
      for (int i = 0; i <= kReductions; ++i) {
        group->barrier();
        out_stream_->synchronize();
        const Time::time_point begin = Time::now();
        group->all_reduce(sum);
        out_stream_->synchronize();
        if (i > 0) seconds = i == 1 ? seconds_since(begin) : std::min(seconds, seconds_since(begin));
      }
    }
    return all_of(seconds);
  }

 private:
  static constexpr std::size_t kMostTold = 64 << 10;

  int rank_of(int node) const { return ranks_[static_cast<std::size_t>(node)]; }
  const std::string& name_of(int node) const { return nodes_[static_cast<std::size_t>(node)]; }
  static Tensor piece(std::byte* data, std::int64_t bytes) { return {data, 1, bytes / 4, bytes / 4, DType::i32}; }
  Tensor out(std::int64_t bytes) const { return messages_.words(0, bytes); }
  Tensor in(std::int64_t bytes) const { return messages_.words(most_piece_, bytes); }

  // A way between two ranks has a communicator of its own on each of a rank's streams that it can be part of, for one
  // round: NCCL's take memory. To open and to connect one is collective there, so all ranks go through a round in its
  // order.
  void open_ways(const Round& round, const PairSpec& spec) {
    const auto open = [&](int from_node, int to_node) {
      const int from = rank_of(from_node), to = rank_of(to_node);
      const int me = world_.rank(), id = next_group_++;
      if (me != from && me != to) return;
      auto& way = ways_[{from, to}];
      const std::string name = fmt::format("{} to {}", name_of(from_node), name_of(to_node));
      way = world_.open({name, id, {from, to}}, me == from ? *out_stream_ : *in_stream_);
      way->connect();
    };
    for (const auto& [a, b] : round) {
      open(a, b);
      if (spec.back || spec.pings > 0) open(b, a);
    }
  }
  Communicator& way(int from, int to) { return *ways_.at({from, to}); }

  void share(void* data, std::size_t bytes) {
    const auto whole = static_cast<std::int64_t>((bytes + 3) / 4 * 4);
    if (world_.rank() == 0) std::memcpy(told_->data(), data, bytes);
    all_->broadcast(piece(told_->data(), whole), 0);
    tell_stream_->synchronize();
    std::memcpy(data, told_->data(), bytes);
  }

  template <class T>
  std::vector<T> all_of(const T& mine) {
    static_assert(sizeof(T) % 4 == 0 && std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(world_.size()));
    all[static_cast<std::size_t>(world_.rank())] = mine;
    auto* bytes = reinterpret_cast<std::byte*>(all.data());
    all_->all_gather(piece(bytes, static_cast<std::int64_t>(all.size() * sizeof(T))),
                     piece(bytes + static_cast<std::size_t>(world_.rank()) * sizeof(T), sizeof(T)));
    tell_stream_->synchronize();
    return all;
  }

  void ping(int other, const PairSpec& spec, Seen& seen) {
    Communicator &there = way(world_.rank(), other), &back = way(other, world_.rank());
    std::vector<double> us;
    const Time::time_point first = Time::now();
    for (int i = 0; i < spec.pings + kWarmUp; ++i) {
      const bool last = i + 1 == spec.pings + kWarmUp || seconds_since(first) > spec.ping_s;
      *messages_.host(0) = std::byte(last ? 1 : 0);
      messages_.push(*out_stream_, 0, kPing);
      const Time::time_point begin = Time::now();
      there.send(out(kPing));
      back.recv(in(kPing));
      in_stream_->synchronize();
      ++seen.pings;
      if (i >= kWarmUp || last) us.push_back(seconds_since(begin) * 1e6 / 2);
      out_stream_->synchronize();
      if (last) break;
    }
    std::ranges::sort(us);
    seen.least_us = us.front();
    seen.p50_us = us[us.size() / 2];
    seen.p99_us = us[us.size() * 99 / 100];
  }
  void answer(int other, const PairSpec& spec) {
    Communicator &there = way(world_.rank(), other), &back = way(other, world_.rank());
    for (int i = 0; i < spec.pings + kWarmUp; ++i) {
      back.recv(in(kPing));
      in_stream_->synchronize();
      there.send(out(kPing));
      messages_.pull(*in_stream_, most_piece_, kPing);
      const bool last = *messages_.host(most_piece_) != std::byte{0};
      out_stream_->synchronize();
      if (last) break;
    }
  }

  // Gbit/s that came in, or negative. All ranks come here, those without a pair, too.
  double stream(const Phase& phase, const PairSpec& spec) {
    Communicator* to = phase.to >= 0 ? &way(world_.rank(), phase.to) : nullptr;
    Communicator* from = phase.from >= 0 ? &way(phase.from, world_.rank()) : nullptr;
    double trial_s = 0;
    for (int i = 0; i < 2; ++i) {  // the first one also connects
      all_->barrier();
      tell_stream_->synchronize();
      const Time::time_point begin = Time::now();
      if (to != nullptr) to->send(out(kTrial));
      if (from != nullptr) from->recv(in(kTrial));
      in_stream_->synchronize();
      trial_s = seconds_since(begin);
      out_stream_->synchronize();
    }
    const std::vector<double> trials = all_of(trial_s);
    std::optional<Cut> coming;
    tensor::Event first, last;
    const Time::time_point posted = Time::now();
    if (from != nullptr) {
      coming.emplace(spec, trial_s, most_piece_);
      for (int i = 0; i < coming->pieces; ++i) {
        from->recv(in(coming->piece_bytes));
        if (i == 0) first = in_stream_->record();
        if (i + 1 == coming->pieces) last = in_stream_->record();
      }
    }
    std::optional<Time::time_point> begun;  // when the first piece was here
    if (to != nullptr) {
      send(*to, spec, Cut(spec, trials[static_cast<std::size_t>(phase.to)], most_piece_), [&] {
        if (first && !begun && first.ready()) begun = Time::now();
      });
    }
    double gbps = -1;
    if (coming) {
      if (!begun) {
        first.synchronize();
        // Who looks up only when all is here cannot tell when the first piece was: too slow is tested again, while too
        // fast would become what is normal.
        begun = last.ready() ? posted : Time::now();
      }
      in_stream_->synchronize();
      gbps = static_cast<double>((coming->pieces - 1) * coming->piece_bytes) * 8e-9 / seconds_since(*begun);
    }
    out_stream_->synchronize();
    return gbps;
  }
  void send(Communicator& to, const PairSpec& spec, const Cut& cut, const std::function<void()>& meanwhile) {
    const Time::time_point begin = Time::now();
    for (int i = 0; i < cut.pieces; ++i) {
      to.send(out(cut.piece_bytes));
      if (spec.max_gbps == 0) continue;
      out_stream_->synchronize();
      meanwhile();
      const double due_s = static_cast<double>((i + 1) * cut.piece_bytes) * 8e-9 / spec.max_gbps;
      std::this_thread::sleep_until(begin +
                                    std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(due_s)));
    }
  }

  comm::World& world_;
  tensor::Device& device_;
  std::vector<std::string> nodes_;
  std::vector<int> ranks_;   // of the nodes
  int next_group_;           // id
  std::int64_t most_piece_;  // messages_ has room for one that is sent, and one that is received
  Staged messages_;
  std::unique_ptr<tensor::Memory> told_, reduced_;
  std::unique_ptr<tensor::Stream> tell_stream_, out_stream_, in_stream_;  // which drain before their memory goes
  std::unique_ptr<Communicator> all_;
  std::map<Pair, std::unique_ptr<Communicator>> ways_;  // of this round
};

RankPart::RankPart(comm::World& world, const RankDevices& devices, std::vector<std::string> nodes,
                   std::vector<int> ranks)
    : impl_(std::make_unique<Impl>(world, devices, std::move(nodes), std::move(ranks))) {}
RankPart::~RankPart() = default;
void RankPart::tell(Order& order, std::vector<int>& words) { impl_->tell(order, words); }
std::vector<Seen> RankPart::run(const Round& round, const PairSpec& spec) { return impl_->run(round, spec); }
std::vector<double> RankPart::reduce(const std::vector<std::vector<int>>& groups, std::int64_t bytes) {
  return impl_->reduce(groups, bytes);
}

}  // namespace ms::fabric
