#include "train/run/data_feed.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>

#include "base/log.h"

namespace ms::train {
namespace {

// Keys of the world's store.
constexpr std::string_view kFactsKey = "data facts";
constexpr std::string_view kRingKey = "data ring";

std::chrono::milliseconds data_deadline_of(const Settings& settings) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(settings.data.read_timeout_s * 1e3));
}

int position_of(const std::vector<int>& values, int value) {
  return static_cast<int>(std::ranges::find(values, value) - values.begin());
}

}  // namespace

data::Loader open_data(const Settings& settings) {
  data::BatchShape shape = batch_of(settings);
  shape.patch = settings.model.patch_size;
  return {settings.data, shape, settings.model.vocab, static_cast<std::uint64_t>(settings.train.seed)};
}

std::int64_t evaluation_rounds(const Settings& settings) {
  return (settings.train.eval_samples + settings.train.global_batch - 1) / settings.train.global_batch;
}

NodeReaders readers_of(const Plan& plan, const std::vector<int>& node_ranks) {
  NodeReaders readers;
  for (const int rank : node_ranks) {
    const mesh::Coord at = plan.mesh.coord(rank);
    if (!plan.needs_tokens(at.pp)) continue;
    readers.ranks.push_back(rank);
    readers.dp_ranks.push_back(plan.mesh.batch_part(at.dp));
  }
  std::ranges::sort(readers.dp_ranks);
  const auto rest = std::unique(readers.dp_ranks.begin(), readers.dp_ranks.end());
  readers.dp_ranks.erase(rest, readers.dp_ranks.end());
  return readers;
}

DataFeed::DataFeed(const Plan& plan, comm::World& world, data::LoaderProcess& loader)
    : plan_(plan), world_(world), loader_(loader), readers_(readers_of(plan, world.node_ranks())) {
  const bool shares_process = world.kind() == "threads";  // with the rank that has the loader
  if (!has_loader() && !shares_process) loader_.dismiss();
  std::string own;
  if (has_loader()) own = loader_.open(plan.settings.data.read_timeout_s, [this] { check(); });
  if (world.rank() == 0) {  // of the first stage, so it has a loader
    world.store().put(kFactsKey, own);
    world.store().commit();
  }
  facts_ = world.store().get(0, kFactsKey, data_deadline_of(plan.settings));
  if (has_loader() && own != facts_) {
    throw Error(
        "data.differs", Blame::node,
        fmt::format("the token files of node {} differ from those of node {}, rank 0's, in names, sizes or tokens",
                    world.node(world.rank()), world.node(0)),
        "every node must see the same files; copies on local disks must be complete");
  }
}

void DataFeed::begin(const data::BatchOrder& order, const data::BatchShape& batch, bool has_digests) {
  const int rank = world_.rank();
  // Where no batch follows, a rank could look for the ring after the one that made it has ended.
  if (!order.first() || !std::ranges::binary_search(readers_.ranks, rank)) return;
  const data::RingShape shape{.readers = static_cast<int>(readers_.ranks.size()),
                              .parts = static_cast<int>(readers_.dp_ranks.size()),
                              .rows = plan_.batch.global_batch / plan_.mesh.batch_parts(),
                              .seq = plan_.batch.seq,
                              .has_starts = plan_.settings.data.reset_attention,
                              .patch_size = plan_.settings.model.patch_numbers()};
  if (has_loader()) {
    ring_.emplace(shape);
    world_.store().put(kRingKey, ring_->address());
    world_.store().commit();
    loader_.run(*ring_, {.order = order,
                         .first_sample = batch.origin_sample,
                         .dp_ranks = readers_.dp_ranks,
                         .division = {plan_.mesh.batch_parts(), plan_.settings.train.microbatch},
                         .has_digests = has_digests,
                         .skips = batch.skips,
                         .most_loaders = static_cast<int>(plan_.settings.data.loaders)});
    log::debug("data", "loads for {} ranks, {} dp ranks, a ring of {} bytes", shape.readers, shape.parts,
               shape.size_bytes());
  } else {
    ring_.emplace(shape, world_.store().get(readers_.ranks.front(), kRingKey, data_deadline_of(plan_.settings)));
  }
  reader_.emplace(*ring_, position_of(readers_.ranks, rank),
                  position_of(readers_.dp_ranks, plan_.mesh.batch_part(plan_.mesh.coord(rank).dp)),
                  plan_.settings.data.read_timeout_s, [this] { check(); });
}

void DataFeed::check() {
  if (has_loader()) loader_.check();
  if (const std::optional<comm::World::Cause> cause = world_.cause()) throw cause->error;
}

}  // namespace ms::train
