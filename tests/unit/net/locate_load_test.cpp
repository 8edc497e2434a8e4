// A fabric whose processes wait for CPUs: healthy ways are slow by chance, and are not named.
#include <gmock/gmock.h>

#include <iterator>

#include "fake_fabric.h"

namespace ms::net {
namespace {

using test::culprits;
using test::FakeFabric;
using testing::ElementsAre;
using testing::IsEmpty;

struct Stream {
  double mbps, cpu_wait;
};
// Streams of ms-netcheck locate in eight namespaces on two cores: ways of 100 Mbit/s, and of 30 Mbit/s into the slow
// node. Beside eight processes of stress-ng, which had a higher priority:
constexpr Stream kHeavy[] = {
    {59.2, 0.97}, {33.2, 0.97}, {20.2, 0.98}, {33.8, 0.79}, {32.9, 0.90}, {31.1, 0.87}, {19.2, 0.79}, {22.8, 0.79},
    {64.7, 0.91}, {18.4, 0.60}, {52.0, 0.98}, {46.7, 0.83}, {29.9, 0.76}, {15.9, 0.89}, {29.0, 0.81}, {37.5, 0.92},
    {28.5, 0.81}, {17.3, 0.78}, {47.6, 0.95}, {22.2, 0.86}, {25.4, 0.60}, {46.3, 0.93}, {44.7, 0.85}, {18.2, 0.84},
    {33.2, 0.90}, {26.5, 0.84}, {33.0, 0.77}, {34.3, 0.80}, {26.9, 0.55}, {52.3, 0.91}, {8.1, 0.91},  {30.4, 0.87},
    {28.2, 0.99}, {58.3, 0.88}, {10.9, 0.80}, {10.4, 0.98}, {21.7, 0.84}, {16.4, 0.99}, {24.1, 0.94}, {7.5, 0.84},
    {18.0, 0.99}, {31.5, 0.90}, {53.0, 0.82}, {31.3, 0.84}, {24.4, 0.95}, {42.7, 0.86}, {23.4, 0.86}, {24.0, 0.94},
    {16.9, 0.99}, {79.5, 0.98}, {44.7, 0.76}, {86.6, 0.91}, {95.4, 0.81}, {64.8, 0.94}, {48.6, 0.80}, {63.1, 0.97},
    {84.3, 0.98}, {61.6, 0.86}, {64.2, 0.73}, {53.5, 0.98}, {52.2, 0.90}, {61.2, 0.88}, {54.6, 0.77}, {52.5, 0.83},
    {44.9, 0.89}, {30.8, 0.82}, {71.4, 0.86}, {58.0, 0.82}, {33.8, 0.89}, {67.6, 0.73}, {58.9, 0.81}, {57.6, 0.84},
    {82.2, 0.90}, {63.0, 0.72}, {48.9, 0.77}, {63.3, 0.83}, {56.2, 0.86}, {57.4, 0.78}, {67.1, 0.96}, {54.0, 0.81},
    {82.8, 0.89}, {86.5, 0.83}, {73.2, 0.86}, {73.7, 0.85}, {85.0, 0.93}, {59.6, 0.72}};
// Beside three compilers:
constexpr Stream kLight[] = {{85.1, 0.86}, {75.3, 0.87}, {70.1, 0.86}, {92.7, 0.87}, {50.6, 0.90}, {74.2, 0.90},
                             {80.7, 0.78}, {75.0, 0.69}, {86.2, 0.74}, {84.4, 0.79}, {85.3, 0.81}, {91.6, 0.88},
                             {89.1, 0.85}, {83.2, 0.85}, {80.2, 0.81}, {78.7, 0.85}, {84.1, 0.83}, {80.2, 0.76}};
constexpr Stream kLightSlow[] = {{28.4, 0.81}, {26.5, 0.48}, {28.3, 0.75}, {28.2, 0.85},
                                 {28.6, 0.87}, {28.0, 0.74}, {27.8, 0.76}};
// Beside nothing:
constexpr Stream kIdle[] = {{95.6, 0.22}, {95.6, 0.15}, {95.6, 0.19}, {94.9, 0.16}, {94.8, 0.21}, {95.7, 0.09},
                            {95.5, 0.08}, {94.5, 0.21}, {95.1, 0.23}, {95.6, 0.19}, {95.7, 0.15}, {94.4, 0.20},
                            {95.5, 0.20}, {95.2, 0.09}, {95.3, 0.10}, {95.3, 0.23}, {94.6, 0.21}, {95.4, 0.20},
                            {95.6, 0.08}, {95.6, 0.15}, {95.0, 0.22}, {63.7, 0.18}};
constexpr Stream kIdleSlow[] = {{28.7, 0.12}, {28.7, 0.01}};

constexpr unsigned kRuns = 200;  // kMostChance of them, at most, may name a healthy way

template <std::size_t n>
void draw(const Stream (&streams)[n], FakeFabric& fabric, Way& way) {
  const Stream& stream = streams[fabric.pick(n)];
  way.gbps = stream.mbps / 1000;
  way.cpu_wait = stream.cpu_wait;
}

TEST(LocateAtLoad, NoHealthyWayIsNamed) {
  int cannot_tell = 0, wrong = 0;
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    FakeFabric fabric(8, seed);
    fabric.way_fault = [&](int, int, Way& way) { draw(kHeavy, fabric, way); };
    const Locator locator = fabric.locate();
    wrong += !culprits(locator).empty();
    cannot_tell += locator.ways_by_chance() > 0;
  }
  EXPECT_LE(wrong, kRuns * kMostChance);
  EXPECT_GT(cannot_tell, 0);
}

// Load comes and goes; a bad moment lasts for several tests.
TEST(LocateAtLoad, NorInBadMoments) {
  int wrong = 0;
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    FakeFabric fabric(8, seed);
    bool is_busy = false;
    fabric.round_begins = [&](const Round&) { is_busy = fabric.pick(4) == 0 ? !is_busy : is_busy; };
    fabric.way_fault = [&](int, int, Way& way) {
      if (is_busy) draw(kHeavy, fabric, way);
      if (!is_busy) draw(kIdle, fabric, way);
    };
    wrong += !culprits(fabric.locate()).empty();
  }
  EXPECT_LE(wrong, kRuns * kMostChance);
}

