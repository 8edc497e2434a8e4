// SPDX-License-Identifier: GPL-2.0-or-later
// Before root runs a program or hands it a file: could anybody but root have put it there? The whole way from / is
// looked at, links included, because who may write one of its directories may exchange what lies below. A directory
// with the sticky bit passes, because in it nobody can exchange what is root's.
#pragma once

#include <string>

namespace ms::spank {

enum class Kind { file, program };  // a program can also be executed

struct Trusted {
  std::string path;     // without links, to be used instead of the one that was asked about
  std::string problem;  // not empty: not to be trusted, and why
};

// Only root and the caller's own effective user, which is root where it matters, may own and write what is on the way.
Trusted trusted(const std::string& path, Kind kind);

}  // namespace ms::spank
