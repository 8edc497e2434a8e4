#include "net/rank_crew.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <type_traits>

namespace ms::net {
namespace {

using comm::Communicator;
using tensor::DType;
using tensor::Tensor;
using Time = std::chrono::steady_clock;

constexpr std::int64_t kPing = 16;                                    // bytes
constexpr std::int64_t kTrial = 256 << 10;                            // of the message that tells how long one takes
constexpr std::int64_t kLeastPiece = 64 << 10, kMostPiece = 4 << 20;  // of a stream
constexpr int kPieces = 16;  // of a stream, at least, if it is to be long enough
constexpr int kWarmUp = 5;   // round trips that do not count

double seconds_since(Time::time_point begin) { return std::chrono::duration<double>(Time::now() - begin).count(); }

// What rank 0 tells the others.
struct Order {
  int pairs = 0;  // -1: it is over
  PairSpec spec;
};
static_assert(std::is_trivially_copyable_v<Order>);

// What a rank saw in a round: as the first of a pair the round trips, and in each phase what came in.
struct Seen {
  double least_us = -1, p50_us = -1, p99_us = -1;
  double gbps[2] = {-1, -1};
  double seconds = 0;
};
static_assert(std::is_trivially_copyable_v<Seen>);

// A phase of streams: with whom this rank is in it.
struct Phase {
  int to = -1, from = -1;  // ranks
};

// How a stream is cut, from how long a trial took: sender and receiver come to the same.
struct Cut {
  std::int64_t piece_bytes;
  int pieces;
  Cut(const PairSpec& spec, double trial_s) {
    double bytes_per_s = static_cast<double>(kTrial) / std::max(trial_s, 1e-9);
    if (spec.max_gbps > 0) bytes_per_s = std::min(bytes_per_s, spec.max_gbps * 1e9 / 8);
    const double wanted = std::min(static_cast<double>(spec.bytes), bytes_per_s * spec.seconds);
    piece_bytes = std::clamp(static_cast<std::int64_t>(wanted) / kPieces / 64 * 64, kLeastPiece, kMostPiece);
    pieces = 2 + static_cast<int>(std::min(wanted / static_cast<double>(piece_bytes), 1e5));
  }
};

}  // namespace

class RankCrew::Part {
 public:
  Part(comm::World& world, tensor::Device& device, const std::vector<int>& ranks)
      : world_(world),
        ranks_(ranks),
        out_stream_(device.make_stream("netcheck out", tensor::StreamKind::comm)),
        in_stream_(device.make_stream("netcheck in", tensor::StreamKind::comm)),
        memory_(device.allocate(static_cast<std::size_t>(2 * kMostPiece), "messages")),
        told_(device.allocate(kMostTold, "orders")) {
    std::vector<int> everybody;
    for (int rank = 0; rank < world.size(); ++rank) everybody.push_back(rank);
    all_ = world.open({"netcheck", 0, everybody}, *out_stream_);
  }

  // Rank 0's; the others' arguments do not matter, and become what rank 0's are.
  void tell(Order& order, Round& round) {
    share(&order, sizeof order);
    if (order.pairs < 0) return;
    round.resize(static_cast<std::size_t>(order.pairs));
    const std::size_t most = kMostTold / sizeof(Pair);
    for (std::size_t at = 0; at < round.size(); at += most)
      share(&round[at], std::min(most, round.size() - at) * sizeof(Pair));
  }

