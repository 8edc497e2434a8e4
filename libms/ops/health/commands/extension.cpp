#include "health/commands/extension.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <vector>

#include "base/file.h"
#include "base/print.h"
#include "base/version.h"
#include "health/checks/registry.h"

namespace ms::health {
namespace {

struct Library {
  const char* file;
  const char* entry_point;  // the function that returns the extension
  const char* hint;
};
constexpr Library kActive{"libms.so", "ms_diag_extension",
                          "checks of level 2 and predict are in libms.so, which is installed with ms-diag"};
constexpr Library kNotify{"libms_notify.so", "ms_notify_extension",
                          "notify is in libms_notify.so, which is installed with ms-diag if ms was built with libcurl"};

Error load_error(const Library& library, const std::string& message) {
  return Error("extension.load", Blame::node, message, library.hint);
}

template <class T>
const T& load(const Library& library) {
  const std::vector<std::string> paths = library_paths(library.file);
  for (const std::string& path : paths) {
    if (::access(path.c_str(), F_OK) != 0) continue;
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw load_error(library, ::dlerror());
    const auto entry_point = reinterpret_cast<const T* (*)()>(::dlsym(handle, library.entry_point));
    if (entry_point == nullptr) {
      throw load_error(library, fmt::format("{} has no {} in it: it is of another version", path, library.entry_point));
    }
    const T& extension = *entry_point();
    if (extension.version != kVersion) {
      throw load_error(library, fmt::format("{} is version {}, this program is {}", path, extension.version, kVersion));
    }
    return extension;
  }
  throw load_error(library, fmt::format("there is no {} at {}", library.file, fmt::join(paths, ", ")));
}

}  // namespace

// Never by a search path or the environment.
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

const Extension& load_extension() {
  static const Extension& extension = load<Extension>(kActive);  // for the life of the process
  return extension;
}

const NotifyExtension& load_notify_extension() {
  static const NotifyExtension& extension = load<NotifyExtension>(kNotify);
  return extension;
}

std::vector<Check> all_checks() {
  std::vector<Check> all = passive_checks();
  const std::vector<Check>& active = load_extension().checks();
  all.insert(all.end(), active.begin(), active.end());
  return all;
}

std::vector<Check> known_checks() {
  try {
    return all_checks();
  } catch (const Error& error) {  // the passive checks need no library
    print_err("ms-diag: note: only the passive checks are known: {}\n", error.what());
    return passive_checks();
  }
}

}  // namespace ms::health
