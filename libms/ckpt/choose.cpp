#include "ckpt/choose.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/names.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;

// The path without links, dots and slashes at the end, so that its last part is the name.
fs::path real_path(const std::string& path) {
  std::error_code error;
  fs::path real = fs::canonical(path, error);
  if (error) throw user_error("ckpt.path", fmt::format("cannot open {}: {}", path, error.message()));
  if (!fs::is_directory(real, error)) {
    throw user_error("ckpt.path", fmt::format("{} is not a directory; a checkpoint is one", path));
  }
  return real;
}

// Returns the path to show: the user's own if it ends in the real name, otherwise the real one.
std::string shown(const std::string& path, const fs::path& real) {
  std::string text = path;
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return fs::path(text).filename() == real.filename() ? text : real.string();
}

bool has_name_of_one(const std::string& name) {
  switch (parse_name(name).kind) {
    case NameKind::step:
    case NameKind::saving:
    case NameKind::deleting:
    case NameKind::damaged:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool is_checkpoint(const std::string& path) {
  const fs::path real = real_path(path);
  std::error_code error;
  return has_name_of_one(real.filename()) || fs::exists(real / kManifestName, error);
}

void require_directory(const std::string& path) {
  if (is_checkpoint(path)) {
    throw user_error("ckpt.path", fmt::format("{} is a checkpoint, expected a directory of them", path));
  }
}

Found choose(const std::string& path) {
  if (is_checkpoint(path)) return look(shown(path, real_path(path)));
  std::optional<Found> newest = newest_complete(path);
  if (!newest) throw user_error("ckpt.none", fmt::format("{} holds no complete checkpoint", path));
  return *std::move(newest);
}

std::vector<Found> choose_all(const std::string& path) {
  if (is_checkpoint(path)) return {look(shown(path, real_path(path)))};
  std::vector<Found> committed;
  for (Found& found : list(path)) {
    if (found.condition == Condition::complete || found.condition == Condition::incomplete) {
      committed.push_back(std::move(found));
    }
  }
  if (committed.empty()) throw user_error("ckpt.none", fmt::format("{} holds no checkpoint", path));
  return committed;
}

Found choose_complete(const std::string& path) {
  Found found = choose(path);
  const bool whole = found.manifest && found.problem.empty();
  if (!whole) {
    throw Error("ckpt.incomplete", Blame::storage,
                fmt::format("{} is {}: {}", found.path, to_string(found.condition), found.problem));
  }
  return found;
}

Place place_of(const std::string& path) {
  const fs::path real = real_path(path);
  const std::optional<std::int64_t> step = step_from(real.filename().string());
  if (!step) {
    throw user_error("ckpt.path", fmt::format("{} is not a committed checkpoint of a directory", path),
                     fmt::format("those are called as {}", step_name(1200)));
  }
  return {.dir = parent_directory(shown(path, real)), .step = *step};
}

}  // namespace ms::ckpt
