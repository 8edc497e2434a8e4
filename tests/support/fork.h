// Processes that tests start and kill.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace ms::test {

// As fork(), and throws where there is no process to be had: kill(-1) would end everything on the machine.
inline pid_t fork_or_throw() {
  const pid_t child = ::fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  return child;
}

}  // namespace ms::test
