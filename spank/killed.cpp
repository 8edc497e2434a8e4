// SPDX-License-Identifier: GPL-2.0-or-later
#include "killed.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ms::spank {
namespace {

// The directory; -1: there is none to be trusted.
int open_directory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat found;
  if (fd < 0) return -1;
  if (fstat(fd, &found) == 0 && found.st_uid == geteuid() && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0) return fd;
  close(fd);
  return -1;
}

std::string name_of_mark(std::uint32_t job_id) { return "killed-" + std::to_string(job_id); }

}  // namespace

void mark_killed(const std::string& directory, std::uint32_t job_id) {
  mkdir(directory.c_str(), 0755);  // fails where it is there already
  const int fd = open_directory(directory);
  if (fd < 0) return;
  const int mark = openat(fd, name_of_mark(job_id).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (mark >= 0) close(mark);
  close(fd);
}

bool take_mark(const std::string& directory, std::uint32_t job_id) {
  const int fd = open_directory(directory);
  if (fd < 0) return false;
  const bool was_there = unlinkat(fd, name_of_mark(job_id).c_str(), 0) == 0;
  close(fd);
  return was_there;
}

}  // namespace ms::spank
