// How ranks agree between steps: small values and texts over a communicator of their own, waited for on the host. Every
// method is collective over the world.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "comm/world.h"

namespace ms::train {

class Agreement {
 public:
  // `group_id` is free in the run.
  Agreement(comm::World& world, tensor::Device& device, int group_id);

  int rank() const { return world_.rank(); }
  bool leads() const { return rank() == 0; }
  comm::Communicator& everyone() { return *everyone_; }

  // One rank's text to all.
  std::string broadcast(std::string text, int root = 0);
  template <std::size_t N>
  std::array<double, N> sum(std::array<double, N> values) {
    reduce(values.data(), N, comm::ReduceKind::sum);
    return values;
  }
  double highest(double value) {
    reduce(&value, 1, comm::ReduceKind::max);
    return value;
  }

 private:
  void reduce(double* values, std::size_t count, comm::ReduceKind kind);

  comm::World& world_;
  std::unique_ptr<tensor::Stream> stream_;
  std::unique_ptr<comm::Communicator> everyone_;
};

}  // namespace ms::train
