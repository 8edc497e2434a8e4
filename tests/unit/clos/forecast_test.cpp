// Collisions against counts and expectations that do not come from the code under test: enumerated small cases, the
// closed form of an ideal hash, and a second computation of every path.
#include "clos/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "clos/network.h"

namespace ms::clos {
namespace {

// Two leaf switches (or rails of them) with n hosts each, whose pipelines of two stages all pass the spines.
Fabric two_sets(std::int64_t hosts, std::int64_t uplinks) {
  Fabric fabric;
  fabric.host = {.ranks = 1, .nics = 1};
  fabric.leaf.hosts = hosts;
  fabric.leaf.uplinks = fabric.spine.switches = uplinks;
  return fabric;
}
mesh::MeshConfig two_stages(std::int64_t dp, std::int64_t tp = 1) { return {.dp = dp, .pp = 2, .tp = tp}; }

CollectiveForecast of_axis(const std::string& axis, const std::vector<CollectiveForecast>& forecasts) {
  for (const CollectiveForecast& made : forecasts)
    if (made.axis == axis) return made;
  ADD_FAILURE() << "no axis " << axis;
  return {};
}
CollectiveForecast of_pipeline(const Fabric& fabric, const mesh::MeshConfig& mesh, int starts) {
  return of_axis("pp", forecast(fabric, mesh, Placement::listed, starts));
}

// The probability that a flow shares its link with at least `fit` of the other n - 1, each on one of m links.
double collides(int n, int m, int fit) {
  double fine = 0;
  for (int others = 0; others < fit; ++others) {
    const double ways = std::exp(std::lgamma(n) - std::lgamma(others + 1) - std::lgamma(n - others));
    fine += ways * std::pow(1.0 / m, others) * std::pow(1 - 1.0 / m, n - 1 - others);
  }
  return 1 - fine;
}

TEST(Forecast, EnumeratedCasesOfAnIdealHash) {
  struct Case {
    std::int64_t hosts, uplinks;
    double port_gbps, expected;
  };
  // Two flows on two links: two of four outcomes. Three on four: 1 - (3/4)^2. Three of half the rate on two: all three
  // on one, two of eight outcomes.
  for (const Case& c : {Case{2, 2, 400, 0.5}, {3, 4, 400, 7.0 / 16}, {3, 2, 200, 0.25}, {2, 2, 200, 0}}) {
    Fabric fabric = two_sets(c.hosts, c.uplinks);
    fabric.ecmp.hash = "uniform";
    fabric.host.port_gbps = c.port_gbps;
    EXPECT_NEAR(collides(static_cast<int>(c.hosts), static_cast<int>(c.uplinks), static_cast<int>(400 / c.port_gbps)),
                c.expected, 1e-12);
    EXPECT_NEAR(of_pipeline(fabric, two_stages(c.hosts), 4000).colliding, c.expected, 0.03) << c.hosts;
  }
}

TEST(Forecast, TwoFlowsOnALinkHaveHalfOfItEach) {
  Fabric fabric = two_sets(2, 2);
  fabric.ecmp.hash = "uniform";
  const CollectiveForecast made = of_pipeline(fabric, two_stages(2), 1000);
  EXPECT_EQ(made.flows, 2U);
  EXPECT_EQ(made.crossing, 2U);
  EXPECT_EQ(made.slowest_90, 0.5);
  EXPECT_NEAR(made.mean, 0.75, 0.03);
}

TEST(Forecast, TheClosedFormAt64And512Hosts) {
  for (const int hosts : {64, 512}) {
    Fabric fabric;
    fabric.ecmp.hash = "uniform";
    const int starts = hosts == 64 ? 40 : 5;
    const double whole = of_pipeline(fabric, two_stages(hosts / 2, 8), starts).colliding;
    EXPECT_NEAR(whole, collides(32, 32, 1), 0.02);
    fabric.host.ports = 2;
    fabric.host.port_gbps = 200;
    const double split = of_pipeline(fabric, two_stages(hosts / 2, 8), starts).colliding;
    EXPECT_NEAR(split, collides(64, 32, 2), 0.02);
    EXPECT_LT(split, whole) << "two flows of 200 Gbit/s fit an uplink";
  }
}

// CRC-32 bit by bit, and the path as network.h describes it.
std::uint32_t crc(const std::vector<std::uint8_t>& bytes, std::uint32_t seed) {
  std::uint32_t value = ~seed;
  for (const std::uint8_t byte : bytes)
    for (unsigned bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value ^ (byte >> bit)) & 1U ? 0xEDB88320U : 0);
  return ~value;
}

TEST(Forecast, AnExactCountOfCollidingFlows) {
  for (const int hosts : {64, 512}) {
    const Fabric fabric;
    const int half = hosts / 2, sets = hosts / 32, leaves = sets * 8;
    const EcmpHash hash(fabric.ecmp);
    std::map<std::pair<int, std::uint32_t>, int> up, down;  // leaf and link: flows
    std::vector<std::array<std::pair<int, std::uint32_t>, 2>> paths;
    const std::uint64_t key = rng_key("queue pair numbers of pp");
    for (int host = 0; host < half; ++host) {
      for (int nic = 0; nic < 8; ++nic) {
        const int to = host + half, leaf = host / 32 * 8 + nic, to_leaf = to / 32 * 8 + nic;
        const auto number = [&](int of) {
          return random_u64(0, key, static_cast<std::uint64_t>(of * 8 + nic)) & 0xFFFFFF;
        };
        std::uint64_t label = number(host) * number(to);
        label ^= label >> 20;
        label ^= label >> 40;
        const std::uint64_t port = 0xC000 + ((label & 0x3FFF) ^ (label >> 14 & 0x3F));
        const auto byte = [](auto value) { return static_cast<std::uint8_t>(value); };
        const std::uint32_t value = crc({10, byte(nic), byte(host >> 8), byte(host), 10, byte(nic), byte(to >> 8),
                                         byte(to), 17, byte(port >> 8), byte(port), 4791 >> 8, 4791 & 0xFF},
                                        hash.seed_of(static_cast<std::uint32_t>(leaf)));
        const std::uint32_t link = value % 32;  // and the spine, with one link to each leaf switch
        ++up[{leaf, link}];
        ++down[{to_leaf, link}];
        paths.push_back({std::pair{leaf, link}, std::pair{to_leaf, link}});
      }
    }
    int colliding = 0, most = 0;
    for (const auto& [from, to] : paths) {
      colliding += up[from] > 1 || down[to] > 1 ? 1 : 0;
      most = std::max({most, up[from], down[to]});
    }
    const CollectiveForecast made = of_pipeline(fabric, two_stages(half, 8), 1);
    EXPECT_EQ(made.crossing, paths.size());
    EXPECT_DOUBLE_EQ(made.colliding * static_cast<double>(made.crossing), colliding) << leaves << " leaf switches";
    EXPECT_DOUBLE_EQ(made.slowest_median, 1.0 / most);
    EXPECT_GT(colliding, 0);
  }
}

TEST(Forecast, WithoutCollisionsNothingIsLost) {
  // Rings under one leaf switch; one flow on each uplink at most; adaptive routing.
  const CollectiveForecast ring = of_axis("dp", forecast(Fabric{}, {.dp = 32, .tp = 8}, Placement::listed, 3));
  EXPECT_EQ(ring.crossing, 0U);
  Fabric adaptive;
  adaptive.ecmp.hash = "adaptive";
  for (const CollectiveForecast& made :
       {ring, of_pipeline(two_sets(1, 4), two_stages(1), 3), of_pipeline(adaptive, two_stages(32, 8), 3)}) {
    EXPECT_EQ(made.colliding, 0);
    EXPECT_EQ(made.slowdown(), 1);
    EXPECT_EQ(made.mean, 1);
  }
}

TEST(Forecast, OversubscriptionLimitsAdaptiveRoutingToo) {
  Fabric fabric;
  fabric.ecmp.hash = "adaptive";
  fabric.leaf.uplinks = fabric.spine.switches = 16;
  const CollectiveForecast made = of_pipeline(fabric, two_stages(32, 8), 2);
  EXPECT_EQ(made.colliding, 1);
  EXPECT_DOUBLE_EQ(made.slowest_median, 0.5);
}

TEST(Forecast, QueuePairsHelpOnlyIfTheHashReadsTheSourcePort) {
  Fabric fabric;
  const mesh::MeshConfig mesh = two_stages(32, 8);
  const double one = of_pipeline(fabric, mesh, 10).slowest_median;
  fabric.roce.queue_pairs = 16;
  EXPECT_GT(of_pipeline(fabric, mesh, 10).slowest_median, 1.5 * one);
  fabric.ecmp.fields = {"src_ip", "dst_ip", "protocol", "dst_port"};
  const double blind = of_pipeline(fabric, mesh, 10).slowest_median;
  fabric.roce.queue_pairs = 1;
  EXPECT_NEAR(blind, of_pipeline(fabric, mesh, 10).slowest_median, 1e-9);
}

TEST(Forecast, SeedsOfSwitchesChangeNoCollisionOfACrc) {
  Fabric fabric;
  const double colliding = of_pipeline(fabric, two_stages(32, 8), 4).colliding;
  fabric.ecmp.seed = 99;
  EXPECT_EQ(of_pipeline(fabric, two_stages(32, 8), 4).colliding, colliding);
  fabric.leaf.uplinks = fabric.spine.switches = 31;  // no power of two
  const double other = of_pipeline(fabric, two_stages(32, 8), 4).colliding;
  fabric.ecmp.seed = 0;
  EXPECT_NE(of_pipeline(fabric, two_stages(32, 8), 4).colliding, other);
}

TEST(Forecast, PlacementDecidesWhichAxisPassesTheSpines) {
  const mesh::MeshConfig mesh{.dp = 16, .pp = 4, .tp = 8};
  const auto listed = forecast(Fabric{}, mesh, Placement::listed, 1);
  EXPECT_EQ(of_axis("dp", listed).crossing, 0U);
  EXPECT_EQ(of_axis("pp", listed).crossing, 128U) << "16 hosts of the second stage, 8 NICs each";
  const auto pipelines = forecast(Fabric{}, mesh, Placement::pipelines, 1);
  EXPECT_EQ(of_axis("pp", pipelines).crossing, 0U);
  EXPECT_EQ(of_axis("dp", pipelines).crossing, 4U * 8U * 2U) << "every ring passes between the sets twice";
  EXPECT_GT(of_axis("dp", forecast(Fabric{}, mesh, Placement::random, 1)).crossing, 100U);
}

TEST(Forecast, FabricsThatAreTooLargeAreRefused) {
  Fabric fabric = two_sets(1, 512);
  EXPECT_THROW(forecast(fabric, {.dp = 8192}, Placement::listed, 1), Error);
  fabric = {};
  fabric.roce.queue_pairs = 128;
  EXPECT_THROW(forecast(fabric, two_stages(8192, 8), Placement::listed, 1), Error);
  EXPECT_THROW(forecast(Fabric{}, {.dp = 4096, .ep = 4096}, Placement::listed, 1), Error);
  EXPECT_THROW(forecast(two_sets(4096, 1), {.dp = 70000}, Placement::listed, 1), Error);
}

TEST(Forecast, PipelinesThatDoNotDivideOverHostsAreRefused) {
  const mesh::MeshConfig mesh{.dp = 1, .pp = 3, .tp = 4};  // two hosts
  EXPECT_THROW(forecast(Fabric{}, mesh, Placement::pipelines, 1), Error);
  for (const Change& change : changes_of(Fabric{}, mesh, Placement::listed))
    EXPECT_NO_THROW(forecast(change.fabric, mesh, change.placement, 1)) << change.name;
}

TEST(Changes, ThoseThatAreMadeAreNotProposed) {
  std::vector<std::string> names;
  for (const Change& change : changes_of(Fabric{}, two_stages(32, 8), Placement::listed)) {
    names.push_back(change.name);
    EXPECT_FALSE(change.set.empty());
    EXPECT_TRUE(change.fabric != Fabric{} || change.placement != Placement::listed) << change.name;
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"NICs of 2 x 200 Gbit/s", "4 queue pairs", "16 queue pairs",
                                            "pp under leaf switches", "ideal hash", "adaptive routing"}));
  Fabric fabric;
  fabric.host.ports = 2;
  fabric.roce.queue_pairs = 8;
  fabric.ecmp.hash = "adaptive";
  for (const Change& change : changes_of(fabric, two_stages(32, 8), Placement::random)) {
    EXPECT_NE(change.name, "NICs of 2 x 200 Gbit/s");
    EXPECT_NE(change.name, "4 queue pairs");
    EXPECT_NE(change.name, "adaptive routing");
  }
}

}  // namespace
}  // namespace ms::clos
