// The updates of matrices that an optimizer takes whole (OptimizerKind::matrix_states), on the ranks that share them
// (matrix_layout.h). An element is sent to its matrix's owner and back in bf16, once over the group of replicas and
// once over tp. The compute stream waits for each exchange.
//
// The bits of an update do not depend on how a matrix is shared: elements are computed one by one, and matmuls take the
// whole matrix.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "optim/matrix_layout.h"
#include "optim/muon.h"

namespace ms::optim {

// The ranks that hold the same parameters. State is sharded within `shard`; the ranks of `replicate` hold the same
// shard. Without `shard` each rank holds all of it; without `replicate` no other rank has the same shard. At least one
// is set.
struct Replicas {
  comm::Communicator* shard = nullptr;
  comm::Communicator* replicate = nullptr;

  // Returns the group that shares the work of a span: each takes a shard, or if none is sharded, a part of the work.
  comm::Communicator& workers() const { return shard != nullptr ? *shard : *replicate; }
  bool reduces() const { return workers().size() > 1 || replicate != nullptr; }
  bool gathers() const { return shard != nullptr && shard->size() > 1; }
};

// The groups of one rank. `pair` exists on the two ends of a shared span.
struct Groups {
  Replicas dp;
  comm::Communicator& tp;
  comm::Communicator& world;
  comm::Communicator* pair;
  std::optional<Replicas> edp = {};  // of spans of experts, if there are such spans

  const Replicas& replicas(bool experts) const { return experts ? *edp : dp; }
};
MatrixPlace place_in(const Groups& groups);

// The tensors of a rank. Absent ones are not needed.
struct MatrixMemory {
  struct Group {
    tensor::Tensor sent, received;            // bf16 [rows,Exchange::kRow]
    tensor::Tensor over_tp;                   // likewise: what is sent over tp
    tensor::Tensor offsets, over_tp_offsets;  // i32, as in Exchange
  };
  std::vector<Group> groups;  // by MatrixLayout::groups
  tensor::Tensor whole;       // bf16 [1,n]: a matrix that is put together
  MatrixScratch scratch;
};
MatrixMemory carve_matrices(tensor::Arena& arena, const MatrixLayout& layout);

class MatrixUpdates {
 public:
  // Writes the memory's offsets, and waits for that.
  MatrixUpdates(MatrixLayout layout, MatrixMemory memory, tensor::Stream& compute, const Groups& groups);

  // Returns the update of elements of a parameter, by the places of its span and in that.
  using UpdateOf = std::function<Update(std::size_t span, std::size_t param, const mesh::Range& elements)>;
  // Issues the updates of all matrices of the rank. Collective over the groups.
  void issue(const UpdateOf& update_of);

 private:
  comm::Communicator& replicas(const MatrixGroup& group) const { return groups_.replicas(group.experts).workers(); }
  void upload(const tensor::Tensor& to, const std::vector<std::int32_t>& offsets);
  template <class Each>
  void each_piece(Each&& each) const;
  void to_owners();
  void from_owners();
  void orthogonalize_owned(std::size_t group);
  void over_tp(std::size_t group, bool goes_back);
  void copy_pieces(std::size_t group, std::size_t matrix, const tensor::Tensor& shard, bool goes_back);
  void copy_shards(std::size_t group, std::size_t matrix, const tensor::Tensor& whole, bool goes_back);
  tensor::Tensor received(std::size_t group) const;

  MatrixLayout layout_;
  MatrixMemory memory_;
  tensor::Stream& compute_;
  Groups groups_;
};

}  // namespace ms::optim
