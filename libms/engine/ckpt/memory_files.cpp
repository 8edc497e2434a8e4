#include "ckpt/memory_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>

#include "base/hash.h"
#include "base/safe_file.h"
#include "ckpt/blocks.h"
#include "ckpt/directory.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarkName = "mark";

constexpr mode_t kOwn = 0700, kOthers = 0077;

constexpr Refusal kMemoryRefusal{"ckpt.memory", Blame::storage};

std::string step_path(const std::string& root, std::int64_t step) { return root + "/" + step_name(step); }

Error cannot(std::string_view doing, const std::string& path, int err) {
  return Error("ckpt.memory", Blame::storage, fmt::format("cannot {} {}: {}", doing, path, errno_text(err)));
}

// Opens the user's directory, in which only the user can have made anything; makes it, and those above it.
UniqueFd open_users(const std::string& root) {
  const std::string users = parent_directory(root);
  std::string above;
  for (const fs::path& part : fs::path(parent_directory(users))) {
    above = (fs::path(above) / part).string();
    if (::mkdir(above.c_str(), 0755) != 0 && ::access(above.c_str(), F_OK) != 0) throw cannot("make", above, errno);
  }
  return open_own_directory(users, kOwn, kOthers, kMemoryRefusal);
}

UniqueFd open_step(const std::string& root, std::int64_t step) {
  const UniqueFd users = open_users(root);
  const UniqueFd run =
      open_own_directory_at(users, fs::path(root).filename().string(), root, kOwn, kOthers, kMemoryRefusal);
  return open_own_directory_at(run, step_name(step), step_path(root, step), kOwn, kOthers, kMemoryRefusal);
}

void remove_tree(const std::string& path) {
  std::error_code error;  // what is gone already is none
  fs::remove_all(path, error);
  if (error) throw cannot("delete", path, error.value());
}

void remove_steps(const std::string& root, const std::function<bool(std::string_view)>& goes) {
  open_users(root);
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(root, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) throw cannot("list", root, error.value());
  for (const std::string& name : names) {
    if (goes(name)) remove_tree(root + "/" + name);
  }
}

bool has_mark(const std::string& directory, const std::string& mark) {
  const std::string path = directory + "/" + std::string(kMarkName);
  std::error_code error;
  return fs::is_regular_file(path, error) && read_file(path) == mark;
}

}  // namespace

std::string memory_root(const std::string& memory_dir, const std::string& checkpoint_dir) {
  std::string absolute = fs::absolute(checkpoint_dir).lexically_normal().string();
  while (absolute.size() > 1 && absolute.ends_with('/')) absolute.pop_back();
  return fmt::format("{}/ms-{}/{}", fs::absolute(memory_dir).string(), ::geteuid(), hash_hex(xxh64(absolute)));
}

std::string memory_mark(const std::vector<std::string>& entries) {
  Hasher hasher;
  for (const std::string& entry : entries) hasher.update(entry);
  return hash_hex(hasher.digest());
}

std::string memory_mark(const Manifest& manifest) {
  Hasher hasher;
  for (const FileEntry& file : manifest.files) hasher.update(entry_to_json(file));
  return hash_hex(hasher.digest());
}

CopyFile::CopyFile(const std::string& root, std::int64_t step, const std::string& name, std::int64_t size_bytes)
    : directory_(open_step(root, step)), name_(name), path_(step_path(root, step) + "/" + name) {
  const std::string part = name + ".part";
  ::unlinkat(directory_.get(), part.c_str(), 0);  // of a run that was killed
  ToWrite file = open_to_write(directory_.get(), part, O_EXCL, 0600);
  if (!file.fd) throw cannot("create", path_ + ".part", file.error);
  fd_ = std::move(file.fd);
  int result = 0;
  do { result = ::fallocate(fd_.get(), 0, 0, size_bytes); } while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return;
  const int err = errno;
  ::unlinkat(directory_.get(), part.c_str(), 0);  // no destructor will
  throw cannot("make room for", path_ + ".part", err);
}

CopyFile::~CopyFile() {
  if (!name_.empty()) ::unlinkat(directory_.get(), (name_ + ".part").c_str(), 0);
}

void CopyFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw cannot("write", path_ + ".part", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void CopyFile::finish() {
  if (::renameat(directory_.get(), (name_ + ".part").c_str(), directory_.get(), name_.c_str()) != 0) {
    throw cannot("rename", path_ + ".part", errno);
  }
  name_.clear();
  fd_.close();
}

bool write_copy(const std::string& root, std::int64_t step, const std::string& name, std::span<const std::byte> bytes,
                const std::stop_token& stop) {
  CopyFile file(root, step, name, std::ssize(bytes));
  while (!bytes.empty()) {
    if (stop.stop_requested()) return false;
    const std::size_t n = std::min(bytes.size(), static_cast<std::size_t>(kBlockBytes));
    file.append(bytes.first(n));
    bytes = bytes.subspan(n);
  }
  file.finish();
  return true;
}

void remove_copy(const std::string& root, std::int64_t step, const std::string& name) {
  open_users(root);
  const std::string path = step_path(root, step) + "/" + name;
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw cannot("delete", path, errno);
}

std::map<std::size_t, MappedFile> copies_of(const std::string& root, const Manifest& manifest) {
  std::map<std::size_t, MappedFile> found;
  open_users(root);
  const std::string directory = step_path(root, manifest.step);
  if (!has_mark(directory, memory_mark(manifest))) return found;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const FileEntry& file = manifest.files[i];
    const std::string path = directory + "/" + file.name;
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (error || size != static_cast<std::uintmax_t>(file.size_bytes)) continue;
    found.emplace(i, MappedFile(path));
  }
  return found;
}

void write_mark(const std::string& root, std::int64_t step, const std::string& mark) {
  write_at(open_step(root, step), std::string(kMarkName), mark, 0600, kMemoryRefusal);
}

void keep_copies(const std::string& root, std::optional<std::int64_t> step) {
  if (!step) {
    open_users(root);
    return remove_tree(root);
  }
  remove_steps(root, [name = step_name(*step)](std::string_view other) { return other != name; });
}

void remove_older_copies(const std::string& root, std::int64_t step) {
  remove_steps(root, [step](std::string_view name) { return step_from(name).value_or(step) < step; });
}

}  // namespace ms::ckpt
