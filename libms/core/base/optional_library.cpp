#include "base/optional_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace ms {

OptionalLibrary::OptionalLibrary(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    library_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) {
      name_ = name;
      why_.clear();
      return;
    }
    if (why_.empty()) why_ = ::dlerror();
  }
}

void* OptionalLibrary::symbol(const char* name) {
  if (library_ == nullptr) return nullptr;
  void* const found = ::dlsym(library_, name);
  if (found == nullptr) why_ = fmt::format("{} has no {}", name_, name);
  return found;
}

}  // namespace ms
