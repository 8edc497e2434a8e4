// Another tool of the same installation, for run_subprocess() of subprocess.h. Pure, but for a look at files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace ms {

// Returns its path where it is beside the running program, else its name, for PATH.
inline std::string own_tool(std::string_view name) {
  std::error_code ignored;
  const std::filesystem::path beside = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / name;
  return std::filesystem::exists(beside, ignored) ? beside.string() : std::string(name);
}

}  // namespace ms
