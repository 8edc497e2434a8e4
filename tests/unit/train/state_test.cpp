// Which rank answers for what in a checkpoint: in every layout every element of every state is somebody's, and nobody
// else's.
#include "train/engine/state.h"

#include <gtest/gtest.h>

#include <map>

namespace ms::train {
namespace {

Settings tiny(const std::string& family, bool tied) {
  Settings settings;
  settings.model.family = family;
  settings.model.layers = 12;
  settings.model.hidden = 24;
  settings.model.heads = 12;
  settings.model.kv_heads = family == "llama" ? 6 : 0;
  settings.model.vocab = 61;
  settings.model.seq = 8;
  settings.model.tied_embeddings = tied;
  settings.train.global_batch = 24;
  return settings;
}

struct Cut {
  int dp, tp, pp, chunks, zero, shard_group = 0;
};

// How often each element of each state is saved, by state and parameter.
std::map<std::string, std::vector<int>> counts(const Settings& base, const Cut& layout) {
  Settings settings = base;
  settings.mesh.dp = layout.dp;
  settings.mesh.tp = layout.tp;
  settings.mesh.pp = layout.pp;
  settings.mesh.chunks = layout.chunks;
  settings.optim.zero = layout.zero;
  settings.optim.shard_group = layout.shard_group;
  const Plan plan = make_plan(settings, layout.dp * layout.tp * layout.pp);
  std::map<std::string, std::vector<int>> counted;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    for (const ckpt::Piece& piece : saved_pieces(plan, plan.mesh.coord(rank))) {
      const ckpt::Slice& slice = piece.slice;
      std::vector<int>& seen = counted[std::string(to_string(piece.state)) + " " + slice.name];
      seen.resize(static_cast<std::size_t>(slice.global_rows * slice.global_cols));
      for (std::int64_t i = slice.elements.begin; i < slice.elements.end; ++i) {
        const std::int64_t row = slice.row0 + i / slice.cols, col = slice.col0 + i % slice.cols;
        ++seen.at(static_cast<std::size_t>(row * slice.global_cols + col));
      }
    }
  }
  return counted;
}

TEST(State, EveryElementIsSavedByExactlyOneRank) {
  const Cut layouts[] = {{1, 1, 1, 1, 0},    {2, 1, 1, 1, 0},    {3, 1, 1, 1, 1}, {1, 3, 1, 1, 1}, {2, 2, 2, 1, 2},
                         {1, 2, 3, 2, 1},    {5, 1, 2, 1, 1},    {2, 3, 2, 3, 0}, {1, 6, 2, 1, 1}, {6, 2, 1, 1, 1, 2},
                         {4, 1, 2, 2, 2, 2}, {4, 1, 2, 2, 3, 2}, {3, 1, 1, 1, 3}};
  for (const char* family : {"gpt", "llama"}) {
    for (const bool tied : {false, true}) {
      const Settings settings = tiny(family, tied);
      for (Cut layout : layouts) {
        SCOPED_TRACE(fmt::format("{} tied {} dp {} tp {} pp {} chunks {} zero {} of {}", family, tied, layout.dp,
                                 layout.tp, layout.pp, layout.chunks, layout.zero, layout.shard_group));
        Settings divisible = settings;
        divisible.train.global_batch = 24 * layout.dp;
        const auto counted = counts(divisible, layout);
        for (const ckpt::Slice& whole : model_parameters(settings.model)) {
          for (const char* state : {"weight", "master", "exp_avg", "exp_avg_sq"}) {
            const auto it = counted.find(std::string(state) + " " + whole.name);
            ASSERT_NE(it, counted.end()) << state << " of " << whole.name;
            EXPECT_EQ(it->second, std::vector<int>(static_cast<std::size_t>(whole.size()), 1)) << it->first;
          }
        }
        EXPECT_EQ(counted.size(), 4 * model_parameters(settings.model).size());
      }
    }
  }
}

TEST(State, MatricesOfMuonHaveTheirMomentumOnly) {
  for (const Cut& layout : {Cut{1, 1, 1, 1, 0}, Cut{3, 2, 2, 1, 1}, Cut{2, 3, 1, 1, 2}, Cut{5, 1, 2, 1, 0}}) {
    Settings settings = tiny("llama", false);
    settings.optim.name = "muon";
    settings.train.global_batch = 24 * layout.dp;
    const auto counted = counts(settings, layout);
    for (const ckpt::Slice& whole : model_parameters(settings.model)) {
      const bool is_matrix = whole.global_rows > 1 && whole.name.starts_with("layers.");
      for (const char* state : {"weight", "master", "exp_avg", "exp_avg_sq", "momentum_buffer"}) {
        const std::string_view name = state;
        const bool has = name == "momentum_buffer" ? is_matrix : !(is_matrix && name.starts_with("exp_avg"));
        const auto it = counted.find(std::string(state) + " " + whole.name);
        ASSERT_EQ(it != counted.end(), has) << state << " of " << whole.name;
        if (has) { EXPECT_EQ(it->second, std::vector<int>(static_cast<std::size_t>(whole.size()), 1)) << it->first; }
      }
    }
  }
}

TEST(State, InF32TheWeightIsItsOwnMaster) {
  Settings settings = tiny("gpt", true);
  settings.train.dtype = "fp32";
  for (const auto& [name, seen] : counts(settings, {1, 1, 1, 1, 0})) EXPECT_FALSE(name.starts_with("master")) << name;
}

}  // namespace
}  // namespace ms::train
