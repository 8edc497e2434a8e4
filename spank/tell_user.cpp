// SPDX-License-Identifier: GPL-2.0-or-later
#include "tell_user.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "printable.h"

namespace ms::spank {
namespace {

constexpr std::size_t kMostBytes = 4096;

bool is_roots(int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && (found.st_uid == 0 || found.st_uid == geteuid()) &&
         (found.st_mode & (S_IWGRP | S_IWOTH)) == 0 && found.st_size <= static_cast<off_t>(kMostBytes);
}

}  // namespace

bool is_told_here(const Teller& teller) {
  if (teller.local_task != 0) return false;
  if (teller.is_batch_step) return true;
  return teller.is_first_step && !(teller.has_script && teller.on_batch_host);
}

std::string first_host(std::string_view nodes) {
  const std::size_t end = nodes.find_first_of("[,");
  std::string host(nodes.substr(0, end));
  if (end == std::string_view::npos || nodes[end] == ',') return host;
  nodes.remove_prefix(end + 1);
  return host + std::string(nodes.substr(0, nodes.find_first_of("-,]")));
}

std::vector<std::string> read_note(const std::string& directory, std::uint32_t job_id) {
  const std::string path = directory + "/job-" + std::to_string(job_id);
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  char buffer[kMostBytes];
  const ssize_t got = is_roots(fd) ? read(fd, buffer, sizeof buffer) : 0;
  close(fd);
  std::vector<std::string> lines;
  std::string_view rest(buffer, got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string line = printable(rest.substr(0, end), kMostBytes);
    if (!line.empty()) lines.push_back(line);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return lines;
}

}  // namespace ms::spank
