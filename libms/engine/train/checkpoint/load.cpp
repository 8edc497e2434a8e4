#include "train/checkpoint/load.h"

#include <array>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "ckpt/choose.h"
#include "hf/companions.h"
#include "train/checkpoint/restore.h"

namespace ms::train {

namespace {

// The checkpoint as a run sees it that uses its weights only.
ckpt::Manifest weights_of(ckpt::Manifest manifest) {
  manifest.step = 0;
  manifest.data = {};
  manifest.has_optimizer = false;
  manifest.matmul_choices.clear();
  return manifest;
}

}  // namespace

void check_load(const Continuation& run, bool fresh) {
  const CheckpointConfig& config = run.settings.checkpoint;
  if (config.load.empty()) return;
  if (const auto own = fresh || config.dir.empty() ? std::nullopt : ckpt::newest_complete(config.dir)) {
    log::info("train", "checkpoint.load = '{}' is not used: checkpoint.dir = '{}' has step {}, and the run resumes",
              config.load, config.dir, own->manifest->step);
    return;
  }
  try {
    const ckpt::Found found = ckpt::choose_complete(config.load);
    run.check(config.weights_only ? weights_of(*found.manifest) : *found.manifest, found.path);
  } catch (const Error& error) { throw error.with_context("checkpoint.load"); }
}

Origin load_origin(const Continuation& run, comm::World& world, Engine& engine, Agreement& agreement) {
  std::string path, text;  // rank 0 chooses: a run may be saving into the directory
  if (agreement.leads()) {
    path = ckpt::choose_complete(run.settings.checkpoint.load).path;
    text = read_file(path + "/" + std::string(ckpt::kManifestName));
  }
  path = agreement.broadcast(path);
  ckpt::Manifest manifest = ckpt::parse_manifest(agreement.broadcast(text), path);
  const bool weights_only = run.settings.checkpoint.weights_only;
  if (weights_only) manifest = weights_of(std::move(manifest));
  run.check(manifest, path);
  const double start = monotonic_s();
  const auto bytes_read = static_cast<double>(restore(engine, manifest, path, io_threads(world)).bytes_read);
  const std::array<double, 1> by_all = agreement.sum(std::array{bytes_read});
  engine.share_state();
  const Origin origin = run.origin(manifest, path, by_all[0], monotonic_s() - start);
  if (!agreement.leads()) return origin;
  if (const std::string& own = run.settings.checkpoint.dir; !own.empty())
    hf::copy_companions(hf::companions_beside(path), hf::companions_beside(own + "/" + ckpt::step_name(0)));
  if (weights_only) {
    log::info("train", "beginning at step 0 with the weights of {} and a fresh optimizer, loaded in {:.2f} s", path,
              origin.seconds);
  } else {
    run.log(manifest, origin, "storage");
  }
  return origin;
}

}  // namespace ms::train
