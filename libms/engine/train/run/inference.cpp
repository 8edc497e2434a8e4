#include "train/run/inference.h"

#include <optional>

#include "base/log.h"
#include "base/text.h"
#include "train/checkpoint/restore.h"
#include "watch/verdict.h"

namespace ms::train {

Loaded load_for_inference(const ckpt::Found& checkpoint, const std::vector<std::string>& assignments,
                          const std::function<void(Settings&)>& adjust) {
  std::vector<std::string> all{"train.dtype=" + checkpoint.manifest->dtype};
  all.insert(all.end(), assignments.begin(), assignments.end());
  Loaded loaded = load_text(checkpoint.manifest->config, fmt::format("the configuration in {}", checkpoint.path), all,
                            [&](Settings& settings) {
                              settings.train.recompute = "full";  // nothing is kept for a backward
                              settings.train.moe_capacity = 0;    // a token's result does not depend on others
                              settings.optim.shard_group = 0;     // there is no optimizer, and dp may be another
                              settings.trace.enabled = false;
                              settings.metrics = {};
                              settings.run.sample_tokens = 0;
                              adjust(settings);
                            });
  check_model(loaded.settings.model, *checkpoint.manifest, checkpoint.path, true);
  // Ranks compare it: they must have chosen the same one.
  for (std::string* text : {&loaded.resolved, &loaded.values})
    *text += fmt::format("[inference]\ncheckpoint = \"{}\"\n", checkpoint.path);
  return loaded;
}

void run_inference(const Plan& plan, comm::World& world, tensor::Device& device, const Inference& inference,
                   data::LoaderProcess* loader, const std::function<void(const Error&)>& failed) {
  std::optional<DataFeed> feed;  // first: a wrong data set is said before a large model is loaded
  if (inference.data) feed.emplace(plan, world, *loader);
  Engine engine(plan, world, device);
  try {
    const auto ranks = static_cast<std::size_t>(world.size());
    restore(engine, *inference.checkpoint.manifest, inference.checkpoint.path, io_threads(world));
    engine.share_state();
    if (world.rank() == 0) log::info("train", "{} is loaded on {}", inference.checkpoint.path, plural(ranks, "rank"));
    inference.use(engine, plan, world, feed ? &*feed : nullptr);
    engine.synchronize();
  } catch (const Error& error) {
    watch::begin_ending();
    failed(error);
    throw;
  }
}

}  // namespace ms::train
