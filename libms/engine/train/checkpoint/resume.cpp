#include "train/checkpoint/resume.h"

#include <algorithm>
#include <array>
#include <random>
#include "base/clock.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "ckpt/directory.h"
#include "ckpt/file_writer.h"
#include "ckpt/memory_files.h"
#include "mesh/mesh.h"
#include "train/checkpoint/restore.h"

namespace ms::train {
namespace {

std::string new_run_id() {
  std::random_device random;
  return hash_hex(std::uint64_t{random()} << 32 | random());
}

// Returns whether the checkpoint itself is at fault, so that loading another one may help. Any other error is of the
// run or is transient: storage that cannot be read now is no reason to go back to an older state.
bool is_of_the_checkpoint(const Error& error) {
  const std::string& kind = error.kind();
  return kind == "ckpt.damaged" || kind == "ckpt.incomplete" || kind == "ckpt.manifest";
}

// One call of resume().
struct Resuming {
  const Plan& plan;
  const CheckpointConfig& config;
  const Continuation& continuation;
  comm::World& world;
  Engine& engine;
  tensor::Device& host;
  Agreement& agreement;
  std::unique_ptr<ckpt::MemoryTier> memory = {};
  std::string damage = {};  // that this rank has found, in words

  // The manifest of the newest complete checkpoint below a step, as text; empty where there is none. Rank 0 only.
  std::string newest(std::int64_t below) const {
    std::vector<ckpt::Found> passed_over;
    const std::optional<ckpt::Found> found = ckpt::newest_complete(config.dir, below, &passed_over);
    for (const ckpt::Found& other : passed_over) {
      log::warn("train", "{} cannot be used: {}", other.path, other.problem);
    }
    return found ? read_file(found->path + "/" + std::string(ckpt::kManifestName)) : std::string();
  }

  void refuse_to_forget() const {
    for (const ckpt::Found& found : ckpt::list(config.dir)) {
      if (found.condition == ckpt::Condition::saving || found.condition == ckpt::Condition::deleting) continue;
      throw Error("ckpt.none", Blame::storage, fmt::format("no checkpoint in {} can be loaded", config.dir),
                  "'ms-ckpt ls' lists them; --fresh sets them aside and begins at step 0");
    }
  }

  // Loads a checkpoint. Returns sums over the world: the ranks that found damage, and the bytes read. Collective.
  std::array<double, 2> load_from(const std::string& directory, const ckpt::Manifest& manifest) {
    std::array<double, 2> tally{};
    damage.clear();
    try {
      tally[1] = static_cast<double>(restore(engine, manifest, directory, io_threads(world)).bytes_read);
    } catch (const Error& error) {
      if (!is_of_the_checkpoint(error)) throw;
      log::warn("train", "{}", error.message());
      damage = error.message();
      tally[0] = 1;
    }
    return agreement.sum(tally);
  }

  // A rank has found damage in a checkpoint on storage. Rank 0 looks for itself: where it sees none, that rank's node
  // is at fault, and nothing is wrong with the checkpoint. Otherwise it is set apart, so that nobody tries it again.
  void confirm_damage(const ckpt::Manifest& manifest, const std::string& path) {
    const int rank = static_cast<int>(-agreement.highest(damage.empty() ? -1e9 : -static_cast<double>(world.rank())));
    damage = agreement.broadcast(damage, rank);
    if (!agreement.leads()) return;
    for (const ckpt::FileEntry& entry : manifest.files) {
      const std::string file = path + "/" + entry.name;
      if (damage.find("'" + file + "'") == std::string::npos) continue;
      if (is_sound(file, entry)) {
        throw Error("ckpt.node", Blame::node,
                    fmt::format("a checkpoint is sound on rank 0, but damaged on rank {} on {}: {}", rank,
                                world.node(rank), damage),
                    "the memory, network or caches of that node may be at fault, not the checkpoint")
            .with_rank(rank);
      }
    }
    log::warn("train", "{} cannot be loaded, trying the one before", path);
    log::warn("train", "it is kept as {}", ckpt::mark_damaged(config.dir, manifest.step));
  }
  bool is_sound(const std::string& path, const ckpt::FileEntry& entry) const {
    try {
      ckpt::read_blocks({.path = path, .size_bytes = entry.size_bytes, .hashes = entry.hashes}, {}, true,
                        io_threads(world));
      return true;
    } catch (const Error& error) {
      if (error.kind() == "ckpt.damaged") return false;
      throw;
    }
  }

