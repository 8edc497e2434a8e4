#include "ckpt/choose.h"

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/names.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;

bool is_manifest_there(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / kManifestName, error);
}

// Says what there is where the user looked for a checkpoint; empty: nothing, or nothing that we may list.
std::string hint_of_absent(const std::string& path) {
  std::error_code error;
  fs::path parent = fs::path(path).parent_path();
  if (parent.empty()) parent = ".";
  std::set<std::int64_t> steps;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const std::optional<std::int64_t> step = step_from(at->path().filename().string());
    if (step && is_manifest_there(at->path())) steps.insert(*step);
  }
  if (error || steps.empty()) return "";
  const std::string more = steps.size() > 1 ? " to " + step_name(*steps.rbegin()) : "";
  return fmt::format("{} has {}{}", parent.string(), step_name(*steps.begin()), more);
}

std::string hint_of_file(const std::string& path) {
  if (path.ends_with(".toml")) return "a configuration is for ms-train run, check, plan and simulate";
  const fs::path parent = fs::path(path).parent_path();
  return is_manifest_there(parent) ? fmt::format("name the checkpoint itself, {}", parent.string()) : "";
}

// The path without links, dots and slashes at the end, so that its last part is the name.
fs::path real_path(const std::string& path) {
  std::error_code error;
  fs::path real = fs::canonical(path, error);
  if (error)
    throw user_error("ckpt.path", fmt::format("cannot open {}: {}", path, error.message()), hint_of_absent(path));
  if (!fs::is_directory(real, error)) {
    throw user_error("ckpt.path", fmt::format("{} is not a checkpoint: it is not a directory", path),
                     hint_of_file(path));
  }
  return real;
}

// Returns the path to show: the user's own if it ends in the real name, otherwise the real one.
std::string shown(const std::string& path, const fs::path& real) {
  std::string text = path;
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return fs::path(text).filename() == real.filename() ? text : real.string();
}

// Who asks for a checkpoint often names the directory of the run, or of a model of Hugging Face.
void refuse_other_directory(const std::string& path) {
  std::error_code error;
  if (fs::exists(path + "/config.json", error)) {
    throw user_error("ckpt.path", fmt::format("{} is a Hugging Face model, not a checkpoint", path),
                     fmt::format("'ms-ckpt import --output DIR {}' converts it to a checkpoint in DIR", path));
  }
  if (fs::exists(path + "/metrics.jsonl", error)) {
    throw user_error("ckpt.path", fmt::format("{} is a run's directory, not a directory of checkpoints", path),
                     fmt::format("checkpoint.dir in {}/config.toml names the directory of its checkpoints", path));
  }
}

// Says that a directory has no checkpoint of those that are wanted: not one of any kind where it is `empty`.
[[noreturn]] void refuse_without(std::string_view wanted, const std::string& path, bool empty) {
  if (empty) refuse_other_directory(path);
  throw user_error("ckpt.none", fmt::format("no {1} checkpoint in {0}", path, wanted),
                   empty ? "name a checkpoint, or the run's checkpoint.dir"
                         : fmt::format("'ms-ckpt ls {}' lists checkpoints with their state", path));
}

bool has_name_of_one(const std::string& name) {
  switch (parse_name(name).kind) {
    case NameKind::step:
    case NameKind::saving:
    case NameKind::deleting:
    case NameKind::damaged: return true;
    default: return false;
  }
}

}  // namespace

bool is_checkpoint(const std::string& path) {
  const fs::path real = real_path(path);
  return has_name_of_one(real.filename()) || is_manifest_there(real);
}

void require_directory(const std::string& path) {
  if (is_checkpoint(path)) {
    throw user_error("ckpt.path", fmt::format("{} is a checkpoint, expected a directory of them", path),
                     fmt::format("name the directory that it is in; 'ms-ckpt show {}' shows it alone", path));
  }
  if (list(path).empty()) refuse_other_directory(path);
}

Found choose(const std::string& path) {
  if (is_checkpoint(path)) return look(shown(path, real_path(path)));
  std::optional<Found> newest = newest_complete(path);
  if (newest) return *std::move(newest);
  refuse_without("complete", path, list(path).empty());
}

std::vector<Found> choose_all(const std::string& path) {
  if (is_checkpoint(path)) return {look(shown(path, real_path(path)))};
  std::vector<Found> found = list(path);
  const bool empty = found.empty();
  std::erase_if(found, [](const Found& one) {
    return one.condition != Condition::complete && one.condition != Condition::incomplete;
  });
  if (found.empty()) refuse_without("committed", path, empty);
  return found;
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
