#include "train/checkpoint/agreement.h"

#include <cstring>
#include <numeric>
#include <vector>

namespace ms::train {

using tensor::DType;

namespace {

comm::Group all_ranks(const comm::World& world, int id) {
  comm::Group group{"agreement", id, std::vector<int>(static_cast<std::size_t>(world.size()))};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  return group;
}

}  // namespace

Agreement::Agreement(comm::World& world, tensor::Device& device, int group_id)
    : world_(world),
      stream_(device.make_stream("agreement", tensor::StreamKind::comm)),
      everyone_(world.open(all_ranks(world, group_id), *stream_)) {}

void Agreement::reduce(double* values, std::size_t count, comm::ReduceKind kind) {
  const auto n = static_cast<std::int64_t>(count);
  everyone_->all_reduce({reinterpret_cast<std::byte*>(values), 1, n, n, DType::f64}, kind);
  stream_->synchronize();
}

std::string Agreement::broadcast(std::string text, int root) {
  double size = static_cast<double>(text.size());
  everyone_->broadcast({reinterpret_cast<std::byte*>(&size), 1, 1, 1, DType::f64}, root);
  stream_->synchronize();
  const auto bytes = static_cast<std::size_t>(size);
  if (bytes == 0) return {};
  std::vector<std::int32_t> words((bytes + 3) / 4);
  if (rank() == root) std::memcpy(words.data(), text.data(), text.size());
  const auto count = static_cast<std::int64_t>(words.size());
  everyone_->broadcast({reinterpret_cast<std::byte*>(words.data()), 1, count, count, DType::i32}, root);
  stream_->synchronize();
  text.assign(reinterpret_cast<const char*>(words.data()), bytes);
  return text;
}

}  // namespace ms::train