  // This rank's part of a round; what all saw, by rank.
  std::vector<Seen> run(const Round& round, const PairSpec& spec) {
    Seen seen;
    const Time::time_point begin = Time::now();
    if (spec.pings > 0) {
      for (const auto& [a, b] : round) {
        if (rank_of(a) == world_.rank()) ping(rank_of(b), spec, seen);
        if (rank_of(b) == world_.rank()) answer(rank_of(a), spec);
      }
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
    return all_of(seen);
  }

 private:
  static constexpr std::size_t kMostTold = 64 << 10;

  int rank_of(int node) const { return ranks_[static_cast<std::size_t>(node)]; }
  static Tensor piece(std::byte* data, std::int64_t bytes) { return {data, 1, bytes / 4, bytes / 4, DType::i32}; }
  Tensor out(std::int64_t bytes) const { return piece(memory_->data(), bytes); }
  Tensor in(std::int64_t bytes) const { return piece(memory_->data() + kMostPiece, bytes); }

  // A way between two ranks has a communicator of its own on each of a rank's streams that it can be part of.
  Communicator& way(int from, int to) {
    const int me = world_.rank();
    auto& open = ways_[{from, to}];
    if (!open) {
      const int id = 1 + from * world_.size() + to;
      open = world_.open({fmt::format("{} to {}", from, to), id, {std::min(from, to), std::max(from, to)}},
                         me == from ? *out_stream_ : *in_stream_);
    }
    return *open;
  }

  void share(void* data, std::size_t bytes) {
    const auto whole = static_cast<std::int64_t>((bytes + 3) / 4 * 4);
    if (world_.rank() == 0) std::memcpy(told_->data(), data, bytes);
    all_->broadcast(piece(told_->data(), whole), 0);
    out_stream_->synchronize();
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
    out_stream_->synchronize();
    return all;
  }

  void ping(int other, const PairSpec& spec, Seen& seen) {
    Communicator &there = way(world_.rank(), other), &back = way(other, world_.rank());
    std::vector<double> us;
    const Time::time_point first = Time::now();
    for (int i = 0; i < spec.pings + kWarmUp; ++i) {
      const bool last = i + 1 == spec.pings + kWarmUp || seconds_since(first) > spec.ping_s;
      *memory_->data() = std::byte(last ? 1 : 0);
      const Time::time_point begin = Time::now();
      there.send(out(kPing));
      back.recv(in(kPing));
      in_stream_->synchronize();
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
      const bool last = *(memory_->data() + kMostPiece) != std::byte{0};
      there.send(out(kPing));
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
      out_stream_->synchronize();
      const Time::time_point begin = Time::now();
      if (to != nullptr) to->send(out(kTrial));
      if (from != nullptr) from->recv(in(kTrial));
      in_stream_->synchronize();
      trial_s = seconds_since(begin);
      out_stream_->synchronize();
    }
    const std::vector<double> trials = all_of(trial_s);
    std::optional<Cut> coming;
    tensor::Event first;
    if (from != nullptr) {
      coming.emplace(spec, trial_s);
      for (int i = 0; i < coming->pieces; ++i) {
        from->recv(in(coming->piece_bytes));
        if (i == 0) first = in_stream_->record();
      }
    }
    std::optional<Time::time_point> begun;  // when the first piece was here
    if (to != nullptr) {
      send(*to, spec, Cut(spec, trials[static_cast<std::size_t>(phase.to)]), [&] {
        if (first && !begun && first.ready()) begun = Time::now();
      });
    }
    double gbps = -1;
    if (coming) {
      if (!begun) {
        first.synchronize();
        begun = Time::now();
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
  const std::vector<int>& ranks_;
  std::unique_ptr<tensor::Stream> out_stream_, in_stream_;
  std::unique_ptr<tensor::Memory> memory_, told_;
  std::unique_ptr<Communicator> all_;
  std::map<Pair, std::unique_ptr<Communicator>> ways_;
};

RankCrew::RankCrew(comm::World& world, tensor::Device& device) : is_first_(world.rank() == 0) {
  for (int rank = 0; rank < world.size(); ++rank) {
    if (std::ranges::find(nodes_, world.node(rank)) != nodes_.end()) continue;
    nodes_.push_back(world.node(rank));
    ranks_.push_back(rank);
  }
  if (ranks_.size() == 1) {
    const std::string node = nodes_.front();
    nodes_.clear();
    ranks_.clear();
    for (int rank = 0; rank < world.size(); ++rank) {
      nodes_.push_back(fmt::format("{}:{}", node, rank));
      ranks_.push_back(rank);
    }
  }
  invited_ = nodes_.size();
  part_ = std::make_unique<Part>(world, device, ranks_);
}

RankCrew::~RankCrew() {
  if (!is_first_ || !works_) return;
  Order over{.pairs = -1, .spec = {}};
  Round none;
  try {
    part_->tell(over, none);
  } catch (const Error&) { works_ = false; }  // the others find out by themselves
}

void RankCrew::serve() {
  while (true) {
    Order order;
    Round round;
    part_->tell(order, round);
    if (order.pairs < 0) return;
    part_->run(round, order.spec);
  }
}

std::vector<std::string> RankCrew::not_run() const {
  return {"lost datagrams and the size of packets: not over communicators"};
}

std::vector<PairResult> RankCrew::test(const Round& round, const PairSpec& spec, int /*source_port*/) {
  std::vector<PairResult> results(round.size());
  for (std::size_t i = 0; i < round.size(); ++i) {
    results[i].a = round[i].first;
    results[i].b = round[i].second;
    results[i].at_once = spec.both_at_once && spec.back;
  }
  const auto fail = [&](const std::string& why, int at_fault) {
    for (PairResult& result : results) {
      result.error = why;
      result.at_fault = result.a == at_fault || result.b == at_fault ? at_fault : -1;
    }
    return results;
  };
  try {
    Order order{.pairs = static_cast<int>(round.size()), .spec = spec};
    Round told = round;
    part_->tell(order, told);
    const std::vector<Seen> seen = part_->run(told, spec);
    for (PairResult& result : results) {
      const Seen &a = seen[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(result.a)])],
                 &b = seen[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(result.b)])];
      result.least_us = a.least_us;
      result.p50_us = a.p50_us;
      result.p99_us = a.p99_us;
      result.there.gbps = b.gbps[0];
      if (spec.back) result.back.gbps = a.gbps[spec.both_at_once ? 0 : 1];
      result.seconds = a.seconds;
    }
    return results;
  } catch (const Error& error) {
    works_ = false;
    if (!error.rank()) throw;
    const auto node = std::ranges::find(ranks_, *error.rank());
    return fail(error.message(), node == ranks_.end() ? -1 : static_cast<int>(node - ranks_.begin()));
  }
}

std::optional<Checked> check_ranks(const RanksRequest& request, const std::function<Checked(Crew& crew)>& check) {
  std::optional<Checked> checked;
  try {
    run_ranks(request, [&](comm::World& world, tensor::Device& device) {
      RankCrew crew(world, device);
      if (world.rank() == 0) {
        checked = check(crew);
      } else {
        crew.serve();
      }
    });
  } catch (const Error&) {
    if (!checked) throw;  // else it is about a rank that was lost, and in the results
  }
  return checked;
}

}  // namespace ms::net
