// What ranks make sure of before step 0: the same settings, the same groups. Worlds of threads; the rest are texts.
#include "train/run/start_up.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/thread_world.h"

namespace ms::train {
namespace {

using namespace std::chrono_literals;

constexpr const char* kValues = "[train]\nsteps = 10\nseed = 1\n\n[run]\ndir = \"a\"\n";

struct Row {
  const char* name;
  const char* there;
  const char* difference;
};
class Differences : public ::testing::TestWithParam<Row> {};

TEST_P(Differences, NameTheKey) { EXPECT_EQ(first_difference(kValues, GetParam().there), GetParam().difference); }

INSTANTIATE_TEST_SUITE_P(All, Differences,
                         ::testing::Values(Row{"the_same", kValues, ""},
                                           Row{"a_number", "[train]\nsteps = 10\nseed = 2\n\n[run]\ndir = \"a\"\n",
                                               "[train] seed is 2 there and 1 here"},
                                           Row{"a_text",
                                               "[train]\nsteps = 10\nseed = 1\n\n[run]\ndir = \"b  # set by me\"\n",
                                               "[run] dir is \"b  # set by me\" there and \"a\" here"},
                                           Row{"another_key", "[train]\nsteps = 10\ncolor = 1\n\n[run]\ndir = \"a\"\n",
                                               "their settings have different names"},
                                           Row{"cut_short", "[train]\nsteps = 10", ""}),
                         [](const auto& row) { return row.param.name; });

// Each rank with its configuration; what each was refused with.
std::vector<std::string> refusals(const std::vector<std::string>& configurations, const mesh::Groups& groups) {
  comm::ThreadHub hub(static_cast<int>(configurations.size()), 20s);
  std::vector<std::string> messages(configurations.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < configurations.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const std::unique_ptr<comm::World> world = hub.world(static_cast<int>(rank));
        try {
          StartUp start_up(*world, configurations[rank], 20s);
          start_up.check_configuration();
          start_up.create_groups(groups);
        } catch (const Error& error) {
          messages[rank] = error.message();
          world->abort(error);
        }
      });
    }
  }
  return messages;
}

TEST(StartUp, TheSameEverywhere) {
  const mesh::Groups groups({.dp = 2, .pp = 2, .tp = 2}, 2, true);
  for (const std::string& message : refusals(std::vector<std::string>(8, kValues), groups)) EXPECT_EQ(message, "");
}

TEST(StartUp, ARankWithOtherSettingsNamesItselfRank0AndTheKey) {
  const mesh::Groups groups({.dp = 2, .pp = 1, .tp = 2}, 1, true);
  std::vector<std::string> configurations(4, kValues);
  configurations[2].replace(configurations[2].find("10"), 2, "20");
  const std::vector<std::string> messages = refusals(configurations, groups);
  EXPECT_EQ(messages[2],
            "rank 2 was started with another configuration than rank 0: [train] steps is 10 there and 20 here");
  for (const std::size_t rank : {0U, 1U, 3U}) {  // they hear of it, or are through before
    EXPECT_TRUE(messages[rank].empty() || messages[rank] == "rank 2 stopped: " + messages[2]) << messages[rank];
  }
}

}  // namespace
}  // namespace ms::train
