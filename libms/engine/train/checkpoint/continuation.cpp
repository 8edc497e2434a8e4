#include "train/checkpoint/continuation.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "ckpt/diff.h"
#include "optim/optimizer.h"
#include "train/checkpoint/restore.h"

namespace ms::train {

namespace {

// Returns whether the optimizer that the checkpoint is of takes matrices whole.
bool has_momentum(const ckpt::Manifest& manifest) {
  return std::ranges::any_of(manifest.files, [](const ckpt::FileEntry& file) {
    return std::ranges::any_of(
        file.pieces, [](const ckpt::PlacedPiece& at) { return at.piece.state == ckpt::State::momentum_buffer; });
  });
}

}  // namespace

void Continuation::check(const ckpt::Manifest& manifest, const std::string& path) const {
  check_model(settings.model, manifest, path);
  const bool wants_momentum = !optim::optimizer_kind(settings.optim.name).matrix_states.empty();
  if (manifest.has_optimizer && has_momentum(manifest) != wants_momentum) {
    throw user_error(
        "ckpt.mismatch",
        fmt::format("{} has the state of another optimizer than optim.name = \"{}\"", path, settings.optim.name),
        "set optim.name as that run did; to begin at step 0 with its weights only, use checkpoint.load "
        "with checkpoint.weights_only");
  }
  if (settings.checkpoint.data == "restart" || continues_data(manifest)) return;
  throw user_error(
      "ckpt.data",
      fmt::format("{} was trained on {} samples of other data: {}", path, manifest.data.samples,
                  has_other_files(manifest)
                      ? "the token files, their weights or model.seq differ, or the batch if weights change by step"
                      : fmt::format("train.seed was {}", manifest.data.seed)),
      "--set checkpoint.data=restart continues with the first sample of this configuration's data; to fine-tune its "
      "weights from step 0, use checkpoint.load with checkpoint.weights_only");
}

Origin Continuation::origin(const ckpt::Manifest& manifest, const std::string& path, double bytes_read,
                            double seconds) const {
  const std::int64_t samples = continues_data(manifest) ? manifest.data.samples : 0;
  return {.step = manifest.step,
          .samples = samples,
          .path = path,
          .restored = true,
          .bytes = manifest.size_bytes(),
          .bytes_read = static_cast<std::int64_t>(bytes_read),
          .seconds = seconds,
          .matmul_choices = manifest.matmul_choices,
          .instruction_set = manifest.instruction_set,
          .data_chain = samples == 0 ? std::string(data::kChainStart) : manifest.data.chain,
          .skips = {}};
}

void Continuation::log(const ckpt::Manifest& manifest, const Origin& origin, std::string_view source) const {
  log::info("train", "resuming from {}: step {}, {} from {} in {:.2f} s; all ranks together read {} from storage",
            origin.path, origin.step, format_size(static_cast<double>(origin.bytes)), source, origin.seconds,
            format_size(static_cast<double>(origin.bytes_read)));
  for (const ckpt::KeyDiff& row : ckpt::diff_config(manifest.config, resolved)) {
    if (row.key.starts_with("run.") || row.key.starts_with("checkpoint.") || row.a.empty() || row.b.empty()) continue;
    log::info("train", "since that checkpoint: {} was {}, is {}", row.key, row.a, row.b);
  }
  if (!continues_data(manifest))
    log::warn("train", "the data begins at its first sample, because checkpoint.data is restart");
}

bool Continuation::has_other_files(const ckpt::Manifest& manifest) const {
  return !manifest.data.source.empty() && manifest.data.source != data;
}

bool Continuation::continues_data(const ckpt::Manifest& manifest) const {
  if (manifest.data.samples == 0) return true;
  return !has_other_files(manifest) && manifest.data.seed == static_cast<std::uint64_t>(settings.train.seed);
}

}  // namespace ms::train
