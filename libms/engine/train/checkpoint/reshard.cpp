#include "train/checkpoint/reshard.h"

#include <cstring>
#include <memory>

#include "base/version.h"
#include "ckpt/batch.h"
#include "train/checkpoint/restore.h"
#include "train/engine/state.h"

namespace ms::train {
namespace {

// Returns those pieces of a target rank that the checkpoint has: imported weights have no moments.
std::vector<ckpt::Piece> available(std::vector<ckpt::Piece> pieces, const ckpt::Manifest& from,
                                   const ckpt::PieceIndex& index) {
  if (!from.has_optimizer) {
    std::erase_if(pieces, [&](const ckpt::Piece& p) { return index.find(p.state, p.slice.name) == nullptr; });
  }
  return pieces;
}

}  // namespace

Resharded reshard(const std::string& checkpoint, const ckpt::Manifest& from, const Loaded& target, int threads) {
  const mesh::MeshConfig& mesh = target.settings.mesh;
  check_model(target.settings.model, from, checkpoint);
  const Plan plan = make_plan(target.settings, static_cast<int>(mesh.ranks()));
  const ckpt::PieceIndex index(from);

  Resharded result;
  std::vector<ckpt::Piece> all;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    std::vector<ckpt::Piece> pieces = available(saved_pieces(plan, plan.mesh.coord(rank)), from, index);
    if (pieces.empty()) continue;
    all.insert(all.end(), pieces.begin(), pieces.end());
    result.files.push_back({.pieces = std::move(pieces), .fill = {}});
  }
  index.plan(all);  // refuses before anything is written
  const auto reader = std::make_shared<ckpt::BatchReader>(checkpoint, from, std::move(all), ckpt::kBatchBytes, threads);
  for (ckpt::OfflineFile& file : result.files) {
    file.fill = [reader](std::size_t, std::span<std::byte> to) {
      const std::span<const std::byte> bytes = reader->next();
      MS_ASSERT(bytes.size() == to.size(), "a piece of {} bytes where {} are wanted", bytes.size(), to.size());
      std::memcpy(to.data(), bytes.data(), to.size());
    };
  }

  result.manifest = from;
  result.manifest.files.clear();
  result.manifest.version = kVersion;
  result.manifest.config = target.resolved;
  result.manifest.dp = plan.mesh.dp;
  result.manifest.pp = plan.mesh.pp;
  result.manifest.tp = plan.mesh.tp;
  result.manifest.chunks = static_cast<int>(mesh.chunks);
  result.manifest.zero = static_cast<int>(target.settings.optim.zero);
  return result;
}

}  // namespace ms::train
