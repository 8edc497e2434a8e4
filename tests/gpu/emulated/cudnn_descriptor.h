// Descriptors of the emulated GPU's cuDNN: the attributes that they accept, and what they are once finished.
#pragma once

#include <cudnn_graph.h>
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_program.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace ms::emulated {

struct Refusal {
  cudnnStatus_t status;
  std::string why;
};
inline void require(bool holds, std::string why, cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM) {
  if (!holds) throw Refusal{status, std::move(why)};
}

// The objects that were created and not destroyed.
template <class Thing>
class Living {
 public:
  void* add(std::shared_ptr<Thing> thing) {
    const std::scoped_lock lock(mutex_);
    return things_.emplace(thing.get(), thing).first->first;
  }
  std::shared_ptr<Thing> at(void* pointer, const char* what) {
    const std::scoped_lock lock(mutex_);
    const auto found = things_.find(pointer);
    require(found != things_.end(), fmt::format("{} that does not exist", what));
    return found->second;
  }
  void remove(void* pointer, const char* what) {
    const std::scoped_lock lock(mutex_);
    require(things_.erase(pointer) == 1, fmt::format("{} that does not exist", what));
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::shared_ptr<Thing>> things_;
};

// Never destroyed: callers may free theirs after this library has ended.
inline Living<cudnnContext>& handles = *new Living<cudnnContext>;

struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  std::int64_t most;
  bool needed;
  const char* words;
};
// Returns nullptr if descriptors of this type have no such attribute here.
const Rule* rule_for(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name);

struct Descriptor {
  explicit Descriptor(cudnnBackendDescriptorType_t type_of) : type(type_of) {}

  struct Attribute {
    std::vector<std::byte> bytes;
    std::vector<std::shared_ptr<const Descriptor>> descriptors;
  };
  cudnnBackendDescriptorType_t type;
  bool finished = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  // What the finished descriptor is: a tensor, an operation, a graph, an engine's configuration or a plan.
  TensorPtr tensor;
  std::shared_ptr<const Operation> operation;
  std::shared_ptr<const Program> program;

  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  template <class T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const std::vector<std::byte>& bytes = attributes.at(name).bytes;
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <class T>
  T one(cudnnBackendAttributeName_t name) const {
    T value;
    std::memcpy(&value, attributes.at(name).bytes.data(), sizeof value);
    return value;
  }
  bool flag(cudnnBackendAttributeName_t name) const { return has(name) && one<char>(name) != 0; }
  const Descriptor& part(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t of) const {
    const Descriptor& found = *attributes.at(name).descriptors.front();
    require(found.type == of,
            fmt::format("attribute {}: a descriptor of type {} in place of {}", int{name}, int{found.type}, int{of}),
            CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
    return found;
  }
  TensorPtr tensor_of(cudnnBackendAttributeName_t name) const {
    return has(name) ? part(name, CUDNN_BACKEND_TENSOR_DESCRIPTOR).tensor : nullptr;
  }
};

void finish(Descriptor& descriptor);

}  // namespace ms::emulated
