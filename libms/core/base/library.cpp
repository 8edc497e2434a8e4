#include "base/library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"

namespace ms {
namespace {

Error load_error(const Library& library, const std::string& message) {
  return Error("extension.load", Blame::node, message, library.hint);
}

}  // namespace

std::vector<std::string> library_paths(const std::string& file) {
  std::array<char, 4096> program{};
  const ssize_t length = ::readlink("/proc/self/exe", program.data(), program.size() - 1);
  if (length <= 0) {
    throw Error("extension.load", Blame::node, "cannot tell where this program lies: " + errno_text(errno));
  }
  const std::string prefix =
      parent_directory(parent_directory(std::string(program.data(), static_cast<std::size_t>(length))));
  return {prefix + "/" + MS_INSTALL_LIBDIR + "/" + file, prefix + "/lib/" + file};  // lib: of a build
}

const void* load_interface(const Library& library) {
  const std::vector<std::string> paths = library_paths(library.file);
  for (const std::string& path : paths) {
    if (::access(path.c_str(), F_OK) != 0) continue;
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw load_error(library, ::dlerror());
    const auto entry_point = reinterpret_cast<const void* (*)()>(::dlsym(handle, library.entry_point));
    if (entry_point == nullptr) {
      throw load_error(library, fmt::format("{} has no {} in it: it is of another version", path, library.entry_point));
    }
    return entry_point();
  }
  throw load_error(library, fmt::format("there is no {} at {}", library.file, fmt::join(paths, ", ")));
}

void require_version(const Library& library, std::string_view version) {
  if (version == kVersion) return;
  throw load_error(library, fmt::format("{} is version {}, this program is {}", library.file, version, kVersion));
}

}  // namespace ms
