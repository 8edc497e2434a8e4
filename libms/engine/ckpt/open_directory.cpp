#include "ckpt/open_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/safe_file.h"
#include "base/text.h"

namespace ms::ckpt {

UniqueFd open_directory(const std::string& path) {
  constexpr int kMostLinks = 40, kLook = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  struct Link {
    std::string path;
    uid_t owner = 0;
  };
  std::vector<Link> links;
  std::vector<std::string> rest;  // the next one last
  const auto push = [&](std::string_view text) {
    std::vector<std::string> parts = split(text, '/');
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      if (!part->empty()) rest.push_back(std::move(*part));
  };
  const auto start = [](std::string_view text) {
    return UniqueFd(::open(text.starts_with('/') ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  };
  push(path);
  UniqueFd at = start(path);
  while (at && !rest.empty()) {
    const std::string name = std::move(rest.back());
    rest.pop_back();
    UniqueFd next(::openat(at.get(), name.c_str(), kLook));
    struct stat status {};
    if (!next || ::fstat(next.get(), &status) != 0) return {};
    if (!S_ISLNK(status.st_mode)) {
      at = std::move(next);
      continue;
    }
    std::array<char, PATH_MAX> target{};
    const ssize_t size = ::readlinkat(next.get(), "", target.data(), target.size());
    if (size < 0) return {};
    links.push_back({.path = name, .owner = status.st_uid});
    if (links.size() > kMostLinks) {
      errno = ELOOP;
      return {};
    }
    const std::string_view text(target.data(), static_cast<std::size_t>(size));
    push(text);
    if (text.starts_with('/')) at = start(text);
  }
  if (!at) return {};
  UniqueFd fd(::openat(at.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat opened {};
  if (!fd || ::fstat(fd.get(), &opened) != 0) return {};
  const uid_t user = ::geteuid();
  for (const Link& link : links) {
    if (link.owner == 0 || link.owner == user || link.owner == opened.st_uid) continue;
    // The user's own, by a path that the user named, but not by a link that others may have laid: it would choose which
    // of the user's checkpoints are pruned.
    if (user != 0 && opened.st_uid == user) return open_run_directory(path, {"ckpt.link", Blame::user});
    throw user_error("ckpt.link",
                     fmt::format("'{}': the link '{}' of user {} leads to a directory of user {}", path, link.path,
                                 link.owner, opened.st_uid),
                     fmt::format("if that is meant, give the directory itself: {}",
                                 std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd.get())).string()));
  }
  return fd;
}

}  // namespace ms::ckpt
