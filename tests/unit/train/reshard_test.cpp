#include "train/checkpoint/reshard.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "ckpt/diff.h"
#include "support/files.h"
#include "train/engine/state.h"

namespace ms::train {
namespace {

// Six layers and six heads: thirds and sixths are possible; the vocabulary divides by nothing.
constexpr const char* kConfig = R"(
[model]
layers = 6
hidden = 24
heads = 6
vocab = 37
seq = 12
[train]
global_batch = 12
dtype = "bf16"
)";

ckpt::Manifest manifest_for(const Loaded& loaded) {
  ckpt::Manifest manifest;
  manifest.step = 5;
  manifest.run = "0123456789abcdef";
  manifest.created = "2026-01-31T12:00:00Z";
  manifest.version = "0.1.0";
  manifest.config = loaded.resolved;
  manifest.dtype = loaded.settings.train.dtype;
  manifest.data = {.samples = 60, .seed = 1234, .source = "feedc0de"};
  return manifest;
}

// What a run of one rank would save, with bytes that no two places have in common.
std::string write_source(const std::string& dir, const Loaded& loaded) {
  ckpt::OfflineFile file;
  file.pieces = saved_pieces(make_plan(loaded.settings, 1), {});
  file.fill = [](std::size_t piece, std::span<std::byte> to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(piece * 41 + i * 7 + i / 256);
  };
  return ckpt::write_checkpoint(dir, manifest_for(loaded), {file});
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) { return error.kind(); }
  return "nothing";
}

TEST(Reshard, AnyLayoutHoldsTheSameState) {
  struct Row {
    int dp, pp, tp, chunks, zero;
  };
  const test::TempDir dir;
  const Loaded one = load_text(kConfig, "test", {});
  std::string last = write_source(dir / "one", one);
  const ckpt::Parameters source(last);
  // Each from the one before, so that every kind of cut is also read.
  const std::vector<Row> rows{{1, 1, 1, 1, 0}, {2, 1, 1, 1, 1}, {3, 2, 1, 1, 2}, {1, 3, 2, 2, 0}, {2, 1, 3, 1, 1},
                              {1, 6, 1, 1, 0}, {4, 1, 2, 1, 2}, {1, 1, 6, 1, 1}, {3, 1, 2, 1, 3}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    SCOPED_TRACE(fmt::format("dp {} pp {} tp {} chunks {}", row.dp, row.pp, row.tp, row.chunks));
    const Loaded target = load_text(
        kConfig, "test",
        {fmt::format("mesh.dp={}", row.dp), fmt::format("mesh.pp={}", row.pp), fmt::format("mesh.tp={}", row.tp),
         fmt::format("mesh.chunks={}", row.chunks), fmt::format("optim.zero={}", row.zero)});
    const ckpt::Parameters from(last);
    const Resharded made = reshard(last, from.manifest(), target, 2);
    EXPECT_EQ(made.manifest.dp, row.dp);
    EXPECT_EQ(made.manifest.zero, row.zero);
    EXPECT_EQ(made.manifest.config, target.resolved);
    EXPECT_EQ(made.manifest.data.samples, 60);
    EXPECT_EQ(made.files.size(), static_cast<std::size_t>(row.dp * row.pp * row.tp));
    last = ckpt::write_checkpoint(dir / fmt::format("{}", i), made.manifest, made.files);
    const ckpt::Diff diff = ckpt::diff(source, ckpt::Parameters(last), 2, {});
    EXPECT_TRUE(diff.equal());
    EXPECT_EQ(diff.states.size(), source.list().size() * 4);
  }
}

TEST(Reshard, AnotherModelOrTypeIsRefused) {
  const test::TempDir dir;
  const std::string path = write_source(dir / "one", load_text(kConfig, "test", {}));
  const ckpt::Parameters from(path);
  for (const char* assignment : {"model.layers=4", "model.layers=8", "model.vocab=38", "train.dtype=fp32"}) {
    const Loaded target = load_text(kConfig, "test", {assignment});
    EXPECT_EQ(refusal([&] { reshard(path, from.manifest(), target, 1); }), "ckpt.mismatch") << assignment;
  }
}

}  // namespace
}  // namespace ms::train
