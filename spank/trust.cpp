// SPDX-License-Identifier: GPL-2.0-or-later
#include "trust.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "printable.h"

namespace ms::spank {
namespace {

constexpr int kMostLinks = 40;  // as many as the kernel follows
constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;

std::string problem_of(const std::string& path, const char* what) { return printable(path, PATH_MAX) + " " + what; }

// Returns the problem with one component of the path, empty: none. `is_last`: it is the file itself.
std::string judge(const std::string& path, const struct stat& found, Kind kind, bool is_last) {
  if (found.st_uid != 0 && found.st_uid != geteuid()) return problem_of(path, "does not belong to root");
  if (S_ISLNK(found.st_mode))
    return {};  // its mode means nothing; whose it is does, and where it lies was judged before
  if (!is_last) {
    if (!S_ISDIR(found.st_mode)) return problem_of(path, "is not a directory");
    if ((found.st_mode & kWritableByOthers) != 0 && (found.st_mode & S_ISVTX) == 0) {
      return problem_of(path, "may be written by others than root");
    }
    return {};
  }
  if (!S_ISREG(found.st_mode)) return problem_of(path, "is not a regular file");
  if ((found.st_mode & kWritableByOthers) != 0) return problem_of(path, "may be written by others than root");
  if (kind == Kind::program && access(path.c_str(), X_OK) != 0) return problem_of(path, "is not executable");
  return {};
}

std::string target_of(const std::string& link) {
  char target[PATH_MAX];
  const ssize_t length = readlink(link.c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : std::string();
}

}  // namespace

Trusted trusted(const std::string& path, Kind kind) {
  if (!path.starts_with('/')) return {{}, problem_of(path, "is not an absolute path")};
  std::string done;         // the way so far, without links and without a slash at its end; empty: /
  std::string rest = path;  // still to be walked
  int links = 0;
  struct stat found;
  if (lstat("/", &found) != 0) return {{}, problem_of("/", strerror(errno))};
  if (std::string problem = judge("/", found, kind, false); !problem.empty()) return {{}, problem};

  for (;;) {
    const std::size_t begin = rest.find_first_not_of('/');
    if (begin == std::string::npos) return {{}, problem_of(path, "is not a regular file")};  // ends in a directory
    const std::size_t end = rest.find('/', begin);
    const std::string name = rest.substr(begin, end - begin);
    rest = end == std::string::npos ? "" : rest.substr(end);
    const bool is_last = rest.empty();
    if (name == "." && !is_last) continue;
    if (name == ".." && !is_last) {  // of a way without links: just one step back
      done.resize(done.empty() ? 0 : done.rfind('/'));
      continue;
    }
    const std::string here = done + "/" + name;
    if (lstat(here.c_str(), &found) != 0) return {{}, printable(here, PATH_MAX) + ": " + strerror(errno)};
    if (std::string problem = judge(here, found, kind, is_last); !problem.empty()) return {{}, problem};
    if (!S_ISLNK(found.st_mode)) {
      if (is_last) return {here, {}};
      done = here;
      continue;
    }
    const std::string target = target_of(here);
    if (target.empty() || ++links > kMostLinks) return {{}, problem_of(path, "has too many or unreadable links")};
    if (target.starts_with('/')) done.clear();
    rest = target + rest;
  }
}

}  // namespace ms::spank