TEST(LocateAtLoad, ASlowReceiverIsNamedAloneOrNotAtAll) {
  const Culprit slow{.kind = Kind::receiving, .a = 6};
  for (unsigned seed = 0; seed < 50; ++seed) {
    FakeFabric fabric(8, seed);
    fabric.way_fault = [&](int, int to, Way& way) {
      if (to == 6) draw(kIdleSlow, fabric, way);
      if (to != 6) draw(kIdle, fabric, way);
    };
    EXPECT_THAT(culprits(fabric.locate()), ElementsAre(slow)) << seed;
    fabric.way_fault = [&](int, int to, Way& way) {
      if (to == 6) draw(kLightSlow, fabric, way);
      if (to != 6) draw(kLight, fabric, way);
    };
    EXPECT_THAT(culprits(fabric.locate()), ElementsAre(slow)) << seed;
    fabric.way_fault = [&](int, int to, Way& way) {
      draw(kHeavy, fabric, way);
      if (to == 6) way.gbps = std::min(way.gbps, 0.028);
    };
    EXPECT_THAT(culprits(fabric.locate()), testing::AnyOf(IsEmpty(), ElementsAre(slow))) << seed;
  }
}

TEST(LocateAtLoad, ASlowDirectionIsFoundBesideCompilers) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    FakeFabric fabric(8, seed);
    fabric.way_fault = [&](int from, int to, Way& way) {
      if (from == 2 && to == 5) draw(kLightSlow, fabric, way);
      if (from != 2 || to != 5) draw(kLight, fabric, way);
    };
    EXPECT_THAT(culprits(fabric.locate()), ElementsAre(Culprit{.kind = Kind::direction, .a = 2, .b = 5})) << seed;
  }
}

// Nothing tells whether the ways of the only busy node would be faster if it were not busy.
TEST(LocateAtLoad, TheOnlyBusyNodeIsNotJudged) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    FakeFabric fabric(8, seed);
    fabric.way_fault = [&](int from, int to, Way& way) {
      draw(kIdle, fabric, way);
      if (from == 3 || to == 3) way.gbps = 0.03, way.cpu_wait = 0.9;
    };
    const Locator locator = fabric.locate();
    EXPECT_THAT(culprits(locator), IsEmpty()) << seed;
    EXPECT_EQ(locator.ways_by_chance(), 14);
  }
}

}  // namespace
}  // namespace ms::net
