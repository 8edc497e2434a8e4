// A graph of cuDNN operations as the emulated GPU runs it; cudnn_descriptor.cpp has checked that it is complete.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace ms::emulated {

using Dims = std::vector<std::int64_t>;

constexpr std::int64_t kWorkspaceBytes = 1024;

struct Tensor {
  std::int64_t id = 0, alignment = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Dims dims, strides;
  bool is_virtual = false, by_value = false;

  std::size_t element() const {
    return type == CUDNN_DATA_BFLOAT16 ? 2 : type == CUDNN_DATA_BOOLEAN ? 1 : sizeof(float);
  }
  std::size_t extent() const {  // bytes from the first element to the end of the last
    std::int64_t last = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
    return static_cast<std::size_t>(last + 1) * element();
  }
  // Returns the offset of `index` of a tensor of dimensions `full`, which this tensor's dimensions divide.
  std::int64_t at(const Dims& index, const Dims& full) const {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * dims[i] / full[i] * strides[i];
    return offset;
  }
};
using TensorPtr = std::shared_ptr<const Tensor>;

struct Operation {
  cudnnBackendDescriptorType_t type{};
  TensorPtr x, b, t, y;  // a matmul's A, B and C are x, b and y
  cudnnPointwiseMode_t mode{};
  cudnnReduceTensorOp_t reduction{};
  std::size_t axis = 0;
  std::vector<std::int64_t> last_of;  // virtual tensors that no later operation reads

  std::vector<TensorPtr> inputs() const {
    std::vector<TensorPtr> tensors{x, b, t};
    std::erase(tensors, nullptr);
    return tensors;
  }
};

struct Program {
  std::vector<Operation> operations;
  std::map<std::int64_t, TensorPtr> tensors;
  std::set<std::int64_t> written;
};

using Places = std::map<std::int64_t, std::byte*>;

// Runs the operations in order. `places` and `by_value` hold all tensors that are not virtual.
void run(const Program& program, Places places, std::map<std::int64_t, float> by_value, std::byte* workspace);

}  // namespace ms::emulated
