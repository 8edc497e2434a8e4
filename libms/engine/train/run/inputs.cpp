#include "train/run/inputs.h"

#include "base/log.h"
#include "train/checkpoint/load.h"
#include "train/run/data_feed.h"
#include "train/run/sample.h"

namespace ms::train {

void check_inputs(const Loaded& loaded, bool fresh) {
  const TrainConfig& train = loaded.settings.train;
  const data::Loader data = open_data(loaded.settings);
  if (train.eval_every > 0 && data.num_validation_samples() > 0 &&
      data.num_validation_targets(evaluation_rounds(loaded.settings) * train.global_batch) == 0) {
    log::warn("train",
              "the loss ignores all tokens of the validation samples: evaluations have no valid_loss; name other files "
              "in data.valid, or raise data.valid_fraction or train.eval_samples");
  }
  sample_tokenizer(loaded.settings);
  check_load({loaded.settings, loaded.resolved, data.fingerprint()}, fresh);
}

}  // namespace ms::train
