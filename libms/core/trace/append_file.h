// A file that grows by whole records while others read it. Each record is one write, so that a reader of a running or
// killed run sees at most the last one incomplete. Errors: Error("file.*", storage), with the path.
#pragma once

#include <string>
#include <string_view>

#include "base/handle.h"

namespace ms::trace {

class AppendFile {
 public:
  // Opens or creates the file; what it holds stays.
  explicit AppendFile(std::string path);
  // A record that has no room is taken back.
  void write(std::string_view record);
  // Syncs the file and checks that everything was written.
  void close();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd file_;
};

}  // namespace ms::trace