  void open_memory() {
    if (config.memory_dir.empty()) return;
    const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
    std::vector<ckpt::Piece> pieces;
    for (const ckpt::Held& held : engine.state()) pieces.push_back(held.piece);
    memory =
        std::make_unique<ckpt::MemoryTier>(ckpt::MemoryOptions{.root = ckpt::memory_root(config.memory_dir, config.dir),
                                                               .mesh = plan.mesh,
                                                               .first_group_id = groups.count() + 2},
                                           pieces, world, host);
  }

  // Returns whether this rank's file in a checkpoint has what the rank holds now, as in the same layout.
  bool holds_own_pieces(const ckpt::Manifest& manifest) const {
    std::vector<ckpt::Piece> held, saved;
    for (const ckpt::Held& each : engine.state()) held.push_back(each.piece);
    for (const ckpt::FileEntry& file : manifest.files) {
      if (file.name != ckpt::rank_file_name(world.rank())) continue;
      for (const ckpt::PlacedPiece& each : file.pieces) saved.push_back(each.piece);
    }
    return held == saved;
  }

  // Loads the copies that the nodes keep of this checkpoint; false where they cannot be used. Collective.
  bool load_from_memory(const ckpt::Manifest& manifest) {
    if (!memory) return false;
    ckpt::MemoryTier::Fetched copies{.path = {}, .problem = "it was saved in another layout"};
    if (agreement.sum(std::array{holds_own_pieces(manifest) ? 0.0 : 1.0})[0] == 0)
      copies = memory->fetch(manifest, agreement.everyone());
    if (!copies.path.empty() && load_from(copies.path, manifest)[0] > 0) {
      copies = {.path = {}, .problem = "a copy cannot be read, or is damaged"};
    }
    if (copies.path.empty() && agreement.leads()) {
      log::warn("train", "step {} is not loaded from memory but from storage: {}", manifest.step, copies.problem);
    }
    return !copies.path.empty();
  }

  Resumed run();
};

Resumed Resuming::run() {
  open_memory();
  Origin origin;
  std::string run_id;
  bool copies_stay = false;
  for (std::int64_t below = INT64_MAX;;) {
    const std::string text = agreement.broadcast(agreement.leads() ? newest(below) : std::string());
    if (text.empty()) break;
    // Every rank names it alike: by the step that the manifest tells.
    const ckpt::Manifest manifest = ckpt::parse_manifest(text, config.dir);
    const std::string path = config.dir + "/" + ckpt::step_name(manifest.step);
    continuation.check(manifest, path);
    const double start = monotonic_s();
    const bool in_memory = below == INT64_MAX && load_from_memory(manifest);
    const std::array<double, 2> tally = in_memory ? std::array<double, 2>{} : load_from(path, manifest);
    if (tally[0] == 0) {
      engine.share_state();
      origin = continuation.origin(manifest, path, tally[1], monotonic_s() - start);
      run_id = manifest.run;
      if (agreement.leads()) continuation.log(manifest, origin, in_memory ? "memory" : "storage");
      if (in_memory) memory->settle(&manifest);
      copies_stay = in_memory;
      break;
    }
    below = manifest.step;
    confirm_damage(manifest, path);
  }
  if (agreement.leads()) {
    if (!origin.restored) {
      refuse_to_forget();
      log::info("train", "{} holds no checkpoint: beginning {}", config.dir,
                config.load.empty() ? "at step 0" : "with " + config.load);
    }
    if (run_id.empty()) run_id = new_run_id();
  }
  if (memory && !copies_stay) memory->settle(nullptr);
  return {origin, agreement.broadcast(run_id), std::move(memory)};
}

}  // namespace

Resumed resume(const Plan& plan, const Continuation& continuation, comm::World& world, Engine& engine,
               tensor::Device& host, Agreement& agreement) {
  Resuming resuming{.plan = plan,
                    .config = plan.settings.checkpoint,
                    .continuation = continuation,
                    .world = world,
                    .engine = engine,
                    .host = host,
                    .agreement = agreement};
  return resuming.run();
}

}  // namespace ms::train
