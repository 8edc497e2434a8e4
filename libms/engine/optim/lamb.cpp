// LAMB (You et al. 2020, arXiv 1904.00962), a row of optim/optimizer.h. It keeps the state of AdamW and scales the
// update of a parameter by the ratio of two norms of the whole logical parameter. As in the authors' code, parameters
// without weight decay (norms, biases) are not scaled: for them LAMB is AdamW.
#include "optim/adamw.h"

namespace ms::optim {
namespace {

void issue_sums(tensor::Stream& stream, const Update& update) {
  auto op = adam_op<tensor::LambMoments>(update);
  op.norms = update.sums;
  op.w = update.master ? update.master : update.param;
  stream.submit(op);
}

void issue_update(tensor::Stream& stream, const Update& update) {
  if (!update.sums) return issue_adamw(stream, update);
  auto op = adam_op<tensor::LambApply>(update);
  op.norms = update.sums;
  stream.submit(op);
}

}  // namespace

extern const OptimizerKind kLamb{
    .name = "lamb",
    .doc = "adamw with each matrix's update scaled to the matrix's own size, for large batches",
    .states = kMoments,
    .sums = 2,  // squared norms of the parameter and of its update
    .issue_sums = issue_sums,
    .issue_update = issue_update};

}  // namespace ms::optim
