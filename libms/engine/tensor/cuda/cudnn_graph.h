// The part of cuDNN's graph interface that attention needs: tensors, operations between them, and a plan that runs them
// as one kernel. Uses the plain C interface, since the C++ one is not part of the toolkit.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ms::tensor {

// Throws library_error("cuda.cudnn") unless `status` is CUDNN_STATUS_SUCCESS.
void check(cudnnStatus_t status, const char* what);

// A backend descriptor: set attributes, then finish.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       const std::vector<T>& values) {
    return set(name, type, static_cast<std::int64_t>(values.size()), values.data());
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, bool value) {
    return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                       const void* values);
  CudnnDescriptor& finish();

 private:
  struct Destroy {
    void operator()(cudnnBackendDescriptor_t descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
  };
  std::unique_ptr<std::remove_pointer_t<cudnnBackendDescriptor_t>, Destroy> descriptor_;
};

// Four dimensions: batch, heads, rows, columns.
struct CudnnShape {
  std::vector<std::int64_t> dims, strides;  // elements
};
CudnnShape contiguous(std::vector<std::int64_t> dims);

// A graph under construction. Tensors are identified by numbers. The caller passes memory for some at execution; the
// others exist in registers only.
class CudnnGraph {
 public:
  using Id = std::int64_t;

  Id tensor(const CudnnShape& shape, cudnnDataType_t type);   // in memory
  Id between(const CudnnShape& shape, cudnnDataType_t type);  // virtual: inside the graph
  Id scalar();                                                // f32, passed by value at execution

  void matmul(Id a, Id b, Id c);
  void pointwise(cudnnPointwiseMode_t mode, Id x, Id y);
  void pointwise(cudnnPointwiseMode_t mode, Id x, Id b, Id y);
  void index(Id like, std::int64_t axis, Id y);  // the index along an axis
  void select(Id if_true, Id if_false, Id condition, Id y);
  void reduce(cudnnReduceTensorOp_t op, Id x, Id y);
  void reshape(Id x, Id y);

  // Returns the finished operation graph. `handle` may be null if nothing will be executed.
  CudnnDescriptor finish(cudnnHandle_t handle) const;

 private:
  Id add_tensor(const CudnnShape& shape, cudnnDataType_t type, bool is_virtual, bool by_value);
  const CudnnDescriptor& at(Id id) const { return tensors_[static_cast<std::size_t>(id - kFirstId)]; }
  CudnnDescriptor pointwise_operation(cudnnPointwiseMode_t mode, std::int64_t axis);

  static constexpr Id kFirstId = 100;
  std::vector<CudnnDescriptor> tensors_, parts_, operations_;
};

// An executable plan.
class CudnnPlan {
 public:
  // Uses the first of the heuristic's engines that supports the graph. If none does, throws Error("cuda.cudnn", user)
  // with the hint, or a bug without one; library_error("cuda.cudnn") if building a plan failed.
  CudnnPlan(cudnnHandle_t handle, CudnnDescriptor graph, const std::string& hint);

  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  void run(cudnnHandle_t handle, const std::vector<std::pair<CudnnGraph::Id, void*>>& tensors, void* workspace) const;

 private:
  CudnnDescriptor graph_;
  std::vector<CudnnDescriptor> configs_;
  CudnnDescriptor plan_;
  std::int64_t workspace_bytes_ = 0;
};

// The support that cuDNN has for a graph on a GPU that need not be present; `device_json` describes that GPU. `engines`
// counts the engines that the heuristic returns, and `planned` is the status of building a plan with the first one:
// CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER means that kernels were compiled and there was no driver to load them into.
struct CudnnOffer {
  int engines = 0;
  cudnnStatus_t planned = CUDNN_STATUS_NOT_INITIALIZED;
};
CudnnOffer offer_for(const CudnnDescriptor& graph, const std::string& device_json);

}  // namespace ms::tensor
