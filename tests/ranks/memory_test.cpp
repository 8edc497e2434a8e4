// In-memory checkpoint copies on nodes. Ranks are threads; nodes are names with directories of their own.
#include "ckpt/memory_tier.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <numeric>

#include "ckpt/directory.h"
#include "ckpt/file_writer.h"
#include "ckpt/load.h"
#include "saver_case.h"

namespace ms::ckpt::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<Parameter> kOdd{{"embed.weight", 61, 37}, {"norm.gain", 1, 37}, {"mlp.weight", 13, 101}, {"x", 1, 1}};
const std::vector<Parameter> kTiny{{"gain", 1, 5}, {"weight", 7, 3}};  // rank 0 owns all
constexpr mesh::Mesh kMesh{.dp = 2, .pp = 2, .tp = 2};

// A world whose ranks run on the given nodes.
class Placed final : public comm::World {
 public:
  Placed(std::unique_ptr<comm::World> world, const std::vector<int>& nodes) : world_(std::move(world)), nodes_(nodes) {}
  std::string_view kind() const override { return world_->kind(); }
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  int ranks_on_node() const override {
    return static_cast<int>(std::count(nodes_.begin(), nodes_.end(), nodes_[static_cast<std::size_t>(rank())]));
  }
  std::string node(int rank) const override { return fmt::format("node{}", nodes_[static_cast<std::size_t>(rank)]); }
  comm::Store& store() override { return world_->store(); }
  std::unique_ptr<comm::Communicator> open(const comm::Group& group, tensor::Stream& stream) override {
    return world_->open(group, stream);
  }
  void abort(const Error& cause) noexcept override { world_->abort(cause); }
  std::optional<Cause> cause() const override { return world_->cause(); }
  void close() override { world_->close(); }

 private:
  std::unique_ptr<comm::World> world_;
  std::vector<int> nodes_;
};

// Simulated nodes with memory, and shared storage.
struct Machine {
  Directory storage, memory;
  bool host_apart = false;

