// Libraries of ours that a program loads when a command needs them, so that it starts without what they link.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ms {

struct Library {
  const char* file;         // "libms.so"
  const char* entry_point;  // a function without arguments that returns the library's interface; it has a `version`
  const char* hint;         // what to install if the file is missing
};

// The paths at which `file` may be, relative to this program's own file; never a search path or the environment. Throws
// Error("extension.load", node) if the program cannot find its own file.
std::vector<std::string> library_paths(const std::string& file);

// Loads the library for the rest of the process and returns what its entry point returned. Throws
// Error("extension.load", node) if it is missing, cannot be loaded, or has no such function.
const void* load_interface(const Library& library);

// Throws Error("extension.load", node) unless the library has this program's version.
void require_version(const Library& library, std::string_view version);

template <class Interface>
const Interface& load_library(const Library& library) {
  const auto& interface = *static_cast<const Interface*>(load_interface(library));
  require_version(library, interface.version);
  return interface;
}

}  // namespace ms
