#include "optim/adamw.h"

namespace ms::optim {

void issue_adamw(tensor::Stream& stream, const Update& update) { stream.submit(adam_op<tensor::AdamW>(update)); }

extern const OptimizerKind kAdamW{.name = "adamw",
                                  .doc = "Adam with decoupled weight decay",
                                  .states = kMoments,
                                  .takes_bf16 = true,
                                  .issue_update = issue_adamw};

}  // namespace ms::optim
