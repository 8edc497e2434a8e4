// Implements the part of directory.h that only looks.
// Looking for checkpoints: what names, manifests and sizes say. Nothing is changed here, nothing needs the lock: names
// may vanish while they are looked at, because a run commits, prunes or sets aside at the same time.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/handle.h"
#include "ckpt/directory.h"
#include "ckpt/names.h"

namespace ms::ckpt {
namespace {

constexpr int kLooks = 100;  // at a directory that changes meanwhile
constexpr std::int64_t kManifestMaxBytes = std::int64_t{1} << 30;

std::string last_part(const std::string& path) { return std::filesystem::path(path).filename().string(); }

bool may_exist(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 || errno != ENOENT;  // what cannot be looked at has not vanished
}

Error unreadable(const std::string& path, int err) {
  return Error("ckpt.read", Blame::storage, fmt::format("cannot read '{}': {}", path, errno_text(err)));
}

// Returns the problem with one of the checkpoint's files; empty: there is none.
std::string problem_of(const std::string& checkpoint, const FileEntry& entry, bool& unreadable) {
  struct stat status {};
  if (::stat(path_in(checkpoint, entry.name).c_str(), &status) != 0) {
    if (errno == ENOENT) return fmt::format("{} is missing", entry.name);
    unreadable = true;
    return fmt::format("{}: {}", entry.name, errno_text(errno));
  }
  if (!S_ISREG(status.st_mode)) return fmt::format("{} is not a regular file", entry.name);
  if (status.st_size == entry.size_bytes) return {};
  return fmt::format("{} has {} of {} bytes", entry.name, status.st_size, entry.size_bytes);
}

// The bytes of a manifest, of a file that is a regular one: nothing else may be opened, and nobody knows its end.
std::string manifest_text(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw unreadable(path, errno);
  std::string text;
  while (std::ssize(text) <= kManifestMaxBytes) {
    constexpr std::size_t kPart = std::size_t{1} << 20;
    const std::size_t size = text.size();
    text.resize(size + kPart);
    const ssize_t n = ::read(fd.get(), text.data() + size, kPart);
    const int err = errno;
    text.resize(size + (n > 0 ? static_cast<std::size_t>(n) : 0));
    if (n < 0 && err != EINTR) throw unreadable(path, err);
    if (n == 0) break;
  }
  return text;
}

// Reads the manifest of `found`, or says why it has none.
void read_manifest(Found& found) {
  const std::string path = path_in(found.path, kManifestName);
  struct stat status {};
  if (::stat(found.path.c_str(), &status) != 0) {
    found.problem = errno_text(errno);
    found.unreadable = true;
  } else if (!S_ISDIR(status.st_mode)) {
    found.problem = "it is not a directory";
  } else if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) throw unreadable(path, errno);
    found.problem = fmt::format("{} is missing", kManifestName);
  } else if (!S_ISREG(status.st_mode)) {
    found.problem = fmt::format("{} is not a regular file", kManifestName);
  } else if (status.st_size > kManifestMaxBytes) {
    found.problem =
        fmt::format("{} has {} bytes, no manifest has more than {}", kManifestName, status.st_size, kManifestMaxBytes);
  } else {
    found.manifest = parse_manifest(manifest_text(path), path);
  }
}

