// Reads of the node's files. Under a fake root every name is resolved first and refused where it leads out of it; under
// "/" that question does not arise. Nothing here blocks on a FIFO or a device: only regular files are read.
#include "base/sysroot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/handle.h"
#include "base/number.h"
#include "base/text.h"

namespace ms {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadStep = 4096;  // sysfs never gives more than a page at once

// `path` with links and ".." resolved if that lies under `root`; empty: it does not exist or leads out.
std::string inside(const std::string& root, const std::string& path) {
  if (root == "/") return path;
  std::error_code error;
  const std::string top = fs::canonical(root, error).string();
  if (error) return {};
  const std::string resolved = fs::canonical(path, error).string();
  if (error) return {};
  const bool under = top == "/" || resolved == top ||
                     (resolved.starts_with(top) && resolved.size() > top.size() && resolved[top.size()] == '/');
  return under ? resolved : std::string();
}

}  // namespace

Sysroot::Sysroot(std::string root) : root_(std::move(root)) {
  while (root_.size() > 1 && root_.back() == '/') root_.pop_back();
  if (root_.empty()) root_ = "/";
}

std::string Sysroot::path(std::string_view absolute) const {
  MS_ASSERT(!absolute.empty() && absolute.front() == '/', "paths of a sysroot are absolute, not \"{}\"", absolute);
  return is_real() ? std::string(absolute) : root_ + std::string(absolute);
}

bool Sysroot::exists(std::string_view absolute) const {
  const std::string file = inside(root_, path(absolute));
  return !file.empty() && ::access(file.c_str(), F_OK) == 0;
}

std::optional<std::string> Sysroot::read(std::string_view absolute, std::size_t max_bytes) const {
  const std::string file = inside(root_, path(absolute));
  if (file.empty()) return std::nullopt;
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  std::string text;
  while (text.size() < max_bytes) {
    const std::size_t before = text.size();
    text.resize(std::min(max_bytes, before + std::max(kReadStep, before)));
    const ssize_t got = ::read(fd.get(), text.data() + before, text.size() - before);
    text.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::optional<std::int64_t> Sysroot::read_int(std::string_view absolute) const {
  const std::optional<std::string> text = read(absolute, kReadStep);
  if (!text) return std::nullopt;
  std::string_view digits = trim(*text);
  const bool hexadecimal = digits.starts_with("0x");
  if (hexadecimal) digits.remove_prefix(2);
  const auto value = whole_number<std::int64_t>(digits, hexadecimal ? 16 : 10);
  return hexadecimal && value < 0 ? std::nullopt : value;  // "0x-5"
}

std::vector<std::string> Sysroot::list(std::string_view absolute) const {
  std::vector<std::string> names;
  const std::string directory = inside(root_, path(absolute));
  if (directory.empty()) return names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Sysroot::link_name(std::string_view absolute) const {
  const fs::path name = path(absolute);
  const std::string parent = inside(root_, name.parent_path().string());
  if (parent.empty()) return {};
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlink((fs::path(parent) / name.filename()).c_str(), target.data(), target.size());
  if (size <= 0) return {};
  target.resize(static_cast<std::size_t>(size));
  return fs::path(target).filename().string();
}

}  // namespace ms
