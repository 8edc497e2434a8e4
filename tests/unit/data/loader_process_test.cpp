// The loader of a node: every rank gets what it would have read itself, whoever shares a node, and whatever dies.
#include "data/loader_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "base/text.h"
#include "data/batch_reader.h"
#include "data/facts.h"
#include "token_files.h"

namespace ms::data {
namespace {

constexpr std::int64_t kSeq = 8;
constexpr std::int64_t kGlobalBatch = 12;
constexpr int kDp = 4;
constexpr BatchOrder kOrder{.begin = 2, .end = 12, .validate_every = 3, .rounds = 2};
constexpr std::int64_t kFirstSample = 31;
const std::vector<Skip> kSkips{{.step = 5, .begin = 60, .end = 77}};

// Returns the first child of a process once it has one; never less than 1, which kill(2) would take for a group.
pid_t child_of(pid_t parent) {
  const std::string path = fmt::format("/proc/{}/task/{}/children", parent, parent);
  for (int i = 0; i < 10'000; ++i) {
    const std::vector<std::string> children = split(slurp(path), ' ');
    if (!children.empty() && !children.front().empty()) return std::stoi(children.front());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw std::runtime_error("a process without children");
}

class NodeLoader : public testing::Test {
 protected:
  NodeLoader() {
    for (const std::string name : {"a", "b"}) {
      std::vector<std::vector<std::int32_t>> documents;
      for (std::int32_t i = 0; i < 60; ++i) {
        documents.emplace_back(static_cast<std::size_t>(3 + i * 7 % 20));
        std::iota(documents.back().begin(), documents.back().end(), 10 * i + (name == "a" ? 0 : 300));
      }
      write_tokens(dir_ / name, documents);
    }
  }

  Loader open() const {
    DataConfig config{.train = {"0:3;6:1 " + dir_ / "a", "1 " + dir_ / "b"}, .valid = {}, .valid_fraction = 0.2};
    config.reset_attention = true;
    return {config, {.seq = kSeq, .global_batch = kGlobalBatch, .ramp = {{.batch = 4, .steps = 3}}}, 1000, 1};
  }
  std::unique_ptr<LoaderProcess> start() const {
    return std::make_unique<LoaderProcess>([this] { return std::make_unique<Loader>(open()); });
  }
  static RingShape shape_for(const std::vector<int>& dp_ranks) {
    return {.readers = static_cast<int>(dp_ranks.size()),
            .parts = static_cast<int>(dp_ranks.size()),
            .rows = kGlobalBatch / kDp,
            .seq = kSeq,
            .has_starts = true};
  }
  static LoaderTask task_for(const std::vector<int>& dp_ranks) {
    return {.order = kOrder,
            .first_sample = kFirstSample,
            .dp_ranks = dp_ranks,
            .division = {.dp = kDp},
            .has_digests = true,
            .skips = kSkips};
  }

  // What a rank that reads for itself has.
  struct AloneRows {
    std::vector<std::int32_t> rows, starts;
  };
  static AloneRows read_alone(const Loader& loader, const BatchId& id, int dp_rank) {
    const std::int64_t rows = (id.round ? kGlobalBatch : loader.shape().batch(id.step)) / kDp;
    AloneRows all{std::vector<std::int32_t>(static_cast<std::size_t>(rows * (kSeq + 1))),
                  std::vector<std::int32_t>(static_cast<std::size_t>(rows * kSeq))};
    if (id.round) {
      loader.fill_validation(*id.round * kGlobalBatch + rows * dp_rank, rows, kOrder.rounds * kGlobalBatch,
                             all.rows.data(), all.starts.data());
    } else {
      const std::vector<std::int64_t> samples = loader.rows(id.step, {.dp = kDp});
      for (std::int64_t row = 0; row < rows; ++row) {
        loader.fill(id.step, samples[static_cast<std::size_t>(rows * dp_rank + row)], 1,
                    all.rows.data() + row * (kSeq + 1), all.starts.data() + row * kSeq);
      }
    }
    return all;
  }

  // The batch as rows of inputs and targets: what one has and the other lacks are its ends.
  static std::vector<std::int32_t> joined(const Batch& batch) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch.tokens.size())), targets(tokens.size()), rows;
    batch.tokens.copy_to(tokens.data());
    batch.targets.copy_to(targets.data());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      rows.push_back(tokens[i]);
      if ((i + 1) % kSeq == 0) {
        rows.push_back(targets[i]);
      } else {
        EXPECT_EQ(targets[i], tokens[i + 1]);
      }
    }
    return rows;
  }

  // Reads the run to its end on one node, and compares; `between` is called before each batch.
  void read_and_compare(LoaderProcess& loader, const std::vector<int>& dp_ranks,
                        const std::function<void(const BatchId&)>& between = {}) const {
    Loader alone = open();
    EXPECT_EQ(loader.open(60, [] {}), facts_of(alone).text());
    alone.start_at(kOrder.begin, kFirstSample, kSkips);
    BatchRing ring(shape_for(dp_ranks));
    loader.run(ring, task_for(dp_ranks));
    std::vector<BatchReader> readers;
    for (int i = 0; i < std::ssize(dp_ranks); ++i) readers.emplace_back(ring, i, i, 60.0, [&] { loader.check(); });
    for (std::optional<BatchId> id = kOrder.first(); id; id = kOrder.after(*id)) {
      if (between) between(*id);
      for (std::size_t i = 0; i < dp_ranks.size(); ++i) {
        SCOPED_TRACE(fmt::format("step {} round {} dp rank {}", id->step, id->round.value_or(-1), dp_ranks[i]));
        const Batch batch = readers[i].next(*id);
        const AloneRows expected = read_alone(alone, *id, dp_ranks[i]);
        EXPECT_EQ(batch.tokens.size(), std::ssize(expected.starts));
        EXPECT_EQ(joined(batch), expected.rows);
        EXPECT_THAT(batch.starts, testing::ElementsAreArray(expected.starts));
        EXPECT_EQ(batch.digest, id->round ? 0 : alone.digest(id->step));
      }
    }
  }

  // Waits until check() throws.
  static Error failure_of(LoaderProcess& loader) {
    return thrown_by([&] {
      for (int i = 0; i < 10'000; ++i) {
        loader.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }

  const TempDir dir_;
};

TEST_F(NodeLoader, GivesEachRankWhatItWouldReadItself) {
  for (const std::vector<int>& dp_ranks : std::vector<std::vector<int>>{{0, 1, 2, 3}, {1}, {0, 3}}) {
    read_and_compare(*start(), dp_ranks);
  }
}

TEST_F(NodeLoader, IsReplacedWhenItIsKilledAndNoSampleIsLost) {
  const std::unique_ptr<LoaderProcess> loader = start();
  const pid_t standby = child_of(getpid());
  int kills = 0;
  read_and_compare(*loader, {0, 1, 2, 3}, [&](const BatchId& id) {
    if (id.step % 4 == 0 && !id.round && kill(child_of(standby), SIGKILL) == 0) ++kills;
  });
  EXPECT_GE(kills, 2);
}

TEST_F(NodeLoader, IsGivenUpWhenItDiesAgainAndAgain) {
  const std::unique_ptr<LoaderProcess> loader = start();
  const pid_t standby = child_of(getpid());
  loader->open(60, [] {});
  BatchRing ring(shape_for({0}));
  loader->run(ring, task_for({0}));
  ASSERT_TRUE(ring.wait_published(1, std::chrono::seconds(60)));  // the ring is full, and nobody reads
  pid_t last = -1;
  for (int i = 0; i < 4; ++i) {  // the first has read batches
    pid_t next = child_of(standby);
    while (next == last) next = child_of(standby);
    kill(last = next, SIGKILL);
  }
  const Error error = failure_of(*loader);
  EXPECT_EQ(error.kind(), "data.loader");
  EXPECT_THAT(error.message(), testing::HasSubstr("died 3 times in a row without reading a batch"));
  EXPECT_THAT(error.message(), testing::HasSubstr("signal 9"));
}

TEST_F(NodeLoader, IsMissedWhenItsStandbyIsKilled) {
  const std::unique_ptr<LoaderProcess> loader = start();
  const pid_t standby = child_of(getpid());
  loader->open(60, [] {});
  BatchRing ring(shape_for({0}));
  loader->run(ring, task_for({0}));
  kill(standby, SIGKILL);
  const Error error = failure_of(*loader);
  EXPECT_EQ(error.kind(), "data.loader");
  EXPECT_EQ(error.blame(), Blame::node);
}

TEST_F(NodeLoader, TellsWhatItCannotOpenAndWhatItCannotRead) {
  LoaderProcess nowhere([] {
    return std::make_unique<Loader>(DataConfig{.train = {"/nowhere/x"}, .valid = {}},
                                    BatchShape{.seq = kSeq, .global_batch = kGlobalBatch}, 1000, 1);
  });
  const Error missing = thrown_by([&] { nowhere.open(60, [] {}); });
  EXPECT_EQ(missing.kind(), "file.open");
  EXPECT_EQ(missing.blame(), Blame::user);
  EXPECT_THAT(missing.message(), testing::HasSubstr("/nowhere/x.idx"));
  EXPECT_THAT(missing.hint(), testing::HasSubstr("named by its prefix"));

  std::vector<std::int32_t> tokens(1'000'000, 1);
  tokens[10'000] = 300;  // hidden from the pieces that are looked at when the file is opened
  write_tokens(dir_ / "bad", {tokens});
  LoaderProcess loader([&] {
    return std::make_unique<Loader>(DataConfig{.train = {dir_ / "bad"}, .valid = {}, .valid_fraction = 0},
                                    BatchShape{.seq = 1000, .global_batch = 999}, 257, 1);
  });
  loader.open(60, [] {});
  BatchRing ring({.readers = 1, .parts = 1, .rows = 999, .seq = 1000});
  loader.run(ring, {.order = {.end = 1}, .dp_ranks = {0}});
  BatchReader reader(ring, 0, 0, 60, [&] { loader.check(); });
  const Error error = thrown_by([&] { reader.next({.step = 0}); });
  EXPECT_EQ(error.kind(), "data.vocab");
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), testing::HasSubstr("position 10000 is 300"));
}

TEST_F(NodeLoader, IsWaitedForUntilTheDeadline) {
  BatchRing ring(shape_for({0}));
  BatchReader reader(ring, 0, 0, 0.0, [] {});
  const Error error = thrown_by([&] { reader.next({.step = 9}); });
  EXPECT_EQ(error.kind(), "data.timeout");
  EXPECT_EQ(error.blame(), Blame::storage);
  LoaderProcess slow([this] {
    std::this_thread::sleep_for(std::chrono::hours(1));
    return std::make_unique<Loader>(open());
  });
  EXPECT_EQ(thrown_by([&] { slow.open(0, [] {}); }).kind(), "data.timeout");
}

TEST_F(NodeLoader, LeavesNoProcess) {
  pid_t standby = -1, child = -1;
  {
    const std::unique_ptr<LoaderProcess> loader = start();
    standby = child_of(getpid());
    loader->open(60, [] {});
    BatchRing ring(shape_for({0}));
    loader->run(ring, task_for({0}));
    child = child_of(standby);
  }
  EXPECT_NE(kill(standby, 0), 0);
  int waits = 0;
  // Its parent is gone, and whoever inherits it reaps it.
  while (slurp(fmt::format("/proc/{}/stat", child)).find(") Z") == std::string::npos && kill(child, 0) == 0) {
    ASSERT_LT(++waits, 10'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  start()->dismiss();  // one that was never asked
}

}  // namespace
}  // namespace ms::data
