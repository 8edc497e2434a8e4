#include "train/engine/router_biases.h"

#include "tensor/section.h"

namespace ms::train {

using tensor::Copy;
using tensor::Fill;

namespace {

// Issues an operation of a group between what compute has issued and what it will issue.
template <class F>
void on_group(const RankGroups& groups, comm::Communicator& group, F&& issue) {
  group.stream().wait(groups.compute->record());
  issue(group);
  groups.compute->wait(group.stream().record());
}

}  // namespace

void RouterBiases::initialize() const { groups_.compute->submit(Fill{tensors_.router_biases}); }

void RouterBiases::begin_step() const {
  if (changes()) groups_.compute->submit(Fill{tensors_.router_chosen});
}

void RouterBiases::finish_step() const {
  if (!changes()) return;
  const tensor::Tensor& counts = tensors_.router_counts;
  groups_.compute->submit(Copy{counts, tensors_.router_chosen});
  on_group(groups_, *groups_.dp, [&](comm::Communicator& dp) { dp.all_reduce(counts.flat()); });
  groups_.compute->submit(tensor::ExpertBias{tensors_.router_biases, counts, tensors_.scalars.factor, rate_});
}

void RouterBiases::share() const {
  for (comm::Communicator* group : {groups_.tp.get(), groups_.dp.get()}) {
    if (group->size() == 1) continue;
    on_group(groups_, *group, [&](comm::Communicator& ranks) { ranks.broadcast(tensors_.router_biases.flat(), 0); });
  }
}

}  // namespace ms::train
