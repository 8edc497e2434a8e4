// The chain of a run's samples: its values, and that it follows the samples and nothing else.
#include "data/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/hash.h"
#include "data/batch_reader.h"
#include "data/fill_ring.h"
#include "data/loader.h"
#include "token_files.h"

namespace ms::data {
namespace {

TEST(Chain, IsMadeOfWhatOtherProgramsCanCompute) {
  std::string words(32, '\0');  // file 1, token 515; file 0, token 7
  words[0] = 1, words[8] = 3, words[9] = 2, words[24] = 7;
  EXPECT_EQ(digest_of(std::vector<Window>{{1, 515}, {0, 7}}), xxh3_64(words));
  EXPECT_EQ(extend_chain(kChainStart, 0x123), hash_hex(xxh3_64("00000000000000000000000000000123")));
}

TEST(Chain, TellsStepsApartThatDifferInOneSampleOrInTheirOrder) {
  const std::uint64_t digest = digest_of(std::vector<Window>{{0, 8}, {0, 16}});
  for (const std::vector<Window>& other :
       {std::vector<Window>{{0, 16}, {0, 8}}, {{0, 8}, {1, 16}}, {{0, 8}}, {{0, 8}, {0, 16}, {0, 24}}, {}}) {
    EXPECT_NE(digest, digest_of(other));
  }
  EXPECT_NE(extend_chain(extend_chain(kChainStart, 1), 2), extend_chain(extend_chain(kChainStart, 2), 1));
}

class ChainOfARun : public testing::Test {
 protected:
  ChainOfARun() {
    std::vector<std::int32_t> tokens(900);
    std::iota(tokens.begin(), tokens.end(), 0);
    write_tokens(dir_ / "a", {tokens});
    write_tokens(dir_ / "b", {tokens});
  }

  Loader loader(std::uint64_t seed = 1) const {
    const DataConfig config{.train = {"0:3;6:1 " + dir_ / "a", "1 " + dir_ / "b"}, .valid = {}, .valid_fraction = 0};
    return {config, {.seq = 8, .global_batch = 8, .ramp = {{.batch = 4, .steps = 3}}}, 1000, seed};
  }

  // As the rank that reads the rows of dp rank 0 has it.
  static std::string follow(const Loader& loader, int dp, std::int64_t begin, std::int64_t end, std::string chain) {
    BatchRing ring({.rows = loader.shape().global_batch / dp, .seq = loader.shape().seq});
    const LoaderTask task{
        .order = {.begin = begin, .end = end}, .dp_ranks = {0}, .division = {.dp = dp}, .has_digests = true};
    SourceLoaders loaders(loader, LoaderCount(dp, dp));  // as many as dp ranks: they make no difference
    const std::jthread filling([&] { fill_ring(loaders, ring, task); });
    BatchReader reader(ring, 0, 0, 60, [] {});
    for (std::int64_t step = begin; step < end; ++step) chain = extend_chain(chain, reader.next({.step = step}).digest);
    reader.release();
    return chain;
  }

  const TempDir dir_;
};

TEST_F(ChainOfARun, IsTheSameForEveryDpAndWhereverItResumes) {
  const Loader whole = loader();
  const std::string expected = follow(whole, 1, 0, 20, std::string(kChainStart));
  EXPECT_EQ(expected.size(), 16U);
  EXPECT_EQ(follow(whole, 4, 0, 20, std::string(kChainStart)), expected);
  for (const std::int64_t at : {1, 3, 6, 7, 19}) {
    const std::string saved = follow(whole, 2, 0, at, std::string(kChainStart));
    Loader resumed = loader();
    resumed.start_at(at, whole.shape().first_sample(at));
    EXPECT_EQ(follow(resumed, 4, at, 20, saved), expected) << "from step " << at;
  }
}

TEST_F(ChainOfARun, TellsARunThatRepeatsASample) {
  const Loader whole = loader();
  const std::string saved = follow(whole, 1, 0, 7, std::string(kChainStart));
  Loader resumed = loader();
  resumed.start_at(7, whole.shape().first_sample(7) - 1);
  EXPECT_NE(follow(resumed, 1, 7, 8, saved), follow(whole, 1, 7, 8, saved));
  EXPECT_NE(follow(loader(2), 1, 0, 1, std::string(kChainStart)), follow(whole, 1, 0, 1, std::string(kChainStart)));
}

}  // namespace
}  // namespace ms::data
