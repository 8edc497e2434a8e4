// Group ids over a store that is a map: who publishes, who fetches, how often, and which configurations are refused.
#include "comm/group_ids.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "mesh/mesh.h"

namespace ms::comm {
namespace {

using namespace std::chrono_literals;

// A store without a world. Getting a missing value fails at once rather than waits.
class MapStore final : public Store {
 public:
  using Values = std::map<std::pair<int, std::string>, std::string>;
  MapStore(int rank, Values& values) : rank_(rank), values_(values) {}
  void put(std::string_view key, std::string_view value) override {
    check_publishable(key, value);
    pending_[{rank_, std::string(key)}] = value;
  }
  void commit() override { values_.merge(pending_); }
  std::string get(int rank, std::string_view key, std::chrono::milliseconds deadline) override {
    const auto found = values_.find({rank, std::string(key)});
    if (found == values_.end()) throw store_deadline_error(rank_, rank, key, deadline);
    return found->second;
  }

 private:
  int rank_;
  Values& values_;
  Values pending_;
};

std::vector<Group> groups_of(const mesh::Groups& groups, int rank) {
  std::vector<Group> mine;
  for (mesh::GroupSpec& spec : groups.of(rank)) mine.push_back({spec.name, spec.id, spec.ranks});
  return mine;
}

struct Member {
  Member(int rank, MapStore::Values& values, std::uint64_t configuration, std::function<std::string()> make_id = {})
      : map(rank, values), store(map), ids(store, rank, {configuration, 0ms, std::move(make_id), [](int maker) {
                                                           return maker == 3 ? "a difference" : "";
                                                         }}) {}
  MapStore map;
  CountedStore store;
  GroupIds ids;
};

class Meshes : public ::testing::TestWithParam<mesh::Mesh> {};

// All members get the first member's id, different for every group; one value per group, one get per other member, at
// most one commit per rank, no barrier.
TEST_P(Meshes, AllMembersGetTheSameId) {
  const mesh::Mesh& mesh = GetParam();
  const mesh::Groups groups(mesh, mesh.pp > 1 ? 2 : 1, true);
  MapStore::Values values;
  int made = 0;
  std::vector<std::unique_ptr<Member>> members;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    members.push_back(std::make_unique<Member>(
        rank, values, 7, [&] { return fmt::format("id {}", made++) + std::string(1, '\0') + "end"; }));
    members.back()->ids.create(groups_of(groups, rank));
  }
  std::map<int, std::string> ids;
  StoreCounts total;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    Member& member = *members[static_cast<std::size_t>(rank)];
    const std::vector<Group> mine = groups_of(groups, rank);
    for (const Group& group : mine) {
      const std::string& id = member.ids.of(group);
      EXPECT_EQ(ids.emplace(group.id, id).first->second, id) << group.name;
      EXPECT_EQ(member.ids.of(group), id);  // does not ask again
    }
    const StoreCounts& counts = member.store.counts();
    EXPECT_LE(counts.commits, 1);
    EXPECT_LE(counts.gets, static_cast<std::int64_t>(mine.size()));
    total.puts += counts.puts;
    total.gets += counts.gets;
  }
  std::int64_t shared = 0, others = 0;
  std::set<std::string> different;
  for (const mesh::GroupSpec& group : groups.all()) {
    const auto size = static_cast<std::int64_t>(group.ranks.size());
    shared += size > 1 ? 1 : 0;
    others += size - 1;
    different.insert(ids.at(group.id));
  }
  EXPECT_EQ(different.size(), static_cast<std::size_t>(groups.count()));
  EXPECT_EQ(total.puts, shared);
  EXPECT_EQ(total.gets, others);
}

INSTANTIATE_TEST_SUITE_P(All, Meshes,
                         ::testing::Values(mesh::Mesh{.dp = 1, .pp = 1, .tp = 1}, mesh::Mesh{.dp = 2, .pp = 1, .tp = 1},
                                           mesh::Mesh{.dp = 2, .pp = 2, .tp = 2}, mesh::Mesh{.dp = 3, .pp = 4, .tp = 2},
                                           mesh::Mesh{.dp = 5, .pp = 1, .tp = 4}),
                         [](const auto& row) {
                           return fmt::format("dp{}_pp{}_tp{}", row.param.dp, row.param.pp, row.param.tp);
                         });

TEST(GroupIds, FetchesOnDemand) {
  MapStore::Values values;
  Member first(2, values, 7), second(5, values, 7);
  const Group group{"dp", 4, {2, 5}}, elsewhere{"dp", 5, {3, 4}}, alone{"tp", 6, {5}};
  first.ids.create({group, elsewhere});
  second.ids.create({group, elsewhere, alone});
  EXPECT_EQ(first.store.counts().puts, 1);
  EXPECT_EQ(second.store.counts().operations(), 0) << "a group of one tells nobody";
  EXPECT_EQ(second.ids.of(group), "");
  EXPECT_EQ(second.ids.of(alone), "");
  EXPECT_EQ(second.store.counts().operations(), 1);
}

struct Refusal {
  const char* name;
  std::uint64_t configuration;
  Group group;
  const char* text;
};
class Refusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refusals, NameBothRanks) {
  MapStore::Values values;
  Member first(2, values, 7), second(5, values, GetParam().configuration);
  first.ids.create({{"dp", 4, {2, 5}}});
  try {
    second.ids.of(GetParam().group);
    FAIL() << "no refusal";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "comm.configuration");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_EQ(error.message(), GetParam().text);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Refusals,
    ::testing::Values(
        Refusal{"configuration", 8, {"dp", 4, {2, 5}}, "rank 5 was started with another configuration than rank 2"},
        Refusal{"ranks",
                7,
                {"dp", 4, {2, 4, 5}},
                "rank 5 and rank 2 define group dp differently with the same configuration"},
        Refusal{
            "name", 7, {"pp", 4, {2, 5}}, "rank 5 and rank 2 define group pp differently with the same configuration"}),
    [](const auto& row) { return row.param.name; });

TEST(GroupIds, RefusalsDescribeTheDifference) {
  MapStore::Values values;
  Member(3, values, 7).ids.create({{"dp", 4, {3, 5}}});
  try {
    Member(5, values, 8).ids.of({"dp", 4, {3, 5}});
    FAIL() << "no refusal";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "rank 5 was started with another configuration than rank 3: a difference");
  }
}

TEST(GroupIds, RefusesMalformedValues) {
  MapStore::Values values{{{2, "group 4"}, "rubbish"}};
  EXPECT_THROW(Member(5, values, 7).ids.of({"dp", 4, {2, 5}}), Error);
}

TEST(GroupIds, FailsIfNoRankPublishes) {
  MapStore::Values values;
  EXPECT_THROW(Member(5, values, 7).ids.of({"dp", 4, {2, 5}}), Error);
}

TEST(GroupIds, OnlyMembersMayFetch) {
  MapStore::Values values;
  EXPECT_DEATH(Member(6, values, 7).ids.of({"dp", 4, {2, 5}}), "is not a member of");
  EXPECT_DEATH(Member(2, values, 7).ids.of({"dp", 4, {2, 5}}), "has not created");
}

}  // namespace
}  // namespace ms::comm
