// The requirements on every communicator, as bodies that each rank of a world runs: the same over threads and over MPI.
// A body uses GoogleTest's EXPECT and leaves no operation in progress.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "tensor/cpu_device.h"

namespace ms::comm::cases {

// The rank that runs a body.
class Rank {
 public:
  Rank(World& world, tensor::Device& device) : world_(world), device_(device) {}
  World& world() const { return world_; }
  tensor::Device& device() const { return device_; }
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }

  // Creates a group with a new id; all ranks of the world create the same groups in the same order, member or not.
  Group group(std::string name, std::vector<int> ranks) { return {std::move(name), next_group_++, std::move(ranks)}; }
  Group all_ranks_group(std::string name);
  std::unique_ptr<tensor::Stream> stream(std::string name) {
    return device_.make_stream(std::move(name), tensor::StreamKind::comm);
  }
  // Returns a zeroed tensor that lives as long as this object.
  Tensor tensor(tensor::DType dtype, std::int64_t numel);
  void start_groups_at(int id) { next_group_ = id; }
  int next_group() const { return next_group_; }

 private:
  World& world_;
  tensor::Device& device_;
  int next_group_ = 1;
  std::vector<std::unique_ptr<tensor::Memory>> memory_;
};

struct Body {
  const char* name;
  void (*run)(Rank& rank);
};
const std::vector<Body>& conformance_bodies();
void rows_of_experts(Rank& rank);           // one of them
void gathered_rows_of_experts(Rank& rank);  // likewise

// Returns the error that the stream failed with, if any.
std::optional<Error> failure_of(tensor::Stream& stream);
// Expects an error of this kind, or of the kinds that begin with `kind` if it ends with a dot, whose message contains
// `text`.
void expect_error(const std::optional<Error>& error, std::string_view kind, std::string_view text);

}  // namespace ms::comm::cases
