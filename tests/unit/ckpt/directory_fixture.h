// Directories of checkpoints for the tests of who changes them and of who looks at them: checkpoints as the commit
// protocol makes them, of small files whose bytes nobody reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ckpt/directory.h"
#include "format_fixture.h"
#include "support/files.h"

namespace ms::ckpt::directory_fixture {

namespace fs = std::filesystem;

inline std::string manifest_json(std::int64_t step) {
  Manifest manifest = format_fixture::some_manifest();
  manifest.step = step;
  return to_json(manifest);
}

// Files of the sizes that the manifest tells; their bytes are nobody's business here.
inline void write_files(const std::string& path) {
  for (const FileEntry& entry : format_fixture::some_manifest().files) {
    format_fixture::spill(path + "/" + entry.name, std::string(static_cast<std::size_t>(entry.size_bytes), 'x'));
  }
}

inline std::vector<std::string> save(const std::string& dir, std::int64_t step) {
  write_files(begin_save(dir, step));
  return commit(dir, step, manifest_json(step));
}

// What lies there, but for the lock that stays once something was pinned or removed.
inline std::vector<std::string> names(const std::string& dir) {
  std::vector<std::string> result = test::names_in(dir);
  std::erase(result, "pin.lock");
  return result;
}

inline std::vector<std::string> listed(const std::string& dir) {
  std::vector<std::string> result;
  for (const Found& found : list(dir)) {
    result.push_back(fmt::format("{} {}{}", found.name, to_string(found.condition), found.pinned ? " pinned" : ""));
  }
  return result;
}

inline std::int64_t newest_step(const std::string& dir, std::int64_t below = INT64_MAX) {
  const std::optional<Found> found = newest_complete(dir, below);
  return found ? found->step : -1;
}

}  // namespace ms::ckpt::directory_fixture
