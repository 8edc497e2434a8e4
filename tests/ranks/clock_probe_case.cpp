#include "clock_probe_case.h"

#include <cstdlib>
#include <thread>

#include "trace/recorder.h"

namespace ms::comm::cases {

ClockProbe::Clock clock_ahead(std::int64_t offset_ns) {
  return [offset_ns] { return trace::now_ns() + offset_ns; };
}

std::int64_t offset_of(int rank) { return rank * std::int64_t{1'000'000'007} - 3'000'000'000; }

void probe_and_check(Rank& rank, int ranks_a_node) {
  constexpr int kRounds = 3, kSamples = 5;
  PretendedNodes world(rank.world(), ranks_a_node);
  const int nodes = (rank.size() + ranks_a_node - 1) / ranks_a_node;
  EXPECT_EQ(ClockProbe::group_count(world), 2 * (nodes - 1));
  std::vector<trace::format::Probe> probes;
  {
    ClockProbe probe(world, rank.device(), rank.next_group(), clock_ahead(offset_of(rank.rank())));
    rank.start_groups_at(rank.next_group() + ClockProbe::group_count(world));
    for (int round = 0; round < kRounds; ++round) probe.round(round, kSamples);
    // A barrier over a separate group shows that all ranks are done: the probe itself does not wait.
    const auto stream = rank.stream("end");
    const auto all = rank.world().open(rank.all_ranks_group("end"), *stream);
    all->barrier();
    stream->synchronize();
    const bool asks = rank.rank() % ranks_a_node == 0 && rank.rank() > 0;
    const std::size_t expected = asks ? kRounds * ClockProbe::kKept : 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (probes.size() < expected && std::chrono::steady_clock::now() < deadline) {
      for (const trace::format::Probe& p : probe.take()) probes.push_back(p);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(probes.size(), expected) << "rank " << rank.rank();
    EXPECT_TRUE(probe.take().empty());
    all->barrier();  // no rank leaves while another one's questions are pending
    stream->synchronize();
  }
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const trace::format::Probe& p = probes[i];
    const int node = rank.rank() / ranks_a_node;
    EXPECT_EQ(p.peer, static_cast<std::uint32_t>((node - 1) / ClockProbe::kFanOut * ranks_a_node));
    EXPECT_EQ(p.round, i / ClockProbe::kKept);
    EXPECT_LE(p.asked_ns, p.answered_ns);
    EXPECT_LE(p.peer_heard_ns, p.peer_replied_ns);
    const std::int64_t trip = (p.answered_ns - p.asked_ns) - (p.peer_replied_ns - p.peer_heard_ns);
    EXPECT_GE(trip, 0);
    const std::int64_t measured = ((p.peer_heard_ns - p.asked_ns) + (p.peer_replied_ns - p.answered_ns)) / 2;
    const std::int64_t truth = offset_of(static_cast<int>(p.peer)) - offset_of(rank.rank());
    EXPECT_LE(std::abs(measured - truth), trip / 2 + 1) << "rank " << rank.rank() << " asked rank " << p.peer;
  }
}

}  // namespace ms::comm::cases
