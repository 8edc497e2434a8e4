// A library that ms does without until somebody needs it: found at run time, so that neither building nor starting ms
// needs it.
#pragma once

#include <initializer_list>
#include <string>

namespace ms {

class OptionalLibrary {
 public:
  // Opens the first of these names that the loader finds, for the life of the process.
  explicit OptionalLibrary(std::initializer_list<const char*> names);

  bool is_open() const { return library_ != nullptr; }
  // Sets `function` to the library's function of this name, or to nullptr, and `why` says so.
  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(symbol(name));
  }
  // The reason why something is missing: the library, by the loader's first reason, or the last function that it lacks.
  // Empty if nothing is.
  const std::string& why() const { return why_; }

 private:
  void* symbol(const char* name);

  void* library_ = nullptr;
  std::string name_;
  std::string why_;
};

}  // namespace ms
