#include "tensor/cuda/cudnn_graph.h"

#include "tensor/cuda/cuda_check.h"

namespace ms::tensor {
namespace {

constexpr std::int64_t kMostEngines = 8;

CudnnDescriptor heuristic(const CudnnDescriptor& graph) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  return heuristic;
}

// Returns the engines of a finished heuristic, best first.
std::vector<CudnnDescriptor> offers(const CudnnDescriptor& heuristic) {
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < kMostEngines; ++i)
    raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 kMostEngines, &count, raw.data()),
        "asking which engines there are");
  while (static_cast<std::int64_t>(configs.size()) > count) configs.pop_back();
  return configs;
}

}  // namespace

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char words[512] = {};
  cudnnGetLastErrorString(words, sizeof words);
  throw library_error("cuda.cudnn", fmt::format("cuDNN, {}: {} {}", what, cudnnGetErrorString(status), words),
                      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  check(cudnnBackendCreateDescriptor(type, &descriptor), "making a descriptor");
  descriptor_.reset(descriptor);
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  cudnnBackendDescriptor_t raw = value.get();
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                      std::int64_t count, const void* values) {
  check(cudnnBackendSetAttribute(get(), name, type, count, values), "setting an attribute");
  return *this;
}

CudnnDescriptor& CudnnDescriptor::finish() {
  check(cudnnBackendFinalize(get()), "finishing a descriptor");
  return *this;
}

CudnnShape contiguous(std::vector<std::int64_t> dims) {
  std::vector<std::int64_t> strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return {.dims = std::move(dims), .strides = std::move(strides)};
}

CudnnGraph::Id CudnnGraph::add_tensor(const CudnnShape& shape, cudnnDataType_t type, bool is_virtual, bool by_value) {
  const Id id = kFirstId + static_cast<Id>(tensors_.size());
  CudnnDescriptor& tensor = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  constexpr std::int64_t kAlignment = 16;
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, shape.dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, shape.strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value)
      .finish();
  return id;
}
CudnnGraph::Id CudnnGraph::tensor(const CudnnShape& shape, cudnnDataType_t type) {
  return add_tensor(shape, type, false, false);
}
CudnnGraph::Id CudnnGraph::between(const CudnnShape& shape, cudnnDataType_t type) {
  return add_tensor(shape, type, true, false);
}
CudnnGraph::Id CudnnGraph::scalar() { return add_tensor(contiguous({1, 1, 1, 1}), CUDNN_DATA_FLOAT, false, true); }

void CudnnGraph::matmul(Id a, Id b, Id c) {
  CudnnDescriptor& part = parts_.emplace_back(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  part.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finish();
  CudnnDescriptor& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a))
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b))
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c))
      .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, part)
      .finish();
}

CudnnDescriptor CudnnGraph::pointwise_operation(cudnnPointwiseMode_t mode, std::int64_t axis) {
  CudnnDescriptor& part = parts_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  part.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  part.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (axis >= 0) part.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  part.finish();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part);
  return operation;
}
void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Id x, Id y) {
  CudnnDescriptor operation = pointwise_operation(mode, -1);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x)).set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y)).finish();
  operations_.push_back(std::move(operation));
}
void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Id x, Id b, Id y) {
  CudnnDescriptor operation = pointwise_operation(mode, -1);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(b))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y))
      .finish();
  operations_.push_back(std::move(operation));
}
void CudnnGraph::index(Id like, std::int64_t axis, Id y) {
  CudnnDescriptor operation = pointwise_operation(CUDNN_POINTWISE_GEN_INDEX, axis);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(like))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y))
      .finish();
  operations_.push_back(std::move(operation));
}
void CudnnGraph::select(Id if_true, Id if_false, Id condition, Id y) {
  CudnnDescriptor operation = pointwise_operation(CUDNN_POINTWISE_BINARY_SELECT, -1);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(if_true))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(if_false))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(condition))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y))
      .finish();
  operations_.push_back(std::move(operation));
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t op, Id x, Id y) {
  CudnnDescriptor& part = parts_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  part.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  part.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT).finish();
  CudnnDescriptor& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, part)
      .finish();
}

void CudnnGraph::reshape(Id x, Id y) {
  CudnnDescriptor& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x)).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y)).finish();
}

CudnnDescriptor CudnnGraph::finish(cudnnHandle_t handle) const {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& operation : operations_) raw.push_back(operation.get());
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw);
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.finish();
  return graph;
}

CudnnPlan::CudnnPlan(cudnnHandle_t handle, CudnnDescriptor graph, const std::string& hint)
    : graph_(std::move(graph)), plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
  CudnnDescriptor asked = heuristic(graph_);
  asked.finish();
  configs_ = offers(asked);
  cudnnStatus_t failed = CUDNN_STATUS_NOT_SUPPORTED;
  for (const CudnnDescriptor& config : configs_) {
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (const cudnnStatus_t status = cudnnBackendFinalize(plan.get()); status != CUDNN_STATUS_SUCCESS) {
      // An engine may simply not support the graph. Finalizing also compiles and loads kernels.
      if (CUDNN_STATUS_CATEGORY(status) >= CUDNN_STATUS_INTERNAL_ERROR) failed = status;
      continue;
    }
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                   &workspace_bytes_),
          "asking for the workspace");
    plan_ = std::move(plan);
    return;
  }
  if (failed != CUDNN_STATUS_NOT_SUPPORTED) check(failed, "making a plan for attention");
  throw Error("cuda.cudnn", hint.empty() ? Blame::bug : Blame::user,
              fmt::format("no cuDNN engine of {} supports this attention", configs_.size()), hint);
}

void CudnnPlan::run(cudnnHandle_t handle, const std::vector<std::pair<CudnnGraph::Id, void*>>& tensors,
                    void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (const auto& [id, pointer] : tensors) {
    ids.push_back(id);
    pointers.push_back(pointer);
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
      .finish();
  check(cudnnBackendExecute(handle, plan_.get(), pack.get()), "running attention");
}

CudnnOffer offer_for(const CudnnDescriptor& graph, const std::string& device_json) {
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device
      .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(device_json.size()),
           device_json.data())
      .finish();
  CudnnDescriptor asked = heuristic(graph);
  asked.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  if (cudnnBackendFinalize(asked.get()) != CUDNN_STATUS_SUCCESS) return {};
  const std::vector<CudnnDescriptor> configs = offers(asked);
  if (configs.empty()) return {};
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs.front());
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
  return {.engines = static_cast<int>(configs.size()), .planned = cudnnBackendFinalize(plan.get())};
}

}  // namespace ms::tensor