  std::string node(const std::string& name) const { return memory.path() + "/" + name; }
  std::string root(const std::string& name) const { return node(name) + "/id"; }
  void lose(int number) const { fs::remove_all(node(fmt::format("node{}", number))); }
  std::vector<std::string> names(int number, const std::string& below = {}) const {
    std::vector<std::string> found;
    const std::string path = root(fmt::format("node{}", number)) + "/" + below;
    if (!fs::exists(path)) return found;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string checkpoint(std::int64_t step) const { return storage.path() + "/" + step_name(step); }

  // Runs a body on 8 ranks; `nodes` by rank.
  void on(const std::vector<int>& nodes, const std::vector<Parameter>& parameters,
          const std::function<void(Rank&, std::unique_ptr<MemoryTier>)>& body) const {
    const Setup setup{
        .ranks = kMesh.size(),
        .parameters = parameters,
        .host_apart = host_apart,
        .wrap = [&](std::unique_ptr<comm::World> world) { return std::make_unique<Placed>(std::move(world), nodes); }};
    on_ranks(setup, [&](Rank& rank) {
      std::vector<Piece> pieces;
      for (const Held& held : rank.held()) pieces.push_back(held.piece);
      body(rank, std::make_unique<MemoryTier>(
                     MemoryOptions{.root = root(rank.world().node(rank.rank())), .mesh = kMesh, .first_group_id = 1000},
                     pieces, rank.world(), rank.host()));
    });
  }

  // Saves these steps one after the other, each with its number as version; returns the outcomes as seen by rank 0.
  std::vector<SaveOutcome> save(const std::vector<int>& nodes, const std::vector<std::int64_t>& steps,
                                const std::vector<Parameter>& parameters = kOdd) const {
    std::vector<SaveOutcome> outcomes;
    on(nodes, parameters, [&](Rank& rank, std::unique_ptr<MemoryTier> tier) {
      const auto saver = rank.open({.dir = storage.path()}, std::move(tier));
      for (const std::int64_t step : steps) {
        rank.update(static_cast<std::uint64_t>(step));
        EXPECT_TRUE(rank.begin(*saver, step));
        rank.update(99);
        const SaveOutcome outcome = rank.outcome(*saver);
        if (rank.rank() == 0) outcomes.push_back(outcome);
      }
      while (saver->finish()) {}
    });
    return outcomes;
  }

  // Fetches and settles, and compares the result with storage; returns the problem, empty on success.
  std::string fetch(const std::vector<int>& nodes, std::int64_t step,
                    const std::vector<Parameter>& parameters = kOdd) const {
    std::mutex mutex;
    std::vector<std::string> problems;
    const Manifest manifest = look(checkpoint(step)).manifest.value();
    on(nodes, parameters, [&](Rank& rank, std::unique_ptr<MemoryTier> tier) {
      comm::Group group{"all", 50, std::vector<int>(8)};
      std::iota(group.ranks.begin(), group.ranks.end(), 0);
      const auto stream = rank.host().make_stream("all", tensor::StreamKind::comm);
      const auto everyone = rank.world().open(group, *stream);
      const MemoryTier::Fetched fetched = tier->fetch(manifest, *everyone);
      {
        const std::lock_guard lock(mutex);
        problems.push_back(fetched.problem);
      }
      if (!fetched.problem.empty()) return;
      EXPECT_EQ(fetched.path, root(rank.world().node(rank.rank())) + "/" + step_name(step));
      const std::string name = "/" + rank_file_name(rank.rank());
      EXPECT_EQ(bytes(fetched.path + name), bytes(checkpoint(step) + name)) << rank.rank();
      tier->settle(&manifest);
    });
    EXPECT_THAT(problems, Each(problems.front()));
    return problems.front();
  }

  static std::string bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

const std::vector<int> kPairs{0, 0, 1, 1, 2, 2, 3, 3};

TEST(Memory, EveryNodeHoldsItsRanksFilesAndAsManyCopies) {
  const Machine machine;
  for (const SaveOutcome& outcome : machine.save(kPairs, {1, 2, 3})) EXPECT_TRUE(outcome.committed) << outcome.problem;
  std::map<std::string, int> copies;
  for (int number = 0; number < 4; ++number) {
    EXPECT_THAT(machine.names(number), ElementsAre("step-00000003")) << "older ones go";
    const std::vector<std::string> names = machine.names(number, "step-00000003");
    EXPECT_EQ(names.size(), 5U) << number;  // including the mark
    for (const std::string& name : names) {
      ++copies[name];
      if (name == "mark") continue;
      EXPECT_EQ(Machine::bytes(machine.root(fmt::format("node{}", number)) + "/step-00000003/" + name),
                Machine::bytes(machine.checkpoint(3) + "/" + name));
    }
  }
  EXPECT_EQ(copies.size(), 9U);
  for (const auto& [name, count] : copies) EXPECT_EQ(count, name == "mark" ? 4 : 2) << name;
}

TEST(Memory, RanksOfALostNodeFetchFromTheNodesThatHoldCopies) {
  for (int lost = 0; lost < 4; ++lost) {
    const Machine machine;
    machine.save(kPairs, {1});
    machine.lose(lost);
    std::vector<int> replaced = kPairs;
    for (int& number : replaced) number = number == lost ? 9 : number;
    EXPECT_EQ(machine.fetch(replaced, 1), "");
    EXPECT_EQ(machine.fetch(replaced, 1), "") << "the second time";
    EXPECT_EQ(machine.names(9, "step-00000001").size(), 3U);
  }
}

TEST(Memory, RanksMayMoveToOtherNodes) {
  const Machine machine;
  machine.save(kPairs, {1});
  EXPECT_EQ(machine.fetch({3, 2, 1, 0, 0, 1, 2, 3}, 1), "");
  EXPECT_EQ(machine.fetch({0, 0, 0, 0, 1, 1, 2, 3}, 1), "");
  machine.lose(2);
  EXPECT_EQ(machine.fetch({1, 1, 3, 3, 0, 0, 7, 7}, 1), "");
}

TEST(Memory, ReportsThatBothCopiesAreLost) {
  const Machine machine;
  machine.save(kPairs, {1});
  // The ranks of node 0 have their copies on node 3 and vice versa: pp, dp and tp differ.
  machine.lose(0);
  machine.lose(3);
  EXPECT_EQ(machine.fetch({8, 8, 1, 1, 2, 2, 9, 9}, 1), "4 of 8 files are in no node's memory");
  EXPECT_THAT(machine.names(8), IsEmpty());
}

TEST(Memory, RanksWithoutPieces) {
  const Machine machine;
  machine.save(kPairs, {1}, kTiny);
  EXPECT_THAT(machine.names(0, "step-00000001"), ElementsAre("mark", "rank-00000.h5"));
  machine.lose(0);
  EXPECT_EQ(machine.fetch({9, 9, 1, 1, 2, 2, 3, 3}, 1, kTiny), "");
  EXPECT_THAT(machine.names(9, "step-00000001"), ElementsAre("mark", "rank-00000.h5"));
}

TEST(Memory, SavesWhenANodeCannotHoldCopies) {
  const Machine machine;
  std::ofstream(machine.node("node1")) << "a file where the directory should be";
  for (const SaveOutcome& outcome : machine.save(kPairs, {1, 2})) EXPECT_TRUE(outcome.committed) << outcome.problem;
  EXPECT_EQ(problem_with(machine.checkpoint(2), kOdd, 2), "");
  // The files it would have copied are with their own ranks, and its ranks' files are copied elsewhere.
  EXPECT_EQ(machine.fetch({0, 0, 7, 7, 2, 2, 3, 3}, 2), "");
  EXPECT_THAT(machine.fetch(kPairs, 2), HasSubstr("no room"));
}

TEST(Memory, FailedSaveKeepsThePreviousCopies) {
  const Machine machine;
  machine.save(kPairs, {1});
  fs::create_directories(machine.storage.path() + "/saving-step-00000002/rank-00005.h5");
  const std::vector<SaveOutcome> outcomes = machine.save(kPairs, {2, 2, 3});
  EXPECT_FALSE(outcomes[0].committed);
  EXPECT_TRUE(outcomes[1].committed) << outcomes[1].problem;  // the same step again
  EXPECT_EQ(machine.fetch(kPairs, 3), "");
  EXPECT_THAT(machine.fetch(kPairs, 2), HasSubstr("8 of 8 files"));
}

TEST(Memory, IgnoresCopiesOfTheSameStepOfAnotherTimeLine) {
  const Machine machine;
  machine.save(kPairs, {1});
  fs::rename(machine.node("node0"), machine.node("before"));
  machine.save(kPairs, {1}, {{"other", 61, 37}});
  machine.lose(0);
  fs::rename(machine.node("before"), machine.node("node0"));
  // Node 0 holds step 1 of the first time line; its ranks fetch their files from other nodes.
  EXPECT_EQ(machine.fetch(kPairs, 1, {{"other", 61, 37}}), "");
}

TEST(Memory, DetectsDamageWhenLoading) {
  const Machine machine;
  machine.save(kPairs, {1});
  const std::string copy = machine.root("node0") + "/step-00000001/rank-00000.h5";
  std::fstream(copy, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).put('?');
  const Manifest manifest = look(machine.checkpoint(1)).manifest.value();
  std::vector<std::byte> memory(1 << 20);
  const Piece piece = manifest.files[0].pieces[0].piece;
  EXPECT_NO_THROW(load(machine.root("node1") + "/step-00000001", manifest,
                       {{manifest.files[2].pieces[0].piece, memory.data()}}, {}));
  try {
    load(machine.root("node0") + "/step-00000001", manifest, {{piece, memory.data()}}, {});
    ADD_FAILURE() << "it was loaded";
  } catch (const Error& error) { EXPECT_EQ(error.kind(), "ckpt.damaged"); }
}

TEST(Memory, OneNodeWithMoreThanHalfOfTheRanks) {
  const Machine machine;
  const std::vector<int> nodes{0, 0, 0, 0, 0, 1, 1, 2};
  EXPECT_TRUE(machine.save(nodes, {1}).front().committed);
  machine.lose(1);
  machine.lose(2);
  EXPECT_EQ(machine.fetch({0, 0, 0, 0, 0, 7, 7, 8}, 1), "");
}

// As with state on a GPU: its events gate the host's streams.
TEST(Memory, CopiesStateOfAnotherDevice) {
  Machine machine;
  machine.host_apart = true;
  for (const SaveOutcome& outcome : machine.save(kPairs, {1, 2, 3})) EXPECT_TRUE(outcome.committed) << outcome.step;
  EXPECT_EQ(problem_with(machine.checkpoint(3), kOdd, 3), "");
  machine.lose(1);
  EXPECT_EQ(machine.fetch({0, 0, 7, 7, 2, 2, 3, 3}, 3), "");
}

TEST(Memory, FinishedRunRemovesItsCopies) {
  const Machine machine;
  machine.on(kPairs, kOdd, [&](Rank& rank, std::unique_ptr<MemoryTier> tier) {
    const auto saver = rank.open({.dir = machine.storage.path()}, std::move(tier));
    rank.update(1);
    EXPECT_TRUE(rank.begin(*saver, 1));
    while (saver->finish()) {}
    saver->drop_copies();
  });
  for (int number = 0; number < 4; ++number) {
    EXPECT_FALSE(fs::exists(machine.root(fmt::format("node{}", number)))) << number;
  }
  EXPECT_EQ(problem_with(machine.checkpoint(1), kOdd, 1), "");
}

}  // namespace
}  // namespace ms::ckpt::testing