// `newer_throws`: a manifest of a newer format is an error, not a problem.
Found examine(const std::string& path, bool newer_throws) {
  Found found;
  found.path = path;
  while (found.path.size() > 1 && found.path.ends_with('/')) found.path.pop_back();
  found.name = last_part(found.path);
  const Name name = parse_name(found.name);
  found.pinned = name.kind == NameKind::step && may_exist(found.path + ".pin");
  try {
    read_manifest(found);
  } catch (const Error& error) {
    if (newer_throws && error.kind() == "ckpt.version") throw;
    found.problem = error.message();
    found.unreadable = error.kind() == "ckpt.read";
  }
  const bool named = name.kind != NameKind::other && name.kind != NameKind::scratch && name.kind != NameKind::set_aside;
  found.step = named ? name.step : found.manifest ? found.manifest->step : 0;
  if (found.manifest && found.manifest->step != found.step) {
    found.problem = fmt::format("{} is of step {}", kManifestName, found.manifest->step);
  }
  for (std::size_t i = 0; found.manifest && found.problem.empty() && i < found.manifest->files.size(); ++i) {
    found.problem = problem_of(found.path, found.manifest->files[i], found.unreadable);
  }
  switch (name.kind) {
    case NameKind::saving: found.condition = Condition::saving; break;
    case NameKind::deleting: found.condition = Condition::deleting; break;
    case NameKind::damaged: found.condition = Condition::damaged; break;
    default: found.condition = found.problem.empty() ? Condition::complete : Condition::incomplete;
  }
  return found;
}

}  // namespace

std::string_view to_string(Condition condition) {
  switch (condition) {
    case Condition::complete: return "complete";
    case Condition::incomplete: return "incomplete";
    case Condition::saving: return "saving";
    case Condition::deleting: return "deleting";
    case Condition::damaged: return "damaged";
  }
  return "?";
}

Found look(const std::string& path) { return examine(path, false); }

std::vector<Found> list(const std::string& dir) {
  std::vector<Found> result;
  for (const std::string& name : names_in(dir)) {
    const NameKind kind = parse_name(name).kind;
    if (kind == NameKind::other || kind == NameKind::scratch || kind == NameKind::pin || kind == NameKind::set_aside) {
      continue;
    }
    struct stat status {};
    if (::stat(path_in(dir, name).c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) continue;  // not ours
    Found found = look(path_in(dir, name));
    if (found.condition == Condition::complete || may_exist(found.path)) result.push_back(std::move(found));
  }
  std::sort(result.begin(), result.end(),
            [](const Found& a, const Found& b) { return std::tie(a.step, a.name) < std::tie(b.step, b.name); });
  return result;
}

std::vector<Found> list_names(const std::string& dir) {
  std::vector<Found> result;
  std::set<std::int64_t> pinned;
  for (const std::string& name : names_in(dir)) {
    const Name parsed = parse_name(name);
    if (parsed.kind == NameKind::pin) pinned.insert(parsed.step);
    struct stat status {};
    const std::string path = path_in(dir, name);
    if (parsed.kind != NameKind::step || ::stat(path_in(path, kManifestName).c_str(), &status) != 0) continue;
    result.push_back({.path = path, .name = name, .step = parsed.step, .condition = Condition::complete});
  }
  for (Found& found : result) found.pinned = pinned.contains(found.step);
  std::sort(result.begin(), result.end(), [](const Found& a, const Found& b) { return a.step < b.step; });
  return result;
}

std::optional<Found> newest_complete(const std::string& dir, std::int64_t below, std::vector<Found>* passed_over) {
  for (int i = 0; i < kLooks; ++i) {
    std::vector<std::int64_t> steps;
    for (const std::string& name : names_in(dir)) {
      const std::optional<std::int64_t> step = step_from(name);
      if (step && *step < below) steps.push_back(*step);
    }
    std::sort(steps.rbegin(), steps.rend());
    bool vanished = false;
    if (passed_over != nullptr) passed_over->clear();
    for (const std::int64_t step : steps) {
      Found found = examine(path_in(dir, step_name(step)), true);
      if (found.condition == Condition::complete) return found;
      if (!may_exist(found.path)) {
        vanished = true;
      } else if (passed_over != nullptr) {
        passed_over->push_back(std::move(found));
      }
    }
    if (!vanished) return std::nullopt;
    // Whoever removed those may have committed a newer one since we read the names.
  }
  throw Error("ckpt.list", Blame::storage, fmt::format("the checkpoints in '{}' vanish while they are looked at", dir));
}

}  // namespace ms::ckpt
