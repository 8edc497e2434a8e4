// The emulated GPU's cuDNN: accepts operation graphs of the backend interface (cudnn_descriptor.cpp) and interprets
// them operation by operation (cudnn_program.cpp), without knowing what they are for.
//
// MS_EMULATED_CUDNN_COUNTS  the process says at its end how many plans it built
#include <cudnn_graph.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cudnn_descriptor.h"
#include "cudnn_program.h"
#include "stream.h"

namespace {

using namespace ms::emulated;

constexpr std::uintptr_t kWorkspaceAlignment = 16;

struct Counts {
  std::atomic<int> plans = 0;
  ~Counts() {
    if (std::getenv("MS_EMULATED_CUDNN_COUNTS") == nullptr) return;
    std::fprintf(stderr, "emulated cuDNN: %d plans\n", plans.load());
  }
} counts;

thread_local std::string last_error;
Living<Descriptor>& living = *new Living<Descriptor>;  // never destroyed, like handles

template <class Body>
cudnnStatus_t answer(const char* function, Body&& body) {
  try {
    body();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refusal& refusal) {
    last_error = fmt::format("{}: {}", function, refusal.why);
    return refusal.status;
  }
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64: return sizeof(std::int64_t);
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void*);
    default: return sizeof(cudnnDataType_t);  // all other types here are enumerations
  }
}

// Returns the only engine, in the first of the caller's descriptors.
void get_engines(const Descriptor& heuristic, std::int64_t most, std::int64_t* count, void* into) {
  if (count != nullptr) *count = 1;
  if (most == 0) return;
  const auto config = living.at(*static_cast<cudnnBackendDescriptor_t*>(into), "a descriptor");
  require(config->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && !config->finished,
          "engines go into unfinished descriptors of configurations", CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  config->program = heuristic.program;
  config->finished = true;
}

void require_gpu(const char* call) {
  const cudaError_t gpu = begin_call(call);
  require(gpu != cudaErrorMemoryAllocation, "the GPU is full", CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
  require(gpu == cudaSuccess, "the GPU is broken", CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
}

void execute(const cudnnContext& handle, const Descriptor& plan, const Descriptor& pack) {
  const auto ids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<std::byte*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  const auto& tensors = plan.program->tensors;
  Places places;
  std::map<std::int64_t, float> by_value;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto found = tensors.find(ids[i]);
    require(found != tensors.end(), fmt::format("a pointer for {}, which the graph does not know", ids[i]));
    const Tensor& tensor = *found->second;
    require(!tensor.is_virtual, fmt::format("a pointer for the virtual tensor {}", tensor.id));
    require(pointers[i] != nullptr, fmt::format("no memory for tensor {}", tensor.id),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    if (tensor.by_value) {
      std::memcpy(&by_value[tensor.id], pointers[i], sizeof(float));
      continue;
    }
    require(reinterpret_cast<std::uintptr_t>(pointers[i]) % static_cast<std::uintptr_t>(tensor.alignment) == 0,
            fmt::format("tensor {} is not at a multiple of {} bytes", tensor.id, tensor.alignment),
            CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    for (const auto& [other, place] : places)
      require(
          place != pointers[i] || !(plan.program->written.contains(tensor.id) || plan.program->written.contains(other)),
          fmt::format("tensors {} and {} are at one place", tensor.id, other));
    places[tensor.id] = pointers[i];
  }
  for (const auto& [id, tensor] : tensors)
    require(tensor->is_virtual || places.contains(id) || by_value.contains(id),
            fmt::format("no pointer for tensor {}", id));
  auto* workspace = pack.one<std::byte*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  require(workspace != nullptr, "no workspace", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  require(reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment == 0, "the workspace is not aligned",
          CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  ms::emulated::on_stream(
      handle.stream, [program = plan.program, places = std::move(places), by_value = std::move(by_value), workspace] {
        run(*program, places, by_value, workspace);
      });
}

std::shared_ptr<Descriptor> finished(cudnnBackendDescriptor_t pointer, cudnnBackendDescriptorType_t type) {
  auto descriptor = living.at(pointer, "a descriptor");
  require(descriptor->type == type,
          fmt::format("a descriptor of type {} in place of {}", int{descriptor->type}, int{type}),
          CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  require(descriptor->finished, "a descriptor that is not finished", CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  return descriptor;
}

}  // namespace

extern "C" {

std::size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(status)) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (message == nullptr || max_size == 0) return;
  message[last_error.copy(message, max_size - 1)] = '\0';
  last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return answer(__func__, [&] {
    require(handle != nullptr, "nowhere to put it", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    *handle = static_cast<cudnnHandle_t>(handles.add(std::make_shared<cudnnContext>()));
  });
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return answer(__func__, [&] { handles.remove(handle, "a handle"); });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return answer(__func__, [&] { handles.at(handle, "a handle")->stream = stream; });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return answer(__func__, [&] {
    require(descriptor != nullptr, "nowhere to put it", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    *descriptor = living.add(std::make_shared<Descriptor>(type));
  });
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return answer(__func__, [&] { living.remove(descriptor, "a descriptor"); });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return answer(__func__, [&] {
    const auto finished = living.at(descriptor, "a descriptor");
    if (finished->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) require_gpu("plan");
    finish(*finished);
    if (finished->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) ++counts.plans;
  });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  return answer(__func__, [&] {
    const auto d = living.at(descriptor, "a descriptor");
    require(!d->finished, "the descriptor is finished");
    const Rule* rule = rule_for(d->type, name);
    require(rule != nullptr,
            fmt::format("attribute {} of descriptors of type {} is not emulated", int{name}, int{d->type}),
            CUDNN_STATUS_NOT_SUPPORTED);
    require(type == rule->type, fmt::format("{} of type {}", rule->words, int{type}),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    require(count > 0 && count <= rule->most, fmt::format("{} of {} elements", rule->words, count),
            CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
    require(values != nullptr, fmt::format("{} from nowhere", rule->words), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    const auto* first = static_cast<const std::byte*>(values);
    Descriptor::Attribute attribute{.bytes{first, first + static_cast<std::size_t>(count) * size_of(type)},
                                    .descriptors{}};
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      for (const auto part :
           std::span(static_cast<const cudnnBackendDescriptor_t*>(values), static_cast<std::size_t>(count))) {
        attribute.descriptors.push_back(living.at(part, rule->words));
        require(attribute.descriptors.back()->finished, fmt::format("{}: it is not finished", rule->words),
                CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
      }
    }
    d->attributes[name] = std::move(attribute);
  });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t* count, void* values) {
  return answer(__func__, [&] {
    require(most >= 0 && (most == 0 || values != nullptr), "nowhere to put it", CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      get_engines(*finished(descriptor, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), most, count, values);
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64) {
      const auto plan = finished(descriptor, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      if (count != nullptr) *count = 1;
      if (most > 0) *static_cast<std::int64_t*>(values) = kWorkspaceBytes;
    } else {
      require(false, fmt::format("attribute {} cannot be asked for", int{name}), CUDNN_STATUS_NOT_SUPPORTED);
    }
  });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return answer(__func__, [&] {
    require_gpu("attention");
    execute(*handles.at(handle, "a handle"), *finished(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
            *finished(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  });
}

}  // extern "C"
